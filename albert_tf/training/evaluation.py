"""Evaluation of the checkpoints of a run, their results, and the best checkpoint."""

import dataclasses
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.errors import LoadError
from albert_tf.checkpoints.facts import Meeting, changed_settings
from albert_tf.checkpoints.formats.choose import open_weights
from albert_tf.checkpoints.formats.original import BEST_FILE
from albert_tf.checkpoints.loading import load_weights
from albert_tf.checkpoints.model_directory import (
    RUN_CONFIG_FILE,
    compare_config_next_to,
    read_run_config,
)
from albert_tf.data.files import read_utf8, sync, write_file
from albert_tf.data.parallel import progress_bar
from albert_tf.modeling.losses import means
from albert_tf.modeling.ops import Ops
from albert_tf.training.cluster import Workers
from albert_tf.training.interruption import raise_if_interrupted
from albert_tf.training.objective import EvaluatedObjective, Features
from albert_tf.training.run_log import result_lines
from albert_tf.training.run_records import (
    AFTER_STEP,
    EVALUATION_KEY,
    LOSSES,
    LOWER_IS_BETTER,
    METRICS_FILE,
    BestTrial,
    Record,
    best_of,
    evaluations,
    rank,
    read_records,
)
from albert_tf.training.settings import JobResult
from albert_tf.training.strategies import check_batch_size, is_tpu, local_replicas, split_batch
from albert_tf.training.training_directory import TrainingDirectory

RESULTS_FILE = "eval_results.txt"
_RULE = "=" * 50 + "\n"

# Metrics whose name is stored in `best_trial.txt`, because the original does not have them.
_NAMED_METRICS = frozenset({"char_f1"})


def pad_batch(features: Mapping[str, tf.Tensor], batch_size: int) -> Features:
    """Pads all features, including `example_weights`, with zeros to `batch_size` rows."""
    missing = batch_size - int(next(iter(features.values())).shape[0])
    if missing == 0:
        return dict(features)
    return {
        name: tf.pad(values, [[0, missing]] + [[0, 0]] * (values.shape.rank - 1))
        for name, values in features.items()
    }


