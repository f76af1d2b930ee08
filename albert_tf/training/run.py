"""Steps that all training runs share: lock, log, return the result."""

import dataclasses
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf.training.cluster import Workers
from albert_tf.training.directory_lock import EVALUATION, TRAINING, locked
from albert_tf.training.evaluation import BestCheckpoint, comparable_evaluation, scored_result
from albert_tf.training.run_log import RunLog
from albert_tf.training.run_records import EVALUATION_KEY
from albert_tf.training.settings import JobResult, OnLog
from albert_tf.training.trainer import Trainer
from albert_tf.training.training_directory import TrainingDirectory


def locked_output(
    trainer: Trainer, *, evaluates: bool, dry_run: bool
) -> AbstractContextManager[None]:
    """Returns a context manager in which no other run trains or evaluates in `output_dir`."""
    kinds = (TRAINING, EVALUATION) if evaluates else (TRAINING,)
    lock = locked(trainer.config.output_dir, *kinds, dry_run=dry_run)
    return lock if trainer.is_chief else nullcontext()


def log_plan(trainer: Trainer, num_examples: int) -> None:
    """Logs the remaining steps of an initialized trainer, and warns of too few examples."""
    if not trainer.is_chief:
        return
    steps, batch_size = max(0, trainer.last_step - trainer.step), trainer.config.train_batch_size
    logging.log(
        logging.INFO if steps else logging.DEBUG,
        "Training %d steps of %d examples%s: %.4g epochs of %d examples, %s parameters",
        *(steps, batch_size, f" on {trainer.replicas} devices" * (trainer.replicas > 1)),
        steps * batch_size / max(num_examples, 1),
        num_examples,
        f"{trainer.model.count_params():,}",
    )
    if num_examples < batch_size:
        logging.warning(
            "There are only %d examples, fewer than `train_batch_size`, so batches contain "
            "duplicates",
            num_examples,
        )


def start_log(
    trainer: Trainer, best: BestCheckpoint, config: Mapping[str, Any], on_log: OnLog | None
) -> RunLog:
    """Returns the log of a run, and writes its settings, `config`, to `run_config.json`.

    `config` includes the description of the evaluation; see `comparable_evaluation`.
    """
    if trainer.is_chief:
        is_over = trainer.step >= trainer.last_step and best.last_step == trainer.step
        evaluation = comparable_evaluation(best, config[EVALUATION_KEY], is_over=is_over)
        config = {**config, EVALUATION_KEY: evaluation}
    log = RunLog(
        trainer.config.output_dir,
        trainer.last_step,
        trainer.step,
        metric=best.metric,
        write=trainer.is_chief,
        on_log=on_log,
    )
    log.write_config(config)
    return log


def training_result(trainer: Trainer, log: RunLog, best: BestCheckpoint | None) -> JobResult:
    """Returns the history of a run, and the scores of the `best` checkpoint if it evaluated."""
    if best is None:
        return JobResult(trainer.config.output_dir, trainer.step, history=log.records)
    result = scored_result(best, log.records, log.reported)
    return result if result.step is not None else dataclasses.replace(result, step=trainer.step)


def finish(result: JobResult, strategy: tf.distribute.Strategy, *, dry_run: bool) -> JobResult:
    """Waits for all workers. On the chief, the result contains the best checkpoint."""
    workers = Workers(strategy)
    workers.wait()
    if dry_run or not workers.is_chief:
        return JobResult(result.output_dir)
    best = TrainingDirectory(result.output_dir).best()
    return dataclasses.replace(result, best_checkpoint=best)
