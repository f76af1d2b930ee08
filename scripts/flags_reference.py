"""Writes docs/flags.md, the reference of all commands and their flags, from the commands.

python -m scripts.flags_reference
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from albert_tf.cli.flag_descriptions import CommandDescription, FlagDescription, defined_flags
from albert_tf.cli.help_text import wrapped_example
from albert_tf.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "flags.md"

_HEAD = """\
# Flags of the commands

What `--help` of each command says, for all of them. This page is made from the commands by
`python -m scripts.flags_reference`; a test fails when it is stale.

A flag is written `--name=value` or `--name value`, one that is true or false `--name` or
`--noname`. Where the default is empty, not giving the flag has a meaning of its own, which its
description tells. Every command is a module, some are also scripts in the root of the repository,
and all are subcommands of the installed program: `albert_tf run_squad` is
`python -m albert_tf.cli.run_squad` and `python run_squad.py`.

All mistakes of a command line are told at once, before anything is loaded: flags that do not exist
with those that were meant, values of the wrong kind with what is right, and what is missing. The
exit status is then 1.

## Flags in a file

`--flagfile=FILE` puts the flags of a file where it stands. What follows it on the command line
wins: `python run_pretraining.py --flagfile=pretraining.flags --num_train_steps=20000`.

```text
# pretraining.flags: one flag a line
--flagfile=common.flags
--input_file=records/train.tfrecord*    # a comment, after a blank
--output_dir='my runs/first'
--num_train_steps 10000
--nodo_eval
```

A value is the rest of the line: blanks belong to it, quotes around all of it do not. Lines that
begin with `#` or `//` are passed over. A file may name others; their paths count from the directory
the command is started in, and may be remote (`gs://...`).

Every command also has `--verbosity` (1 shows where an error came from and what
other packages log, -1 warnings alone),
`--undefok=NAME,NAME` (flags of these names need not exist), `--help` and `--helpfull`.
"""

# Words that are no prose: flags, file names, globs, placeholders.
_CODE = re.compile(
    r"-{1,2}\w\S*|-{1,2}|\S*[_<>*\[\]@|^]\S*|[A-Za-z]\S*(?:\.|://)\w\w\S*|\.\w+|\S+-of-\S+"
)
_WORD = re.compile(r"(?P<before>[(]*)(?P<core>.*?)(?P<after>[).,;:]*)")


def reference() -> str:
    """Returns the text of the page."""
    commands = []
    for name in (name for names in COMMANDS.values() for name in names):
        with defined_flags(name) as command:
            commands.append(command)
    lines = [_HEAD, "## Commands", ""]
    lines += [f"- [{command.name}](#{command.name}): {command.texts[0]}" for command in commands]
    places: dict[tuple[FlagDescription, ...], str] = {}
    for command in commands:
        lines += ["", *_command_lines(command, places)]
    return "\n".join(lines) + "\n"


def _command_lines(
    command: CommandDescription, places: dict[tuple[FlagDescription, ...], str]
) -> Iterator[str]:
    """The section of a command.

    Args:
        command: what to tell of.
        places: the headings of the groups there are already; those of this one are added.
    """
    yield f"## {command.name}"
    for text in command.texts:
        yield from ("", textwrap.fill(prose(text), 100, break_on_hyphens=False))
    yield from ("", "```text")
    for example in command.examples:
        yield from (
            line[2:] for line in wrapped_example(example, program(command.name), 98).split("\n")
        )
    yield "```"
    for title, group in command.groups.items():
        heading = f"{command.name}: {title.lower()}"
        yield from ("", f"### {heading}", "")
        known = places.setdefault(tuple(group), heading)
        if known == heading:
            yield from _table(group)
        else:
            yield f"All as in [{known}](#{anchor(known)})."


def program(name: str) -> str:
    """Returns how a command is called from the root of the repository."""
    is_script = (ROOT / f"{name}.py").exists()
    return f"python {name}.py" if is_script else f"python -m albert_tf.cli.{name}"


def anchor(heading: str) -> str:
    """Returns what GitHub and MyST call a heading in links."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _table(group: list[FlagDescription]) -> Iterator[str]:
    yield "| flag | type | default | meaning |"
    yield "|---|---|---|---|"
    for flag in group:
        name = f"--[no]{flag.name}" if flag.kind == "boolean" else f"--{flag.name}"
        default = "" if flag.default is None else f"`{flag.default or '(empty)'}`"
        cells = (
            f"`{name}`",
            _type(flag),
            "**required**" if flag.is_required else default,
            prose(flag.meaning),
        )
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _type(flag: FlagDescription) -> str:
    if flag.kind == "choice":
        return ", ".join(f"`{choice}`" for choice in flag.choices)
    known = ("required", "default:")
    remarks = [remark for remark in flag.remarks() if not remark.startswith(known)]
    return ", ".join([flag.kind, *remarks])


def prose(text: str) -> str:
    """Returns text as Markdown, with what is to be typed or found on disk as code."""
    return " ".join(map(_word, text.split(" ")))


def _word(word: str) -> str:
    parts = _WORD.fullmatch(word)
    assert parts
    core = parts["core"]
    core = f"`{core}`" if _CODE.fullmatch(core) else core.replace("~", r"\~")
    return f"{parts['before']}{core}{parts['after']}"


def main() -> None:
    """Writes the page."""
    REFERENCE.write_text(reference(), encoding="utf-8")
    print(f"wrote {REFERENCE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
