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
from albert_tf.cli.flags import define
from tests.documented_python import name_of
from tests.programs import ROOT

NAMES = tuple(name for names in COMMANDS.values() for name in names)
# Commands that pass arguments after `--` to another command.
_PASSED_TO = {"run_ablations": "run_pretraining", "run_glue": "run_classifier"}
_FLAG = re.compile(r"--(\w+)(?:=(.*))?$", re.DOTALL)


def mistakes(words: list[str], is_whole: bool = True) -> list[str]:
    """Returns the errors in a command line.

    Args:
        words: words of `python X.py ...`, `python -m X ...`, `python -c CODE`, `albert_tf X ...`
            or `./X.sh ...`. Other programs are not checked.
        is_whole: whether the command is complete. Otherwise flags may be missing.
    """
    if words[:2] == ["python", "-c"]:
        ast.parse(words[2])
        return []
    if words[0] == "python":
        words = words[1:]
    elif words[0] == "albert_tf":
        words = ["-m", *words]
    elif not words[0].startswith("./"):
        return []
    if words[:2] == ["-m", "albert_tf"] and words[2] == "--help":
        return []
    name, arguments = name_of(words), words[1:]
    if words[0] == "-m":
        arguments = words[3:] if words[1] == "albert_tf" else words[2:]
        module = ROOT / words[1].replace(".", "/")
        files = (module.with_suffix(".py"), module / "__main__.py")
        if not (name in NAMES or any(file.exists() for file in files)):
            return [f"There is no command {name}"]
    elif not (ROOT / words[0]).exists():
        return [f"There is no {words[0]}"]
    elif name == "test":
        return []  # it passes its arguments to pytest
    elif name == "demo":
        words = ["-m", "albert_tf.cli.demo"]
    return _mistakes_of(name, [word for word in arguments if word != "..."], is_whole)


def _mistakes_of(name: str, arguments: list[str], is_whole: bool) -> list[str]:
    passed: list[str] = []
    if "--" in arguments:
        end = arguments.index("--")
        arguments, passed = arguments[:end], arguments[end + 1 :]
    found = []
    if name in _PASSED_TO:
        found = _mistakes_of(_PASSED_TO[name], passed, is_whole=False)
    if name in NAMES:
        return found + _mistakes_of_command(name, arguments, is_whole)
    names = written_flags(_source(name))
    return found + [
        f"{name} has no flag {word}" for word in arguments if _flag_name(word, names) is None
    ]


def _mistakes_of_command(name: str, arguments: list[str], is_whole: bool) -> list[str]:
    with flags_of(name) as values:
        found = []
        for word in arguments:
            flag = _flag_name(word, values)
            if word.startswith("--") and flag is None and word != "--help":
                found.append(f"{name} has no flag {word}")
            elif flag and "=" in word and "$" not in word:
                try:
                    values[flag].parser.parse(word.partition("=")[2])
                except ValueError as error:
                    found.append(f"{name} {word}: {error}")
        if is_whole and not found and not {"$", "--help"} & {*"".join(arguments), *arguments}:
            try:
                values([name, *arguments])
            except flags.Error as error:
                found.append(f"{name}: {error}")
        return found


@contextlib.contextmanager
def flags_of(name: str) -> Iterator[flags.FlagValues]:
    """Context manager that defines the flags of a command."""
    values = flags.FLAGS
    others = set(values)
    define(importlib.import_module(f"albert_tf.cli.{name}").FLAGS)
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


def _source(name: str) -> Path:
    files = (ROOT / f"{name}.sh", ROOT / "tests" / name / "__main__.py")
    benchmark = ROOT / "benchmarks" / f"{name}.py"
    return next((file for file in files if file.exists()), benchmark)


def _flag_name(word: str, known: flags.FlagValues | set[str]) -> str | None:
    """Returns the flag in a word: `--name`, `--name=value` or `--noname`."""
    match = _FLAG.match(word)
    if not match:
        return None
    for name in (match[1], match[1].removeprefix("no")):
        if name in known:
            return name
    return None
