"""What a user sets of a training, by the names of the flags."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from absl import logging

from albert_tf.config import OptimizerConfig, TrainerConfig

_DEFAULT = "default"  # in the metadata of a field
T = TypeVar("T")


def unless_given(default: T) -> T:
    """Returns a field that is None where nobody gave it, until `resolve` fills it.

    It is for settings in which a recipe or a trained model has a say; `default` comes last.
    """
    return cast(T, dataclasses.field(default=None, metadata={_DEFAULT: default}))


def default_of(field: dataclasses.Field[Any]) -> Any:
    """Returns the default of a setting, whether it is one of `unless_given` or not."""
    return field.metadata.get(_DEFAULT, field.default)


def depends(field: dataclasses.Field[Any]) -> bool:
    """Whether a setting is one of `unless_given`."""
    return _DEFAULT in field.metadata


def missing(settings: Any) -> dict[str, Any]:
    """Returns the settings of `unless_given` that were not given, with their defaults."""
    return {
        field.name: default_of(field)
        for field in dataclasses.fields(settings)
        if depends(field) and getattr(settings, field.name) is None
    }


def resolve(settings: T, *sources: Mapping[str, Any]) -> T:
    """Fills what is `missing`.

    Args:
        settings: a dataclass.
        *sources: values by name. The first that has one other than None counts, then the default.
    """
    values = missing(settings)
    for source in reversed(sources):
        values |= {name: source[name] for name in values if source.get(name) is not None}
    return cast(T, dataclasses.replace(cast(Any, settings), **values))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Settings of the commands that train. Each is the flag of its name; `--help` explains it."""

    output_dir: str
    dry_run: bool = False
    train_batch_size: int = TrainerConfig.train_batch_size
    gradient_accumulation_steps: int = TrainerConfig.gradient_accumulation_steps
    remat: bool = TrainerConfig.remat
    xla: bool = TrainerConfig.jit_compile
    seed: int = TrainerConfig.seed
    on_divergence: str = TrainerConfig.on_divergence
    max_loss_spike: float = TrainerConfig.max_loss_spike
    save_checkpoints_steps: int = TrainerConfig.save_checkpoints_steps
    keep_checkpoint_max: int = TrainerConfig.keep_checkpoint_max
    log_steps: int = TrainerConfig.log_steps
    optimizer: str = OptimizerConfig.optimizer
    learning_rate: float = OptimizerConfig.learning_rate
    poly_power: float = OptimizerConfig.poly_power
    start_warmup_step: int = OptimizerConfig.start_warmup_step
    precision: str = TrainerConfig.precision
    distribution_strategy: str = "auto"
    num_logical_cpu_devices: int = 1
    use_tpu: bool = False
    tpu_name: str | None = None
    tpu_zone: str | None = None
    gcp_project: str | None = None
    num_tpu_cores: int | None = unless_given(None)
    albert_config_file: str | None = None
    init_checkpoint: str | None = None
    allow_partial_checkpoint: bool = False
    init_from_group0: bool = False
    spm_model_file: str | None = None
    vocab_file: str | None = None

    def trainer_config(self, depth_schedule: str = "") -> TrainerConfig:
        """Returns how the training is carried out; raises ValueError, which names the flag."""
        names = {field.name for field in dataclasses.fields(TrainerConfig)}
        values = {name: getattr(self, name) for name in names if hasattr(self, name)}
        return TrainerConfig(
            **{**values, "jit_compile": self.xla, "depth_schedule": depth_schedule}
        )

    def optimizer_config(
        self, kind: type[OptimizerConfig], num_train_steps: int, num_warmup_steps: int
    ) -> OptimizerConfig:
        """Returns the update rule and the learning rate; raises ValueError, which names the flag.

        The class `kind` names the flags of the steps; those of a resumed run are all its steps.
        """
        config = kind(
            optimizer=self.optimizer,
            learning_rate=self.learning_rate,
            num_train_steps=num_train_steps,
            num_warmup_steps=num_warmup_steps,
            start_warmup_step=self.start_warmup_step,
            poly_power=self.poly_power,
        )
        if config.start_warmup_step + config.num_warmup_steps >= config.num_train_steps:
            # Not an error: the original trains this way, too.
            logging.warning(
                "The warm-up ends at step %d, and training at step %d (--start_warmup_step, %s, "
                "%s): the learning rate never reaches --learning_rate=%g.",
                config.start_warmup_step + config.num_warmup_steps,
                config.num_train_steps,
                config.WARMUP_FLAG,
                config.STEPS_FLAG,
                config.learning_rate,
            )
        return config
