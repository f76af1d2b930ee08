"""The layout of reports and plans: titled blocks of names and values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

Block = dict[str, object]  # names and values under one title

_WIDTH = 30
_UNITS = ("bytes", "KB", "MB", "GB", "TB", "PB")


def rows(title: str, values: Mapping[str, object]) -> Iterator[str]:
    """Yields an empty line, a title, and names and values in two columns."""
    yield ""
    yield title
    for name, value in values.items():
        text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value
        yield f"  {name:{_WIDTH}}{'' if len(name) < _WIDTH else '  '}{text}"


def byte_text(number: float) -> str:
    """A number of bytes in words: units of 1000, three digits."""
    unit = 0
    while number >= 999.5 and unit < len(_UNITS) - 1:
        number /= 1000
        unit += 1
    return f"{number:.3g} {_UNITS[unit]}"


def count_text(number: float, is_exact: bool) -> str:
    """A count, or "about" and three digits of an estimated one."""
    if is_exact or number < 1000:
        return f"{'' if is_exact else 'about '}{number:,.0f}"
    return f"about {float(f'{number:.3g}'):,.0f}"


def time_text(seconds: float) -> str:
    """A time that is roughly known, in the unit that suits it."""
    number, unit = max(seconds, 1), "s"
    for larger, length in (("min", 60), ("h", 3600), ("days", 86400)):
        if seconds >= 2 * length:
            number, unit = seconds / length, larger
    return f"about {number:.0f} {unit}" if number >= 10 else f"about {number:.2g} {unit}"
