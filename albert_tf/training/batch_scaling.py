"""Settings of pretraining for another batch than the one they were found with."""

from __future__ import annotations

import dataclasses
import math

from albert_tf.config import OptimizerConfig

PAPER_BATCH_SIZE = 4096  # with LAMB at a learning rate of 0.00176
FLAG = "--scale_from_batch_size"


def scale_to_batch_size(
    config: OptimizerConfig, batch_size: int, reference: int
) -> OptimizerConfig:
    """Carries settings over to another batch: as many examples in all, at a suitable rate.

    Steps are multiplied by reference / batch_size, the learning rate by the root of
    batch_size / reference; the warm-up keeps its number of steps.

    Args:
        config: settings for batches of `reference` examples.
        batch_size: examples of a step over all devices; at least 1.
        reference: at least 1.

    Source: the square root and the warm-up, whose epochs grow with the batch so that its steps stay
        the same, are the rules of LAMB's authors (https://arxiv.org/abs/1904.00962); issue 111 of
        the original release advises the same.
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
    """What was scaled and why, line by line, for people."""
    lines = [
        f"The settings are taken as those of batches of {FLAG}={reference} examples, and scaled to "
        f"--train_batch_size={batch_size}; with {FLAG} left out they are used as they are given:",
        f"--learning_rate={given.learning_rate:g} becomes {used.learning_rate:g}: times the square "
        f"root of {batch_size}/{reference}, LAMB's rule",
    ]
    for flag, name in (
        (given.STEPS_FLAG, "num_train_steps"),
        ("--start_warmup_step", "start_warmup_step"),
        ("--num_decay_steps", "num_decay_steps"),
    ):
        before, after = getattr(given, name), getattr(used, name)
        if before:
            lines.append(
                f"{flag}={before} becomes {after}: times {reference}/{batch_size}, for as many "
                "examples"
            )
    if given.num_warmup_steps:
        lines.append(f"{given.WARMUP_FLAG}={given.num_warmup_steps} stays as it is, LAMB's rule")
    if given.optimizer != "lamb":
        lines.append(f"No rule was published for --optimizer={given.optimizer}: watch the loss")
    return lines


def scaling_advice(config: OptimizerConfig, batch_size: int) -> str | None:
    """One line for those who change the published batch alone; None where it says nothing new."""
    is_published = config.optimizer == "lamb" and math.isclose(
        config.learning_rate, OptimizerConfig.learning_rate
    )
    if not is_published or batch_size == PAPER_BATCH_SIZE:
        return None
    scaled = scale_to_batch_size(config, batch_size, PAPER_BATCH_SIZE)
    return (
        f"--learning_rate={config.learning_rate:g} was published for batches of "
        f"{PAPER_BATCH_SIZE}, not for --train_batch_size={batch_size}; "
        f"{FLAG}={PAPER_BATCH_SIZE} would train at {scaled.learning_rate:g} for "
        f"{scaled.num_train_steps} steps, {scaled.num_warmup_steps} of them warm-up"
    )
