"""Short pretraining runs inside the test's own process."""

from pathlib import Path
from typing import Any

import numpy as np

from albert_tf.checkpoints.original.files import slot_variables
from albert_tf.checkpoints.original.names import original_names
from albert_tf.config import OptimizerConfig, TrainerConfig
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.training.distribution import create_strategy
from albert_tf.training.run_log import RunLog
from albert_tf.training.trainer import Trainer
from tests.small_model import dropping_config
from tests.small_records import LENGTH, PREDICTIONS


def make_task(*files: Path, kind: type[PretrainingTask] = PretrainingTask, **settings: Any):
    """A task on record files, of one layer with dropout."""
    return kind(
        dropping_config(num_hidden_layers=1, num_hidden_groups=1, inner_group_num=1),
        train_files=[str(file) for file in files],
        max_seq_length=LENGTH,
        max_predictions_per_seq=PREDICTIONS,
        shuffle_buffer_size=5,
        **settings,
    )


def make_trainer(folder: Path, task: Any, last_step: int, **config: Any) -> Trainer:
    """A trainer that saves every third step."""
    trainer_config = {"train_batch_size": 4, "save_checkpoints_steps": 3, "log_steps": 2, **config}
    return Trainer(
        task,
        TrainerConfig(str(folder), **trainer_config),
        OptimizerConfig(num_train_steps=last_step, num_warmup_steps=1, learning_rate=0.01),
        create_strategy("one_device"),
    )


def train(trainer: Trainer, log_type: type[RunLog] = RunLog, **log_settings: Any) -> Trainer:
    """Trains, or trains on, to the end."""
    trainer.initialize()
    log = log_type(
        trainer.config.output_dir,
        trainer.optimizer_config.num_train_steps,
        trainer.step,
        **log_settings,
    )
    try:
        trainer.train(log)
    finally:
        log.close()
    return trainer


def state_of(trainer: Trainer) -> dict[str, np.ndarray]:
    """Weights and moments by name."""
    names = {**original_names(trainer.model), **slot_variables(trainer.model, trainer.optimizer)}
    return {name: variable.numpy() for name, variable in names.items()}


def assert_same_state(trainer: Trainer, expected: dict[str, np.ndarray]) -> None:
    """Fails unless weights and moments equal the expected ones bit for bit."""
    actual = state_of(trainer)
    assert actual.keys() == expected.keys()
    for name, values in expected.items():
        assert actual[name].tobytes() == values.tobytes(), name
