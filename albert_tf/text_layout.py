"""The layout of reports: titled blocks of names and values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

_WIDTH = 30


def rows(title: str, values: Mapping[str, object]) -> Iterator[str]:
    """Yields an empty line, a title, and names and values in two columns."""
    yield ""
    yield title
    for name, value in values.items():
        text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value
        yield f"  {name:{_WIDTH}}{'' if len(name) < _WIDTH else '  '}{text}"
