"""The sequence of a training run: lock, initialize, plan, train, evaluate, return the result."""

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.directory_lock import EVALUATION, TRAINING, locked
from albert_tf.checkpoints.training_directory import TrainingDirectory
from albert_tf.config import OptimizerConfig, TrainerConfig
from albert_tf.training.distribution import (
    is_chief,
    values_of_workers,
    wait_for_workers,
)
from albert_tf.training.evaluation import (
    AFTER_STEP,
    BestCheckpoint,
    Evaluate,
    comparable_evaluation,
    scored_result,
    should_stop_early,
    train_and_evaluate,
)
from albert_tf.training.run_log import RunLog, create_profiler
from albert_tf.training.run_records import EVALUATION_KEY
from albert_tf.training.settings import JobResult, OnLog
from albert_tf.training.task import Task
from albert_tf.training.trainer import Trainer

RecordBest = Callable[[int, Mapping[str, float], BestCheckpoint], None]


def log_plan(trainer: Trainer, num_examples: int) -> None:
    """Logs the remaining steps of an initialized trainer, and warns of too few examples."""
    config, last_step = trainer.config, trainer.optimizer_config.num_train_steps
    steps = max(0, last_step - trainer.step)
    batch_size = config.train_batch_size
    logging.info(
        "plan: steps=%d last_step=%d train_batch_size=%d replicas=%d "
        "gradient_accumulation_steps=%d examples=%d epochs=%.4g parameters=%d",
        steps,
        trainer.step + steps,
        batch_size,
        trainer.replicas,
        config.gradient_accumulation_steps,
        num_examples,
        steps * batch_size / max(num_examples, 1),
        trainer.model.count_params(),
    )
    if num_examples < batch_size:
        logging.warning(
            "There are only %d examples, fewer than `train_batch_size`, so batches contain "
            "duplicates",
            num_examples,
        )


def new_trainer(
    task: Task,
    config: TrainerConfig,
    optimizer_config: OptimizerConfig,
    strategy: tf.distribute.Strategy,
    profile_steps: str | None,
) -> Trainer:
    """Creates a trainer that profiles the steps `profile_steps`, such as "100,110"."""
    num_train_steps = optimizer_config.num_train_steps
    profiler = create_profiler(profile_steps, config.output_dir, num_train_steps)
    profiler = profiler if is_chief(strategy) else None
    return Trainer(task, config, optimizer_config, strategy, profiler)


def run_training(
    trainer: Trainer,
    num_examples: int,
    initialize: Callable[[], None],
    start: Callable[[], Mapping[str, Any]],
    *,
    best_metric: str,
    evaluate: Evaluate | None,
    record: RecordBest,
    shares_evaluation: bool = False,
    early_stopping: int | None = None,
    dry_run: bool = False,
    on_log: OnLog | None = None,
) -> JobResult:
    """Starts or resumes a run, evaluates every checkpoint and keeps the best.

    While the output directory is locked, `initialize` initializes the trainer, and `start` writes
    other files and returns the settings of the run for `run_config.json`, including the evaluation
    (see `comparable_evaluation`). A dry run ends before `start`. `evaluate` returns the scores of
    the model; if it is `None`, checkpoints are not evaluated. If `shares_evaluation` is true, all
    workers evaluate together, otherwise only the chief. `record` writes the scores of a step. The
    best checkpoint maximizes `best_metric`.
    """
    output_dir = trainer.config.output_dir
    kinds = (TRAINING,) if evaluate is None else (TRAINING, EVALUATION)
    lock = locked(output_dir, *kinds, dry_run=dry_run)
    with lock if trainer.is_chief else nullcontext():
        initialize()
        best = BestCheckpoint(trainer.directory, best_metric)
        if trainer.is_chief:
            log_plan(trainer, num_examples)
        if dry_run:
            return JobResult(output_dir)
        config = dict(start())
        num_train_steps = trainer.optimizer_config.num_train_steps
        if trainer.is_chief:
            is_over = trainer.step >= num_train_steps and best.last_step == trainer.step
            described = config.get(EVALUATION_KEY)
            config[EVALUATION_KEY] = comparable_evaluation(best, described, is_over=is_over)
        log = RunLog(
            output_dir, num_train_steps, trainer.step, write=trainer.is_chief, on_log=on_log
        )
        log.write_config(config)
        should_stop = None
        if early_stopping:
            after_step = config[EVALUATION_KEY].get(AFTER_STEP, -1)
            should_stop = partial(should_stop_early, log, best_metric, early_stopping, after_step)
        try:
            if evaluate is not None and (trainer.is_chief or shares_evaluation):
                last_evaluated = best.last_step
                if shares_evaluation:  # the chief may have changed `best_trial.txt` already
                    last_evaluated = values_of_workers(trainer.strategy, last_evaluated)[0]
                train_and_evaluate(
                    trainer,
                    log,
                    evaluate,
                    lambda step, results: record(step, results, best),
                    last_evaluated,
                    should_stop,
                )
            else:
                trainer.train(log, should_stop=should_stop)
        finally:
            log.close()
    result = JobResult(output_dir, history=log.records)
    if evaluate is not None:
        result = scored_result(best, log.records, log.reported)
    return result if result.step is not None else dataclasses.replace(result, step=trainer.step)


def finish(result: JobResult, strategy: tf.distribute.Strategy, *, dry_run: bool) -> JobResult:
    """Waits for all workers. On the chief, the result contains the best checkpoint."""
    wait_for_workers(strategy)
    if dry_run or not is_chief(strategy):
        return JobResult(result.output_dir)
    best = TrainingDirectory(result.output_dir).best()
    return dataclasses.replace(result, best_checkpoint=best)