@dataclasses.dataclass(eq=False)
class Evaluator:
    """Evaluates a model, which was created under `strategy`, on the examples of a task.

    `batch_size` must be a multiple of the replicas of a process. If `max_batches` is not `None`,
    only the first batches are used. If `splits_over_workers` is true, all workers must call
    `evaluate` together. They share the batches and get the same results.
    """

    task: EvaluatedObjective
    model: keras.Model
    strategy: tf.distribute.Strategy
    batch_size: int
    max_batches: int | None = None
    _: dataclasses.KW_ONLY
    jit_compile: bool = False
    splits_over_workers: bool = False

    def __post_init__(self) -> None:
        check_batch_size(local_replicas(self.strategy), self.batch_size, "`eval_batch_size`")
        self._ops = Ops(unpads=not (self.jit_compile or is_tpu(self.strategy)))
        self._replica_sums: Callable[..., Mapping[str, Any]] = self._sums_of_replica
        if self.jit_compile and not is_tpu(self.strategy):  # TPUs compile everything
            compiled = tf.function(self._sums_of_replica, jit_compile=True, autograph=False)
            # Without the lambda, `Strategy.run` would compile all replicas as one program.
            self._replica_sums = lambda features: compiled(features)

    def evaluate(self) -> dict[str, float]:
        """Returns the weighted means of all losses and metrics, and `loss`.

        As in the original release, `loss` is the unweighted mean of the losses of the batches.
        Raises ValueError if workers read different numbers of batches.
        """
        workers = Workers(self.strategy)
        rank, size = (workers.rank, workers.size) if self.splits_over_workers else (0, 1)
        own: dict[int, Mapping[str, Any]] = {}  # sums, on the device, by the number of the batch
        count, outputs = 0, None
        data = self.task.eval_dataset(self.batch_size)
        bar = progress_bar(data, desc="evaluating", unit="batch", hidden=rank > 0, leave=False)
        with self.task.explain_read_errors():
            for batch in bar:
                raise_if_interrupted()
                if count == self.max_batches:
                    logging.warning(
                        "Only the first %d examples are evaluated (`max_eval_steps`=%d)",
                        self.max_batches * self.batch_size,
                        self.max_batches,
                    )
                    break
                if count % size == rank or outputs is None:
                    features = split_batch(self.strategy, pad_batch(batch, self.batch_size))
                    outputs = self._sums(features)
                    if count % size == rank:
                        own[count] = outputs
                count += 1
        if size > 1:
            workers.check_same(count, "The number of evaluation batches")
        # Fetched once, because fetching after every batch would stall the device.
        rows = np.zeros([count, len(tf.nest.flatten(outputs))])
        if own:
            columns = zip(*map(tf.nest.flatten, own.values()), strict=True)
            rows[list(own)] = np.stack([tf.stack(column).numpy() for column in columns], axis=1)
        if size > 1:  # exact, because only one worker has a value other than 0
            rows = workers.sum(rows)
        batches = [tf.nest.pack_sequence_as(outputs, row) for row in rows.tolist()]
        losses = [float(self.task.total_loss(batch)) for batch in batches]
        return {"loss": sum(losses) / len(losses), **means(batches)}

    @tf.function(autograph=False)
    def _sums(self, batch: Features) -> Mapping[str, Any]:
        results = self.strategy.run(self._replica_sums, args=(batch,))
        return tf.nest.map_structure(
            lambda value: tf.add_n(self.strategy.experimental_local_results(value)), results
        )

    def _sums_of_replica(self, features: Features) -> Mapping[str, Any]:
        outputs = self.model(features, training=False, ops=self._ops)
        return {**self.task.losses(outputs, features), **self.task.metrics(outputs, features)}


def write_results(output_dir: str, step: int, results: Mapping[str, float]) -> None:
    """Writes or replaces `eval_results.txt` in `output_dir`."""
    text = "".join(f"{line}\n" for line in result_lines(step, results))
    write_file(os.path.join(output_dir, RESULTS_FILE), text)


class EvaluationResults:
    """`eval_results.txt`: a block of `key = value` lines for every evaluated checkpoint.

    Earlier blocks are kept up to `step`, from which the run resumes. If `step` is `None`, all
    earlier blocks are removed.
    """

    def __init__(self, output_dir: str, step: int | None = None) -> None:
        self.output_dir = output_dir
        self._path = os.path.join(output_dir, RESULTS_FILE)
        self._blocks: dict[int, str] = {}
        if step is not None and tf.io.gfile.exists(self._path):
            # The part after the last separator summarizes all checkpoints, and is written again.
            for block in read_utf8(self._path).split(_RULE)[:-1]:
                match = re.search(r"^global_step = ([0-9]{1,18})$", block, re.MULTILINE)
                if (number := int(match[1]) if match else -1) <= step:
                    self._blocks[number] = block

    def append(
        self, step: int, results: Mapping[str, float | np.ndarray], best_before: float
    ) -> None:
        """Adds or replaces the block of a step; see `original_result_lines`."""
        self.append_lines(step, original_result_lines(step, results, best_before))

    def append_lines(self, step: int, lines: Sequence[str], ending: str = "") -> None:
        """Adds or replaces the block of a step. The file ends with `ending`.

        `lines` must contain `global_step = <step>`.
        """
        self._blocks.pop(step, None)
        self._blocks[step] = "".join(f"{line}\n" for line in lines)
        text = "".join(f"{block}{_RULE}" for block in self._blocks.values())
        write_file(self._path, text + ending)

    def lines(self, step: int) -> list[str]:
        """Returns the lines of the block of a step, or no lines if it was not evaluated."""
        return self._blocks.get(step, "").splitlines()


