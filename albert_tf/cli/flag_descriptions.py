"""What a command and its flags are, told as `--help` and the reference of flags show it."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import compress
from types import ModuleType
from typing import Any

from absl import flags

from albert_tf.cli.flag_groups import GROUPS, group_of, unit_of

_KINDS = {
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "comma separated list of strings": "list",
    "string enum": "choice",
}


@dataclass(frozen=True)
class FlagDescription:
    """A flag.

    Attributes:
        name: without dashes.
        group: one of `GROUPS`.
        kind: "integer", "number", "boolean", "list" (with commas), "choice" or "text".
        choices: what a choice can be.
        default: as it is typed, None where there is none.
        is_required: whether it must be given.
        is_repeated: whether it may be given several times.
        unit: what a number counts, "" for a plain one.
        lower_bound: the least a number can be, if the flag itself says so.
        meaning: what it does.
    """

    name: str
    group: str
    kind: str
    choices: tuple[str, ...]
    default: str | None
    is_required: bool
    is_repeated: bool
    unit: str
    lower_bound: float | None
    meaning: str

    def remarks(self) -> list[str]:
        """What stands behind its name: unit, least value, how often, default."""
        remarks = [self.unit] if self.unit else []
        if self.lower_bound is not None:
            remarks.append(f"at least {self.lower_bound:g}")
        if self.kind == "list":
            remarks.append("with commas")
        if self.is_repeated:
            remarks.append("may be repeated")
        if self.is_required:
            remarks.append("required")
        elif self.default is not None:
            remarks.append(f"default: {self.default or 'empty'}")
        return remarks


@dataclass(frozen=True)
class CommandDescription:
    """A command.

    Attributes:
        name: of its module in `albert_tf.cli`.
        texts: what it does, a paragraph each.
        examples: command lines, each beginning with the name.
        groups: its flags by title, in the order they are listed.
    """

    name: str
    texts: tuple[str, ...]
    examples: tuple[str, ...]
    groups: dict[str, list[FlagDescription]]

    def flags(self) -> list[FlagDescription]:
        """All its flags."""
        return [flag for group in self.groups.values() for flag in group]


def describe_flag(name: str) -> FlagDescription:
    """Describes a flag that is defined."""
    flag = flags.FLAGS[name]
    kind = flag.flag_type()
    is_repeated = kind.startswith("multi ")
    return FlagDescription(
        name=name,
        group=group_of(name),
        kind=_KINDS.get(kind.removeprefix("multi "), "text"),
        choices=tuple(getattr(flag.parser, "enum_values", ())),
        default=_typed(flag.default),
        # A validator that refuses None is how absl keeps that a flag is required.
        is_required=any(not validator.checker(None) for validator in flag.validators),
        is_repeated=is_repeated,
        unit=unit_of(name),
        lower_bound=getattr(flag.parser, "lower_bound", None),
        meaning=_meaning(flag),
    )


def _meaning(flag: flags.Flag) -> str:
    """Its help, without what absl adds to it: its choices, that it may be repeated."""
    choices = getattr(flag.parser, "enum_values", ())
    text = " ".join(flag.help.split()).removeprefix(f"<{'|'.join(choices)}>: ")
    return text.removesuffix("; repeat this option to specify a list of values")


def _typed(value: Any) -> str | None:
    """A value as it is typed on a command line."""
    if value is None or value == []:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def describe_command(module: ModuleType, names: Iterable[str]) -> CommandDescription:
    """Describes a command whose flags are defined.

    Args:
        module: its module, whose docstring says what it does; a paragraph that begins with the name
            of the command is an example.
        names: its flags, in the order they were defined.
    """
    name = inspect.getmodulename(getattr(module, "__file__", None) or "") or ""
    paragraphs = [
        " ".join(line.strip() for line in paragraph.split("\n"))
        for paragraph in inspect.cleandoc(module.__doc__ or "").split("\n\n")
    ]
    is_example = [paragraph.startswith(f"{name} ") for paragraph in paragraphs]
    described = [describe_flag(name) for name in names]
    groups = {title: [flag for flag in described if flag.group == title] for title in ("", *GROUPS)}
    return CommandDescription(
        name=name,
        texts=tuple(
            text.replace("`", "")
            for text, is_one in zip(paragraphs, is_example, strict=True)
            if not is_one
        ),
        examples=tuple(compress(paragraphs, is_example)),
        groups={title: group for title, group in groups.items() if group},
    )


def names_defined_by(define_flags: Callable[[], None]) -> list[str]:
    """Defines flags and returns their names, in order."""
    before = set(flags.FLAGS)
    define_flags()
    return [name for name in flags.FLAGS if name not in before]


@contextmanager
def defined_flags(name: str) -> Iterator[CommandDescription]:
    """Has the flags of a command defined for a while, and describes it.

    Args:
        name: of the module in `albert_tf.cli`.
    """
    module = importlib.import_module(f"albert_tf.cli.{name}")
    names = names_defined_by(module.define_flags)
    try:
        yield describe_command(module, names)
    finally:
        undefine(names)


def undefine(names: Iterable[str]) -> None:
    """Takes flags out of the process again."""
    for name in names:
        delattr(flags.FLAGS, name)
