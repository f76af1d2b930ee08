"""Evaluation of the checkpoints of a run: when, on what, and which is the best.

Evaluating beside training or afterwards is the same for every job; how a model is scored is a
function the job hands over, `Evaluator.evaluate` for one.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.load_weights import load_weights, read_global_step
from albert_tf.checkpoints.model_directory import warn_of_another_config
from albert_tf.checkpoints.report import LoadError
from albert_tf.checkpoints.run_records import BEST_FILE, BestTrial
from albert_tf.checkpoints.run_records import Record as LoggedRecord
from albert_tf.checkpoints.training_directory import TrainingDirectory
from albert_tf.data.errors import UserError
from albert_tf.data.files import read_utf8, write_then_rename
from albert_tf.data.jobs import progress_bar
from albert_tf.modeling.losses import means
from albert_tf.training.distribution import (
    check_batch_size,
    is_tpu,
    local_replicas,
    split_batch,
    worker_shard,
)
from albert_tf.training.interruption import raise_if_interrupted
from albert_tf.training.job_result import EvaluationLog, JobResult
from albert_tf.training.run_log import RunLog
from albert_tf.training.task import WHOLE, EvaluatedTask, Features
from albert_tf.training.trainer import Trainer
from albert_tf.training.workers import sum_over_workers, values_of_workers

RESULTS_FILE = "eval_results.txt"
_RULE = "=" * 50 + "\n"

# Scores that replace the one the original chooses by; the file names them, which has the form of
# the original else.
_NAMED_METRICS = frozenset({"char_f1"})
Evaluate = Callable[[], Mapping[str, float]]  # scores the model as it is
Record = Callable[[int, Mapping[str, float]], None]  # keeps the results of a step


def pad_batch(features: Mapping[str, tf.Tensor], batch_size: int) -> Features:
    """Fills a batch up to `batch_size` rows with zeros, `example_weights` included."""
    missing = batch_size - int(next(iter(features.values())).shape[0])
    if missing == 0:
        return dict(features)
    return {
        name: tf.pad(values, [[0, missing]] + [[0, 0]] * (values.shape.rank - 1))
        for name, values in features.items()
    }


class Evaluator:
    """Evaluates a model, any number of times, on the devices of this process or of all workers.

    Args:
        task: data and metrics.
        model: made under `strategy`.
        strategy: the replicas, of which those of a process share `batch_size` examples.
        batch_size: examples of a batch.
        max_batches: cap on the batches evaluated, reported where it bites; None takes all.
        jit_compile: whether XLA compiles the evaluation.
        shares: whether the workers share the batches: all of them call `evaluate`, and get what one
            would compute alone. Each reads all examples.

    Raises:
        ValueError: the batch cannot be shared by the replicas.
    """

    def __init__(
        self,
        task: EvaluatedTask,
        model: keras.Model,
        strategy: tf.distribute.Strategy,
        batch_size: int,
        max_batches: int | None = None,
        *,
        jit_compile: bool = False,
        shares: bool = False,
    ) -> None:
        check_batch_size(local_replicas(strategy), batch_size, "`eval_batch_size`")
        self.task = task
        self.model = model
        self.strategy = strategy
        self.batch_size = batch_size
        self.max_batches = max_batches
        self.shares = shares
        self._replica_sums: Callable[..., Mapping[str, Any]] = self._sums_of_replica
        if jit_compile and not is_tpu(strategy):  # which compiles everything
            compiled = tf.function(self._sums_of_replica, jit_compile=True, autograph=False)
            # Given the function itself, `Strategy.run` would compile all replicas as one program.
            self._replica_sums = lambda features: compiled(features)

    def evaluate(self) -> dict[str, float]:
        """Returns the mean losses and metrics, weighted over the whole data, and `loss`.

        `loss` is the plain mean of the losses of the batches, a shorter last one counting like the
        others, as the original release reports it; so it depends a little on the batch size.

        Raises:
            ValueError: there is not one example; workers read different data.
            RecordError: a record cannot be read; the message names it.
            LostWorkerError: a worker that shares the batches has ended.
        """
        shard = worker_shard(self.strategy) if self.shares else WHOLE
        own: dict[int, Mapping[str, Any]] = {}  # sums on the device, by number of the batch
        count, outputs = 0, None
        data = self.task.eval_dataset(self.batch_size)
        bar = progress_bar(
            data, desc="evaluating", unit="batch", hidden=shard.index > 0, leave=False
        )
        with self.task.explain_read_errors():
            for batch in bar:
                raise_if_interrupted()
                if count == self.max_batches:
                    logging.warning(
                        "Only the first %d examples are evaluated, not all: --max_eval_steps=%d",
                        self.max_batches * self.batch_size,
                        self.max_batches,
                    )
                    break
                if count % shard.count == shard.index or outputs is None:
                    features = split_batch(self.strategy, pad_batch(batch, self.batch_size))
                    sums = self._sums.get_concrete_function(features)
                    outputs = sums.structured_outputs
                    if count % shard.count == shard.index:
                        own[count] = self._sums(features)
                count += 1
        if shard.count > 1 and len(set(values_of_workers(self.strategy, count))) > 1:
            raise UserError(
                f"The workers do not read the same examples to evaluate on: this one has {count} "
                "batches. The files must be the same on all of them."
            )
        if not count:
            raise UserError("There is no example to evaluate on.")
        # Fetched once: a number asked for after every batch would let the device wait.
        rows = np.zeros([count, len(tf.nest.flatten(outputs))])
        if own:
            columns = zip(*map(tf.nest.flatten, own.values()), strict=True)
            rows[list(own)] = np.stack([tf.stack(column).numpy() for column in columns], axis=1)
        if shard.count > 1:  # exact, as all but one of the numbers added up are 0
            rows = sum_over_workers(self.strategy, rows)
        batches = [tf.nest.pack_sequence_as(outputs, row) for row in rows.tolist()]
        losses = [float(self.task.total_loss(batch)) for batch in batches]
        return {"loss": sum(losses) / len(losses), **means(batches)}

    @tf.function(autograph=False)
    def _sums(self, batch: Features) -> Mapping[str, Any]:
        """The sums of one batch over the replicas of this process; other workers are not asked."""
        results = self.strategy.run(self._replica_sums, args=(batch,))
        return tf.nest.map_structure(
            lambda value: tf.add_n(self.strategy.experimental_local_results(value)), results
        )

    def _sums_of_replica(self, features: Features) -> Mapping[str, Any]:
        outputs = self.model(features, training=False)
        return {**self.task.losses(outputs, features), **self.task.metrics(outputs, features)}


def result_lines(step: int, results: Mapping[str, float]) -> list[str]:
    """Returns a line `key = value` for each result and for the step, in alphabetical order."""
    return [f"{key} = {value}" for key, value in sorted({**results, "global_step": step}.items())]


def write_results(output_dir: str, step: int, results: Mapping[str, float]) -> None:
    """Writes `eval_results.txt` in `output_dir`, in place of that of an earlier evaluation."""
    with write_then_rename(os.path.join(output_dir, RESULTS_FILE)) as file:
        file.write("".join(f"{line}\n" for line in result_lines(step, results)).encode())


class EvaluationResults:
    """`eval_results.txt`: a block of `key = value` lines for every checkpoint evaluated.

    Args:
        output_dir: where the file lies.
        step: finished steps the run goes on from; blocks of later ones are forgotten. None forgets
            them all.
    """

    def __init__(self, output_dir: str, step: int | None = None) -> None:
        self.output_dir = output_dir
        self._path = os.path.join(output_dir, RESULTS_FILE)
        self._blocks = [
            block
            for block in (self._read() if step is not None else [])
            if step is not None and _step_of(block) <= step
        ]

    def _read(self) -> list[str]:
        if not tf.io.gfile.exists(self._path):
            return []
        # What follows the last rule belongs to no checkpoint alone, and is written anew.
        return [f"{block}{_RULE}" for block in read_utf8(self._path).split(_RULE)[:-1]]

    def append(
        self, step: int, results: Mapping[str, float | np.ndarray], best_before: float
    ) -> None:
        """Adds the `original_result_lines` of a checkpoint, in place of those of the same step.

        `best_before` is the best score of the checkpoints evaluated before; none is -1.
        """
        self.append_lines(step, original_result_lines(step, results, best_before))

    def append_lines(self, step: int, lines: Sequence[str], ending: str = "") -> None:
        """Adds the block of a checkpoint, in place of one of the same step.

        Among the lines is `global_step = <step>`. The ending stands behind the last block, in place
        of an earlier ending.
        """
        self._blocks = [block for block in self._blocks if _step_of(block) != step]
        self._blocks.append("".join(f"{line}\n" for line in lines) + _RULE)
        with write_then_rename(self._path) as file:
            file.write(("".join(self._blocks) + ending).encode())

    def lines(self, step: int) -> list[str]:
        """Returns the lines of a checkpoint's block, none where it was not evaluated."""
        blocks = [block for block in self._blocks if _step_of(block) == step]
        return blocks[-1].removesuffix(_RULE).splitlines() if blocks else []


