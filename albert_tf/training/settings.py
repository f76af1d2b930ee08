"""Settings and results of jobs. Settings are named after the flags of the commands."""

import dataclasses
import inspect
import numbers
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_type_hints

import numpy as np
from absl import logging

from albert_tf.config import ALL_REDUCES, STRATEGIES, OptimizerConfig, TrainerConfig
from albert_tf.data.errors import UserError

_DEFAULT, _AT_LEAST, _CHOICES = "default", "at_least", "choices"  # keys of a field's metadata
# Accepted types of values, by the type of the field.
_KINDS: dict[type, Any] = {
    str: str,
    bool: (bool, np.bool_),
    int: numbers.Integral,
    float: numbers.Real,
}
T = TypeVar("T")
OnLog = Callable[[Mapping[str, Any]], None]


def unless_given(default: T, *, at_least: float | None = None) -> T:
    """Returns a field that is `None` until `resolve` sets it.

    `default` is used if the sources of `resolve` do not contain a value.
    """
    metadata = {_DEFAULT: default, _AT_LEAST: at_least}
    return cast(T, dataclasses.field(default=None, metadata=metadata))


def limited(default: T, *, at_least: float | None = None, choices: Sequence[str] = ()) -> T:
    """Returns a field with a lower bound, or with a set of allowed values."""
    metadata = {_AT_LEAST: at_least, _CHOICES: choices}
    return dataclasses.field(default=default, metadata=metadata)


def limits_of(field: dataclasses.Field[Any]) -> tuple[float | None, tuple[str, ...]]:
    """Returns the lower bound (or `None`) and the allowed values (or ()) of a setting."""
    return field.metadata.get(_AT_LEAST), tuple(field.metadata.get(_CHOICES, ()))


def check_settings(settings: Any) -> None:
    """Checks types and limits of a frozen dataclass, and converts paths and NumPy numbers.

    Only the types str, bool, int and float are checked. Raises TypeError for a wrong type, and
    ValueError for a value out of range.
    """
    hints = _types(cast(Any, type(settings)))
    for field in dataclasses.fields(settings):
        value, hint = getattr(settings, field.name), hints[field.name]
        kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        if value is None and (depends(field) or type(None) in kinds):
            continue
        if kinds[0] in _KINDS:
            value = as_type(field.name, value, kinds[0])
        object.__setattr__(settings, field.name, value)
        at_least, choices = limits_of(field)
        if at_least is not None and not value >= at_least:
            raise UserError(f"`{field.name}` must be at least {at_least}. Received: {value}")
        if choices and value not in choices:
            raise UserError(
                f"`{field.name}` must be one of {', '.join(choices)}. Received: {value!r}"
            )


@cache
def _types(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def as_type(name: str, value: Any, expected: type) -> Any:
    """Returns a value as str, bool, int or float; raises TypeError for other types."""
    if expected is str and isinstance(value, os.PathLike):
        value = os.fspath(value)
    is_other = isinstance(value, bool) and expected is not bool  # a bool is an int in Python
    if is_other or not isinstance(value, _KINDS[expected]):
        raise TypeError(
            f"`{name}` must be of type {expected.__name__}. Received: {value!r}, of type "
            f"{type(value).__name__}"
        )
    return expected(value)


class _Signature:
    """Signature with the defaults of `unless_given`, for `help` and completion in notebooks."""

    def __get__(self, settings: Any, kind: type) -> inspect.Signature:
        parameters = []
        for field in dataclasses.fields(cast(Any, kind)):
            parameter = inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY)
            if (default := default_of(field)) is not dataclasses.MISSING:
                parameter = parameter.replace(default=default)
            parameters.append(parameter.replace(annotation=_types(kind)[field.name]))
        return inspect.Signature(parameters)


def default_of(field: dataclasses.Field[Any]) -> Any:
    """Returns the default of a setting, including settings of `unless_given`."""
    return field.metadata.get(_DEFAULT, field.default)


def depends(field: dataclasses.Field[Any]) -> bool:
    """Returns whether a setting was declared with `unless_given`."""
    return _DEFAULT in field.metadata


def missing(settings: Any) -> dict[str, Any]:
    """Returns the defaults of the settings of `unless_given` that are still `None`."""
    return {
        field.name: default_of(field)
        for field in dataclasses.fields(settings)
        if depends(field) and getattr(settings, field.name) is None
    }