def original_result_lines(
    step: int, results: Mapping[str, float | np.ndarray], best: float
) -> list[str]:
    """Returns `result_lines` as float32, and a line with the best score, as in the original."""
    values = {name: np.asarray(value, np.float32)[()] for name, value in results.items()}
    lines = [f"{key} = {value!s}" for key, value in sorted({**values, "global_step": step}.items())]
    return [*lines, f"best = {best if np.isfinite(best) else -1}"]


class BestCheckpoint:
    """Keeps the weights with the best score `metric` as `model.ckpt-best`; see `rank`.

    Of checkpoints with equal ranks, the last is kept. `best_trial.txt` stores the last step, the
    best step and the best score for resumed runs; if `is_chosen`, also the name of the metric,
    because it is not the default of the task. Steps are -1 before the first evaluation.
    """

    def __init__(
        self, directory: TrainingDirectory, metric: str, *, is_chosen: bool = False
    ) -> None:
        self.directory = directory
        self.metric = metric
        # In `best_trial.txt`
        self._name = metric if is_chosen or metric in _NAMED_METRICS else None
        self._path = os.path.join(directory.path, BEST_FILE)
        self.last_step, self.step, self.value = -1, -1, -math.inf
        self._rank: tuple[float, ...] = (-math.inf,)
        self.is_comparable = True  # whether the score belongs to the evaluation of this call
        self.comparable_after = -1  # only evaluations after this step used the same data
        if directory.best() is None or not tf.io.gfile.exists(self._path):
            return
        found = BestTrial.read(self._path)
        self.last_step = found.last_step
        if found.metric == self._name:
            self.step, self.value = found.step, found.value
            self._rank = rank({**self._losses(), metric: self.value}, metric)
        else:
            logging.warning(
                "%s: the best checkpoint was not selected by %s. The next evaluated checkpoint "
                "replaces it",
                self._path,
                metric,
            )

    def forget(self) -> None:
        """Discards the best score, so that the next evaluated checkpoint becomes the best."""
        self.step, self.value, self._rank = -1, -math.inf, (-math.inf,)
        self._write(self.last_step)

    def is_better(self, step: int, results: Mapping[str, float]) -> bool:
        """Returns whether a checkpoint is better than the best one, or equal and not earlier."""
        found = rank(results, self.metric)[: len(self._rank)]  # the best loss may be unknown
        return found > self._rank or (found == self._rank and step >= self.step)

    def update_if_better(self, step: int, results: Mapping[str, float], model: keras.Model) -> bool:
        """Saves the weights if `is_better`. Returns whether they were saved."""
        sync(os.path.join(self.directory.path, METRICS_FILE))
        self.last_step = step
        is_best = self.is_better(step, results)
        if is_best:
            self.step, self._rank = step, rank(results, self.metric)
            score = self._rank[0]
            self.value = -score if self.metric in LOWER_IS_BETTER else score
            self.directory.save_best(step, model)
        self._write(step)
        return is_best

    def _losses(self) -> Record:
        """Returns the losses of the best checkpoint, which `best_trial.txt` does not contain."""
        path = os.path.join(self.directory.path, METRICS_FILE)
        records = read_records(path) if tf.io.gfile.exists(path) else []
        evaluated = [r for r in records if (r["phase"], r["step"]) == ("eval", self.step)]
        return {key: evaluated[-1][key] for key in LOSSES if evaluated and key in evaluated[-1]}

    def _write(self, last_step: int) -> None:
        write_file(self._path, BestTrial(last_step, self.step, self.value, self._name).to_text())


