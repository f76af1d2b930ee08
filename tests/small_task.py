"""Short training runs of a task."""

import numpy as np
import tensorflow as tf

from albert_tf.checkpoints.original.names import original_names
from albert_tf.config import FineTuningOptimizerConfig, TrainerConfig
from albert_tf.training.distribution import create_strategy, split_batch
from albert_tf.training.run_log import RunLog
from albert_tf.training.trainer import Trainer


def make_trainer(
    folder, task, replicas=1, last_step=6, seed=5, save_steps=2, micro_batches=1, **settings
):
    return Trainer(
        task,
        TrainerConfig(
            str(folder),
            4,
            save_steps,
            keep_checkpoint_max=0,
            seed=seed,
            gradient_accumulation_steps=micro_batches,
        ),
        FineTuningOptimizerConfig(num_train_steps=last_step, **settings),
        create_strategy("one_device" if replicas == 1 else "mirrored"),
    )


def train(folder, task, replicas=1, **settings):
    """Trains, or trains on, and returns the trainer."""
    trainer = make_trainer(folder, task, replicas, **settings)
    trainer.initialize()
    log = RunLog(str(folder), trainer.optimizer_config.num_train_steps, trainer.step)
    trainer.train(log)
    log.close()
    return trainer


def weights(trainer):
    return {name: v.numpy() for name, v in original_names(trainer.model).items()}


def assert_losses_weigh_examples(task, batch):
    """Two examples of weights 1 and 2 give the loss of three rows; returns the outputs."""
    batch["example_weights"] = tf.constant([1.0, 0.0, 0.0, 2.0])
    outputs = task.build_model()(batch)
    losses = task.losses(outputs, batch)
    assert {name: loss.weight for name, loss in losses.items()} == task.loss_weights(batch)
    tensors = {name: x for name, x in {**outputs, **batch}.items() if tf.is_tensor(x)}
    of_rows = {name: tf.gather(x, [0, 3, 3]) for name, x in tensors.items()}
    of_rows["example_weights"] = tf.ones(3)
    alone = task.total_loss(task.losses(of_rows, of_rows))
    np.testing.assert_allclose(task.total_loss(losses), alone, rtol=1e-5, atol=1e-7)
    return outputs


def assert_split_batches_report_what_whole_ones_do(folder, task):
    """On one replica, on two, and in two micro-batches."""
    batch = next(iter(task.train_dataset(6, seed=3)))
    batch["example_weights"] = tf.constant([1.0, 0.0, 1.0, 1.0, 1.0, 1.0])
    reports = []
    for replicas, micro_batches in ((1, 1), (2, 1), (1, 2)):
        trainer = make_trainer(folder, task, replicas, micro_batches=micro_batches)
        report = trainer.train_step(split_batch(trainer.strategy, batch))
        reports.append(tf.nest.map_structure(float, report))
    assert {total.weight for name, total in reports[0]["sums"].items() if "loss" in name} == {5.0}
    whole, *split = map(tf.nest.flatten, reports)
    for actual in split:
        np.testing.assert_allclose(actual, whole, rtol=1e-5, atol=0)