def resolve(settings: T, *sources: Mapping[str, Any]) -> T:
    """Sets all `missing` settings to the value of the first source that contains one."""
    values = missing(settings)
    for source in reversed(sources):
        values |= {name: source[name] for name in values if source.get(name) is not None}
    return cast(T, dataclasses.replace(cast(Any, settings), **values))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a command, named after the flags in docs/flags.md; see `check_settings`."""

    __signature__ = _Signature()

    def __post_init__(self) -> None:
        check_settings(self)


def check_arguments(settings: Any, kind: type[Settings], on_log: Any = None) -> None:
    """Raises TypeError unless `settings` is a `kind`, and `on_log` is callable or `None`."""
    if not isinstance(settings, kind):
        raise TypeError(
            f"settings must be albert_tf.{kind.__name__}(...). Received: {settings!r:.80}"
        )
    if on_log is not None and not callable(on_log):
        raise TypeError(f"on_log must be a function of a record, or None. Received: {on_log!r:.80}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings(Settings):
    """Settings of commands that train."""

    output_dir: str
    dry_run: bool = False
    train_batch_size: int = TrainerConfig.train_batch_size
    gradient_accumulation_steps: int = TrainerConfig.gradient_accumulation_steps
    remat: bool = TrainerConfig.remat
    xla: bool = unless_given(TrainerConfig.jit_compile)
    seed: int = TrainerConfig.seed
    save_checkpoints_steps: int = TrainerConfig.save_checkpoints_steps
    keep_checkpoint_max: int = TrainerConfig.keep_checkpoint_max
    log_steps: int = TrainerConfig.log_steps
    profile_steps: str | None = None
    optimizer: str = OptimizerConfig.optimizer
    learning_rate: float = OptimizerConfig.learning_rate
    poly_power: float = OptimizerConfig.poly_power
    start_warmup_step: int = OptimizerConfig.start_warmup_step
    precision: str = TrainerConfig.precision
    attention: str = TrainerConfig.attention
    tf32: bool = False
    deterministic: bool = False
    distribution_strategy: str = limited("auto", choices=STRATEGIES)
    all_reduce: str = limited("auto", choices=ALL_REDUCES)
    num_logical_cpu_devices: int = limited(1, at_least=1)
    use_tpu: bool = False
    tpu_name: str | None = None
    tpu_zone: str | None = None
    gcp_project: str | None = None
    num_tpu_cores: int | None = unless_given(None, at_least=1)
    iterations_per_loop: int | None = unless_given(None, at_least=1)
    albert_config_file: str | None = None
    init_checkpoint: str | None = None
    allow_partial_checkpoint: bool = False
    init_from_group0: bool = False
    spm_model_file: str | None = None
    vocab_file: str | None = None

    def trainer_config(self) -> TrainerConfig:
        """Returns the settings of the trainer. Raises ValueError for invalid values."""
        names = {field.name for field in dataclasses.fields(TrainerConfig)}
        values = {name: getattr(self, name) for name in names if hasattr(self, name)}
        is_tpu = self.use_tpu or self.distribution_strategy == "tpu"
        values["jit_compile"] = self.xla
        values["iterations_per_loop"] = (is_tpu and self.iterations_per_loop) or 1
        return TrainerConfig(**values)

    def optimizer_config(
        self, kind: type[OptimizerConfig], num_train_steps: int, num_warmup_steps: int
    ) -> OptimizerConfig:
        """Returns the settings of the optimizer as a `kind`."""
        config = kind(
            optimizer=self.optimizer,
            learning_rate=self.learning_rate,
            num_train_steps=num_train_steps,
            num_warmup_steps=num_warmup_steps,
            start_warmup_step=self.start_warmup_step,
            poly_power=self.poly_power,
        )
        if config.start_warmup_step + config.num_warmup_steps >= config.num_train_steps:
            # As in the original, this is not an error.
            logging.warning(
                "The warm-up ends at step %d, and training at step %d (`start_warmup_step`, %s, "
                "%s), so the learning rate never reaches `learning_rate`=%g",
                config.start_warmup_step + config.num_warmup_steps,
                config.num_train_steps,
                config.WARMUP_FLAG,
                config.STEPS_FLAG,
                config.learning_rate,
            )
        return config


@dataclasses.dataclass(frozen=True)
class JobResult:
    """The result of a job; after a dry run, and on workers except the chief, only `output_dir`.

    Attributes:
        output_dir: the directory of the run.
        step: training step of the scored checkpoint, otherwise of the checkpoint used for
            predictions, otherwise the last training step. `None` if there is no checkpoint.
        scores: scores by name, as in `eval_results.txt`: of the best checkpoint if checkpoints
            were compared, otherwise of the evaluated checkpoint, otherwise of predictions with
            known answers. If the run was already finished, the recorded scores; none if they
            belong to other data or another metric.
        best_checkpoint: prefix of `model.ckpt-best` in `output_dir`; `None` if there is none.
        history: records with `step`, `phase` ("train" or "eval"), `time` and metrics.
            After training, these are the records of the whole run, including earlier calls, as in
            `metrics.jsonl`. Otherwise, they are the evaluations of this call.
    """

    output_dir: str
    step: int | None = None
    scores: dict[str, float] = dataclasses.field(default_factory=dict)
    best_checkpoint: str | None = None
    history: list[dict[str, Any]] = dataclasses.field(default_factory=list, repr=False)
