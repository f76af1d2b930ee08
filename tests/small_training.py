"""Short pretraining runs in the process of the test."""

import copy
import dataclasses
import signal
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.checkpoints.formats.original import slot_variables
from albert_tf.config import AlbertConfig
from albert_tf.modeling.original_names import original_names
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.training.evaluation import BestCheckpoint
from albert_tf.training.run_log import RunLog
from albert_tf.training.settings import OptimizerConfig, TrainerConfig
from albert_tf.training.strategies import create_strategy, split_batch
from albert_tf.training.trainer import Trainer
from albert_tf.training.training_directory import TrainingDirectory
from tests.small_model import ONE_BLOCK, dropping_config
from tests.small_records import LENGTH, PREDICTIONS


def skip_steps(monkeypatch: Any) -> None:
    """Makes training steps do nothing but count."""

    def train_to_checkpoint(trainer: Trainer, *_: Any) -> bool:
        trainer.step += 1
        trainer.optimizer.iterations.assign(trainer.step)
        return False

    monkeypatch.setattr(Trainer, "_trace", lambda *_: None)
    monkeypatch.setattr(Trainer, "_train_to_checkpoint", train_to_checkpoint)


def replace_evaluations(monkeypatch: Any, job: type, evaluate: Callable[[Any], dict]) -> None:
    """Makes training steps do nothing but count, and evaluations of a job return given scores."""

    def record(job: Any, step: int, results: dict, best: BestCheckpoint, keeps_best: bool) -> None:
        if keeps_best:
            best.update_if_better(step, results, job.model)

    skip_steps(monkeypatch)
    monkeypatch.setattr(job, "evaluate", evaluate)
    monkeypatch.setattr(job, "record", record)


def make_task(
    *files: Path,
    kind: type[PretrainingTask] = PretrainingTask,
    config: AlbertConfig | None = None,
    **settings: Any,
) -> PretrainingTask:
    """Returns a task on record files. The default configuration has one layer with dropout."""
    return kind(
        config or dropping_config(**ONE_BLOCK),
        train_files=[str(file) for file in files],
        max_seq_length=LENGTH,
        max_predictions_per_seq=PREDICTIONS,
        shuffle_buffer_size=5,
        **settings,
    )


def make_trainer(
    folder: Path,
    task: PretrainingTask,
    last_step: int = 9,
    *,
    replicas: int = 1,
    optimizer: Mapping[str, Any] | None = None,
    **config: Any,
) -> Trainer:
    """Returns a trainer that saves every third step."""
    trainer_config = {"train_batch_size": 4, "save_checkpoints_steps": 3, "log_steps": 2, **config}
    optimizer_config = {
        "num_train_steps": last_step,
        "num_warmup_steps": 1,
        "learning_rate": 0.01,
        **(optimizer or {}),
    }
    return Trainer(
        task,
        TrainerConfig(str(folder), **trainer_config),
        OptimizerConfig(**optimizer_config),
        create_strategy("one_device" if replicas == 1 else "mirrored"),
    )


def restarted(
    trainer: Trainer, folder: Path, state: Mapping[str, np.ndarray] | None = None
) -> Trainer:
    """Returns a trainer in `folder` as in a new process, without building and tracing a new step.

    `state` contains the values of a new run. If `None`, all values are NaN until the trainer
    resumes.
    """
    again = copy.copy(trainer)
    again.config = dataclasses.replace(trainer.config, output_dir=str(folder))
    again.directory = TrainingDirectory(str(folder), trainer.config.keep_checkpoint_max)
    again.step = again._saved_step = 0
    for name, variable in named_variables(trainer).items():
        variable.assign(tf.fill(variable.shape, np.nan) if state is None else state[name])
    trainer.optimizer.iterations.assign(-1 if state is None else 0)
    return again


def reports_of(trainer: Trainer, batches: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the reports of a step with each batch as numbers."""
    return [
        tf.nest.map_structure(float, trainer.train_step(split_batch(trainer.strategy, batch)))
        for batch in batches
    ]


class SignallingLog(RunLog):
    """Sends SIGTERM to this process, once, after a step."""

    signal_step = 4

    def advance(self, step: int, results: Any = ()) -> None:
        """Sends the signal if it is due."""
        super().advance(step, results)
        if step == self.signal_step:
            self.signal_step = 0
            signal.raise_signal(signal.SIGTERM)


def train(trainer: Trainer, log_type: type[RunLog] = RunLog, **log_settings: Any) -> Trainer:
    """Trains, or resumes training, to the end."""
    trainer.initialize()
    log = log_type(trainer.config.output_dir, trainer.last_step, trainer.step, **log_settings)
    with closing(log):
        steps_of(trainer, log)
    return trainer


def steps_of(trainer: Trainer, log: RunLog) -> list[int]:
    """Trains an initialized trainer to the end; returns the steps of the new checkpoints."""
    first = trainer.step
    with closing(trainer.checkpoints(log)) as checkpoints:
        return [step for step in checkpoints if step > first]


def forget_after(step: int, folder: Path) -> None:
    """Restores the state of a run directory at `step`."""
    for path in [*folder.glob("*-*.*"), *folder.glob("train_state/*.*")]:
        number = path.name.split("-")[-1].split(".")[0]
        if number.isdigit() and int(number) > step:
            path.unlink()
    (folder / "checkpoint").unlink()


def state_of(trainer: Trainer) -> dict[str, np.ndarray]:
    """Returns weights and moments by name."""
    return {name: variable.numpy() for name, variable in named_variables(trainer).items()}


def named_variables(trainer: Trainer) -> dict[str, Any]:
    """Returns the variables of weights and moments by name."""
    return {**original_names(trainer.model), **slot_variables(trainer.model, trainer.optimizer)}


def assert_same_state(trainer: Trainer, expected: dict[str, np.ndarray]) -> None:
    """Checks that weights and moments are bit-equal to the expected ones."""
    actual = state_of(trainer)
    assert actual.keys() == expected.keys()
    for name, values in expected.items():
        assert actual[name].tobytes() == values.tobytes(), name
