"""The configuration of a model, the content of the original's `albert_config.json`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.data.files import file_exists, write_file
from albert_tf.data.strict_json import as_whole_number, is_number, read_json, shown

# Names of `hidden_act` (case is ignored); an empty name means no activation. The original and
# transformers have no activation of the name `EXACT_GELU`, so neither reads it as another function.
EXACT_GELU = "gelu_exact"
ACTIVATION_NAMES = ("gelu", EXACT_GELU, "relu", "tanh", "linear", "")
# Keys of a configuration of transformers, in which "gelu" is the exact function.
TRANSFORMERS_KEYS = ("model_type", "architectures", "transformers_version")
SHARING_MODES = ("all", "attention", "ffn", "none")  # see parameter_sharing.py
PRECISIONS = (FLOAT32, BFLOAT16, FLOAT16) = ("float32", "bfloat16", "float16")
ATTENTIONS = ("auto", "plain", "cudnn")  # see fused_attention.py

# Keys that a configuration file must contain. Wrong defaults would not be detected, because the
# shapes of weights do not depend on the number of heads or of layers that share parameters.
REQUIRED_KEYS = ("vocab_size", "num_hidden_layers", "num_attention_heads")

# Key of `AlbertConfig.extra`: the released version ("v1" or "v2") that a model was fine-tuned from.
# It cannot be detected, because the versions differ only in dropout, which fine-tuning may change.
VERSION_KEY = "pretrained_version"

# Advice for errors about vocabularies and positions.
GROWING = (
    "To continue a model with another vocabulary or more positions, pass `grow_init_checkpoint` to "
    "run_pretraining, or use albert_tf.grow."
)

MAX_SIZE = 2**31 - 1  # largest dimension of a tensor
MAX_BLOCKS = 10_000  # limits the time of tracing


@dataclasses.dataclass(frozen=True)
class AlbertConfig:
    """The architecture of an ALBERT encoder, as in `albert_config.json`.

    Attributes:
        vocab_size: V, entries of the vocabulary.
        embedding_size: E, width of the three embedding tables.
        hidden_size: H, width of the Transformer; a multiple of `num_attention_heads`.
        num_hidden_layers: L, number of layers. Each layer applies one group of blocks.
        num_hidden_groups: G in 1..L; layers `l` with the same `l * G // L` share parameters.
        num_attention_heads: N.
        intermediate_size: F, width between the two feed-forward projections.
        inner_group_num: blocks that run one after the other inside a group.
        hidden_act: activation of the feed-forward layer and of the masked-LM head: "gelu" (the
            tanh approximation), "gelu_exact" (not supported by the original), "relu", "tanh",
            "linear" or "".
        hidden_dropout_prob: rate in [0, 1) after the embeddings and each output projection.
        attention_probs_dropout_prob: rate in [0, 1) on the attention probabilities.
        max_position_embeddings: largest length of a sequence.
        type_vocab_size: entries of the segment (token type) table.
        initializer_range: standard deviation of the truncated normal initializer.
        parameter_sharing: what the layers of a group share: "all" parameters, only the
            "attention" parameters, or only the feed-forward parameters ("ffn"). With "none",
            nothing is shared, and `num_hidden_groups` becomes L.
        extra: keys of the JSON file that the model does not use, such as `net_structure_type`;
            written back unchanged.

    Raises:
        ValueError: a value is out of range or contradicts another value.

    Source: modeling.py of the original release, class AlbertConfig, with its defaults.
    """

    vocab_size: int
    embedding_size: int = 128
    hidden_size: int = 4096
    num_hidden_layers: int = 12
    num_hidden_groups: int = 1
    num_attention_heads: int = 64
    intermediate_size: int = 16384
    inner_group_num: int = 1
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    parameter_sharing: str = "all"
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.hidden_act is None:  # JSON null: the original reads it as "no activation"
            object.__setattr__(self, "hidden_act", "")
        for name, (is_valid, expected) in _CHECKS.items():
            _require(is_valid(getattr(self, name)), name, expected, getattr(self, name))
        for name in _SIZES:  # some files contain 12.0 instead of 12
            object.__setattr__(self, name, int(getattr(self, name)))
        blocks = self.num_hidden_layers * self.inner_group_num
        name = "num_hidden_layers * inner_group_num"
        _require(blocks <= MAX_BLOCKS, name, f"at most {MAX_BLOCKS}", blocks)
        known = sorted(set(self.extra) & set(_ALBERT_FIELDS))
        _require(not known, "extra", "without names of fields", known)
        if self.intermediate_size > 8 * self.hidden_size:
            logging.warning(
                "intermediate_size=%d is more than 8 times hidden_size=%d. The default is for the "
                "xxlarge model. A common value is 4 times hidden_size.",
                self.intermediate_size,
                self.hidden_size,
            )
        if self.hidden_size % self.num_attention_heads:
            raise UserError(
                "AlbertConfig.hidden_size must be a multiple of num_attention_heads. Received: "
                f"hidden_size={self.hidden_size}, num_attention_heads={self.num_attention_heads}"
            )
        self._resolve_sharing()

    def _resolve_sharing(self) -> None:
        """Checks the number of groups, and sets it to L if nothing is shared."""
        mode = self.parameter_sharing
        groups, layers = self.num_hidden_groups, self.num_hidden_layers
        problem = None
        if groups > layers:
            problem = "AlbertConfig.num_hidden_groups cannot exceed num_hidden_layers."
        elif mode == "none" and groups not in (1, layers):
            problem = (
                "AlbertConfig.parameter_sharing 'none' makes every layer a separate group. Omit "
                "num_hidden_groups, or choose another mode to share within groups."
            )
        elif mode in ("attention", "ffn") and groups == layers > 1:
            problem = (
                "With one layer per group, there is nothing to share. Choose "
                "AlbertConfig.parameter_sharing 'none', or a smaller num_hidden_groups."
            )
        if problem:
            raise UserError(
                f"{problem} Received: parameter_sharing={mode!r}, num_hidden_groups={groups}, "
                f"num_hidden_layers={layers}"
            )
        if mode == "none":
            object.__setattr__(self, "num_hidden_groups", layers)

    @property
    def head_size(self) -> int:
        """D, the width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def projects_embeddings(self) -> bool:
        """Whether a dense layer maps E to H; the original omits it if they are equal."""
        return self.embedding_size != self.hidden_size

    def group_of_layer(self, layer: int) -> int:
        """Returns the group, in 0..G-1, of a layer in 0..L-1.

        Differs: the original computes `int(layer / L * G)` with rounding errors, which matter for a
            few sizes (L = G = 22), but not for 12 or 24 layers.
        """
        return layer * self.num_hidden_groups // self.num_hidden_layers

    def check_sequence_length(self, length: int, name: str = "`max_seq_length`") -> None:
        """Raises ValueError unless there is a position embedding for each of `length` tokens.

        The message contains `name`.
        """
        if not 1 <= length <= self.max_position_embeddings:
            raise UserError(
                f"{name} must be in 1..{self.max_position_embeddings}, the number of position "
                f"embeddings (max_position_embeddings) of this model. Received: {name}={length}"
                + f". {GROWING}"
                * (length > 0)
            )

    def replace(self, **changes: Any) -> AlbertConfig:
        """Returns a copy with changed fields.

        If `parameter_sharing` is "none", `num_hidden_groups` is adapted: if the sharing mode
        changes, the copy has one group by default; if only the number of layers changes, the copy
        has one group per layer.
        """
        if self.parameter_sharing == "none" and {"num_hidden_layers", "parameter_sharing"} & {
            *changes
        }:
            changes = {"num_hidden_groups": 1, **changes}
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Returns the content of `albert_config.json`: all fields, then the unknown keys.

        As in the original's files, `parameter_sharing` is omitted if it is "all".
        """
        fields = {name: getattr(self, name) for name in _ALBERT_FIELDS}
        if self.parameter_sharing == "all":
            del fields["parameter_sharing"]
        return {**fields, **self.extra}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> AlbertConfig:
        """Builds a configuration from the content of an `albert_config.json`."""
        known = {name: values[name] for name in _ALBERT_FIELDS if name in values}
        extra = {key: value for key, value in values.items() if key not in known}
        return cls(**known, extra=extra)

    @classmethod
    def from_json_file(cls, path: str) -> AlbertConfig:
        """Reads an `albert_config.json` from a local or remote path.

        Raises:
            ValueError: the file is missing or invalid, or lacks one of `REQUIRED_KEYS`.
        """
        if not file_exists(path):
            raise UserError(f"There is no configuration file {path!r} (`albert_config_file`).")
        values = read_json(path, repr(path))
        try:
            if not isinstance(values, dict):
                raise UserError(f"expected a JSON object, received {shown(values)}")
            require_keys(values)
            found = [key for key in TRANSFORMERS_KEYS if key in values]
            if found and str(values.get("hidden_act")).lower() == "gelu":
                raise UserError(
                    "hidden_act 'gelu' is ambiguous, because the keys of transformers' config.json "
                    f"({', '.join(found)}) are in the file of the original. If transformers "
                    f"trained the model, write {EXACT_GELU!r}. Otherwise, delete these keys."
                )
            return cls.from_dict(values)
        except ValueError as error:
            raise UserError(f"{path!r} is not a usable ALBERT configuration: {error}") from error

    def to_json_file(self, path: str) -> None:
        """Writes an `albert_config.json` that the programs of the original release can read."""
        write_file(path, json.dumps(self.to_dict(), indent=2) + "\n")

    @classmethod
    def from_preset(cls, name: str) -> AlbertConfig:
        """Returns the configuration of a released model, such as "base_v2" or "large_zh"."""
        if name not in PRESETS:
            raise UserError(f"Unknown preset {name!r}. Known presets: {', '.join(PRESETS)}")
        return PRESETS[name]


_ALBERT_FIELDS = tuple(f.name for f in dataclasses.fields(AlbertConfig) if f.name != "extra")
_SIZES = tuple(f.name for f in dataclasses.fields(AlbertConfig) if f.type == "int")


def _is_size(value: Any) -> bool:
    size = as_whole_number(value)
    return size is not None and 1 <= size <= MAX_SIZE


def _is_rate(value: Any) -> bool:
    return is_number(value) and 0 <= value < 1


# Whether the value of a field is valid, and the description of valid values.
_CHECKS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(_SIZES, (_is_size, f"a whole number from 1 to {MAX_SIZE}")),
    "hidden_dropout_prob": (_is_rate, "a rate in [0, 1)"),
    "attention_probs_dropout_prob": (_is_rate, "a rate in [0, 1)"),
    "hidden_act": (
        lambda name: str(name).lower() in ACTIVATION_NAMES,
        f"one of {', '.join(map(repr, ACTIVATION_NAMES))}",
    ),
    "initializer_range": (lambda value: is_number(value) and value > 0, "a number above 0"),
    "parameter_sharing": (lambda mode: mode in SHARING_MODES, f"one of {', '.join(SHARING_MODES)}"),
}


def require_keys(values: Mapping[str, Any]) -> None:
    """Raises ValueError if the content of a configuration file lacks one of `REQUIRED_KEYS`."""
    missing = [key for key in REQUIRED_KEYS if key not in values]
    if missing:
        raise UserError(
            f"the file must contain {', '.join(missing)}, because a wrong default would not be "
            "detected. "
            f"Received keys: {shown(sorted(values))}"
        )


def _require(is_valid: bool, name: str, expected: str, value: Any) -> None:
    if not is_valid:
        raise UserError(f"AlbertConfig.{name} must be {expected}. Received: {shown(value)}")


def _presets() -> dict[str, AlbertConfig]:
    """Returns the configurations of the released models.

    All have F = 4H and E = 128. Version 1 was trained with a dropout of 0.1, except xxlarge.
    Version 2 was trained without dropout. According to the author of the Chinese models, they use
    ReLU, and the Chinese xxlarge has 16 heads. The dropout of the Chinese models and the number of
    heads of the smaller ones are unknown; they are 0 and H / 64 here.
    """
    presets = {}
    sizes = {"base": (768, 12), "large": (1024, 24), "xlarge": (2048, 24), "xxlarge": (4096, 12)}
    for size, (hidden_size, layers) in sizes.items():
        v2 = AlbertConfig(
            vocab_size=30000,
            hidden_size=hidden_size,
            num_hidden_layers=layers,
            num_attention_heads=hidden_size // 64,
            intermediate_size=4 * hidden_size,
        )
        dropout = 0.0 if size == "xxlarge" else 0.1
        presets[f"{size}_v1"] = v2.replace(
            hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout
        )
        presets[f"{size}_v2"] = v2
        presets[f"{size}_zh"] = v2.replace(
            vocab_size=21128,
            hidden_act="relu",
            num_attention_heads=16 if size == "xxlarge" else hidden_size // 64,
        )
    return dict(sorted(presets.items()))


PRESETS: Mapping[str, AlbertConfig] = _presets()
