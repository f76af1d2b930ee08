"""`--dry_run`: everything is checked, the plan is printed, and nothing is done."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from absl import flags

from albert_tf.checkpoints.archives import nothing_kept
from albert_tf.cli.flag_groups import WHAT_TO_DO, flag_group
from albert_tf.text_layout import rows

FLAG = "dry_run"
WARNINGS = "Warnings"  # title of a block, which is printed last
NOTHING_WRITTEN = "This was a dry run: nothing was written."  # the last line of a plan

Blocks = Mapping[str, Mapping[str, object]]


def define_dry_run_flag() -> None:
    """The flag of every command that takes long or writes much."""
    with flag_group(WHAT_TO_DO):
        flags.DEFINE_bool(
            FLAG,
            False,
            "Check flags, files and the room for results as for a real run, print what it would "
            "do, and stop. Nothing is written.",
        )


def is_dry_run(values: flags.FlagValues) -> bool:
    """Whether the command is only to be tried; False for commands without the flag."""
    return FLAG in values and bool(values[FLAG].value)


def keep_nothing(values: flags.FlagValues) -> AbstractContextManager[None]:
    """Returns a context in which, with --dry_run, nothing gets into the caches of models."""
    return nothing_kept() if is_dry_run(values) else nullcontext()


def print_plan(blocks: Blocks) -> None:
    """Prints titled blocks of names and values on the standard output.

    Args:
        blocks: by title; those without a row are left out, and `WARNINGS` comes last.
    """
    for title in sorted(blocks, key=lambda title: title == WARNINGS):
        if blocks[title]:
            for line in rows(title, blocks[title]):
                print(line)
    print(f"\n{NOTHING_WRITTEN}")
