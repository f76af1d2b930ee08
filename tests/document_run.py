"""The commands of a document, run one after the other as its reader would."""

import os
import re
import shlex
import subprocess
from pathlib import Path

from tests.markdown_blocks import Block

_HEAD = r"""
set -o pipefail -o errtrace
trap 'echo "$place: status $?: $BASH_COMMAND" >>failures' ERR
"""
_LONGEST = 1200  # seconds


class DocumentRun:
    """One shell that is given every block of a document.

    Args:
        folder: a `Workspace`.
        blocks: of the document; those that need what a test has not are left out.

    Attributes:
        failures: a line for each command that failed.
    """

    def __init__(self, folder: Path, blocks: list[Block]) -> None:
        self._folder = folder
        self._script = [_HEAD]
        for number, block in enumerate(blocks):
            if block.is_run:
                self._add(number, block)
        self._run()
        failures = folder / "failures"
        self.failures = failures.read_text().splitlines() if failures.exists() else []

    def printed(self, number: int) -> str:
        """What block `number` printed."""
        return (self._folder / f"printed-{number}.txt").read_text()

    def report(self) -> str:
        """The failures and what was printed in their blocks."""
        places = {line.split(": ")[0] for line in self.failures}
        ends = [f"{place}\n{self._ending(place)}" for place in sorted(places)]
        return "\n\n".join([*self.failures, *ends])

    def _ending(self, place: str) -> str:
        return self.printed(int(place.split("=")[1]))[-3000:]

    def _add(self, number: int, block: Block) -> None:
        text = block.text
        if block.language == "python":
            (self._folder / f"block_{number}.py").write_text(text)
            text = f"python block_{number}.py\n"
        self._script.append(
            f"place={shlex.quote(f'{block.place} block={number}')}\n"
            f"exec >>{self._folder}/printed-{number}.txt 2>&1\n{text}"
        )

    def _run(self) -> None:
        path = f"{self._folder}/.venv/bin:{os.environ['PATH']}"
        environment = {
            **os.environ,
            "PATH": path,
            "VIRTUAL_ENV": f"{self._folder}/.venv",
            "ALBERT_TF_HOME": f"{self._folder}/cache",
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        script = self._folder / "document.sh"
        script.write_text("\n".join(self._script))
        subprocess.run(
            ["bash", str(script)],
            cwd=self._folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=_LONGEST,
        )


def shown_but_not_printed(shown: str, printed: str) -> list[str]:
    """Lines of an output in a document whose beginning a command has not printed.

    The beginning of a line ends before the first number or two blanks: what stands there names what
    follows, which is another thing in every run. `...` stands for anything; a line that begins with
    a piece of SentencePiece shows what a model says, which is another one here.
    """
    lines = (line.strip() for line in shown.splitlines() if not line.lstrip().startswith("▁"))
    beginnings = (re.split(r"\d|\s{2,}", line)[0].strip() for line in lines)
    return [text for text in beginnings if text not in ("", "...") and text not in printed]
