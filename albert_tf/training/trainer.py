"""The training loop: steps, reports, checkpoints, resuming and stopping."""

from __future__ import annotations

import dataclasses
import json
import math
import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.loading import load_weights
from albert_tf.checkpoints.stored_model import Weights
from albert_tf.data.errors import UserError
from albert_tf.modeling.losses import means
from albert_tf.training.cluster import Workers, explain_lost_workers, num_workers
from albert_tf.training.interruption import Interruption
from albert_tf.training.objective import Features, Objective, Shard, StreamIterator
from albert_tf.training.profiler import create_profiler
from albert_tf.training.run_log import RunLog
from albert_tf.training.settings import OptimizerConfig, TrainerConfig
from albert_tf.training.step import TrainingStep
from albert_tf.training.strategies import check_batch_size, is_tpu, local_replicas, split_batch
from albert_tf.training.training_directory import TrainingDirectory

_LOSS_SCALE = "loss_scale"  # key in the description of the input
# Converts the next batches to the argument of a step.
Prepare = Callable[[Sequence[Features]], Any]


def input_positions(iterator: Any) -> dict[str, Any]:
    """Returns the `tf.data` iterators of an iterator by their names in checkpoints."""
    if isinstance(iterator, StreamIterator):
        return {f"stream_{number}": stream for number, stream in iterator.streams.items()}
    return {"iterator": iterator}


@dataclasses.dataclass
class TrainingInput:
    """The source of batches: an endless `tf.data` iterator or a `StreamIterator`.

    The trainer does not read beyond the next checkpoint, so it can save the position of `iterator`
    unless reading has failed (`is_broken`). A resumed run compares the `description`.
    """

    iterator: Any
    description: Mapping[str, Any]
    is_broken: bool = False

    def __post_init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="training_input")
        self._ahead: Future[Any] | None = None

    def read_ahead(self, count: int, prepare: Prepare) -> None:
        """Starts reading batches for a call of `take` with the same arguments."""
        assert self._ahead is None
        self._ahead = self._thread.submit(self._read, count, prepare)

    def take(self, count: int, prepare: Prepare) -> Any:
        """Returns the result of `prepare` for the next `count` batches.

        Raises the errors of reading, including reading ahead.
        """
        self.is_broken = True
        if self._ahead is None:
            self.read_ahead(count, prepare)
        assert self._ahead is not None
        prepared = self._ahead.result()
        self._ahead = None
        self.is_broken = False
        return prepared

    def _read(self, count: int, prepare: Prepare) -> Any:
        return prepare([next(self.iterator) for _ in range(count)])

    @property
    def is_ahead(self) -> bool:
        """Whether batches were read ahead, or are being read ahead."""
        return self._ahead is not None

    def close(self) -> None:
        """Waits until the thread ends, because it may run Python code, such as masking."""
        self._thread.shutdown(cancel_futures=True)

    @property
    def has_one_shape(self) -> bool:
        """Whether all batches have the same shape."""
        return all(spec.shape.is_fully_defined() for spec in self.iterator.element_spec.values())

    def prepared_spec(self, prepare: Prepare, *, is_several: bool) -> dict[str, tf.TypeSpec]:
        """Returns the spec of the results of `prepare` for batches of any length.

        If `is_several` is true, the number of batches is also variable.
        """

        def prepare_zeros(unknown: int) -> Any:
            zeros = {
                name: tf.zeros([unknown if n is None else n for n in spec.shape], spec.dtype)
                for name, spec in self.iterator.element_spec.items()
            }
            return prepare([zeros] * (unknown if is_several else 1))

        one, other = prepare_zeros(1), prepare_zeros(2)
        return {
            name: tf.type_spec_from_value(one[name]).most_specific_common_supertype(
                [tf.type_spec_from_value(other[name])]
            )
            for name in one
        }


