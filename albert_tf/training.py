"""The trainer: one step, the loop around it, resuming, stopping and going back.

A step, in order: forward pass under the tape, loss sums, division by the weights of all replicas,
gradients, their sum over micro-batches and replicas, clipping of that sum by its global norm,
update. Clipping after the reduction makes the number of replicas invisible in the weights, and that
of micro-batches too.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from albert_tf.accumulation import SumsAndGradients, accumulate
from albert_tf.checkpoints.original import load_weights, original_names
from albert_tf.checkpoints.training_directory import TrainingDirectory
from albert_tf.config import FLOAT16, OptimizerConfig, TrainerConfig
from albert_tf.data.damaged_records import SkippedRecords
from albert_tf.distribution import (
    check_batch_size,
    is_chief,
    is_tpu,
    split_batch,
    split_batch_spec,
    worker_shard,
)
from albert_tf.divergence import DivergenceGuard, TrainingDivergedError
from albert_tf.interruption import Interruption
from albert_tf.loss_scale import LossScale
from albert_tf.losses import LossSum, means
from albert_tf.optimization import clip_by_global_norm, create_optimizer
from albert_tf.precision import build_model
from albert_tf.run_log import RunLog
from albert_tf.tasks.base import Features, Task
from albert_tf.training_input import TrainingInput
from albert_tf.workers import (
    explain_lost_workers,
    is_any_worker,
    values_of_workers,
    wait_for_workers,
)

# In the description of the input, beside what decides it: what else a resumed run must know.
_GUARD, _SKIPPED, _LOSS_SCALE = "divergence", "skipped_records", "loss_scale"


class Trainer:
    """Trains the model of a task.

    Args:
        task: data, model, losses.
        config: how the run is carried out.
        optimizer_config: update rule and learning rate.
        strategy: the replicas.

    Raises:
        ValueError: the batch cannot be shared by the replicas and their micro-batches.

    Attributes:
        train_step: makes one update from a batch that `split_batch` split; returns what is
            reported of it, tensors: the sums, the gradient's norm, the learning rate.
        model: the task's model, under the strategy.
        optimizer: the optimizer, its moments created.
        directory: the checkpoints of the run.
        is_chief: whether this process writes what all workers share.
        step: finished steps.
    """

    def __init__(
        self,
        task: Task,
        config: TrainerConfig,
        optimizer_config: OptimizerConfig,
        strategy: tf.distribute.Strategy,
    ) -> None:
        check_batch_size(
            strategy.num_replicas_in_sync,
            config.train_batch_size,
            "--train_batch_size",
            micro_batches=config.gradient_accumulation_steps,
        )
        self.task = task
        self.config = config
        self.optimizer_config = optimizer_config
        self.strategy = strategy
        self.directory = TrainingDirectory(config.output_dir, config.keep_checkpoint_max)
        self.is_chief = is_chief(strategy)
        self.step = 0
        self._saved_step = 0
        self._guard = DivergenceGuard(config)
        keras.utils.set_random_seed(config.seed)
        self.model = build_model(
            task.build_model, config.precision, strategy, jit_compile=config.jit_compile
        )
        with strategy.scope():
            self._loss_scale = LossScale() if config.precision == FLOAT16 else None
            self.model.encoder.remat = config.remat
            self.optimizer = create_optimizer(optimizer_config)
            self._variables = [v for v in original_names(self.model).values() if v.trainable]
            self.optimizer.build(self._variables)
        # A TPU compiles everything, asked or not.
        jit_compile = (config.jit_compile and not is_tpu(strategy)) or None
        self._gradients = tf.function(
            self._loss_sums_and_gradients, jit_compile=jit_compile, autograph=False
        )
        # Called without `train`, it is traced for the first length, and once more for all others.
        self.train_step = tf.function(
            self._train_step,
            autograph=False,
            reduce_retracing=True,
            # XLA takes the whole step; several replicas meet outside of what it compiles.
            jit_compile=jit_compile if strategy.num_replicas_in_sync == 1 else None,
        )

    def initialize(
        self,
        init_checkpoint: str | None = None,
        *,
        init_from_group0: bool = False,
        allow_partial: bool = False,
        skip: Mapping[str, str] | None = None,
    ) -> None:
        """Settles what the run starts from: its own newest checkpoint, else the given one.

        Args:
            init_checkpoint: see `load_weights`; used by a fresh run alone.
            init_from_group0: see `load_weights`.
            allow_partial: see `load_weights`.
            skip: see `load_weights`.

        Raises:
            LoadError: a checkpoint that does not fit the model.
            ValueError: other workers see another checkpoint.
        """
        newest = self._restore_newest()
        if newest is not None:
            unused = f"; --init_checkpoint={init_checkpoint} is not used" if init_checkpoint else ""
            logging.info("Resuming from %s at step %d%s", newest, self.step, unused)
        elif init_checkpoint:
            report = load_weights(
                self.model,
                init_checkpoint,
                init_from_group0=init_from_group0,
                allow_partial=allow_partial,
                skip=skip,
            )
            logging.info("Starting from %s", report.summary())
        else:
            logging.info("Starting from random weights, seed=%d", self.config.seed)
        self._check_same_step()

    def _check_same_step(self) -> None:
        """Raises ValueError unless all workers go on from the same step."""
        steps = values_of_workers(self.strategy, self.step)
        if len(set(steps)) > 1:
            seen = ", ".join(f"worker {number}: {step}" for number, step in enumerate(steps))
            raise ValueError(
                f"The workers do not see the same checkpoints in --output_dir="
                f"{self.config.output_dir} (newest step of {seen}). It must be one directory that "
                "all of them reach by this name: on a shared file system, or gs://."
            )

    def _restore_newest(self) -> str | None:
        """Goes to the newest checkpoint that is whole; returns its prefix, None without one."""
        restored = self.directory.restore_newest(self.model, self.optimizer)
        if restored is None:
            return None
        newest, self.step = restored
        self._saved_step = self.step
        return newest

    def is_checkpoint(self) -> bool:
        """Whether a checkpoint is due at the present step."""
        last = self.optimizer_config.num_train_steps
        return self.step % self.config.save_checkpoints_steps == 0 or self.step == last

    @explain_lost_workers()
    def train(self, log: RunLog, on_checkpoint: Callable[[int], None] | None = None) -> None:
        """Trains up to `num_train_steps`, reporting and saving on the way.

        Args:
            log: told of every interval.
            on_checkpoint: called with the step after each checkpoint, by the chief alone: the
                other workers wait in their next step. It must not reduce over the workers.

        Raises:
            LostWorkerError: another worker has ended.
            TrainingDivergedError: a number is not finite, or the loss jumped, and training does not
                go back, or did so in vain; nothing was saved since.
            TrainingInterrupted: a signal asked for the end; the steps so far were saved.
            RecordError: a record cannot be read; the message names it. The steps before it were
                saved.
            SaveError: a checkpoint cannot be written.
        """
        last = self.optimizer_config.num_train_steps
        if self.step >= last:
            logging.info("Nothing to train: step %d of %d is done already", self.step, last)
            return
        source = self._input()
        # One graph for all lengths: one made for the length that happens to come first rounds
        # otherwise, and a resumed run begins with another length than the unbroken one.
        self.train_step.get_concrete_function(split_batch_spec(self.strategy, source.batch_spec))
        with Interruption() as interruption:
            while self.step < last:
                try:
                    stops = self._train_to_checkpoint(source, log, interruption)
                    with log.pause():
                        self._save(source)
                except TrainingDivergedError as error:
                    if source.is_broken or not self._may_roll_back():
                        raise
                    self._roll_back(error.problem, log)
                    continue
                if stops:
                    wait_for_workers(self.strategy)
                    raise interruption.stopped(self.step)
                if on_checkpoint and self.is_chief:
                    with log.pause(), interruption.nothing_to_save(self.step):
                        on_checkpoint(self.step)

    def _train_to_checkpoint(
        self, source: TrainingInput, log: RunLog, interruption: Interruption
    ) -> bool:
        """Trains until a checkpoint is due, or earlier where a signal asks for one.

        Returns:
            Whether a signal asks for the end of the training; the same on all workers.
        """
        unreported: list[Mapping[str, Any]] = []
        while True:
            try:
                with self.task.explain_read_errors():
                    batch = source.next_batch()
            except Exception:  # whatever it is, the steps so far must not be lost
                self._report(log, unreported, source)
                self._save(source)
                raise
            unreported.append(self.train_step(split_batch(self.strategy, batch)))
            self.step += 1
            log.advance(self.step)
            stops = is_any_worker(self.strategy, interruption.signal is not None)
            is_due = stops or self.is_checkpoint()
            if is_due or self.step % self.config.log_steps == 0:
                self._report(log, unreported, source)
                unreported = []
            if is_due:
                return stops

    def _may_roll_back(self) -> bool:
        return self._guard.may_roll_back() and self.directory.newest() is not None

    def _roll_back(self, problem: str, log: RunLog) -> None:
        """Goes back to the newest checkpoint; the input stays, so that its batches are skipped."""
        diverged = self.step
        self._restore_newest()
        self._check_same_step()
        batches = diverged - self.step
        self._guard.rolled_back(batches)
        logging.warning(
            "%s. Going back to step %d; %d batches are skipped", problem, self.step, batches
        )
        log.roll_back(
            self.step,
            {"roll_backs": self._guard.roll_backs, "skipped_batches": self._guard.skipped_batches},
        )

    def _input(self) -> TrainingInput:
        """The training input, where the checkpoint the run resumes from left it."""
        batch_size, seed = self.config.train_batch_size, self.config.seed
        description = {
            **self.task.describe_input(),
            "train_batch_size": batch_size,
            "seed": seed,
            "order_seed": seed,
        }
        newest = self.directory.newest() if self.step else None
        skipped = SkippedRecords()
        if newest is not None:
            stored = self.directory.input_description(newest) or {}
            description["order_seed"] = stored.get("order_seed", seed)
            self._guard.restore(stored.get(_GUARD, {}))
            skipped = SkippedRecords(stored.get(_SKIPPED, ()))
            if self._loss_scale is not None:
                self._loss_scale.restore(stored.get(_LOSS_SCALE, {}))
        iterator = self._batches(description["order_seed"])
        if newest and not self.directory.restore_input(newest, iterator, description):
            # Another order than that of the run's beginning, which the model has seen.
            description["order_seed"] = seed + self.step
            iterator = self._batches(seed + self.step)
        self._check_same_settings(description)
        return TrainingInput(iterator, description, skipped)

    def _batches(self, order_seed: int) -> Any:
        """An iterator over this worker's rows of the batches."""
        shard = worker_shard(self.strategy)
        return iter(self.task.train_dataset(self.config.train_batch_size, order_seed, shard))

    def _check_same_settings(self, input_description: Mapping[str, Any]) -> None:
        """Raises ValueError unless all workers read the same input and train in the same way."""
        settings = (input_description, vars(self.config), vars(self.optimizer_config))
        digests = values_of_workers(self.strategy, zlib.crc32(json.dumps(settings).encode()))
        if len(set(digests)) > 1:
            raise ValueError(
                "The workers do not train alike: their flags, or the names or sizes of their input "
                f"files, differ (digests by worker: {', '.join(map(str, digests))}). Start all of "
                "them with the same flags, on the same files."
            )

    def _save(self, source: TrainingInput) -> None:
        """Writes a checkpoint, unless it is there already; never of weights that went bad.

        Raises:
            SaveError: it cannot be written.
            TrainingDivergedError: a weight is not finite.
        """
        if self.step == self._saved_step:
            return
        # The losses cannot tell: they were computed before the last update.
        if not all(tf.reduce_all(tf.math.is_finite(v)) for v in self._variables):
            raise self._diverged(f"Step {self.step}: the updated weights are not finite")
        scaling = {_LOSS_SCALE: self._loss_scale.state()} if self._loss_scale is not None else {}
        if self.is_chief:
            self.directory.save(
                self.step,
                self.model,
                self.optimizer,
                source.saved_iterator(),
                {
                    **source.description,
                    _GUARD: self._guard.state(),
                    _SKIPPED: list(source.skipped.places),
                    **scaling,
                },
            )
        self._saved_step = self.step
        self._guard.saved()

    def _train_step(self, batch: Features) -> dict[str, Any]:
        results = self.strategy.run(self._replica_step, args=(batch,))
        # The same on every replica: sums over all of them.
        return tf.nest.map_structure(
            lambda value: self.strategy.experimental_local_results(value)[0], results
        )

    def _replica_step(self, features: Features) -> dict[str, Any]:
        replica = tf.distribute.get_replica_context()

        def sum_over_replicas(values: Any) -> Any:
            return replica.all_reduce(tf.distribute.ReduceOp.SUM, values)

        weights = sum_over_replicas(self.task.loss_weights(features))
        step = tf.cast(self.optimizer.iterations, tf.int32)
        sums, gradients = self._gradients(features, weights, self._dropout_seed(step))
        # A variable the loss does not reach is left out, as in the original.
        trained = [v for v, g in zip(self._variables, gradients, strict=True) if g is not None]
        sums, gradients = sum_over_replicas((sums, [g for g in gradients if g is not None]))
        scaling = {}
        if self._loss_scale is not None:
            scaling["loss_scale"] = tf.convert_to_tensor(self._loss_scale.scale)
            gradients = self._loss_scale.unscaled(gradients)
        gradients, norm = clip_by_global_norm(gradients, self.optimizer_config.clip_norm)
        if self._loss_scale is not None:
            scaling["is_skipped"] = self._loss_scale.update(norm)
        rate = self.optimizer.learning_rate
        self.optimizer.apply_reduced(gradients, trained, rate, scaling.get("is_skipped"))
        return {"sums": sums, "gradient_norm": norm, "learning_rate": rate, **scaling}

    def _dropout_seed(self, step: tf.Tensor) -> tf.Tensor:
        """int32 [2]: other masks in every step and on every replica, the same after a resume."""
        replica_id = tf.distribute.get_replica_context().replica_id_in_sync_group
        seed = tf.stack([tf.constant(self.config.seed, tf.int32), step])
        return tf.random.experimental.stateless_fold_in(seed, replica_id)

    def _loss_sums_and_gradients(
        self, features: Features, weights: Mapping[str, tf.Tensor], dropout_seed: tf.Tensor
    ) -> SumsAndGradients:
        """The sums of this replica's batch, and its share of the gradient of the whole batch.

        Args:
            features: the replica's batch.
            weights: of each loss, over all replicas and micro-batches.
            dropout_seed: int32 [2].
        """
        num_steps = self.config.gradient_accumulation_steps
        if num_steps == 1:
            return self._micro_step(features, weights, dropout_seed)

        def micro_step(part: Features, number: tf.Tensor) -> SumsAndGradients:
            seed = tf.random.experimental.stateless_fold_in(dropout_seed, number)
            return self._micro_step(part, weights, seed)

        return accumulate(micro_step, features, self._variables, num_steps)

    def _micro_step(
        self, features: Features, weights: Mapping[str, tf.Tensor], dropout_seed: tf.Tensor
    ) -> SumsAndGradients:
        """The same for the rows that are in memory at a time."""
        variables = [variable.value for variable in self._variables]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            outputs = self.model(features, training=True, dropout_seed=dropout_seed)
            losses = self.task.losses(outputs, features)
            # These rows' share of the loss: shares add up, because the weights are everyone's.
            share = self.task.total_loss(
                {name: LossSum(term.sum, weights[name]) for name, term in losses.items()}
            )
            if self._loss_scale is not None:
                share *= self._loss_scale.scale
        return {**losses, **self.task.metrics(outputs, features)}, tape.gradient(share, variables)

    def _report(self, log: RunLog, steps: list[Mapping[str, Any]], source: TrainingInput) -> None:
        """Tells the log of the steps since its last report.

        Raises:
            TrainingDivergedError: a number among them is not finite.
        """
        if not steps:
            return
        steps = tf.nest.map_structure(float, steps)
        first = self.step - len(steps) + 1
        # Of a step that made no update, because float16 overflowed, no number means anything.
        updates = {n: step for n, step in enumerate(steps, first) if not step.get("is_skipped")}
        losses = [float(self.task.total_loss(step["sums"])) for step in updates.values()]
        norms = [step["gradient_norm"] for step in updates.values()]
        for number, loss, norm in zip(updates, losses, norms, strict=True):
            if problem := self._guard.problem([loss], [norm], number):
                raise self._diverged(problem)
        metrics = {"learning_rate": steps[-1]["learning_rate"]}
        if updates:
            metrics = {
                "loss": sum(losses) / len(losses),
                **means([step["sums"] for step in updates.values()]),
                "gradient_norm": sum(norms) / len(norms),
                **metrics,
            }
        if self._loss_scale is not None:
            metrics["loss_scale"] = steps[-1]["loss_scale"]
            metrics["skipped_steps"] = float(len(steps) - len(updates))
        if source.skipped.count:
            metrics["skipped_records"] = source.skipped.count
        log.train(self.step, metrics, len(steps) * self.config.train_batch_size)

    def _diverged(self, what: str) -> TrainingDivergedError:
        newest = self.directory.newest()
        return TrainingDivergedError(
            what,
            "Nothing was saved since; "
            + (
                f"the last good checkpoint is {newest}."
                if newest
                else "there is no checkpoint yet."
            )
            + f" {self._guard.advice()} A lower --learning_rate, a longer warm-up "
            f"({self.optimizer_config.WARMUP_FLAG}) or a larger --train_batch_size may help.",
        )
