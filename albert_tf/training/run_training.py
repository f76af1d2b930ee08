"""The sequence of a training run: lock, initialize, plan, train, evaluate, return the result.

The plan, which is logged before the training, contains its steps, memory and disk space.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import cached_property, partial
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.directory_lock import EVALUATION, TRAINING, locked
from albert_tf.checkpoints.original import slot_variables
from albert_tf.checkpoints.training_directory import TrainingDirectory
from albert_tf.config import OptimizerConfig, TrainerConfig
from albert_tf.data.files import free_bytes
from albert_tf.modeling.original_names import original_names
from albert_tf.training.distribution import (
    is_chief,
    is_tpu,
    local_replicas,
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
from albert_tf.training.memory import (
    TrainingSetting,
    estimate_memory,
    gpu_memory,
    machine_memory,
    tpu_memory,
)
from albert_tf.training.run_log import RunLog, create_profiler
from albert_tf.training.run_records import EVALUATION_KEY
from albert_tf.training.settings import JobResult, OnLog
from albert_tf.training.task import Task
from albert_tf.training.trainer import Trainer

RecordBest = Callable[[int, Mapping[str, float], BestCheckpoint], None]


@dataclasses.dataclass(frozen=True)
class TrainingPlan:
    """The plan of an initialized trainer. `max_predictions_per_seq` is 0 for fine-tuning."""

    trainer: Trainer
    num_examples: int
    max_predictions_per_seq: int = 0
    sequences_per_example: int = 1
    keeps_best: bool = False

    @property
    def steps(self) -> int:
        """Number of remaining steps."""
        return max(0, self.trainer.optimizer_config.num_train_steps - self.trainer.step)

    @property
    def checkpoints(self) -> int:
        """Number of checkpoints that will be written: one per interval, and one at the end."""
        every, first = self.trainer.config.save_checkpoints_steps, self.trainer.step
        last = first + self.steps
        return last // every - first // every + (self.steps > 0 and last % every > 0)

    @property
    def checkpoint_bytes(self) -> int:
        """Size of a checkpoint: weights and moments."""
        model, optimizer = self.trainer.model, self.trainer.optimizer
        return _bytes({**original_names(model), **slot_variables(model, optimizer)})

    @property
    def disk_bytes(self) -> int:
        """Additional disk space. A new checkpoint is written before an old one is removed."""
        kept = self.trainer.config.keep_checkpoint_max
        existing = len(self.trainer.directory.checkpoints())
        most = existing + self.checkpoints
        if kept:
            most = min(most, max(existing, kept + 1))
        best = _bytes(original_names(self.trainer.model)) if self.keeps_best else 0
        return (most - existing) * self.checkpoint_bytes + best

    @property
    def memory_bytes(self) -> int:
        """Estimated memory of a GPU or TPU core, or of this machine if there is none."""
        config = self.trainer.config
        sequences = config.train_batch_size // self.trainer.replicas * self.sequences_per_example
        on_tpu = is_tpu(self.trainer.strategy)
        on_accelerator = on_tpu or _has_gpu()
        setting = TrainingSetting(
            train_batch_size=sequences,
            max_seq_length=self.trainer.task.max_seq_length,
            max_predictions_per_seq=self.max_predictions_per_seq,
            remat=config.remat,
            gradient_accumulation_steps=config.gradient_accumulation_steps,
            precision=config.precision,
            xla=on_tpu or (config.jit_compile and on_accelerator),
        )
        estimate = estimate_memory(self.trainer.model.config, setting)
        device = estimate.peak - estimate.program
        if on_accelerator:
            return device
        return estimate.program + device * local_replicas(self.trainer.strategy)

    @cached_property
    def available_memory(self) -> int | None:
        """Memory in bytes of the device that `memory_bytes` describes; `None` if unknown."""
        if is_tpu(self.trainer.strategy):
            return tpu_memory(self.trainer.strategy.extended.num_replicas_per_host)
        return gpu_memory() if _has_gpu() else machine_memory()

    def log(self) -> None:
        """Logs the plan, and a warning for each resource that is not sufficient."""
        config = self.trainer.config
        examples = self.steps * config.train_batch_size
        logging.info(
            "plan: steps=%d last_step=%d train_batch_size=%d replicas=%d "
            "gradient_accumulation_steps=%d examples=%d epochs=%.4g checkpoints=%d",
            self.steps,
            self.trainer.step + self.steps,
            config.train_batch_size,
            self.trainer.replicas,
            config.gradient_accumulation_steps,
            self.num_examples,
            examples / max(self.num_examples, 1),
            self.checkpoints,
        )
        logging.info(
            "plan: parameters=%d estimated_memory=%s available_memory=%s disk_space=%s "
            "free_disk_space=%s",
            self.trainer.model.count_params(),
            _gigabytes(self.memory_bytes),
            _gigabytes(self.available_memory),
            _gigabytes(self.disk_bytes),
            _gigabytes(free_bytes(config.output_dir)),
        )
        for warning in self.warnings():
            logging.warning(warning)

    def warnings(self) -> Iterator[str]:
        """Yields a warning for each resource that is not sufficient."""
        config = self.trainer.config
        memory, free = self.available_memory, free_bytes(config.output_dir)
        if memory is not None and self.memory_bytes > memory:
            yield (
                f"Training needs about {_gigabytes(self.memory_bytes)} of memory, but only "
                f"{_gigabytes(memory)} are available. Use a smaller `train_batch_size`, a larger "
                "`gradient_accumulation_steps`, or `remat`"
            )
        if free is not None and self.disk_bytes > free:
            yield (
                f"Checkpoints need {_gigabytes(self.disk_bytes)} of disk space, but only "
                f"{_gigabytes(free)} are available. Free disk space, or use a smaller "
                "`keep_checkpoint_max`"
            )
        if self.num_examples < config.train_batch_size:
            yield (
                f"There are only {self.num_examples} examples, fewer than `train_batch_size`, so "
                "batches contain duplicates"
            )


def _has_gpu() -> bool:
    return bool(tf.config.list_physical_devices("GPU"))


def _bytes(variables: dict[str, tf.Variable]) -> int:
    return sum(v.value.shape.num_elements() * v.value.dtype.size for v in variables.values())


def _gigabytes(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 1e9:.3g}GB"


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
    plan: TrainingPlan,
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
    trainer, output_dir = plan.trainer, plan.trainer.config.output_dir
    kinds = (TRAINING,) if evaluate is None else (TRAINING, EVALUATION)
    lock = locked(output_dir, *kinds, dry_run=dry_run)
    with lock if trainer.is_chief else nullcontext():
        initialize()
        best = BestCheckpoint(trainer.directory, best_metric)
        if trainer.is_chief:
            plan.log()
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
