"""Runs commands in this process; compares directories; reads training plans."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from absl import flags

from albert_tf.cli.app import explain, is_user_error
from albert_tf.data.errors import UserError
from tests.programs import CommandRun, command_line


@contextmanager
def given(module: ModuleType, values: Mapping[str, Any]) -> Iterator[None]:
    """Context manager that defines and sets the flags of a command."""
    others = set(flags.FLAGS)
    module.main.flags.define()
    try:
        flags.FLAGS(["program", *command_line(values)])
        yield
    finally:
        for name in set(flags.FLAGS) - others:
            delattr(flags.FLAGS, name)


def run_here(module: ModuleType, values: Mapping[str, Any], *arguments: Any) -> None:
    """Runs a command in this process. Its errors have the messages that the command shows."""
    with given(module, values):
        try:
            module.main.execute(module.main.flags.settings(), *arguments)
        except Exception as error:
            if is_user_error(error):
                raise UserError(explain(error, flags.FLAGS)) from error
            raise AssertionError("the command would show a stack trace") from error


def run_command(run: CommandRun, **changes: Any) -> None:
    """Runs the command of a `CommandRun` in this process."""
    module = import_module(f"albert_tf.cli.{Path(run.script).stem}")
    run_here(module, run.flags(**changes))


def tree(folder: Path) -> dict[str, Any]:
    """Returns modification times and checksums of all files in a folder."""
    return {
        str(path): (
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None,
        )
        for path in [folder, *sorted(folder.rglob("*"))]
    }


def assert_unchanged(folder: Path, before: dict[str, Any]) -> None:
    """Checks that a folder has not changed since a result of `tree`, except output of programs."""
    now = tree(folder)
    changed = {path for path in {*before, *now} if now.get(path) != before.get(path)}
    assert not {path for path in changed - {str(folder)} if "/printed-" not in path}


def logged_plan(log: str) -> dict[str, float]:
    """Returns the numbers in the first training plan of a log."""
    found = re.search(r"Training (\d+) steps of (\d+) .*: (\S+) epochs of (\d+) examples", log)
    names = ("steps", "train_batch_size", "epochs", "examples")
    return dict(zip(names, map(float, found.groups()), strict=True)) if found else {}
