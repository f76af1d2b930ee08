"""What a training is going to do, and whether it fits: said before it starts."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from albert_tf.checkpoints.original import original_names, slot_variables
from albert_tf.cluster import cluster_from_environment
from albert_tf.data.disk import free_bytes
from albert_tf.data.files import folder_names
from albert_tf.device_memory import gpu_memory, machine_memory
from albert_tf.distribution import check_batch_size, is_tpu
from albert_tf.evaluation import is_missed
from albert_tf.memory.estimate import MemoryEstimate, TrainingSetting, estimate_memory
from albert_tf.optimization import learning_rate_schedule
from albert_tf.run_log import device_names
from albert_tf.text_layout import Block, byte_text, count_text
from albert_tf.training.trainer import Trainer


@dataclasses.dataclass(frozen=True)
class TrainingPlan:
    """The plan of a trainer that was initialized; nothing is written.

    Attributes:
        trainer: initialized, so that it knows where it starts from; made for the devices of this
            process alone, also where TF_CONFIG names further workers.
        num_examples: examples (sequences) to train on; 0 where nobody knows.
        is_exact: whether that was counted.
        max_seq_length: S.
        max_predictions_per_seq: P; 0 for a fine-tuning.
        sequences_an_example: how many the model reads for one example.
        keeps_best: whether the best checkpoint is kept too.
        position_bytes: of the position in the input, saved beside each checkpoint.
    """

    trainer: Trainer
    num_examples: int
    is_exact: bool = True
    max_seq_length: int = 512
    max_predictions_per_seq: int = 0
    sequences_an_example: int = 1
    keeps_best: bool = False
    position_bytes: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError where all workers together could not share a batch."""
        config = self.trainer.config
        check_batch_size(
            self.replicas,
            config.train_batch_size,
            "--train_batch_size",
            micro_batches=config.gradient_accumulation_steps,
        )

    @property
    def workers(self) -> int:
        """Machines that train together."""
        cluster = cluster_from_environment()
        return len(cluster.workers) if cluster else 1

    @property
    def replicas(self) -> int:
        """Devices of all workers; the others are taken to have as many as this one."""
        return self.workers * self.trainer.strategy.num_replicas_in_sync

    @property
    def steps(self) -> int:
        """Steps still to do."""
        return max(0, self.trainer.optimizer_config.num_train_steps - self.trainer.step)

    @property
    def checkpoint_steps(self) -> list[int]:
        """Steps after which a checkpoint will be written."""
        last, every = self.trainer.step + self.steps, self.trainer.config.save_checkpoints_steps
        first = (self.trainer.step // every + 1) * every
        steps = list(range(first, last + 1, every))
        return steps if last in steps or not self.steps else [*steps, last]

    def blocks(self) -> dict[str, Block]:
        """Titled blocks of names and values; warnings under "Warnings"."""
        return {
            "Start": self._start(),
            "Training": self._training(),
            "Model": self._model(),
            "Checkpoints": self._checkpoints(),
            "Memory": self._memory(),
            "Warnings": self._warnings(),
        }

    def missed_evaluation(self, last_evaluated: int) -> Block:
        """Names the checkpoint that is evaluated before the training goes on, if there is one.

        Args:
            last_evaluated: step of the last evaluation, -1 where there was none.
        """
        if not is_missed(self.trainer, last_evaluated):
            return {}
        return {"before": f"step {self.trainer.step:,}, which was saved and not evaluated"}

    def _start(self) -> Block:
        first, *more = self.trainer.start.split("\n")
        names = folder_names(self.trainer.config.output_dir)
        found = f"there, with {len(names)} entries" if names else "there, empty"
        if not tf.io.gfile.isdir(self.trainer.config.output_dir):
            found = "will be made"
        return {
            "weights": first,
            **{f"  {number}": line.strip() for number, line in enumerate(more, start=1)},
            **({"input": self.trainer.check_input()} if self.trainer.step and self.steps else {}),
            "--output_dir": f"{self.trainer.config.output_dir} ({found})",
        }

    def _training(self) -> Block:
        config, optimizer = self.trainer.config, self.trainer.optimizer_config
        seen = self.steps * config.train_batch_size
        rows: Block = {
            "steps": f"{self.steps:,}: from step {self.trainer.step:,} to "
            f"{self.trainer.step + self.steps:,}",
            "batch": self._batch(),
            "examples to train on": count_text(self.num_examples, self.is_exact),
            "examples that will be seen": seen,
        }
        if self.num_examples:
            about = "" if self.is_exact else "about "
            rows["epochs"] = f"{about}{seen / self.num_examples:.4g}"
        warmup = f"{optimizer.num_warmup_steps:,} steps"
        if optimizer.start_warmup_step:
            warmup += f" from step {optimizer.start_warmup_step:,} on"
        if schedule := self._depths():
            rows["layers"] = schedule
        return {
            **rows,
            "optimizer": optimizer.optimizer,
            "warm-up": warmup,
            **self._decay(),
            "highest learning rate": f"{self._highest_rate():.4g}",
        }

    def _batch(self) -> str:
        """The batch as its sharers see it."""
        config = self.trainer.config
        share = config.train_batch_size // self.replicas
        text = f"{config.train_batch_size:,} examples"
        if self.replicas > 1:
            text += f": {share:,} on each of {self.replicas} devices"
        if config.gradient_accumulation_steps > 1:
            parts = config.gradient_accumulation_steps
            text += f", in {parts} micro-batches of {share // parts:,}"
        return text

    def _decay(self) -> Block:
        """Where the decay begins, if not at step 0."""
        optimizer = self.trainer.optimizer_config
        if optimizer.num_decay_steps is None:
            return {}
        first = optimizer.num_train_steps - optimizer.num_decay_steps
        return {"decay": f"{optimizer.num_decay_steps:,} steps from step {first:,} on"}

    def _depths(self) -> str:
        """The depths of the steps to be done; "" where there is but one."""
        schedule, first = self.trainer.depth_schedule, self.trainer.step
        changes = [stage for stage in schedule.stages if stage.first_step > first]
        if not changes or not self.steps:
            return ""
        later = [f"{stage.depth} from step {stage.first_step:,}" for stage in changes]
        return ", ".join([f"{schedule.at(first)} from step {first:,}", *later])

    def _highest_rate(self) -> float:
        """Of all steps to be done: the last ones of the warm-up, or the first."""
        optimizer, first = self.trainer.optimizer_config, self.trainer.step
        end = optimizer.start_warmup_step + optimizer.num_warmup_steps
        steps = {min(max(step, first), first + self.steps - 1) for step in (first, end - 1, end)}
        rate = learning_rate_schedule(optimizer)
        return max(float(rate(step)) for step in steps) if self.steps else 0.0

    def _model(self) -> Block:
        variables = original_names(self.trainer.model).values()
        return {
            "parameters": sum(int(v.value.shape.num_elements()) for v in variables),
            "variables": len(variables),
            "devices": self._devices(),
            "precision": self.trainer.config.precision,
        }

    def _devices(self) -> str:
        text = f"{self.replicas}: {', '.join(device_names())}"
        if self.workers > 1:
            text += f"; {self.workers} workers, taken to have as many devices each as this one"
        return text

    @property
    def checkpoint_bytes(self) -> int:
        """Of weights, moments and the position in the input."""
        model, optimizer = self.trainer.model, self.trainer.optimizer
        variables = [*original_names(model).values(), *slot_variables(model, optimizer).values()]
        return _bytes(variables) + self.position_bytes

    @property
    def disk_bytes(self) -> int:
        """Room that checkpoints will take besides those there are: an old one goes last."""
        there = len(self.trainer.directory.checkpoints())
        most = there + len(self.checkpoint_steps)
        if self.trainer.config.keep_checkpoint_max:
            most = min(most, max(there, self.trainer.config.keep_checkpoint_max + 1))
        best = _bytes(list(original_names(self.trainer.model).values())) if self.keeps_best else 0
        return (most - there) * self.checkpoint_bytes + best

    def _checkpoints(self) -> Block:
        steps, kept = self.checkpoint_steps, self.trainer.config.keep_checkpoint_max
        free = free_bytes(self.trainer.config.output_dir)
        best = " and the best one" if self.keeps_best else ""
        return {
            "to be written": f"{len(steps)}, after steps {_steps(steps)}" if steps else "none",
            "kept": f"the newest {kept}{best}" if kept else f"all{best}",
            "size of each": byte_text(self.checkpoint_bytes),
            "room they take": byte_text(self.disk_bytes),
            "room on the disk": "not known" if free is None else byte_text(free),
        }

    @property
    def _estimate(self) -> MemoryEstimate:
        config = self.trainer.config
        sequences = config.train_batch_size // self.replicas * self.sequences_an_example
        setting = TrainingSetting(
            train_batch_size=sequences,
            max_seq_length=self.max_seq_length,
            max_predictions_per_seq=self.max_predictions_per_seq,
            remat=config.remat,
            gradient_accumulation_steps=config.gradient_accumulation_steps,
            precision=config.precision,
            optimizer=self.trainer.optimizer_config.optimizer,
        )
        return estimate_memory(self.trainer.model.config, setting)

    @property
    def memory_bytes(self) -> int:
        """Needed of a GPU or TPU core, or, by all devices of a machine without one, of it."""
        estimate = self._estimate
        device = estimate.peak - estimate.program
        if self._has_accelerator:
            return device
        return estimate.program + device * self.trainer.strategy.num_replicas_in_sync

    @property
    def _has_accelerator(self) -> bool:
        return is_tpu(self.trainer.strategy) or bool(tf.config.list_physical_devices("GPU"))

    @property
    def _memory_there(self) -> int | None:
        if is_tpu(self.trainer.strategy):
            return None
        return gpu_memory() if self._has_accelerator else machine_memory()

    def _memory(self) -> Block:
        estimate, config = self._estimate, self.trainer.config
        there = self._memory_there
        what = "of a device" if self._has_accelerator else "of this machine"
        blocks = "blocks recomputed" if config.remat else "blocks kept"
        return {
            "estimated for": f"sequences of {self.max_seq_length}, {config.precision}, {blocks}",
            "weights, moments, gradients": byte_text(
                estimate.weights + estimate.moments + estimate.gradients
            ),
            "activations": byte_text(estimate.activations),
            f"needed {what}": f"about {byte_text(self.memory_bytes)}",
            f"there is {what}": "not known" if there is None else byte_text(there),
        }

    def _warnings(self) -> Block:
        """What looks wrong, by topic."""
        config, optimizer = self.trainer.config, self.trainer.optimizer_config
        found: Block = {}
        there, free = self._memory_there, free_bytes(config.output_dir)
        if there is not None and self.memory_bytes > there:
            found["memory"] = (
                f"about {byte_text(self.memory_bytes)} are needed and {byte_text(there)} there: "
                "give a smaller --train_batch_size, a larger --gradient_accumulation_steps, or "
                "--remat"
            )
        if free is not None and self.disk_bytes > free:
            found["disk"] = (
                f"checkpoints need {byte_text(self.disk_bytes)} and {byte_text(free)} are free: "
                "make room, or give a smaller --keep_checkpoint_max"
            )
        if 0 < self.num_examples < config.train_batch_size:
            found["examples"] = "fewer than a batch: an example is in the same batch several times"
        if not self.steps:
            found["steps"] = f"nothing to train: {optimizer.STEPS_FLAG} are done already"
        if optimizer.start_warmup_step + optimizer.num_warmup_steps >= optimizer.num_train_steps:
            found["warm-up"] = (
                f"ends no earlier than the training ({optimizer.WARMUP_FLAG}, "
                f"{optimizer.STEPS_FLAG}): the learning rate never reaches --learning_rate"
            )
        return found


def _bytes(variables: list) -> int:
    return sum(v.value.shape.num_elements() * v.value.dtype.size for v in variables)


def _steps(steps: list[int]) -> str:
    shown = [f"{step:,}" for step in steps]
    return ", ".join(shown if len(shown) < 6 else [*shown[:2], "...", *shown[-2:]])
