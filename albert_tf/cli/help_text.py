"""The text of `--help`."""

from __future__ import annotations

import os
import re
import shutil
import textwrap
from collections.abc import Iterator

from albert_tf.cli.flag_descriptions import CommandDescription, FlagDescription

_NARROWEST, _WIDEST = 40, 100
_ENDING = """\
Flags are written --name=value; a boolean one also --name for true and --noname for false.
--flagfile=FILE reads flags from a file: one a line, # before a comment. What stands after it wins.
--verbosity=1 shows where an error came from and what other packages log, -1 warnings alone.
--undefok=NAME,NAME passes over flags of these names that do not exist.
--helpfull also lists the flags of logging and of debugging, -- ends the flags."""


def terminal_width() -> int:
    """Columns to fill."""
    return min(max(shutil.get_terminal_size().columns, _NARROWEST), _WIDEST)


def program_of(name: str, started_as: str) -> str:
    """Returns how a command is called, in the way it was called.

    Args:
        name: of the module in `albert_tf.cli`.
        started_as: `sys.argv[0]`: a file, or `albert_tf <name>`.
    """
    if started_as.endswith(f" {name}"):
        return started_as
    folder, file = os.path.split(os.path.abspath(started_as))
    if folder.endswith(os.path.join("albert_tf", "cli")):
        return f"python -m albert_tf.cli.{name}"
    return f"python {file}"


def help_text(command: CommandDescription, program: str, width: int) -> str:
    """Returns what `--help` prints.

    Args:
        command: what to tell of.
        program: how it is called; see `program_of`.
        width: columns to fill.
    """
    blocks = [textwrap.fill(text, width) for text in command.texts]
    examples = [wrapped_example(example, program, width) for example in command.examples]
    if examples:
        heading = "Example:" if len(examples) == 1 else "Examples:"
        blocks.append("\n".join([heading, *examples]))
    for title, group in command.groups.items():
        blocks.append("\n".join([f"{title or 'Flags'}:", *_group_lines(group, width)]))
    blocks.append("\n".join(textwrap.fill(line, width) for line in _ENDING.split("\n")))
    return "\n\n".join(blocks)


def wrapped_example(example: str, program: str, width: int) -> str:
    """Returns an example set in, broken into lines that a shell takes for one.

    Args:
        example: begins with the name of the command.
        program: stands in its place.
        width: columns to fill.
    """
    parts = [program, *_parts(example)[1:]]
    lines = ["  " + parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) + 3 <= width:
            lines[-1] += f" {part}"
        else:
            lines[-1] += " \\"
            lines.append(f"      {part}")
    return "\n".join(lines)


def _parts(example: str) -> list[str]:
    """The words of a command line, with their quotes."""
    return re.findall(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""", example)


def flag_form(flag: FlagDescription) -> str:
    """Returns a flag as it is written, such as --name=INTEGER."""
    if flag.kind == "boolean":
        return f"--[no]{flag.name}"
    value = "|".join(flag.choices) if flag.kind == "choice" else flag.kind.upper()
    return f"--{flag.name}={value}"


def _group_lines(group: list[FlagDescription], width: int) -> Iterator[str]:
    for flag in group:
        remarks = "; ".join(flag.remarks())
        head = f"{flag_form(flag)}  ({remarks})" if remarks else flag_form(flag)
        yield textwrap.fill(
            head,
            width,
            initial_indent="  ",
            subsequent_indent="      ",
            break_on_hyphens=False,
        )
        yield textwrap.fill(
            flag.meaning,
            width,
            initial_indent="      ",
            subsequent_indent="      ",
            break_on_hyphens=False,
            break_long_words=False,
        )
