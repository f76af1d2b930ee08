"""Configurations of the model, the optimizer and the trainer, with all checks of their values.

`AlbertConfig` is the content of the original's `albert_config.json`. `OptimizerConfig` and
`TrainerConfig` result from the flags of the training scripts.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, ClassVar

from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.data.files import file_exists, write_then_rename
from albert_tf.data.strict_json import as_whole_number, is_number, read_json, shown

# Names of `hidden_act` (case does not matter); an empty name means no activation.
ACTIVATION_NAMES = ("gelu", "relu", "tanh", "linear", "")

# What the layers of a group share; see parameter_sharing.py.
SHARING_MODES = ("all", "attention", "ffn", "none")

# What a training does whose numbers went bad.
ON_DIVERGENCE = ("stop", "rollback")

# What the matrix products are computed in; see precision.py.
PRECISIONS = (FLOAT32, BFLOAT16, FLOAT16) = ("float32", "bfloat16", "float16")

# Where to compute; see distribution.py.
STRATEGIES = ("auto", "one_device", "mirrored", "multi_worker", "tpu")
ALL_REDUCES = ("auto", "nccl", "ring")

# What computes attention in training; see `modeling.fused_attention`.
ATTENTIONS = ("auto", "plain", "cudnn")

# What a fine-tuning may leave as it is; see `TrainerConfig`.
FREEZES = ("encoder", "embeddings")

# Keys that every configuration file contains. The shapes of weights do not depend on the number of
# heads or, where layers share their parameters, on the number of layers.
REQUIRED_KEYS = ("vocab_size", "num_hidden_layers", "num_attention_heads")

# Key of `AlbertConfig.extra`: the released version ("v1" or "v2") that a model was fine-tuned from.
# Released configurations differ only in dropout, which fine-tuning may change.
VERSION_KEY = "pretrained_version"

# Bounds that no model reaches; beyond them no tensor has its shape, and no graph an end.
MAX_SIZE = 2**31 - 1
MAX_BLOCKS = 10_000


@dataclasses.dataclass(frozen=True)
class AlbertConfig:
    """The architecture of an ALBERT encoder, as in `albert_config.json`.

    Attributes:
        vocab_size: V, entries of the vocabulary.
        embedding_size: E, width of the three embedding tables.
        hidden_size: H, width of the Transformer; a multiple of `num_attention_heads`.
        num_hidden_layers: L, applications of a group of blocks.
        num_hidden_groups: G in 1..L; layers `l` with the same `l * G // L` share parameters.
        num_attention_heads: N.
        intermediate_size: F, width between the two feed-forward projections.
        inner_group_num: blocks that run one after the other inside a group.
        hidden_act: activation of the feed-forward layer and of the masked-LM head: "gelu" (the
            tanh approximation), "relu", "tanh", "linear" or "".
        hidden_dropout_prob: rate in [0, 1) after the embeddings and each output projection.
        attention_probs_dropout_prob: rate in [0, 1) on the attention probabilities.
        max_position_embeddings: largest length of a sequence.
        type_vocab_size: entries of the segment (token type) table.
        initializer_range: standard deviation of the truncated normal initializer.
        parameter_sharing: what the layers of a group share: "all", only the "attention" parts, only
            the "ffn" parts, or "none". "none" sets `num_hidden_groups` to L. The file contains
            this key only if it is not "all".
        extra: keys of the JSON file that the model does not use (`net_structure_type`, `gap_size`,
            `down_scale_factor`, ...); written back unchanged.

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
        for name in _SIZES:
            value = getattr(self, name)
            size = as_whole_number(value)  # files have 12.0 as well
            if size is None or not 1 <= size <= MAX_SIZE:
                raise UserError(
                    f"AlbertConfig.{name} must be a whole number from 1 to {MAX_SIZE}. "
                    f"Received: {shown(value)}"
                )
            object.__setattr__(self, name, size)
        if self.num_hidden_layers * self.inner_group_num > MAX_BLOCKS:
            raise UserError(
                f"AlbertConfig.num_hidden_layers times inner_group_num can be {MAX_BLOCKS} at most."
                f" Received: num_hidden_layers={self.num_hidden_layers}, "
                f"inner_group_num={self.inner_group_num}"
            )
        shadowed = sorted(set(self.extra) & set(_ALBERT_FIELDS))
        if shadowed:
            raise UserError(f"AlbertConfig.extra holds keys the model does use: {shadowed}")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            _require_rate(f"AlbertConfig.{name}", getattr(self, name))
        if not isinstance(self.hidden_act, str) or self.hidden_act.lower() not in ACTIVATION_NAMES:
            raise UserError(
                f"AlbertConfig.hidden_act must be one of {', '.join(map(repr, ACTIVATION_NAMES))}. "
                f"Received: hidden_act={shown(self.hidden_act)}"
            )
        _require_positive("AlbertConfig.initializer_range", self.initializer_range)
        if self.intermediate_size > 8 * self.hidden_size:
            logging.warning(
                "intermediate_size=%d is more than 8 times hidden_size=%d. Usual is 4 times; the "
                "default of intermediate_size belongs to the xxlarge model.",
                self.intermediate_size,
                self.hidden_size,
            )
        if self.hidden_size % self.num_attention_heads:
            raise UserError(
                "AlbertConfig.hidden_size must be a multiple of num_attention_heads, so that every "
                f"head has the same width. Received: hidden_size={self.hidden_size}, "
                f"num_attention_heads={self.num_attention_heads}"
            )
        if self.num_hidden_groups > self.num_hidden_layers:
            raise UserError(
                "AlbertConfig.num_hidden_groups cannot exceed num_hidden_layers: some groups would "
                f"never run. Received: num_hidden_groups={self.num_hidden_groups}, "
                f"num_hidden_layers={self.num_hidden_layers}"
            )
        self._resolve_sharing()

    def _resolve_sharing(self) -> None:
        """Sets the groups of "none", and rejects groups that contradict the mode."""
        mode = self.parameter_sharing
        groups, layers = self.num_hidden_groups, self.num_hidden_layers
        if mode not in SHARING_MODES:
            raise UserError(
                f"AlbertConfig.parameter_sharing must be one of {', '.join(SHARING_MODES)}. "
                f"Received: parameter_sharing={shown(mode)}"
            )
        received = (
            f"Received: parameter_sharing={mode!r}, num_hidden_groups={groups}, "
            f"num_hidden_layers={layers}"
        )
        if mode == "none" and groups not in (1, layers):
            raise UserError(
                "AlbertConfig.parameter_sharing 'none' makes every layer a group of its own. Omit "
                f"num_hidden_groups, or choose another mode to share within groups. {received}"
            )
        if mode in ("attention", "ffn") and groups == layers > 1:
            raise UserError(
                "AlbertConfig.num_hidden_groups leaves one layer to each group, so there is nothing"
                f" to share. Choose parameter_sharing 'none', or fewer groups. {received}"
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

        Differs: the original computes `int(layer / L * G)` in floating point, which is one too
            small for a few sizes (L = G = 22, layer 15); for 12 and 24 layers, both are equal.
        """
        return layer * self.num_hidden_groups // self.num_hidden_layers

    def check_sequence_length(self, length: int, name: str = "`max_seq_length`") -> None:
        """Checks that there is a position embedding for every token.

        Args:
            length: number of tokens of the longest sequence.
            name: name of the length in the message.

        Raises:
            ValueError: the length is not in 1..`max_position_embeddings`.
        """
        if not 1 <= length <= self.max_position_embeddings:
            raise UserError(
                f"{name} must be in 1..{self.max_position_embeddings}, the number of position "
                f"embeddings (max_position_embeddings) of this model. Received: {name}={length}"
            )

    def replace(self, **changes: Any) -> AlbertConfig:
        """Returns a copy with changed fields.

        If the number of layers or the sharing mode changes from "none", the copy has one group.
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
        """Builds a configuration from the keys of an `albert_config.json`.

        Raises:
            ValueError: `vocab_size` is missing, or a value is invalid.
        """
        if "vocab_size" not in values:
            raise UserError(
                "The ALBERT configuration has no 'vocab_size', the one key without a default. "
                f"Received keys: {shown(sorted(values))}"
            )
        known = {name: values[name] for name in _ALBERT_FIELDS if name in values}
        extra = {key: value for key, value in values.items() if key not in known}
        return cls(**known, extra=extra)

    @classmethod
    def from_json_file(cls, path: str) -> AlbertConfig:
        """Reads an `albert_config.json` from a local or remote path.

        Raises:
            ValueError: the file is missing, is not a JSON object, lacks one of `REQUIRED_KEYS`, or
                contains invalid values; the message names the file.

        Differs: the original uses defaults for missing `REQUIRED_KEYS` other than `vocab_size`.
        """
        if not file_exists(path):
            raise UserError(f"There is no configuration file {path!r} (`albert_config_file`).")
        values = read_json(path, repr(path))
        try:
            if not isinstance(values, dict):
                raise UserError(f"expected a JSON object, received {shown(values)}")
            require_keys(values)
            return cls.from_dict(values)
        except ValueError as error:
            raise UserError(f"{path!r} is not a usable ALBERT configuration: {error}") from error

    def to_json_file(self, path: str) -> None:
        """Writes an `albert_config.json` that the programs of the original release can read."""
        with write_then_rename(path) as file:
            file.write((json.dumps(self.to_dict(), indent=2) + "\n").encode())

    @classmethod
    def from_preset(cls, name: str) -> AlbertConfig:
        """Returns the configuration of a released model, such as "base_v2" or "large_zh".

        Raises:
            ValueError: the name is unknown.
        """
        if name not in PRESETS:
            raise UserError(f"Unknown preset {name!r}. Known presets: {', '.join(PRESETS)}")
        return PRESETS[name]


_ALBERT_FIELDS = tuple(f.name for f in dataclasses.fields(AlbertConfig) if f.name != "extra")
_SIZES = (
    "vocab_size",
    "embedding_size",
    "hidden_size",
    "num_hidden_layers",
    "num_hidden_groups",
    "num_attention_heads",
    "intermediate_size",
    "inner_group_num",
    "max_position_embeddings",
    "type_vocab_size",
)


def require_keys(values: Mapping[str, Any]) -> None:
    """Raises ValueError if the content of a configuration file lacks one of `REQUIRED_KEYS`."""
    missing = [key for key in REQUIRED_KEYS if key not in values]
    if missing:
        raise UserError(
            f"the file must contain {', '.join(missing)}: weights do not show a wrong default. "
            f"Received keys: {shown(sorted(values))}"
        )


def _require_whole_number(name: str, value: Any, at_least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise UserError(
            f"{name} must be a whole number of at least {at_least}. Received: {shown(value)}"
        )


def _require_positive(name: str, value: Any) -> None:
    if not is_number(value) or value <= 0:
        raise UserError(f"{name} must be a number above 0. Received: {shown(value)}")


def _require_not_negative(name: str, value: Any) -> None:
    if not is_number(value) or value < 0:
        raise UserError(f"{name} must be a number of at least 0. Received: {shown(value)}")


def _require_rate(name: str, value: Any) -> None:
    if not is_number(value) or not 0 <= value < 1:
        raise UserError(f"{name} must be a rate in [0, 1). Received: {shown(value)}")


def _presets() -> dict[str, AlbertConfig]:
    """Returns the released models: (hidden size, layers); heads have size 64, F = 4H, E = 128.

    Dropout: v1 was trained with 0.1 except xxlarge, v2 without. According to their author, the
        Chinese models use ReLU and 16 heads in xxlarge; their dropout (0 here) and the heads of the
        smaller ones (H / 64 here) are not known.
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


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """The update rule and the learning rate of a run.

    Attributes:
        optimizer: "lamb" or "adamw".
        learning_rate: rate at the end of the warm-up; above 0.
        num_train_steps: T, the step at which the rate reaches 0.
        num_warmup_steps: steps of linear warm-up; 0 disables it.
        start_warmup_step: step at which the warm-up starts; the rate is 0 before it.
        poly_power: exponent of the polynomial decay.
        weight_decay_rate: weight decay of decayed variables, per unit of learning rate.
        clip_norm: largest global norm of the gradients. beta_1: decay of the first moment. beta_2:
            decay of the second moment.
        epsilon: added to the root of the second moment.
        num_decay_steps: N, number of last steps in which the rate decays, after it was constant
            from the warm-up on. `None` for the original's schedule, which decays from step 0 on.

    Raises:
        ValueError: a value is out of range.

    Source: optimization.py of the original release.
    """

    optimizer: str = "lamb"
    learning_rate: float = 0.00176
    num_train_steps: int = 125000
    num_warmup_steps: int = 3125
    start_warmup_step: int = 0
    poly_power: float = 1.0
    weight_decay_rate: float = 0.01
    clip_norm: float = 1.0
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-6
    num_decay_steps: int | None = None

    # What the command calls them, for messages.
    STEPS_FLAG: ClassVar[str] = "`num_train_steps`"
    WARMUP_FLAG: ClassVar[str] = "`num_warmup_steps`"

    def __post_init__(self) -> None:
        if self.optimizer not in ("lamb", "adamw"):
            raise UserError(f"`optimizer` must be 'lamb' or 'adamw'. Received: {self.optimizer!r}")
        _require_positive("`learning_rate`", self.learning_rate)
        _require_whole_number(self.STEPS_FLAG, self.num_train_steps, 1)
        _require_whole_number(self.WARMUP_FLAG, self.num_warmup_steps, 0)
        _require_whole_number("`start_warmup_step`", self.start_warmup_step, 0)
        _require_not_negative("`poly_power`", self.poly_power)
        if self.num_decay_steps is not None:
            self._check_decay(self.num_decay_steps)
        _require_not_negative("OptimizerConfig.weight_decay_rate", self.weight_decay_rate)
        _require_positive("OptimizerConfig.clip_norm", self.clip_norm)
        _require_rate("OptimizerConfig.beta_1", self.beta_1)
        _require_rate("OptimizerConfig.beta_2", self.beta_2)
        _require_positive("OptimizerConfig.epsilon", self.epsilon)

    def _check_decay(self, steps: int) -> None:
        _require_whole_number("`num_decay_steps`", steps, 1)
        warm = self.start_warmup_step + self.num_warmup_steps
        if warm + steps > self.num_train_steps:
            raise UserError(
                f"`num_decay_steps` must leave the warm-up its steps: at most "
                f"{self.num_train_steps - warm} of {self.STEPS_FLAG}={self.num_train_steps}, whose "
                f"warm-up ends at step {warm} (`start_warmup_step`, {self.WARMUP_FLAG}). "
                f"Received: `num_decay_steps`={steps}"
            )


@dataclasses.dataclass(frozen=True)
class FineTuningOptimizerConfig(OptimizerConfig):
    """`OptimizerConfig` with the defaults and flags of fine-tuning commands.

    Source: run_classifier.py of the original release.
    """

    optimizer: str = "adamw"
    learning_rate: float = 5e-5
    num_train_steps: int = 1000
    num_warmup_steps: int = 0

    STEPS_FLAG: ClassVar[str] = "`train_step`"
    WARMUP_FLAG: ClassVar[str] = "`warmup_step`"


@dataclasses.dataclass(frozen=True)
class SquadOptimizerConfig(FineTuningOptimizerConfig):
    """`FineTuningOptimizerConfig` for SQuAD: a number of epochs and a share of warm-up steps."""

    STEPS_FLAG: ClassVar[str] = "`num_train_epochs`"
    WARMUP_FLAG: ClassVar[str] = "`warmup_proportion`"


@dataclasses.dataclass(frozen=True)
class TrainerConfig:
    """How a run is carried out, for any task.

    Attributes:
        output_dir: directory of checkpoints, logs and results.
        train_batch_size: examples per step over all replicas and micro-batches.
        save_checkpoints_steps: steps between two checkpoints.
        keep_checkpoint_max: number of kept checkpoints in addition to the best one; 0 keeps all.
        log_steps: steps between two log lines.
        seed: seed of initial weights, input order and dropout.
        jit_compile: whether XLA compiles the step; with several replicas, all except the reduction.
        gradient_accumulation_steps: A, micro-batches per replica, whose gradients are summed before
            the update. The step needs the memory of one micro-batch.
        remat: whether only the input of each block is kept for the backward pass, and the rest is
            recomputed.
        on_divergence: "stop", or "rollback": restore the newest checkpoint, skip the batches since,
            and continue.
        max_loss_spike: a loss above this multiple of the median of previous losses also counts as
            divergence; above 1, or 0 to disable the check.
        precision: precision of the matrix products, one of `PRECISIONS`.
        attention: implementation of attention, one of `ATTENTIONS`.
        iterations_per_loop: steps per call of a function on the devices, if all batches have one
            shape; reports and checkpoints are made between calls.
        early_stopping: number of evaluations without a better score that ends the training. If
            `None`, all steps are trained.
        freeze: variables that are not trained, one of `FREEZES`: the encoder including the pooler,
            or its embedding tables and their layer norm. `None` trains all.

    Raises:
        ValueError: a value is out of range.
    """

    output_dir: str
    train_batch_size: int = 4096
    save_checkpoints_steps: int = 5000
    keep_checkpoint_max: int = 5
    log_steps: int = 100
    seed: int = 12345
    jit_compile: bool = False
    gradient_accumulation_steps: int = 1
    remat: bool = False
    on_divergence: str = "stop"
    max_loss_spike: float = 0.0
    precision: str = FLOAT32
    attention: str = "plain"
    iterations_per_loop: int = 1
    early_stopping: int | None = None
    freeze: str | None = None

    def __post_init__(self) -> None:
        for name in (
            "train_batch_size",
            "save_checkpoints_steps",
            "log_steps",
            "gradient_accumulation_steps",
            "iterations_per_loop",
        ):
            _require_whole_number(f"`{name}`", getattr(self, name), 1)
        _require_whole_number("`keep_checkpoint_max`", self.keep_checkpoint_max, 0)
        _require_whole_number("`seed`", self.seed, 0)
        if self.seed >= 2**31:
            raise UserError(f"`seed` must be below 2^31, to fit an int32. Received: {self.seed}")
        if self.on_divergence not in ON_DIVERGENCE:
            raise UserError(
                f"`on_divergence` must be one of {', '.join(ON_DIVERGENCE)}. "
                f"Received: {self.on_divergence!r}"
            )
        _require_not_negative("`max_loss_spike`", self.max_loss_spike)
        if 0 < self.max_loss_spike <= 1:
            raise UserError(
                "`max_loss_spike` must be above 1, because half of all losses are above their "
                f"median, or 0 to disable the check. Received: {self.max_loss_spike}"
            )
        if self.freeze not in (None, *FREEZES):
            raise UserError(
                f"`freeze` must be one of {', '.join(FREEZES)}. Received: {self.freeze!r}"
            )
        if self.precision not in PRECISIONS:
            raise UserError(
                f"`precision` must be one of {', '.join(PRECISIONS)}. Received: {self.precision!r}"
            )
        if self.attention not in ATTENTIONS:
            raise UserError(
                f"`attention` must be one of {', '.join(ATTENTIONS)}. Received: {self.attention!r}"
            )
        if not self.output_dir:
            raise UserError("`output_dir` must name a directory. Received: ''")