def original_result_lines(
    step: int, results: Mapping[str, float | np.ndarray], best: float
) -> list[str]:
    """Gives results as lines `key = value` in the original's form; see `EvaluationResults`."""
    values = {name: np.asarray(value, np.float32)[()] for name, value in results.items()}
    lines = [f"{key} = {value!s}" for key, value in sorted({**values, "global_step": step}.items())]
    return [*lines, f"best = {best if np.isfinite(best) else -1}"]


def _step_of(block: str) -> int:
    match = re.search(r"^global_step = ([0-9]{1,18})$", block, re.MULTILINE)
    return int(match.group(1)) if match else -1


class BestCheckpoint:
    """Keeps the weights with the highest score `metric` as `model.ckpt-best`.

    `best_trial.txt` remembers the score for runs to come: last step, best step and best value,
    with colons between them, and the name of a score that the original would not choose by. A
    best checkpoint that was chosen by another score is not compared with.

    Attributes:
        last_step: step of the last checkpoint offered, -1 before the first.
        step: step of the best one, -1 before the first.
        value: its score.
    """

    def __init__(self, directory: TrainingDirectory, metric: str) -> None:
        self.directory = directory
        self.metric = metric
        self._name = metric if metric in _NAMED_METRICS else None  # in `best_trial.txt`
        self._path = os.path.join(directory.path, BEST_FILE)
        self.last_step, self.step, self.value = self._read()

    def _read(self) -> tuple[int, int, float]:
        if self.directory.best() is None or not tf.io.gfile.exists(self._path):
            return -1, -1, -math.inf
        found = BestTrial.read(self._path)
        if found.metric == self._name:
            return found.last_step, found.step, found.value
        logging.warning(
            "%s: the best checkpoint was not selected by %s; the next evaluated checkpoint "
            "replaces it",
            self._path,
            self.metric,
        )
        return found.last_step, -1, -math.inf

    def forget(self) -> None:
        """Lets the next checkpoint offered take the best one's place, whatever its score."""
        self.step, self.value = -1, -math.inf
        self._write(self.last_step)

    def offer(self, step: int, results: Mapping[str, float], model: keras.Model) -> bool:
        """Keeps the model's weights if their score is the best so far; NaN never is.

        Returns:
            Whether they are the best so far.
        """
        self.last_step = step
        is_best = results[self.metric] > self.value
        if is_best:
            self.step, self.value = step, results[self.metric]
            self.directory.save_best(step, model)
            logging.info("best_step=%d %s=%g", step, self.metric, self.value)
        self._write(step)
        return is_best

    def _write(self, last_step: int) -> None:
        with write_then_rename(self._path) as file:
            file.write(BestTrial(last_step, self.step, self.value, self._name).to_text().encode())


