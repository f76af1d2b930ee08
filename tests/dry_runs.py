"""Commands run in this process, what they planned, and whether they left anything behind."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from absl import flags

from albert_tf.cli.app import explain, is_user_error
from albert_tf.cli.flags import dry_run_context
from albert_tf.data.errors import UserError
from tests.programs import command_line


@contextmanager
def given(module: ModuleType, values: Mapping[str, Any]) -> Iterator[None]:
    """The flags of a command, with these values, for as long as the block lasts."""
    others = set(flags.FLAGS)
    module.define_flags()
    try:
        flags.FLAGS(["program", *command_line(values)])
        yield
    finally:
        for name in set(flags.FLAGS) - others:
            delattr(flags.FLAGS, name)


def run_here(module: ModuleType, values: Mapping[str, Any], *arguments: Any) -> None:
    """Runs a command in this process; its errors have the messages that the command shows.

    Args:
        module: of the command.
        values: of its flags.
        *arguments: what its `run` is given, such as options of Beam.
    """
    with given(module, values), dry_run_context(flags.FLAGS):
        try:
            module.run(*arguments)
        except Exception as error:
            if is_user_error(error):
                raise UserError(explain(error, flags.FLAGS)) from error
            raise AssertionError("the command would show a stack trace") from error


def tree(folder: Path) -> dict[str, Any]:
    """Everything below a folder: what files hold, and when anything was changed last."""
    return {
        str(path): (
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None,
        )
        for path in [folder, *sorted(folder.rglob("*"))]
    }


def assert_unchanged(folder: Path, before: dict[str, Any]) -> None:
    """Fails if anything below a folder was written, removed or touched since.

    Args:
        folder: what `Program` captures in it does not count.
        before: what `tree` returned.
    """
    now = tree(folder)
    changed = {path for path in {*before, *now} if now.get(path) != before.get(path)}
    assert not {path for path in changed - {str(folder)} if "/printed-" not in path}


def logged_plan(printed: str) -> dict[str, str]:
    """The names and values of the training plans in what was logged, the last of each."""
    lines = re.findall(r" plan: (.*)$", printed, re.MULTILINE)
    return dict(pair.split("=", 1) for line in lines for pair in line.split())
