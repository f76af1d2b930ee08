"""`--dry_run`: a command makes its checks, and stops where it would write first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from absl import flags

from albert_tf.cli.flags import flag_group

FLAG = "dry_run"
PASSED = "All checks passed. Nothing was written (--dry_run)."


def define_dry_run_flag() -> None:
    """The flag of every command that takes long or writes much."""
    with flag_group("Actions"):
        flags.DEFINE_bool(
            FLAG,
            False,
            "Run the checks of a real run, log its training plan, and stop. Nothing is written.",
        )


def is_dry_run(values: flags.FlagValues) -> bool:
    """Whether the command is only to be tried; False for commands without the flag."""
    return FLAG in values and bool(values[FLAG].value)


@contextmanager
def dry_run_context(values: flags.FlagValues) -> Iterator[None]:
    """With --dry_run says in the end that nothing failed.

    Args:
        values: the flags; without --dry_run the context does nothing.
    """
    yield
    if is_dry_run(values):
        print(PASSED)
