"""Writes docs/flags.md, the reference of all commands and their flags, from the commands.

python -m scripts.flags_reference
"""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from absl import flags

from albert_tf.cli.flags import GROUPS
from albert_tf.cli.main import COMMANDS, summary

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "flags.md"

_HEAD = """\
# Flags of the commands

The commands and flags of `--help`, on one page. It is generated from the commands by
`python -m scripts.flags_reference`; a test fails when it is out of date.

A flag is written `--name=value` or `--name value`, a Boolean flag `--name` or `--noname`. All
commands are subcommands of the installed program and modules, some are also scripts in the root of
the repository: `albert_tf run_squad`, `python -m albert_tf.cli.run_squad` and `python run_squad.py`
are the same.

Flags are parsed by [absl](https://abseil.io/docs/python/guides/flags). Unknown flags, values of the
wrong type and arguments that belong to no flag are errors, which are reported before anything is
loaded; the exit status is then 1.

## Flags in a file

`--flagfile=FILE` reads flags from a file. Flags after it on the command line take precedence:
`python run_pretraining.py --flagfile=pretraining.flags --num_train_steps=20000`.

```text
# pretraining.flags: one flag per line
--flagfile=common.flags
--input_file=records/train.tfrecord*
--output_dir=my runs/first
--num_train_steps=10000
--nodo_eval
```

The value is the rest of the line, without quotes. Lines that begin with `#` or `//` are comments.
Paths of further files are relative to the current directory.

All commands also have `--verbosity` (1 shows stack traces of errors and the logs of other packages,
-1 only warnings), `--undefok=NAME,NAME` (flags that may be unknown), `--help` and `--helpfull`.
"""

# Words that are no prose: flags, file names, globs, placeholders.
_CODE = re.compile(
    r"-{1,2}\w\S*|-{1,2}|\S*[_<>*\[\]@|^]\S*|[A-Za-z]\S*(?:\.|://)\w\w\S*|\.\w+|\S+-of-\S+"
)
_WORD = re.compile(r"(?P<before>[(]*)(?P<core>.*?)(?P<after>[).,;:]*)")


def reference() -> str:
    """Returns the text of the page."""
    commands = [name for names in COMMANDS.values() for name in names]
    lines = [_HEAD, "## Commands", ""]
    lines += [f"- [{name}](#{name}): {summary(name)}" for name in commands]
    headings: dict[str, str] = {}
    for name in commands:
        lines += ["", *_section(name, headings)]
    return "\n".join(lines) + "\n"


def _section(name: str, headings: dict[str, str]) -> Iterator[str]:
    """The section of a command.

    Args:
        name: of the command.
        headings: of the tables so far, by their texts; those of this command are added.
    """
    module = importlib.import_module(f"albert_tf.cli.{name}")
    yield f"## {name}"
    for paragraph in inspect.cleandoc(module.__doc__ or "").split("\n\n"):
        if paragraph.startswith(" "):
            yield from ("", "```text", textwrap.dedent(paragraph), "```")
        else:
            text = prose(" ".join(paragraph.split()))
            yield from ("", textwrap.fill(text, 100, break_on_hyphens=False))
    others = set(flags.FLAGS)
    module.define_flags()
    tables = {title: _table(flags.FLAGS.get_key_flags_for_module(title)) for title in GROUPS}
    flags.FLAGS.remove_flag_values(set(flags.FLAGS) - others)
    for title, table in tables.items():
        if table:
            heading = f"{name}: {title.lower()}"
            known = headings.setdefault(table, heading)
            same = f"Same as [{known}](#{anchor(known)})."
            yield from ("", f"### {heading}", "", table if known == heading else same)


def anchor(heading: str) -> str:
    """Returns what GitHub and MyST call a heading in links."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _table(group: list[flags.Flag]) -> str:
    """The rows of flags, "" if there are none."""
    rows = []
    for flag in group:
        choices = getattr(flag.parser, "enum_values", ())
        kind = re.sub("^an? ", "", flag.parser.syntactic_help)
        cells = (
            f"`--[no]{flag.name}`" if flag.boolean else f"`--{flag.name}`",
            ", ".join(f"`{choice}`" for choice in choices)
            or kind
            or ("boolean" if flag.boolean else "string"),
            "" if flag.default_as_str in (None, "''") else f"`{flag.default_as_str[1:-1]}`",
            prose(" ".join(flag.help.split()).removeprefix(f"<{'|'.join(choices)}>: ")),
        )
        rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return (
        "\n".join(["| flag | type | default | meaning |", "|---|---|---|---|", *rows])
        if rows
        else ""
    )


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