def scored_result(
    best: BestCheckpoint, history: Sequence[LoggedRecord], reported: Sequence[LoggedRecord]
) -> JobResult:
    """Returns the result of evaluations: the best checkpoint's, or else the best of this call.

    Args:
        best: after the last evaluation.
        history: see `JobResult`.
        reported: what of it this call has logged.
    """
    output_dir, history = best.directory.path, list(history)
    evaluated = {record["step"]: record for record in reported if record["phase"] == "eval"}
    chosen = next((r for r in history if (r["phase"], r["step"]) == ("eval", best.step)), None)
    if chosen is None and evaluated:
        chosen = max(evaluated.values(), key=lambda record: _comparable(record[best.metric]))
    if chosen is not None:
        scores = {name: value for name, value in chosen.items() if isinstance(value, float)}
        return JobResult(output_dir, chosen["step"], scores, history=history)
    if best.step >= 0:
        return JobResult(output_dir, best.step, {best.metric: best.value}, history=history)
    return JobResult(output_dir, history=history)


def _comparable(score: float) -> float:
    return -math.inf if math.isnan(score) else score


def should_stop_early(log: RunLog, metric: str, patience: int) -> bool:
    """Whether the last `patience` evaluations of a run had no better score; logs why.

    What counts is what `metrics.jsonl` has of all starts of the run, so that a resumed one ends
    where an unbroken one does. Of workers that record nothing it is false. NaN is never better.
    """
    evaluations = [r for r in log.records if r["phase"] == "eval" and metric in r]
    best, best_step, stale = -math.inf, -1, 0
    for record in sorted(evaluations, key=lambda record: record["step"]):
        if record[metric] > best:
            best, best_step, stale = record[metric], record["step"], 0
        else:
            stale += 1
    if stale < patience:
        return False
    logging.info(
        "Early stopping at step %d: %d evaluations without a better %s than %g, that of step %d "
        "(--early_stopping=%d)",
        max(record["step"] for record in evaluations),
        stale,
        metric,
        best,
        best_step,
        patience,
    )
    return True


