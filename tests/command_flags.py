"""Checks of documented command lines."""

import ast
import contextlib
import functools
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

from absl import flags

from albert_tf.__main__ import COMMANDS
from tests.documented_python import name_of
from tests.programs import ROOT

NAMES = tuple(name for names in COMMANDS.values() for name in names)
# Commands that pass arguments after `--` to another command.
_PASSED_TO = {"run_ablations": "run_pretraining", "run_glue": "run_classifier"}


def mistake_in(words: list[str], is_whole: bool = True) -> str | None:
    """Returns the error in a command line. `None` if it is valid.

    Args:
        words: words of `python X.py ...`, `python -m X ...`, `python -c CODE`, `albert_tf X ...`
            or `./X.sh ...`.
        is_whole: whether the command is complete. Otherwise flags may be missing.
    """
    if words[:2] == ["python", "-c"]:
        ast.parse(words[2])
        return None
    if words[0] in ("python", "albert_tf"):
        words = words[1:] if words[0] == "python" else ["-m", *words]
    if words[:2] == ["-m", "albert_tf"]:
        words = ["-m", *words[2:]]
    is_module, name = words[0] == "-m", name_of(words)
    arguments = [word for word in words[2 if is_module else 1 :] if word != "..."]
    if name == "test" or "--help" in words:
        return None  # pytest has further flags
    if name not in NAMES and _source(name) is None:
        return f"There is no command {name}"
    return _mistake_in_arguments(name, arguments, is_whole)


def _mistake_in_arguments(name: str, arguments: list[str], is_whole: bool) -> str | None:
    if "--" in arguments and name in _PASSED_TO:
        end = arguments.index("--")
        arguments, passed = arguments[:end], arguments[end + 1 :]
        if mistake := _mistake_in_arguments(_PASSED_TO[name], passed, is_whole=False):
            return mistake
    if name not in NAMES:
        known = written_flags(_source(name))
        flags_in = {word[2:].partition("=")[0] for word in arguments if word.startswith("--")}
        unknown = flags_in - known - {"help"}
        return f"{name} has no flags {unknown}" if unknown else None
    literal = [word for word in arguments if "$" not in word]
    with flags_of(name) as values:
        if not is_whole or len(literal) < len(arguments):
            for flag in values:
                values[flag].validators.clear()
        try:
            values([name, *literal])
        except flags.Error as error:
            return f"{name}: {error}"
    return None


@contextlib.contextmanager
def flags_of(name: str) -> Iterator[flags.FlagValues]:
    """Context manager that defines the flags of a command."""
    values = flags.FLAGS
    others = set(values)
    importlib.import_module(f"albert_tf.cli.{name}").main.flags.define()
    try:
        yield values
    finally:
        values.unparse_flags()
        for flag in set(values) - others:
            delattr(values, flag)


@functools.cache
def all_flags() -> frozenset[str]:
    """Returns the flags of all commands, benchmarks and shell scripts."""
    found = {"help", "helpfull", "flagfile", "verbosity"}
    for name in NAMES:
        with flags_of(name) as values:
            found |= set(values)
    programs = ("benchmarks/*.py", "*.sh", "tests/*/__main__.py")
    for file in (file for pattern in programs for file in ROOT.glob(pattern)):
        found |= written_flags(file)
    return frozenset(found)


def written_flags(file: Path) -> set[str]:
    """Returns the flags in the source of a program that is not a command."""
    text = file.read_text(encoding="utf-8")
    found = re.findall(r"DEFINE_\w+\(\s*\"(\w+)\"", text)
    found += re.findall(r"add_argument\(\s*\"--(\w+)\"", text)
    found += re.findall(r"^ +--(\w+)=\*\)", text, re.MULTILINE)
    found += re.findall(r"= --(\w+) \]", text)  # of shell scripts
    return {*found, "help"}


def _source(name: str) -> Path | None:
    """Returns the source of a shell script, a benchmark, or another program of this project."""
    files = (
        ROOT / f"{name}.sh",
        *(ROOT / folder / f"{name}.py" for folder in ("benchmarks", "scripts")),
        ROOT / "tests" / name / "__main__.py",
    )
    return next((file for file in files if file.exists()), None)
