"""Estimates the memory of a training step, and detects the memory of this machine.

The estimate is for one replica. On a CPU, it is the peak memory of the process. Letters in shapes:
b examples of a micro-batch, S sequence, P predictions, and the sizes of the configuration.
"""

import bisect
import dataclasses
import glob
import os
import subprocess
from contextlib import suppress

from albert_tf.config import AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.modeling.parameter_sharing import parameter_counts

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}

# The process without tensors: interpreter, TensorFlow, graphs and threads.
PROGRAM_BYTES = 1_000_000_000

# Allocated bytes per byte of temporary tensors.
ALLOCATED = 1.1
ALLOCATED_BY_XLA = 1.05

# Memory of TPU chips by PCI device id. v2 and v3 are missing, because they have the same id.
_PCI_DEVICES = "/sys/bus/pci/devices/*"
_GOOGLE = "0x1ae0"
_TPU_BYTES = {
    "0x005e": 32_000_000_000,  # v4
    "0x0062": 95_000_000_000,  # v5p
    "0x0063": 16_000_000_000,  # v5e
    "0x006f": 32_000_000_000,  # v6e
}


@dataclasses.dataclass(frozen=True)
class TrainingSetting:
    """Settings that determine the memory of a training step; see `TrainerConfig`.

    `train_batch_size` is the batch of one replica. `max_predictions_per_seq` is 0 for fine-tuning.
    `xla` is whether XLA compiles the step for a GPU or TPU.
    """

    train_batch_size: int = 8
    max_seq_length: int = 512
    max_predictions_per_seq: int = 20
    remat: bool = False
    gradient_accumulation_steps: int = 1
    precision: str = "float32"
    xla: bool = False

    def __post_init__(self) -> None:
        if self.train_batch_size % self.gradient_accumulation_steps:
            raise UserError(
                "`train_batch_size` must be a multiple of `gradient_accumulation_steps`. Received: "
                f"{self.train_batch_size} and {self.gradient_accumulation_steps}"
            )


@dataclasses.dataclass(frozen=True)
class MemoryEstimate:
    """Memory of a training step in bytes, by purpose."""

    program: int  # the process without tensors
    weights: int
    moments: int
    gradients: int  # including their sums over micro-batches
    kept: int  # tensors for the backward pass
    passing: int  # peak of temporary tensors

    @property
    def peak(self) -> int:
        """Sum of all parts."""
        return sum(dataclasses.astuple(self))


def estimate_memory(config: AlbertConfig, setting: TrainingSetting) -> MemoryEstimate:
    """Returns the memory of a training step. Raises ValueError if the sequences are too long."""
    config.check_sequence_length(setting.max_seq_length)
    parameters = parameter_counts(config).pretraining
    accumulates = setting.gradient_accumulation_steps > 1
    examples = setting.train_batch_size // setting.gradient_accumulation_steps
    size, tokens = BYTES[setting.precision], examples * setting.max_seq_length
    vocabulary = config.vocab_size * config.embedding_size
    hidden = size * tokens * config.hidden_size  # [b, S, H]
    inner = size * tokens * config.intermediate_size  # [b, S, F]
    attention = size * tokens * setting.max_seq_length * config.num_attention_heads  # [b, N, S, S]

    # A block keeps its input, query, key, value, context and the input of the feed-forward part;
    # two normalized tensors in float32; the input and output of the activation; and the attention
    # probabilities. Dropout adds the probabilities after dropout, and masks of one byte per entry,
    # or one bit with XLA.
    block = (6 + 2 * 4 / size) * hidden + 2 * inner + attention
    mask_size = size * (8 if setting.xla else 1)
    if config.hidden_dropout_prob:
        block += 2 * hidden / mask_size
    if config.attention_probs_dropout_prob:
        block += attention + attention / mask_size
    runs = config.num_hidden_layers * config.inner_group_num
    kept = runs * hidden + block if setting.remat else runs * block

    gradients = 4 * parameters * (2 if accumulates else 1)
    scores = examples * setting.max_predictions_per_seq * config.vocab_size
    largest = max(config.hidden_size * config.intermediate_size, vocabulary)
    if setting.xla:
        allocated = ALLOCATED_BY_XLA
        if setting.remat:  # the weights of a block in half precision, and the gradient of a matrix
            H, F = config.hidden_size, config.intermediate_size
            kept += size * H * F + (size * (4 * H * H + 2 * H * F) if size < 4 else 0)
        # The logits in float32 and their gradient, or the update of two variables. The backward
        # pass of a block needs less.
        passing = max((4 + size) * scores - gradients, 2 * 4 * largest - kept, 0)
    else:
        allocated = ALLOCATED
        # The backward pass of one block, in attention or at the activation.
        in_block = 4 * hidden + max(3 * attention, 5 * inner)
        # The logits in float32, their gradient and intermediate tensors.
        at_heads = 5 * 4 * scores + 2 * 4 * vocabulary
        # New moments, the update and its scaled copy for the two largest variables, and the
        # gradients before clipping. Activations are already free.
        update = 2 * 4 * 4 * largest + (0 if accumulates else 4 * parameters)
        passing = max(in_block, at_heads, update - kept)
    return MemoryEstimate(
        program=PROGRAM_BYTES,
        weights=4 * parameters,
        moments=8 * parameters,
        gradients=gradients,
        kept=int(allocated * kept),
        passing=int(allocated * passing),
    )


