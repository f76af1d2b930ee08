"""Rows of a file, and the odd among them: counted by kind while they are read."""

from __future__ import annotations

from absl import logging

Cells = list[str | None]  # None: an object of JSON lines has no text there
Row = tuple[int, Cells]  # the line it begins at, from 1 as editors count, and its cells
_LINES_NAMED = 5


class Oddities:
    """Counts the odd rows of a file, or of a folder, by kind.

    Attributes:
        path: the file or folder.
        place: what the places of rows are called.
        lines: where the rows of each kind begin: lines counted from 1 as editors do, or names.
    """

    def __init__(self, path: str, place: str = "line") -> None:
        """Begins with none."""
        self.path = path
        self.place = place
        self.lines: dict[str, list[int | str]] = {}

    def add(self, kind: str, line: int | str) -> None:
        """Counts a row.

        Args:
            kind: what is odd and what was done, for example "empty text, kept".
            line: where the row begins.
        """
        self.lines.setdefault(kind, []).append(line)

    def messages(self) -> list[str]:
        """One message for each kind: how many rows, and where the first are."""
        return [_message(kind, lines, self.place) for kind, lines in self.lines.items()]

    def log(self) -> None:
        """Warns once for each kind."""
        for message in self.messages():
            logging.warning("%s: %s", self.path, message)


def _message(kind: str, lines: list[int | str], place: str) -> str:
    named = ", ".join(map(str, lines[:_LINES_NAMED]))
    more = ", ..." if len(lines) > _LINES_NAMED else ""
    return f"rows={len(lines)} with {kind} ({place}{'s' if len(lines) > 1 else ''} {named}{more})"
