"""Declarations of settings: name, type, default, limits, group and help text in one place.

A setting is a field of a frozen dataclass that inherits from `Settings`:

    train_batch_size: int = setting(32, "Training", at_least=1)("Number of examples per step.")

Flags, `--help`, docs/flags.md, checks and signatures are derived from it. This module must not
import TensorFlow, so that `--help` is fast.
"""

import dataclasses
import inspect
import math
import numbers
import operator
import os
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Literal, TypeVar, cast, get_args, get_type_hints

import numpy as np

from albert_tf.data.errors import UserError

Group = Literal[
    "Actions",
    "Data",
    "Masking",
    "Model",
    "Training",
    "Optimizer",
    "Evaluation",
    "Prediction",
    "Export",
    "Output",
    "Devices",
    "Accepted without effect",
]
GROUPS: tuple[str, ...] = get_args(Group)  # in the order of `--help`
_SETTING = "setting"  # key of a field's metadata
# Accepted types of values, by the type of the field.
_KINDS: dict[type, Any] = {
    str: str,
    bool: (bool, np.bool_),
    int: numbers.Integral,
    float: numbers.Real,
}
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Setting:
    """The declaration of a setting, except its name and type. Numbers with limits must be finite.

    Attributes:
        default: value if the user sets none; `MISSING` if the setting is required.
        group: group in `--help`.
        help: help text, which may mention flags.
        depends: whether the setting is `None` until `resolve` chooses its value.
        shown_default: default in `--help`, if it is not `default`.
        choices: allowed values, if they are limited.
        at_least: lower limit.
        above: exclusive lower limit, instead of `at_least`.
        at_most: upper limit.
        below: exclusive upper limit, instead of `at_most`.
    """

    default: Any
    group: Group
    help: str
    depends: bool = False
    shown_default: Any = None
    choices: tuple[str, ...] = ()
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None

    @property
    def is_required(self) -> bool:
        """Whether there is no default."""
        return self.default is dataclasses.MISSING

    def check(self, name: str, value: Any) -> None:
        """Raises ValueError if a value of the right type is not allowed."""
        if self.choices and value not in self.choices:
            raise UserError(
                f"`{name}` must be one of {', '.join(self.choices)}. Received: {value!r}"
            )
        bounds: list[tuple[Callable[[Any, Any], bool], float | None]] = [
            (operator.ge, self.at_least),
            (operator.gt, self.above),
            (operator.le, self.at_most),
            (operator.lt, self.below),
        ]
        limits = [(compare, bound) for compare, bound in bounds if bound is not None]
        is_allowed = all(compare(value, bound) for compare, bound in limits)
        if limits and not (is_allowed and math.isfinite(value)):
            raise UserError(f"`{name}` must be {self._limits(type(value))}. Received: {value}")
        if self.is_required and value == "":
            raise UserError(f"`{name}` must not be empty. Received: ''")

    def _limits(self, kind: type) -> str:
        lower = self.at_least if self.above is None else self.above
        upper = self.at_most if self.below is None else self.below
        if upper is None and self.above is not None:
            return f"a number above {lower}"
        if upper is None:
            return f"at least {lower}" if kind is int else f"a number of at least {lower}"
        left, right = "[" if self.above is None else "(", "]" if self.below is None else ")"
        return f"in {left}{lower}, {upper}{right}"


def setting(default: T, group: Group, **options: Any) -> Callable[[str], T]:
    """Returns a function that takes a help text and returns the field of a setting.

    `options` are further attributes of `Setting`. In help texts, line breaks are spaces.
    """
    return lambda text: _field(Setting(default, group, _joined(text), **options))


def required(group: Group, **options: Any) -> Callable[[str], Any]:
    """Returns a function like `setting`, for a setting without a default."""
    return lambda text: _field(Setting(dataclasses.MISSING, group, _joined(text), **options))


def changed(kind: type, name: str, **changes: Any) -> Any:
    """Returns a setting of a base class with changes, such as another `default` or `help`."""
    if "help" in changes:
        changes["help"] = _joined(changes["help"])
    return _field(dataclasses.replace(settings_of(kind)[name], **changes))


def _field(declared: Setting) -> Any:
    default = None if declared.depends else declared.default
    return dataclasses.field(default=default, metadata={_SETTING: declared})


def _joined(text: str) -> str:
    return " ".join(text.split())


def settings_of(kind: Any) -> dict[str, Setting]:
    """Returns the settings of a class or an object by name. Other fields are omitted."""
    declared = {f.name: f.metadata.get(_SETTING) for f in dataclasses.fields(kind)}
    return {name: found for name, found in declared.items() if found is not None}


def check_settings(settings: Any) -> None:
    """Checks types and limits of a frozen dataclass, and converts paths and NumPy numbers.

    Only the types str, bool, int and float are checked. Raises TypeError for a wrong type, and
    ValueError for a value out of range.
    """
    hints = get_type_hints(type(settings))
    for name, declared in settings_of(settings).items():
        value, hint = getattr(settings, name), hints[name]
        kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        if value is None and (declared.depends or type(None) in kinds):
            continue
        if kinds[0] in _KINDS:
            value = as_type(name, value, kinds[0])
            object.__setattr__(settings, name, value)
        declared.check(name, value)


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
    """Signature with the defaults of settings that depend, for `help` and notebooks."""

    def __get__(self, settings: Any, kind: type) -> inspect.Signature:
        declared, hints, parameters = settings_of(kind), get_type_hints(kind), []
        for field in dataclasses.fields(cast(Any, kind)):
            name = field.name
            default = declared[name].default if name in declared else field.default
            parameter = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)
            if default is not dataclasses.MISSING:
                parameter = parameter.replace(default=default)
            parameters.append(parameter.replace(annotation=hints[name]))
        return inspect.Signature(parameters)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a command, named after the flags in docs/flags.md; see `check_settings`."""

    __signature__ = _Signature()

    def __post_init__(self) -> None:
        check_settings(self)


def missing(settings: Settings) -> dict[str, Any]:
    """Returns the defaults of the settings that depend and are still `None`."""
    return {
        name: declared.default
        for name, declared in settings_of(settings).items()
        if declared.depends and getattr(settings, name) is None
    }


def resolve(settings: T, *sources: Mapping[str, Any]) -> T:
    """Sets all `missing` settings to the value of the first source that contains one."""
    values = missing(cast(Any, settings))
    for source in reversed(sources):
        values |= {name: source[name] for name in values if source.get(name) is not None}
    return cast(T, dataclasses.replace(cast(Any, settings), **values))


def dry_run_setting() -> bool:
    """Returns the setting of commands that run long or write many files."""
    return setting(False, "Actions")("""
        Run the checks of a real run, log its training plan, and stop. Nothing is written, except
        models that are unpacked or downloaded into their caches.""")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerRules(Settings):
    """Settings of commands that read a tokenizer with a model."""

    do_lower_case: bool | None = setting(None, "Model", depends=True, shown_default=True)("""
        Whether the model expects lower-cased text. If not set, the setting stored with the model
        is used.""")
    keep_accents: bool | None = setting(None, "Model", depends=True, shown_default=False)("""
        Whether the model expects text with accents and other marks, for SentencePiece. If not set,
        the setting stored with the model is used.""")

    def rules(self) -> dict[str, Any]:
        """Returns the settings by name."""
        return {"do_lower_case": self.do_lower_case, "keep_accents": self.keep_accents}