def comparable_evaluation(
    best: BestCheckpoint, described: Mapping[str, Any] | None, *, is_over: bool = False
) -> dict[str, Any]:
    """Returns the evaluation for `run_config.json`: `described`, or the stored one if `None`.

    If the evaluation data or the metric differ from the stored description, the score of the best
    checkpoint is discarded. If the run is over, the checkpoint and its score are kept, but the
    score is not reported. Only evaluations after `AFTER_STEP` can be compared.
    """
    stored = read_run_config(best.directory.path).get(EVALUATION_KEY)
    stored = stored if isinstance(stored, dict) else {}
    if described is None:
        return stored
    best.comparable_after = stored.get(AFTER_STEP, -1)
    known, now = {EVALUATION_KEY: stored}, {EVALUATION_KEY: described}
    changed = changed_settings({RUN_CONFIG_FILE: known, "this run": now}, Meeting.EVALUATE)
    best.is_comparable = not (changed and is_over)
    if changed and not is_over:
        newest = best.directory.newest()
        best.comparable_after = int(newest.rsplit("-", 1)[1]) if newest else -1
        if best.step >= 0:
            logging.warning(
                "The best checkpoint (step %d) was selected by another evaluation: %s. The next "
                "evaluated checkpoint replaces it",
                best.step,
                "; ".join(changed),
            )
            best.forget()
    return {**described, AFTER_STEP: best.comparable_after}


def scored_result(
    best: BestCheckpoint, history: Sequence[Record], reported: Sequence[Record]
) -> JobResult:
    """Returns the scores of the best checkpoint, otherwise the best scores in `reported`.

    `history` contains all records of the run, and `reported` the records of this call.
    """
    output_dir, history = best.directory.path, list(history)
    if best.step >= 0:
        logging.info("Best checkpoint: step %d, %s=%.4f", best.step, best.metric, best.value)
    if not best.is_comparable:
        return JobResult(output_dir, best.step if best.step >= 0 else None, history=history)
    evaluated = (record for record in reported if record["phase"] == "eval")
    known: Record = {"step": best.step, best.metric: best.value}  # if the run lost the record
    of_best = (r for r in history if (r["phase"], r["step"]) == ("eval", best.step))
    chosen = next(of_best, known) if best.step >= 0 else best_of(evaluated, best.metric)
    if chosen is None:
        return JobResult(output_dir, history=history)
    scores = {name: value for name, value in chosen.items() if isinstance(value, float)}
    return JobResult(output_dir, chosen["step"], scores, history=history)


def should_stop_early(history: Sequence[Record], best: BestCheckpoint, patience: int) -> bool:
    """Returns whether the last `patience` evaluations of a run did not improve the `rank`.

    Earlier starts of the run count, so a resumed run ends at the same step.
    """
    metric = best.metric
    found = sorted(evaluations(history, metric, best.comparable_after), key=lambda r: r["step"])
    ranks = [(-math.inf,), *(rank(record, metric) for record in found)]
    stale = len(found) - ranks.index(max(ranks))
    chosen = best_of(found, metric)
    if chosen is None or stale < patience:
        return False
    logging.info(
        "Early stopping at step %d: %d evaluations without a better %s than %g at step %d "
        "(`early_stopping`=%d)",
        *(found[-1]["step"], stale, metric, chosen[metric], chosen["step"], patience),
    )
    return True


def loaded_checkpoints(prefixes: Iterable[str], model: keras.Model) -> Iterator[int]:
    """Loads checkpoints one after the other, and yields the step of each."""
    for prefix in prefixes:
        try:
            step = load_complete(model, prefix)
        except LoadError:
            if tf.io.gfile.exists(prefix + ".index"):
                raise
            logging.warning("%s is skipped, because a training run has removed it", prefix)
            continue
        logging.info("Evaluating %s", prefix)
        yield step


def load_complete(model: keras.Model, prefix: str) -> int:
    """Loads all weights of the model from a checkpoint. Returns its step."""
    compare_config_next_to(prefix, model.config)
    weights = open_weights(prefix)
    report = load_weights(model, weights)
    if report.has_no_head:
        raise LoadError(
            f"{prefix} has no head for this task, which `do_train`=False requires. Train the head "
            "with `do_train`, or pass a model that was trained for this task as `init_checkpoint`."
        )
    report.check_complete()
    return weights.global_step
