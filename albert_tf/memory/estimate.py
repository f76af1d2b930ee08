"""How much memory the training of a configuration takes.

An estimate, made of what is known to be kept (weights, moments, gradients, the tensors the backward
pass needs) and of what was measured to come with it. It holds for one replica; on a CPU it is the
peak of the process.

Letters: b examples of a micro-batch, S sequence, P predictions, and the sizes of the configuration.
"""

from __future__ import annotations

import dataclasses

from albert_tf.config import AlbertConfig
from albert_tf.modeling.parameter_sharing import parameter_counts

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}

# The process itself before it holds a tensor: interpreter, TensorFlow, its graphs and threads.
PROGRAM_BYTES = 1_000_000_000

# What the allocator takes for every byte of tensors that come and go.
ALLOCATED = 1.1


@dataclasses.dataclass(frozen=True)
class TrainingSetting:
    """What decides the memory of a training step besides the configuration.

    Attributes:
        train_batch_size: examples of a step on one replica.
        max_seq_length: S.
        max_predictions_per_seq: P; 0 for a fine-tuning.
        remat: whether blocks are recomputed.
        gradient_accumulation_steps: A, micro-batches the examples are split into.
        precision: of what is computed: "float32", "bfloat16" or "float16".
        optimizer: "lamb" or "adamw"; both keep two moments.

    Raises:
        ValueError: a value is out of range.
    """

    train_batch_size: int = 8
    max_seq_length: int = 512
    max_predictions_per_seq: int = 20
    remat: bool = False
    gradient_accumulation_steps: int = 1
    precision: str = "float32"
    optimizer: str = "lamb"

    def __post_init__(self) -> None:
        """Refuses values no step can have."""
        for name in ("train_batch_size", "max_seq_length", "gradient_accumulation_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} must be at least 1. Received: {getattr(self, name)}")
        if self.max_predictions_per_seq < 0:
            raise ValueError(
                "--max_predictions_per_seq must be at least 0. "
                f"Received: {self.max_predictions_per_seq}"
            )
        if self.train_batch_size % self.gradient_accumulation_steps:
            raise ValueError(
                "--train_batch_size must be a multiple of --gradient_accumulation_steps. Received: "
                f"{self.train_batch_size} and {self.gradient_accumulation_steps}"
            )
        if self.precision not in BYTES:
            raise ValueError(
                f"--precision must be one of {', '.join(BYTES)}. Received: {self.precision!r}"
            )

    @property
    def micro_batch_size(self) -> int:
        """Examples that are in memory at a time."""
        return self.train_batch_size // self.gradient_accumulation_steps

    def replace(self, **changes: object) -> TrainingSetting:
        """Returns a copy with the given fields changed."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True)
class MemoryEstimate:
    """Bytes by what they are for.

    Attributes:
        program: the process without tensors.
        weights: the parameters, in single precision.
        moments: what the optimizer keeps of every parameter.
        gradients: of all parameters; with accumulation, their sums too.
        kept: tensors that wait for the backward pass.
        passing: tensors that come and go where most of them are there at a time: inside a block,
            at the heads, or in the update of the largest variables.
    """

    program: int
    weights: int
    moments: int
    gradients: int
    kept: int
    passing: int

    @property
    def activations(self) -> int:
        """What grows with the batch."""
        return self.kept + self.passing

    @property
    def peak(self) -> int:
        """All of it."""
        return sum(dataclasses.astuple(self))


def estimate_memory(config: AlbertConfig, setting: TrainingSetting) -> MemoryEstimate:
    """Memory of a pretraining step.

    Args:
        config: the model.
        setting: how it is trained.

    Raises:
        ValueError: the model has no positions for such sequences.
    """
    config.check_sequence_length(setting.max_seq_length, "--max_seq_length")
    parameters = parameter_counts(config).pretraining
    accumulates = setting.gradient_accumulation_steps > 1
    block, runs = _block_bytes(config, setting), config.num_hidden_layers * config.inner_group_num
    kept = runs * _hidden_bytes(config, setting) + block if setting.remat else runs * block
    # The update has no activations beside it, but the gradients before clipping.
    update = _update_bytes(config) + (0 if accumulates else 4 * parameters)
    passing = max(
        _passing_block_bytes(config, setting), _head_bytes(config, setting), update - kept
    )
    return MemoryEstimate(
        program=PROGRAM_BYTES,
        weights=4 * parameters,
        moments=8 * parameters,
        gradients=4 * parameters * (2 if accumulates else 1),
        kept=int(ALLOCATED * kept),
        passing=int(ALLOCATED * passing),
    )


def largest_batch(config: AlbertConfig, setting: TrainingSetting, memory: float) -> int:
    """The most examples that can be in memory at a time; 0 where not even one can.

    Args:
        config: the model.
        setting: how it is trained; its batch is not looked at.
        memory: bytes.
    """

    def fits(batch_size: int) -> bool:
        steps = 2 if setting.gradient_accumulation_steps > 1 else 1
        tried = setting.replace(
            train_batch_size=batch_size * steps, gradient_accumulation_steps=steps
        )
        return estimate_memory(config, tried).peak <= memory

    if not fits(1):
        return 0
    fitting, failing = 1, 2
    while fits(failing):
        fitting, failing = failing, 2 * failing
    while failing - fitting > 1:
        middle = (fitting + failing) // 2
        fitting, failing = (middle, failing) if fits(middle) else (fitting, middle)
    return fitting


def _hidden_bytes(config: AlbertConfig, setting: TrainingSetting) -> int:
    """One tensor [b, S, H]."""
    tokens = setting.micro_batch_size * setting.max_seq_length
    return BYTES[setting.precision] * tokens * config.hidden_size


def _inner_bytes(config: AlbertConfig, setting: TrainingSetting) -> int:
    """One tensor [b, S, F]."""
    return _hidden_bytes(config, setting) * config.intermediate_size // config.hidden_size


def _attention_bytes(config: AlbertConfig, setting: TrainingSetting) -> int:
    """One tensor [b, N, S, S]."""
    pairs = setting.micro_batch_size * setting.max_seq_length**2
    return BYTES[setting.precision] * pairs * config.num_attention_heads


def _block_bytes(config: AlbertConfig, setting: TrainingSetting) -> int:
    """What one run of a block keeps for the backward pass.

    Its input, query, key, value, context, two normalised tensors and the input of the feed-forward
    part; what goes into the activation and what comes out; the attention probabilities. Dropout
    adds the probabilities that were kept, and its masks, a byte an entry.
    """
    hidden, attention = _hidden_bytes(config, setting), _attention_bytes(config, setting)
    kept = 8 * hidden + 2 * _inner_bytes(config, setting) + attention
    size = BYTES[setting.precision]
    if config.hidden_dropout_prob:
        kept += 2 * hidden // size
    if config.attention_probs_dropout_prob:
        kept += attention + attention // size
    return kept


def _passing_block_bytes(config: AlbertConfig, setting: TrainingSetting) -> int:
    """What the backward pass of one block makes besides: in attention, or at the activation."""
    hidden = _hidden_bytes(config, setting)
    at_attention = 4 * hidden + 3 * _attention_bytes(config, setting)
    return max(at_attention, 4 * hidden + 5 * _inner_bytes(config, setting))


def _head_bytes(config: AlbertConfig, setting: TrainingSetting) -> int:
    """Scores of the vocabulary, their gradient and what is between; the losses are in float32."""
    predictions = setting.micro_batch_size * setting.max_predictions_per_seq
    tables = 2 * 4 * config.vocab_size * config.embedding_size
    return 5 * 4 * predictions * config.vocab_size + tables


def _update_bytes(config: AlbertConfig) -> int:
    """New moments, the update and its scaled copy, of the two largest variables at a time."""
    largest = max(
        config.hidden_size * config.intermediate_size, config.vocab_size * config.embedding_size
    )
    return 2 * 4 * 4 * largest
