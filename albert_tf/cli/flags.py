"""Flags of a command, derived from its settings.

Flags are defined when a command runs, not on import, so that one process can import several
commands. Modules that define flags must not import TensorFlow, so that `--help` is fast.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import UnionType
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from absl import flags, logging

from albert_tf.settings import (
    Group,
    Setting,
    Settings,
    TokenizerRules,
    required,
    setting,
    settings_of,
)

K = TypeVar("K", bound=Settings)
DRY_RUN_PASSED = "All checks passed. Nothing was written (--dry_run)."
BEST = "model.ckpt-best"
_UNUSED: Group = "Accepted without effect"
# Reasons of flags without effect.
_ADDRESS = "No effect: a TPU on another machine is selected by its address, --tpu_name."
DEVICES = {
    "master": (None, "No effect: TensorFlow 2 has no session masters."),
    **dict.fromkeys(("tpu_zone", "gcp_project"), (None, _ADDRESS)),
}
FEATURE_FILE = (
    None,
    "No effect: features are always computed again, which is faster than reading files.",
)
_DEFINE: dict[type, Callable[..., Any]] = {
    bool: flags.DEFINE_bool,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
}


@dataclass(frozen=True)
class Flags(Generic[K]):
    """The flags of a command.

    Attributes:
        kind: the settings, which have one flag each.
        without_effect: default and reason of the original's flags that have no effect.
        aliases: names of flags in the original release, and the present names.
    """

    kind: type[K]
    without_effect: Mapping[str, tuple[Any, str]] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)

    def define(self) -> None:
        """Defines the flags."""
        hints = get_type_hints(self.kind)
        for name, declared in settings_of(self.kind).items():
            assert name not in flags.FLAGS, name  # absl does not reject all duplicates
            _define(name, hints[name], declared)
            _add_to_group(name, declared.group)
        for name, (default, reason) in self.without_effect.items():
            _define(name, bool if default is True else str, Setting(default, _UNUSED, reason))
            _add_to_group(name, _UNUSED)
        for alias, name in self.aliases.items():
            flags.DEFINE_alias(alias, name)
            flags.FLAGS[alias].help = f"The name of --{name} in the original release."
            _add_to_group(alias, settings_of(self.kind)[name].group)

    def settings(self) -> K:
        """Returns the settings with the values of the parsed flags.

        Settings that depend on others are `None` if their flag is not set.
        """
        parsed = {name: flags.FLAGS[name] for name in settings_of(self.kind)}
        depends = {name for name, declared in settings_of(self.kind).items() if declared.depends}
        return self.kind(
            **{name: f.value for name, f in parsed.items() if f.present or name not in depends}
        )


def _define(name: str, hint: Any, declared: Setting) -> None:
    first = get_args(hint)[0] if isinstance(hint, UnionType) else hint
    kind = get_origin(first) or first
    is_required = declared.is_required
    default: Any = declared.default if declared.shown_default is None else declared.shown_default
    default = None if is_required else default
    text = f"Required. {declared.help}" if is_required else declared.help
    bounds = {"lower_bound": declared.at_least, "upper_bound": declared.at_most}
    limits = {bound: value for bound, value in bounds.items() if value is not None and kind is int}
    if declared.choices:
        flags.DEFINE_enum(name, default, declared.choices, text, required=is_required)
    elif kind is Sequence and (default is None or isinstance(default, str)):  # can be repeated
        flags.DEFINE_multi_string(name, default, text)
    elif kind is Sequence:
        flags.DEFINE_list(name, list(default), text)
    else:
        _DEFINE.get(kind, flags.DEFINE_string)(name, default, text, required=is_required, **limits)


def _add_to_group(name: str, group: str) -> None:
    flags.FLAGS.register_key_flag_for_module(group, flags.FLAGS[name])


def log_flags_without_effect() -> None:
    """Logs the flags that are set but have no effect, with the reason."""
    for flag in flags.FLAGS.get_key_flags_for_module(_UNUSED):
        if flag.present:
            logging.info("--%s: %s", flag.name, flag.help)


@dataclass(frozen=True, kw_only=True)
class ModelParts(TokenizerRules):
    """Parts that may be missing in the model of a command."""

    albert_config_file: str | None = setting(None, "Model")("""
        Model configuration (albert_config.json), if --model has none.""")
    spm_model_file: str | None = setting(None, "Model")("""
        SentencePiece model, if --model has none.""")
    vocab_file: str | None = setting(None, "Model")("WordPiece vocabulary, if --model has none.")

    def arguments(self) -> dict[str, Any]:
        """Returns the settings as arguments of the function that the command runs."""
        return {"path" if name == "model" else name: value for name, value in vars(self).items()}


@dataclass(frozen=True, kw_only=True)
class PretrainedModel(Settings):
    """A pretrained model to export."""

    albert_directory: str = required("Model")("""
        Directory of a training run or a released model, or a model of another format. It is not
        modified.""")
    checkpoint_name: str | None = setting(None, "Model", depends=True, shown_default=BEST)("""
        Checkpoint in --albert_directory. If the default does not exist, the newest is used.""")

    def location(self) -> tuple[str, str, bool]:
        """Returns the arguments of `model_in`."""
        name = self.checkpoint_name
        return self.albert_directory, name or BEST, name is not None
