"""Short training runs of a task."""

from albert_tf.checkpoints.original.names import original_names
from albert_tf.config import FineTuningOptimizerConfig, TrainerConfig
from albert_tf.training.distribution import create_strategy
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
