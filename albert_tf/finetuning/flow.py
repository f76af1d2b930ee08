"""The flow of every fine-tuning: train, evaluate every checkpoint, keep the best, apply it.

What is trained and how it is scored is the job's affair; here is the order in which things happen.
Nothing is written before `prepare` is called, and everything that can be checked is checked before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import keras
from absl import logging

from albert_tf.checkpoints.choice import choose_checkpoint, choose_checkpoints
from albert_tf.checkpoints.training_directory import TrainingDirectory
from albert_tf.finetuning.start import Start
from albert_tf.training.evaluation import (
    BestCheckpoint,
    evaluate_checkpoints,
    load_complete,
    train_and_evaluate,
)
from albert_tf.training.plan import TrainingPlan
from albert_tf.training.run_log import RunLog
from albert_tf.training.trainer import Trainer

CHECKPOINT_FLAG = "--checkpoint"


class Evaluation(Protocol):
    """Scores a model any number of times, and keeps the results."""

    def evaluate(self) -> Mapping[str, float]:
        """Returns the scores of the model as it is."""
        ...

    def record(self, step: int, results: Mapping[str, float]) -> None:
        """Keeps the results of the last evaluation, and the model if it is the best so far."""
        ...


def train(
    trainer: Trainer,
    start: Start,
    best_metric: str,
    prepare: Callable[[], None],
    evaluation: Callable[[BestCheckpoint, int], Evaluation] | None,
    settings: Mapping[str, Any],
    *,
    sequences_per_example: int = 1,
    dry_run: bool = False,
) -> None:
    """Trains, or goes on with a training that ended early.

    Args:
        trainer: of the run.
        start: where a fresh run starts.
        best_metric: name of the score the best checkpoint is chosen by.
        prepare: makes the output directory that of the job; called on every worker, of which the
            chief alone may write.
        evaluation: from the best checkpoint so far and the step to go on from, what evaluates
            every checkpoint, on the chief; None evaluates none.
        settings: of the job, for `run_config.json`.
        sequences_per_example: see `TrainingPlan`.
        dry_run: check all that can be known before, log the plan, and write nothing.

    Raises:
        DirectoryLockedError: another run trains in the output directory.
        ValueError: a checkpoint does not fit, or the training diverged.
    """
    with trainer.locked(evaluates=evaluation is not None, dry_run=dry_run):
        trainer.initialize(
            start.checkpoint,
            init_from_group0=start.init_from_group0,
            allow_partial=start.allow_partial,
            skip=start.skip,
        )
        best = BestCheckpoint(trainer.directory, best_metric)
        trained_on = trainer.task.describe_input()
        if trainer.is_chief:
            TrainingPlan(
                trainer,
                trained_on["examples"],
                sequences_per_example=sequences_per_example,
                keeps_best=evaluation is not None,
            ).log()
        if dry_run:
            return
        prepare()
        evaluated = evaluation(best, trainer.step) if evaluation and trainer.is_chief else None
        log = RunLog(
            trainer.config.output_dir,
            trainer.optimizer_config.num_train_steps,
            trainer.step,
            write=trainer.is_chief,
        )
        log.write_config(
            {
                "model": trainer.model.config.to_dict(),
                **settings,
                "trainer": dataclasses.asdict(trainer.config),
                "optimizer": dataclasses.asdict(trainer.optimizer_config),
                "input": trained_on,
            }
        )
        try:
            if evaluated is None:
                trainer.train(log)
            else:
                train_and_evaluate(
                    trainer, log, evaluated.evaluate, evaluated.record, best.last_step
                )
        finally:
            log.close()


def evaluate(
    model: keras.Model,
    prefixes: Sequence[str],
    prepare: Callable[[], None],
    evaluation: Callable[[], Evaluation],
    *,
    dry_run: bool = False,
) -> None:
    """Evaluates finished checkpoints, one after the other.

    Args:
        model: takes their weights.
        prefixes: at least one.
        prepare: makes the output directory that of the job.
        evaluation: makes what scores `model`.
        dry_run: check all that can be known before, and write nothing.

    Raises:
        LoadError: a checkpoint is damaged, or does not hold the whole model; of the first one
            before anything is written.
    """
    load_complete(model, prefixes[0])
    if dry_run:
        return
    prepare()
    evaluated = evaluation()
    evaluate_checkpoints(prefixes, model, evaluated.evaluate, evaluated.record)


def checkpoints_to_evaluate(
    output_dir: str, choice: str | None, init_checkpoint: str | None
) -> list[str]:
    """Returns the prefixes a choice means, oldest first; without a choice the one to apply.

    Args:
        output_dir: of the run.
        choice: all, best or newest of it, or a path.
        init_checkpoint: taken where it has none.

    Raises:
        ValueError: there is none.
    """
    directory = TrainingDirectory(output_dir)
    if choice == "all":
        return list(choose_checkpoints(directory, choice, init_checkpoint, flag=CHECKPOINT_FLAG))
    return [chosen_checkpoint(output_dir, choice, init_checkpoint)]


def chosen_checkpoint(output_dir: str, choice: str | None, init_checkpoint: str | None) -> str:
    """Returns the prefix of the checkpoint to apply; see `load_chosen`."""
    directory = TrainingDirectory(output_dir)
    return choose_checkpoint(directory, choice, init_checkpoint, flag=CHECKPOINT_FLAG)


def load_chosen(
    model: keras.Model, output_dir: str, choice: str | None, init_checkpoint: str | None
) -> int:
    """Fills a model with the checkpoint to apply: the chosen one, else the best, else the newest.

    Args:
        model: to be filled whole.
        output_dir: of the run.
        choice: best or newest of it, or a path; of all, one is taken as without a choice.
        init_checkpoint: taken where it has none.

    Returns:
        The checkpoint's training step.

    Raises:
        ValueError: there is none, or it does not hold the whole model.
    """
    prefix = chosen_checkpoint(output_dir, choice, init_checkpoint)
    step = load_complete(model, prefix)
    logging.info("Applying %s, step %d", prefix, step)
    return step
