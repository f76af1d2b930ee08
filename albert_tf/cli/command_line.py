"""Reading a command line: what is wrong with it is told at once, with what would be right."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from absl import flags

from albert_tf.cli.flag_descriptions import FlagDescription, names_defined_by, undefine
from albert_tf.cli.flag_files import Argument
from albert_tf.cli.main import COMMANDS

# Flags of absl that a message may suggest.
_FOR_ALL = ("help", "helpfull", "flagfile", "verbosity", "undefok")
_BOOLEAN_WORDS = ("true", "false", "t", "f", "yes", "no", "on", "off", "0", "1")
_DASHES = "-\N{EN DASH}\N{EM DASH}\N{MINUS SIGN}"  # and what text processors make of them
_ALIKE = 0.75  # the least likeness, from 0 to 1, of what is suggested
_SHORTEST = 4  # letters of a name that is looked for in others
_MOST = 4  # suggestions


def find_mistakes(
    command: str,
    described: Sequence[FlagDescription],
    arguments: Sequence[Argument],
    *,
    takes_paths: bool,
) -> list[str]:
    """Returns what is wrong with arguments, without changing a flag.

    Args:
        command: its name.
        described: its flags, which are defined.
        arguments: those before a --.
        takes_paths: whether arguments without dashes have a meaning.
    """
    reader = _Reader(command, {flag.name: flag for flag in described}, takes_paths)
    reader.read(arguments)
    return list(reader.mistakes())


class _Reader:
    """Goes through arguments as absl does, and notes every mistake instead of the first one."""

    def __init__(
        self, command: str, described: dict[str, FlagDescription], takes_paths: bool
    ) -> None:
        self._command = command
        self._described = described
        self._takes_paths = takes_paths
        self._mistakes: list[str] = []
        self._unknown: list[tuple[str, str]] = []
        self._passed_over: set[str] = set()
        self._names: set[str] = set()

    def read(self, arguments: Sequence[Argument]) -> None:
        rest = list(arguments)
        while rest:
            argument = rest.pop(0)
            if argument.text.startswith("-") and argument.text.strip("-"):
                self._read_flag(argument, rest)
            elif not self._takes_paths:
                self._note(argument, _without_dashes(argument.text))

    def mistakes(self) -> Iterator[str]:
        """All of them: the unknown flags first, those that are missing last."""
        for name, place in self._unknown:
            if name not in self._passed_over and name.removeprefix("no") not in self._passed_over:
                yield self._about_unknown(name) + place
        yield from self._mistakes
        for name, flag in self._described.items():
            if flag.is_required and name not in self._names:
                yield f"--{name} is missing. {flag.meaning}"

    def _note(self, argument: Argument, mistake: str) -> None:
        self._mistakes.append(mistake + _place(argument))

    def _read_flag(self, argument: Argument, rest: list[Argument]) -> None:
        name, has_value, value = argument.text.removeprefix("-").removeprefix("-").partition("=")
        given = value if has_value else None
        self._names.add(name)
        if name == "undefok":  # absl looks for it before all flags
            self._passed_over.update((self._value(argument, name, given, rest) or "").split(","))
        elif _is_boolean(name):
            self._read_boolean(argument, name, given, rest)
        elif name in flags.FLAGS:
            self._check(argument, name, self._value(argument, name, given, rest))
        elif name.startswith("no") and _is_boolean(name[2:]):
            if has_value:
                self._note(argument, f"--{name} takes no value. Received: {argument.text}")
        else:
            self._unknown.append((name, _place(argument)))
            if not has_value and rest and not rest[0].text.startswith("-"):
                rest.pop(0)  # its value, most likely

    def _read_boolean(
        self, argument: Argument, name: str, given: str | None, rest: list[Argument]
    ) -> None:
        if given is not None:
            self._check(argument, name, given)
        elif rest and rest[0].text.lower() in _BOOLEAN_WORDS and not self._takes_paths:
            self._note(argument, _about_boolean(name, rest.pop(0).text))

    def _value(
        self, argument: Argument, name: str, given: str | None, rest: list[Argument]
    ) -> str | None:
        """The value behind the = or the name; None if it is missing, which is noted."""
        if given is not None:
            return given
        if rest and not self._is_flag(rest[0].text):
            return rest.pop(0).text
        self._note(argument, f"--{name} needs a value: {self._form(name)}.")
        return None

    def _is_flag(self, text: str) -> bool:
        name = text.removeprefix("--").partition("=")[0]
        return text.startswith("--") and (name in flags.FLAGS or _is_boolean(name[2:]))

    def _form(self, name: str) -> str:
        kind = self._described[name].kind if name in self._described else "value"
        return f"--{name}={kind.upper()}"

    def _check(self, argument: Argument, name: str, value: str | None) -> None:
        """Notes a value the flag cannot have."""
        if value is None:
            return
        try:
            flags.FLAGS[name].parser.parse(value)
        except (ValueError, TypeError) as error:
            flag = self._described.get(name)
            self._note(argument, _about_value(flag, value) if flag else f"--{name}: {error}")

    def _about_unknown(self, name: str) -> str:
        owners = commands_with(name, self._described)
        if owners:
            said = f"--{name} is a flag of {', '.join(owners)}, not of {self._command}."
        else:
            said = f"There is no flag --{name}."
        meant = " or ".join(f"--{other}" for other in self._alike(name.replace("-", "_").lower()))
        return said + (f" Did you mean {meant}?" if meant else "")

    def _alike(self, name: str) -> list[str]:
        """Flags of this command that hold the name in theirs, or else the one most like it."""
        longer = [flag for flag in self._described if name in flag]
        if longer and len(name) >= _SHORTEST:
            return longer[:_MOST]
        negated = [f"no{flag.name}" for flag in self._described.values() if flag.kind == "boolean"]
        known = [*self._described, *negated, *_FOR_ALL]
        return difflib.get_close_matches(name, known, n=1, cutoff=_ALIKE)


def _is_boolean(name: str) -> bool:
    return name in flags.FLAGS and flags.FLAGS[name].boolean


def _place(argument: Argument) -> str:
    return f" ({argument.place})" if argument.place else ""


def _without_dashes(text: str) -> str:
    bare = text.lstrip(_DASHES)
    name, has_value, _ = bare.partition("=")
    if _is_boolean(name) or (has_value and name in flags.FLAGS):
        return f"Flags begin with two dashes: write --{bare}"
    return (
        f"{text!r} belongs to no flag. Write --name=value without blanks, a value with blanks or a "
        "* in quotes, and several files with commas."
    )


def _about_boolean(name: str, value: str) -> str:
    return (
        f"--{name} takes its value after a =, or none: --{name} for true, --no{name} for false. "
        f"Received: --{name} {value}"
    )


def _about_value(flag: FlagDescription, value: str) -> str:
    """What a flag may be, and what it is given."""
    allowed = {
        "integer": "an integer",
        "number": "a number",
        "boolean": "true or false",
        "choice": f"one of {', '.join(flag.choices)}",
    }.get(flag.kind, f"a {flag.kind}")
    if flag.lower_bound is not None:
        allowed += f" of at least {flag.lower_bound:g}"
    unit = f" ({flag.unit})" if flag.unit else ""
    alike = difflib.get_close_matches(value.lower(), flag.choices, n=1)
    suggestion = f" Did you mean {alike[0]}?" if alike else ""
    return f"--{flag.name} must be {allowed}{unit}. Received: {value!r}.{suggestion}"


def commands_with(name: str, own: Iterable[str]) -> list[str]:
    """Returns the commands that have a flag.

    Args:
        name: of the flag.
        own: the flags of the command that runs, which are defined.
    """
    return [command for command, names in _flags_of_commands(frozenset(own)) if name in names]


@cache
def _flags_of_commands(own: frozenset[str]) -> list[tuple[str, list[str]]]:
    """The flags of every command, which are defined and taken out again, one after the other."""
    kept = {name: flags.FLAGS[name] for name in own}
    undefine(own)
    found = []
    for command in (name for names in COMMANDS.values() for name in names):
        names = names_defined_by(importlib.import_module(f"albert_tf.cli.{command}").define_flags)
        undefine(names)
        found.append((command, names))
    for name, flag in kept.items():
        flags.FLAGS[name] = flag
    return found
