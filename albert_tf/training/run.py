"""The steps of all training runs: lock, train, evaluate, log, return the result."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import closing, nullcontext
from typing import Any, ClassVar

import keras
import tensorflow as tf
from absl import logging

from albert_tf.data.files import check_folder
from albert_tf.training.cluster import Workers
from albert_tf.training.directory_lock import EVALUATION, TRAINING, locked
from albert_tf.training.evaluation import (
    BestCheckpoint,
    comparable_evaluation,
    loaded_checkpoints,
    scored_result,
    should_stop_early,
)
from albert_tf.training.interruption import raise_if_interrupted
from albert_tf.training.run_log import EvaluationLog, RunLog
from albert_tf.training.run_records import EVALUATION_KEY, write_evaluation
from albert_tf.training.settings import JobResult, OnLog
from albert_tf.training.trainer import Trainer
from albert_tf.training.training_directory import TrainingDirectory


class Run(ABC):
    """What differs between runs: their models, evaluations and files."""

    ALL_WORKERS: ClassVar[bool] = False  # whether all workers evaluate together
    settings: Any
    evaluates: bool  # whether checkpoints are scored
    model: keras.Model

    @abstractmethod
    def initialize(self, trainer: Trainer) -> None:
        """Loads the newest checkpoint, or the initial weights."""

    @abstractmethod
    def best_checkpoint(self) -> BestCheckpoint:
        """Returns the best checkpoint so far in `output_dir`."""

    @abstractmethod
    def write_output(self, step: int | None = None) -> None:
        """Writes the model to `output_dir`; a training starts or continues after `step`."""

    @abstractmethod
    def run_config(self, trainer: Trainer) -> dict[str, Any]:
        """Returns the settings that only this kind of run has, for `run_config.json`."""

    @abstractmethod
    def describe_evaluation(self) -> dict[str, Any]:
        """Returns the metric, and what determines the evaluation data, as JSON."""

    @abstractmethod
    def evaluate(self) -> Mapping[str, float]:
        """Returns the scores of the model with its current weights."""

    @abstractmethod
    def record(
        self, step: int, results: Mapping[str, float], best: BestCheckpoint, *, keeps_best: bool
    ) -> None:
        """Writes the results of a checkpoint. If `keeps_best`, saves it if it is the best."""


def train(run: Run, trainer: Trainer, num_examples: int, on_log: OnLog | None) -> JobResult:
    """Starts or resumes training, and evaluates every checkpoint."""
    settings, evaluates, is_chief = run.settings, run.evaluates, trainer.is_chief
    kinds = (TRAINING, EVALUATION) if evaluates else (TRAINING,)
    lock = locked(settings.output_dir, *kinds, dry_run=settings.dry_run)
    if is_chief:
        check_folder(settings.output_dir)
    with lock if is_chief else nullcontext():
        run.initialize(trainer)
        best = run.best_checkpoint()
        _log_plan(trainer, num_examples)
        if settings.dry_run:
            return JobResult(settings.output_dir)
        if is_chief:
            run.write_output(trainer.step)
        # The chief may have changed `best_trial.txt` before the other workers read it.
        last_evaluated = trainer.workers.gather(best.last_step)[0]
        with (
            closing(_start_log(run, trainer, best, on_log)) as log,
            closing(trainer.checkpoints(log)) as checkpoints,
        ):
            for step in checkpoints:
                is_due = evaluates and trainer.is_checkpoint(step) and step != last_evaluated
                if is_due and (is_chief or run.ALL_WORKERS):
                    _evaluate(run, step, best, log, is_chief=is_chief)
                if trainer.config.early_stopping and step < trainer.last_step:
                    stops = should_stop_early(log.records, best, trainer.config.early_stopping)
                    if trainer.workers.any(stops):
                        raise_if_interrupted()
                        break
    if not evaluates:
        return JobResult(settings.output_dir, trainer.step, history=log.records)
    result = scored_result(best, log.records, log.reported)
    return result if result.step is not None else dataclasses.replace(result, step=trainer.step)


def _evaluate(run: Run, step: int, best: BestCheckpoint, log: RunLog, *, is_chief: bool) -> None:
    results = run.evaluate()
    log.evaluation(step, results, is_best=best.is_better(step, results))
    if is_chief:
        run.record(step, results, best, keeps_best=True)


def evaluate_checkpoints(
    run: Run, prefixes: Iterable[str], on_log: OnLog | None, *, keeps_best: bool
) -> JobResult:
    """Evaluates existing checkpoints. If `keeps_best`, the best of them is saved."""
    best, log = run.best_checkpoint(), EvaluationLog(on_log)
    if keeps_best:
        evaluation = comparable_evaluation(best, run.describe_evaluation())
    for step in loaded_checkpoints(prefixes, run.model):
        results = run.evaluate()
        if keeps_best:
            write_evaluation(run.settings.output_dir, evaluation)
        log.evaluation(step, results)
        run.record(step, results, best, keeps_best=keeps_best)
    best.step = best.step if keeps_best else -1  # may not be among the evaluated ones
    return scored_result(best, log.reported, log.reported)


def _log_plan(trainer: Trainer, num_examples: int) -> None:
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


def _start_log(run: Run, trainer: Trainer, best: BestCheckpoint, on_log: OnLog | None) -> RunLog:
    """Returns the log of a run, and writes its settings to `run_config.json`."""
    evaluation = run.describe_evaluation() if run.evaluates else None
    if trainer.is_chief:
        is_over = trainer.step >= trainer.last_step and best.last_step == trainer.step
        evaluation = comparable_evaluation(best, evaluation, is_over=is_over)
    config = {
        **run.run_config(trainer),
        "trainer": dataclasses.asdict(trainer.config),
        "optimizer": dataclasses.asdict(trainer.optimizer_config),
        "input": trainer.task.describe_input(),
        EVALUATION_KEY: evaluation,
    }
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


def finish(result: JobResult, strategy: tf.distribute.Strategy, *, dry_run: bool) -> JobResult:
    """Waits for all workers. On the chief, the result contains the best checkpoint."""
    workers = Workers(strategy)
    workers.wait()
    if dry_run or not workers.is_chief:
        return JobResult(result.output_dir)
    best = TrainingDirectory(result.output_dir).best()
    return dataclasses.replace(result, best_checkpoint=best)
