"""The plan of a training run: its steps, memory and disk space, logged before it starts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cached_property

import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.original import slot_variables
from albert_tf.data.files import free_bytes
from albert_tf.modeling.original_names import original_names
from albert_tf.training.distribution import is_tpu, local_replicas
from albert_tf.training.memory import (
    TrainingSetting,
    estimate_memory,
    gpu_memory,
    machine_memory,
    tpu_memory,
)
from albert_tf.training.trainer import Trainer


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