def largest_batch(config: AlbertConfig, setting: TrainingSetting, memory: float) -> int:
    """Returns the largest micro-batch that fits into `memory` bytes."""
    parts = 2 if setting.gradient_accumulation_steps > 1 else 1

    def peak(batch_size: int) -> int:
        tried = dataclasses.replace(
            setting, train_batch_size=batch_size * parts, gradient_accumulation_steps=parts
        )
        return estimate_memory(config, tried).peak

    return bisect.bisect_right(range(1, 1 << 30), memory, key=peak)


def memory_report(
    config: AlbertConfig, setting: TrainingSetting, memory_gb: float | None = None
) -> str:
    """Returns a text with parameters by part, memory by purpose, and the effect of `remat`.

    If `memory_gb` (10^9 bytes) is given, the text also contains the largest batch that fits. Raises
    ValueError if the sequences are too long, or if `memory_gb` is not above 0.
    """
    if memory_gb is not None and memory_gb <= 0:
        raise UserError(f"`memory_gb` must be above 0. Received: {memory_gb}")
    counts, estimate = parameter_counts(config), estimate_memory(config, setting)
    parts = {
        **dataclasses.asdict(counts),
        "encoder with pooler": counts.encoder,
        "with both heads": counts.pretraining,
    }
    lines = ["Parameters"]
    lines += [f"  {name.replace('_', ' '):22}{count:>15,}" for name, count in parts.items()]
    step = ", ".join(f"{name}={value}" for name, value in dataclasses.asdict(setting).items())
    lines += ["", f"Memory in GB: {step}"]
    for name, size in {**dataclasses.asdict(estimate), "peak": estimate.peak}.items():
        lines.append(f"  {name:22}{size / 1e9:>15.2f}")

    settings = [dataclasses.replace(setting, remat=remat) for remat in (False, True)]
    peaks = [f"{estimate_memory(config, each).peak / 1e9:.2f}" for each in settings]
    lines += ["", f"Peak in GB, without / with --remat: {' / '.join(peaks)}"]
    if memory_gb is not None:
        batches = [str(largest_batch(config, each, 1e9 * memory_gb)) for each in settings]
        lines.append(
            f"Examples that fit {memory_gb:g} GB, without / with --remat: {' / '.join(batches)}"
        )
    return "\n".join(lines)


def machine_memory() -> int:
    """Returns the main memory of this machine or container in bytes."""
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # limit of a container, or "max"
        with suppress(OSError, ValueError), open(f"/sys/fs/cgroup/{name}") as file:
            limits.append(int(file.read()))
    return min(limits)


def tpu_memory(cores: int) -> int | None:
    """Returns the memory in bytes of each of `cores` TPU cores, or `None` if it is unknown."""
    sizes = []
    for folder in glob.glob(_PCI_DEVICES):
        with (
            suppress(OSError, KeyError),
            open(f"{folder}/vendor") as vendor,
            open(f"{folder}/device") as device,
        ):
            if vendor.read().strip() == _GOOGLE:
                sizes.append(_TPU_BYTES[device.read().strip()])
    return min(sizes) * min(len(sizes), cores) // cores if sizes else None


def gpu_memory() -> int | None:
    """Returns the memory in bytes of the smallest GPU, or `None` if it is unknown."""
    command = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
        return min(int(line) << 20 for line in answer.stdout.splitlines())
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
