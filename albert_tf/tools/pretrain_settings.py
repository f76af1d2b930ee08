"""Settings of `pretrain`. Does not import TensorFlow."""

from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

from albert_tf.data.errors import UserError
from albert_tf.pretraining.settings import (
    PrepareTextSettings,
    PretrainingDataSettings,
    PretrainingSettings,
    VocabularySettings,
)
from albert_tf.settings import Settings, changed, dry_run_setting, required, setting, settings_of

K = TypeVar("K", bound=type)
SIZES = ("tiny", "mini", "small", "base_v2")  # see pretrain_plan.py
_STAGES = (PrepareTextSettings, VocabularySettings, PretrainingDataSettings, PretrainingSettings)
# Settings of the stages that the plan sets.
_PLANNED = frozenset(
    {"input_file", "eval_input_file", "output_file", "model_prefix", "init_from_group0"}
    | {"do_train", "do_eval", "eval_checkpoint", "watch_secs", "grow_init_checkpoint"}
    | {"random_next_sentence", "masked_lm_budget", "dupe_factor", "do_permutation"}
    | {"runner", "profile_steps"}
)
_OWN = frozenset(
    {"text", "language", "output_dir", "hours", "size", "num_train_steps", "max_seq_length"}
    | {"dry_run"}
)


def _with_stage_settings(kind: K) -> K:
    """Adds the settings of all stages, which are `None` unless the user sets them."""
    declared = {*kind.__annotations__}
    for stage in _STAGES:
        hints = get_type_hints(stage)
        for name in settings_of(stage):
            if name not in _PLANNED | declared:
                kind.__annotations__[name] = hints[name]
                setattr(kind, name, changed(stage, name, depends=True, default=None))
    return kind


@dataclass(frozen=True, kw_only=True)
@_with_stage_settings
class PretrainSettings(Settings):
    """Settings of `pretrain`, named after the flags of the command.

    `text` and `output_dir` are required. All settings of `PrepareTextSettings`,
    `VocabularySettings`, `PretrainingDataSettings` and `PretrainingSettings` that the plan does not
    set are accepted, too, and replace the planned values of their stages. For all flags, see
    docs/flags.md. For errors, see `ClassificationSettings`.
    """

    text: str = required("Data")("""
        Raw text: comma-separated files, globs or directories. UTF-8, as plain text, files of a
        Wikipedia extractor (<doc>) or JSON Lines, which may be compressed.""")
    language: str = setting("en", "Data")("""
        ISO 639 code of the language of the text, such as de, tr or zh. Only English is lower-cased
        and loses its accents by default.""")
    output_dir: str = required("Output")("""
        Directory of the run. The same command continues an interrupted run. More --hours continue
        a finished run.""")
    hours: float = setting(3.0, "Training", above=0)("""
        Time of the whole command in hours, without interruptions. --num_train_steps replaces
        it.""")
    size: str = setting("auto", "Model", choices=("auto", *SIZES))("""
        Size of the model. auto: the size that can be trained in --hours on this text.""")
    num_train_steps: int | None = setting(None, "Training", at_least=1)("""
        Number of training steps of all stages. Default: as many as fit into --hours.""")
    max_seq_length: int = setting(128, "Training", at_least=16)("""
        Number of tokens of a sequence in the last stage, and number of positions of the model.""")
    dry_run: bool = dry_run_setting()

    def __post_init__(self) -> None:
        super().__post_init__()
        models = [n for n in ("init_checkpoint", "albert_config_file") if getattr(self, n)]
        if len(models) + (self.size != "auto") > 1:
            others = "`size`" if len(models) == 1 else f"`{models[1]}`"
            raise UserError(f"{others} cannot be combined with `{models[0]}`, which has a size.")

    def given(self) -> dict[str, Any]:
        """Returns the settings of stages that the user has set."""
        return {name: v for name, v in vars(self).items() if name not in _OWN and v is not None}