def train_and_evaluate(
    trainer: Trainer,
    log: RunLog,
    evaluate: Evaluate,
    record: Record,
    last_evaluated: int,
    should_stop: Callable[[], bool] | None = None,
) -> None:
    """Trains, and evaluates at every checkpoint: each worker does that calls this.

    The chief alone records. Other workers that train wait in their next step. The trainer is
    initialized. The last evaluation of an earlier start was of the step `last_evaluated`, -1 where
    there was none. `should_stop` is that of `Trainer.train`.
    """

    def on_checkpoint(step: int) -> None:
        results = evaluate()
        log.evaluation(step, results)
        if trainer.is_chief:
            record(step, results)

    # The run that wrote the checkpoint to go on from may have ended before it was evaluated.
    is_missed = trainer.step > 0 and trainer.is_checkpoint() and last_evaluated != trainer.step
    if is_missed:
        on_checkpoint(trainer.step)
    trainer.train(log, on_checkpoint, should_stop)


def evaluate_checkpoints(
    prefixes: Iterable[str],
    model: keras.Model,
    log: EvaluationLog,
    evaluate: Evaluate,
    record: Record,
) -> None:
    """Loads one checkpoint after the other into the model and evaluates it.

    One that a training run removes meanwhile is left out.

    Raises:
        LoadError: a checkpoint is damaged, or does not hold the whole model.
    """
    for prefix in prefixes:
        try:
            step = load_complete(model, prefix)
        except LoadError:
            if tf.io.gfile.exists(prefix + ".index"):
                raise
            logging.warning("%s was removed while it was read: not evaluated", prefix)
            continue
        logging.info("Evaluating %s", prefix)
        results = evaluate()
        for line in result_lines(step, results):
            logging.info(line)
        log.evaluation(step, results)
        record(step, results)


def load_complete(model: keras.Model, prefix: str) -> int:
    """Fills the whole model, heads included, and returns the checkpoint's training step.

    Raises:
        LoadError: the checkpoint is damaged, or leaves a variable as it was.
    """
    warn_of_another_config(prefix, model.config)
    load_weights(model, prefix).check_complete()
    return read_global_step(prefix)