class StopVote:
    """Decides at which step training stops after a signal: the same step on all workers."""

    def __init__(self, workers: Workers, interruption: Interruption, *, is_alone: bool) -> None:
        self._workers = workers
        self._interruption = interruption
        self._is_alone = is_alone
        self._is_agreed = False  # whether a step has summed a request of any worker

    @property
    def _asks(self) -> bool:
        return self._interruption.signal is not None

    @property
    def is_decided(self) -> bool:
        """Whether all workers know that training stops."""
        return self._is_agreed or (self._is_alone and self._asks)

    def request(self) -> tuple[tf.Tensor, ...]:
        """Returns the argument of a step, which sums the requests of all workers."""
        return () if self._is_alone else (tf.constant(self._asks, tf.float32),)

    def count(self, results: dict[str, Any]) -> None:
        """Takes the sum of the requests from the results of a step."""
        self._is_agreed |= bool(np.any(results.pop("stop_requests", False)))

    def close(self) -> bool:
        """Returns, on all workers before a checkpoint, whether any of them stops."""
        return self._workers.any(self._is_agreed or self._asks)


@dataclasses.dataclass(eq=False)
class Trainer:
    """Trains the model of a task on the replicas of a strategy.

    `step` is the number of finished steps, and training ends at `last_step`. `replicas` is the
    number of replicas of all workers, even in a dry run, which does not connect them. `train_step`
    is `TrainingStep.update`. For `profile_steps` see `create_profiler`.
    """

    task: Objective
    config: TrainerConfig
    optimizer_config: OptimizerConfig
    strategy: tf.distribute.Strategy
    profile_steps: str | None = None

    def __post_init__(self) -> None:
        config, strategy = self.config, self.strategy
        self.last_step = self.optimizer_config.num_train_steps
        self.profiler = create_profiler(self.profile_steps, config.output_dir, self.last_step)
        self.replicas = local_replicas(strategy) * num_workers()
        check_batch_size(
            self.replicas,
            config.train_batch_size,
            "`train_batch_size`",
            micro_batches=config.gradient_accumulation_steps,
        )
        self.directory = TrainingDirectory(config.output_dir, config.keep_checkpoint_max)
        self.workers = Workers(strategy)
        self.is_chief = self.workers.is_chief
        if not self.is_chief:
            self.profiler = create_profiler(None, config.output_dir, self.last_step)
        self.step = 0
        self._saved_step = 0
        self._is_alone = self.workers.size == 1
        self._steps_per_call = config.iterations_per_loop
        self._training = TrainingStep(self.task, config, self.optimizer_config, strategy)
        self.model, self.optimizer = self._training.model, self._training.optimizer
        self.train_step = self._training.update

    def initialize(self, init_checkpoint: str | Weights | None = None, **options: Any) -> None:
        """Loads the newest checkpoint of the run, otherwise `init_checkpoint`.

        For the arguments see `load_weights`. Raises LoadError if a checkpoint does not fit
        the model, and ValueError if the workers load different checkpoints.
        """
        details: list[str] = []
        restored = self.directory.restore_newest(self.model, self.optimizer)
        if restored is not None:
            newest, self.step = restored
            self._saved_step = self.step
            unused = f"; `init_checkpoint`={init_checkpoint} is not used" if init_checkpoint else ""
            start = f"Resuming from {newest} at step {self.step}{unused}"
        elif init_checkpoint:
            report = load_weights(self.model, init_checkpoint, **options)
            start, *details = f"Starting from {report.summary()}".splitlines()
            level = logging.DEBUG if report.is_usual else logging.INFO
        else:
            start = f"Starting from random weights, seed={self.config.seed}"
        logging.info(start)
        for line in details:
            logging.log(level, line)
        self.workers.check_same(self.step, "The newest step in `output_dir`")

    def is_checkpoint(self, step: int) -> bool:
        """Returns whether a checkpoint is due after `step` steps."""
        return step % self.config.save_checkpoints_steps == 0 or step == self.last_step

    def checkpoints(self, log: RunLog) -> Generator[int]:
        """Trains up to `num_train_steps`, and yields the step of each checkpoint once it is saved.

        A resumed run first yields the step from which it resumes. The caller may evaluate the model
        before it requests the next checkpoint, and may stop earlier by closing the generator. With
        several workers, all must stop at the same step. Reports are written to `log`.

        Raises:
            TrainingDivergedError: training diverged. Steps after the newest checkpoint are lost.
            TrainingInterrupted, KeyboardInterrupt: a signal was received, and all steps were saved.
            RecordError: a record cannot be read. The steps before it were saved.
            LostWorkerError: another worker has ended.
            SaveError: a checkpoint cannot be written.
        """
        if self.step:
            yield self.step
        if self.step >= self.last_step:
            logging.info("Nothing to train: step %d of %d is reached", self.step, self.last_step)
            return
        with explain_lost_workers(), ExitStack() as stack:
            source = self._input()
            stack.callback(source.close)
            if self._steps_per_call > 1 and not source.has_one_shape:
                logging.info("`iterations_per_loop` has no effect: batches have several lengths")
                self._steps_per_call = 1
            logging.debug("Training step: %s", self._training.describe())
            stack.callback(self.profiler.close)
            self._trace(source, log)
            interruption = stack.enter_context(Interruption())
            vote = StopVote(self.workers, interruption, is_alone=self._is_alone)
            while self.step < self.last_step:
                is_interrupted = self._train_to_checkpoint(source, log, vote)
                with log.pause():
                    self._save(source)
                if is_interrupted:
                    self.workers.wait()
                    raise interruption.stopped(self.step)
                # Several workers must stop at the same step, not during an evaluation.
                evaluation = interruption.evaluation if self._is_alone else nullcontext
                with log.pause(), evaluation(self.step):
                    yield self.step

    def _train_to_checkpoint(self, source: TrainingInput, log: RunLog, vote: StopVote) -> bool:
        """Trains until a checkpoint is due; returns whether any worker received a signal."""
        unreported: list[Mapping[str, Any]] = []
        while True:
            count = self._steps_together(self.step)
            try:
                with self.task.explain_read_errors():
                    batches = source.take(count, self._prepare)
            except Exception:  # the steps so far must not be lost
                self._report(log, unreported)
                self._save(source)
                raise
            following = self.step + count
            if not (vote.is_decided or self.is_checkpoint(following) or source.is_ahead):
                source.read_ahead(self._steps_together(following), self._prepare)
            with self.profiler.steps(self.step + 1, count):
                results = dict(self._function()(batches, *vote.request()))
                self.step = following
            log.advance(self.step, results)
            vote.count(results)
            unreported.append(results)
            is_due = self.is_checkpoint(self.step) or (vote.is_decided and not source.is_ahead)
            stops = is_due and vote.close()
            if is_due or self._ends_report(self.step):
                self._report(log, unreported)
                unreported = []
            if is_due:
                return stops

    def _steps_together(self, step: int) -> int:
        """Returns the number of steps of the next call: up to the next report or checkpoint."""
        ends = range(step + 1, step + self._steps_per_call)
        return next((end - step for end in ends if self._ends_report(end)), self._steps_per_call)

    def _ends_report(self, step: int) -> bool:
        return step % self.config.log_steps == 0 or self.is_checkpoint(step)

    def _prepare(self, batches: Sequence[Features]) -> Any:
        """Converts batches to the argument of `_function`. Runs in a thread."""
        with tf.device("CPU:0"):  # on a GPU, this would wait for the current step
            split = [split_batch(self.strategy, batch) for batch in batches]
            if self._steps_per_call == 1:
                return split[0]
            return tf.nest.map_structure(
                lambda *values: tf.stack(values), *split, expand_composites=True
            )

    def _function(self) -> Any:
        return self._training.update if self._steps_per_call == 1 else self._training.updates

    def _trace(self, source: TrainingInput, log: RunLog) -> None:
        """Traces one program for all lengths, so that a resumed run has the same rounding."""
        has_lengths = is_tpu(self.strategy) and not source.has_one_shape
        if has_lengths or tf.config.functions_run_eagerly():
            return
        with log.pause():
            spec = source.prepared_spec(self._prepare, is_several=self._steps_per_call > 1)
            request = () if self._is_alone else (tf.TensorSpec([], tf.float32),)
            self._function().get_concrete_function(spec, *request)

    def _input(self) -> TrainingInput:
        """Returns the training input at the position stored in the restored checkpoint."""
        batch_size, seed = self.config.train_batch_size, self.config.seed
        description = {
            **self.task.describe_input(),
            "train_batch_size": batch_size,
            "seed": seed,
            "order_seed": seed,
        }
        newest = self.directory.newest() if self.step else None
        if newest is not None:
            stored = self.directory.input_description(newest) or {}
            description["order_seed"] = stored.get("order_seed", seed)
            if self._training.loss_scale is not None:
                self._training.loss_scale.restore(stored.get(_LOSS_SCALE, {}))
        iterator = self._batches(description["order_seed"])
        if isinstance(iterator, StreamIterator):
            description["streams"] = iterator.count
        positions = input_positions(iterator)
        if newest and not self.directory.restore_input(newest, positions, description):
            # A new order, because the model has seen the beginning of the old one.
            description["order_seed"] = seed + self.step
            iterator = self._batches(seed + self.step)
        settings = (description, vars(self.config), vars(self.optimizer_config))
        digest = zlib.crc32(json.dumps(settings).encode())
        self.workers.check_same(digest, "The digest of settings, names and sizes of input files")
        return TrainingInput(iterator, description)

    def _batches(self, order_seed: int) -> Any:
        shard = Shard(self.workers.rank, self.workers.size)
        return iter(self.task.train_dataset(self.config.train_batch_size, order_seed, shard))

    def _save(self, source: TrainingInput) -> None:
        """Writes a checkpoint of finite weights unless the checkpoint of this step exists."""
        if self.step == self._saved_step:
            return
        # The loss of a step does not depend on the update of this step.
        if not all(tf.reduce_all(tf.math.is_finite(v)) for v in self._training.variables):
            raise self._diverged(f"Step {self.step}: the updated weights are not finite")
        positions = None if source.is_broken else input_positions(source.iterator)
        others = self._save_other_positions(positions)
        if self.is_chief:
            description = dict(source.description)
            if self._training.loss_scale is not None:
                description[_LOSS_SCALE] = self._training.loss_scale.state()
            self.directory.save(
                self.step, self.model, self.optimizer, positions, description, others
            )
        self._saved_step = self.step

    def _save_other_positions(self, positions: Mapping[str, Any] | None) -> list[dict[str, Any]]:
        """Saves this worker's input position. The chief returns the positions of other workers."""
        # `None` means that reading has failed. Other workers then do not reach this point.
        if self.workers.size == 1 or positions is None:
            return []
        if self.workers.rank:
            self.directory.save_positions(self.step, self.workers.rank, positions)
        self.workers.gather(self.step)
        others = range(1, self.workers.size) if self.is_chief else ()
        return [self.directory.saved_positions(self.step, n) for n in others]

    def _report(self, log: RunLog, steps: list[Mapping[str, Any]]) -> None:
        """Logs the steps since the last report. Raises TrainingDivergedError."""
        if not steps:
            return
        steps = [step for results in steps for step in _each_step(results)]
        first = self.step - len(steps) + 1
        # After an overflow in float16, the numbers of a step are meaningless.
        updates = {n: step for n, step in enumerate(steps, first) if not step.get("is_skipped")}
        losses = [float(self.task.total_loss(step["sums"])) for step in updates.values()]
        norms = [step["gradient_norm"] for step in updates.values()]
        for number, loss, norm in zip(updates, losses, norms, strict=True):
            for name, term in updates[number]["sums"].items():
                if name.endswith("loss") and not term.weight:
                    raise UserError(f"Step {number} has no {name}. {self.task.WITHOUT_LABELS}")
            if not (math.isfinite(loss) and math.isfinite(norm)):
                raise self._diverged(f"Step {number}: loss={loss}, gradient_norm={norm}")
        metrics = {"learning_rate": steps[-1]["learning_rate"]}
        if updates:
            metrics = {
                "loss": sum(losses) / len(losses),
                **means([step["sums"] for step in updates.values()]),
                "gradient_norm": sum(norms) / len(norms),
                **metrics,
            }
        if self._training.loss_scale is not None:
            metrics["loss_scale"] = steps[-1]["loss_scale"]
            metrics["skipped_steps"] = float(len(steps) - len(updates))
        log.train(self.step, metrics, len(steps) * self.config.train_batch_size)

    def _diverged(self, problem: str) -> TrainingDivergedError:
        newest = self.directory.newest()
        state = f"The newest checkpoint is {newest}" if newest else "There is no checkpoint yet"
        return TrainingDivergedError(
            f"{problem}. {state}. Start the run again with another `seed`, a lower "
            f"`learning_rate`, a longer warm-up or a larger `train_batch_size`."
        )


def _each_step(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the numbers of each step, given numbers [] of one step or [N] of several steps."""
    arrays = tf.nest.map_structure(lambda value: np.atleast_1d(value.numpy()), results)
    count = len(tf.nest.flatten(arrays)[0])
    return [tf.nest.map_structure(lambda a: float(a[n]), arrays) for n in range(count)]  # noqa: B023


class TrainingDivergedError(UserError):
    """The loss, the gradients or the weights became NaN or infinite."""
