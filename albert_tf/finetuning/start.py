"""What a fine-tuning starts from: weights, and a head of its own or that of the same task."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping

from albert_tf.checkpoints.formats import trained_task
from albert_tf.checkpoints.load_weights import open_checkpoint
from albert_tf.checkpoints.trained_task import QUESTION_TASKS, TrainedTask, described
from albert_tf.checkpoints.training_directory import TrainingDirectory

_HEAD_VARIABLES = ("output_weights", "output_bias")

# By what variable of its own a head is known that is not one of a classifier.
_SPAN_HEADS = {"squad1.1": "cls/squad/output_weights", "squad2.0": "answer_class/dense_1/kernel"}


@dataclasses.dataclass(frozen=True)
class Start:
    """What the training of a fresh run starts from.

    Attributes:
        checkpoint: prefix; None for random weights.
        skip: see `load_weights`.
        init_from_group0: see `load_weights`.
        allow_partial: see `load_weights`.
    """

    checkpoint: str | None = None
    skip: Mapping[str, str] | None = None
    init_from_group0: bool = False
    allow_partial: bool = False


def check_head_in(directory: str, task: TrainedTask) -> None:
    """Refuses to train in the directory of a pretrained model, whose best would be replaced.

    Args:
        directory: without a `labels.json`; that of a run of the original release has none.
        task: to be trained.

    Raises:
        ValueError: there is a checkpoint in it, and none with a head for this task.
    """
    run = TrainingDirectory(directory)
    prefix = run.newest() or run.best()
    if not prefix:
        return
    _, shapes = open_checkpoint(prefix)
    if task.name in _SPAN_HEADS:
        has_head = _SPAN_HEADS[task.name] in shapes
    else:
        has_head = list(shapes.get(_HEAD_VARIABLES[0], ()))[:1] == [task.labels.num_outputs]
    if not has_head:
        what = f"these labels, {described(task.labels)}"
        raise ValueError(
            f"{directory!r} belongs to another model: {os.path.basename(prefix)} in it has no "
            f"head for {task.name if task.name in QUESTION_TASKS else what}. Give a fresh "
            "--output_dir; to start from that model, give it as --init_checkpoint."
        )


def fresh_head(task: TrainedTask, checkpoint: str) -> dict[str, str]:
    """Returns the variables of the head that a training must not take from a checkpoint.

    A head answers one task. Its shape may fit another: most tasks have two labels. Where nothing
    says which task it was, a head that fits is taken, as the original release does.

    Args:
        task: to be trained.
        checkpoint: prefix of what the training starts from.

    Returns:
        The reason by the name of the variable, for `load_weights`; none where the checkpoint was
        trained for this very task, or for an unknown one.
    """
    there = trained_task(checkpoint, task.name)
    if there is None or (there.name, there.labels) == (task.name, task.labels):
        return {}
    _, shapes = open_checkpoint(checkpoint)
    reason = f"of the task {there.name}"
    return {name: reason for name in _HEAD_VARIABLES if name in shapes}
