"""Scales the settings of the optimizer to another batch size."""

import dataclasses
import math

from albert_tf.training.settings import OptimizerConfig

PAPER_BATCH_SIZE = 4096  # of the published learning rate of LAMB, 0.00176
_SCALE = "`scale_from_batch_size`"


def scale_to_batch_size(
    config: OptimizerConfig, batch_size: int, reference: int
) -> OptimizerConfig:
    """Scales settings for batches of `reference` examples to another batch size.

    The numbers of steps are multiplied by reference / batch_size, and the learning rate by the
    square root of batch_size / reference. The number of warm-up steps does not change.

    Source: the authors of LAMB, https://arxiv.org/abs/1904.00962; issue 111 of the original
        release.
    """

    def steps(count: int) -> int:
        return round(count * reference / batch_size)

    return dataclasses.replace(
        config,
        learning_rate=config.learning_rate * math.sqrt(batch_size / reference),
        num_train_steps=max(1, steps(config.num_train_steps)),
        start_warmup_step=steps(config.start_warmup_step),
        num_decay_steps=config.num_decay_steps and max(1, steps(config.num_decay_steps)),
    )


def scaling_report(
    given: OptimizerConfig, used: OptimizerConfig, batch_size: int, reference: int
) -> list[str]:
    """Returns lines that list and explain the scaled settings."""
    lines = [
        f"The settings were chosen for {_SCALE}={reference} and are now scaled to "
        f"`train_batch_size`={batch_size}. To use them unchanged, omit {_SCALE}",
        f"`learning_rate`={given.learning_rate:g} becomes {used.learning_rate:g}: multiplied by "
        f"the square root of {batch_size}/{reference}, the rule for LAMB",
    ]
    for name in ("num_train_steps", "start_warmup_step", "num_decay_steps"):
        before, after = getattr(given, name), getattr(used, name)
        if before:
            lines.append(
                f"`{name}`={before} becomes {after}: multiplied by {reference}/{batch_size}, for "
                "the same number of examples"
            )
    if given.num_warmup_steps:
        lines.append(
            f"`num_warmup_steps`={given.num_warmup_steps} is kept, following the rule for LAMB"
        )
    if given.optimizer != "lamb":
        lines.append(f"No rule was published for `optimizer`={given.optimizer}; check the loss")
    return lines


def scaling_advice(config: OptimizerConfig, batch_size: int) -> str | None:
    """Returns advice if the learning rate is the published value, but the batch size is not."""
    is_published = config.optimizer == "lamb" and math.isclose(
        config.learning_rate, OptimizerConfig.learning_rate
    )
    if not is_published or batch_size == PAPER_BATCH_SIZE:
        return None
    scaled = scale_to_batch_size(config, batch_size, PAPER_BATCH_SIZE)
    return (
        f"`learning_rate`={config.learning_rate:g} was published for batches of "
        f"{PAPER_BATCH_SIZE}, not for `train_batch_size`={batch_size}. "
        f"{_SCALE}={PAPER_BATCH_SIZE} would train at {scaled.learning_rate:g} for "
        f"{scaled.num_train_steps} steps, including {scaled.num_warmup_steps} warm-up steps"
    )
