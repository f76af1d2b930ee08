"""Fenced blocks and text of the documentation, and the commands in it.

A comment in the line above a block, which readers do not see, controls the tests:

- `<!-- needs: a TPU -->`: a test cannot run the commands for the given reason. `...` in them stands
  for the flags of another command.
- `<!-- printed -->`: an earlier command prints the text.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
_FENCE = re.compile(r"^( *)```(.*)$")
_MARK = re.compile(r"^ *<!-- (?:needs: (.+)|printed) -->$")
# A program of this project with its arguments, up to a pipe, a redirection or the end of the line.
_COMMAND = re.compile(
    r"""(?<![\w/.-])(?:(?:python|albert_tf)(?= )|\./[\w/]+(?:\.\w+)?(?![\w/.-]))"""
    r"""(?:"[^"]*"|'[^']*'|[^"'|;&<>()\n])*"""
)


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        file: the document.
        line: number of the line with the opening fence, counted from 1.
        language: the word after the fence.
        text: the lines between the fences, without the indentation of the fence.
        needs: the reason why a test cannot run the block. `None` if a test can run it.
        is_printed: whether an earlier command prints the text.
    """

    file: Path
    line: int
    language: str
    text: str
    needs: str | None = None
    is_printed: bool = False

    @property
    def place(self) -> str:
        return f"{self.file.name}:{self.line}"

    @property
    def is_run(self) -> bool:
        return self.language in ("bash", "python") and self.needs is None


def blocks_of(file: Path) -> list[Block]:
    """Returns the blocks of a document. A block without an end is an error."""
    blocks, lines = [], file.read_text(encoding="utf-8").splitlines()
    numbered = enumerate(lines, 1)
    for number, line in numbered:
        fence = _FENCE.match(line)
        if not fence:
            continue
        indentation, language = fence.groups()
        content: list[str] = []
        for _, inner in numbered:
            if inner.strip() == "```":
                break
            content.append(inner.removeprefix(indentation))
        else:
            raise AssertionError(f"{file.name}:{number}: the block has no end")
        mark = _MARK.match(lines[number - 2]) if number > 1 else None
        text = "".join(f"{line}\n" for line in content)
        is_printed = mark is not None and mark[1] is None
        blocks.append(Block(file, number, language, text, mark and mark[1], is_printed))
    return blocks


def prose_of(file: Path) -> str:
    """Returns a document without its blocks, with unchanged line numbers."""
    kept, inside = [], False
    for line in file.read_text(encoding="utf-8").splitlines():
        is_fence = bool(_FENCE.match(line))
        kept.append("" if inside or is_fence else line)
        inside ^= is_fence
    return "\n".join(kept)


def commands_in(text: str) -> list[list[str]]:
    """Returns the words of each command line of this project in a shell script."""
    text = re.sub(r"(?m)(^|\s)#\s.*$", "", text).replace("\\\n", " ")
    return [shlex.split(command) for command in _COMMAND.findall(text)]
