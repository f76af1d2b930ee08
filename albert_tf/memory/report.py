"""The text of `python -m albert_tf.cli.memory`."""

from __future__ import annotations

import dataclasses

from albert_tf.config import PRESETS, AlbertConfig
from albert_tf.memory.estimate import TrainingSetting, estimate_memory, largest_batch
from albert_tf.modeling.parameter_sharing import parameter_counts

_SIZES = ("base_v2", "large_v2", "xlarge_v2", "xxlarge_v2")

_BATCHES = (1, 8, 32, 64)


def memory_report(
    config: AlbertConfig, setting: TrainingSetting, memory_gb: float | None = None
) -> str:
    """Parameters by part, memory by what it is for, and tables over batches and released sizes.

    Args:
        config: the model.
        setting: how it is trained.
        memory_gb: memory to find the largest batches for, in GB of 10^9 bytes; None for none.

    Raises:
        ValueError: the setting does not fit the model, or there is no memory.
    """
    if memory_gb is not None and memory_gb <= 0:
        raise ValueError(f"--memory_gb must be above 0. Received: {memory_gb}")
    parts = [_parameters(config), _bytes(config, setting), _batches(config, setting)]
    if memory_gb is not None:
        parts.append(_largest(config, setting, memory_gb))
    return "\n\n".join(parts)


def _parameters(config: AlbertConfig) -> str:
    counts = parameter_counts(config)
    parts = {name.replace("_", " "): n for name, n in dataclasses.asdict(counts).items()}
    rows = {**parts, "encoder with pooler": counts.encoder, "with both heads": counts.pretraining}
    return "\n".join(["Parameters", *(f"  {name:22}{n:>15,}" for name, n in rows.items())])


def _bytes(config: AlbertConfig, setting: TrainingSetting) -> str:
    estimate = estimate_memory(config, setting)
    rows = {
        "program": estimate.program,
        "weights": estimate.weights,
        "moments": estimate.moments,
        "gradients": estimate.gradients,
        "kept activations": estimate.kept,
        "passing tensors": estimate.passing,
        "peak": estimate.peak,
    }
    title = (
        f"Memory in GB: batch {setting.train_batch_size} in "
        f"{setting.gradient_accumulation_steps} part(s), length {setting.max_seq_length}, "
        f"{setting.precision}, {setting.optimizer}, {_blocks(setting.remat)}"
    )
    return "\n".join([title, *(f"  {name:22}{_gb(n):>15}" for name, n in rows.items())])


def _blocks(remat: bool) -> str:
    return "blocks recomputed" if remat else "blocks kept"


def _models(config: AlbertConfig) -> dict[str, AlbertConfig]:
    return {"this model": config, **{name: PRESETS[name] for name in _SIZES}}


def _batches(config: AlbertConfig, setting: TrainingSetting) -> str:
    """Peaks over models and batches, each with blocks kept and recomputed."""
    head = "".join(f"{f'batch {batch}':>16}" for batch in _BATCHES)
    lines = ["Peak in GB, blocks kept / recomputed (--remat)", f"  {'':12}{head}"]
    for name, model in _models(config).items():
        cells = []
        for batch in _BATCHES:
            one = setting.replace(train_batch_size=batch, gradient_accumulation_steps=1)
            peaks = (
                _gb(estimate_memory(model, one.replace(remat=remat)).peak)
                for remat in (False, True)
            )
            cells.append(f"{' / '.join(peaks):>16}")
        lines.append(f"  {name:12}{''.join(cells)}")
    return "\n".join(lines)


def _largest(config: AlbertConfig, setting: TrainingSetting, memory_gb: float) -> str:
    lines = [
        f"Examples that fit {memory_gb:g} GB at a time, blocks kept / recomputed (0: not even one)"
    ]
    for name, model in _models(config).items():
        batches = (
            str(largest_batch(model, setting.replace(remat=remat), 1e9 * memory_gb))
            for remat in (False, True)
        )
        lines.append(f"  {name:12}{' / '.join(batches):>16}")
    return "\n".join(lines)


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.2f}"
