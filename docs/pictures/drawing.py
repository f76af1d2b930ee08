"""Boxes and arrows to be read on light and on dark pages: the background stays transparent."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

LINES = "#7d8590"  # seen on white and on black
INK = "#1f2328"  # in boxes, which are light
BLUE, GREEN, YELLOW, RED, GREY = "#cfe3fb", "#cdeed6", "#fbecc3", "#f9d9d3", "#e6e9ed"

Point = tuple[float, float]


class Drawing:
    """A picture of boxes and arrows; lengths in hundredths of an inch, from the lower left.

    Args:
        width: of the picture.
        height: of the picture.
    """

    def __init__(self, width: float, height: float) -> None:
        self.figure = Figure(figsize=(width / 100, height / 100))
        self._axes = self.figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(0, height))
        self._axes.axis("off")

    def box(
        self,
        left: float,
        bottom: float,
        width: float,
        height: float,
        title: str,
        *lines: str,
        color: str = GREY,
        code: bool = False,
    ) -> None:
        """Draws a box with a title and lines below it, which may be code."""
        self._axes.add_patch(
            FancyBboxPatch(
                (left, bottom),
                width,
                height,
                boxstyle="round,pad=0,rounding_size=8",
                facecolor=color,
                edgecolor=LINES,
                linewidth=1,
            )
        )
        middle, step = left + width / 2, 15
        top = bottom + height / 2 + step * len(lines) / 2
        self._axes.text(
            middle, top, title, size=9.6, weight="bold", color=INK, ha="center", va="center"
        )
        for number, line in enumerate(lines, start=1):
            self._axes.text(
                middle,
                top - step * number,
                line,
                size=8.2,
                color=INK,
                ha="center",
                va="center",
                family="monospace" if code else "sans-serif",
            )

    def frame(self, left: float, bottom: float, width: float, height: float) -> None:
        """Draws a dashed frame around what belongs together."""
        self._axes.add_patch(
            FancyBboxPatch(
                (left, bottom),
                width,
                height,
                boxstyle="round,pad=0,rounding_size=12",
                facecolor="none",
                edgecolor=LINES,
                linewidth=1.3,
                linestyle=(0, (4, 3)),
            )
        )

    def arrow(self, start: Point, end: Point, bend: float = 0.0) -> None:
        """Draws an arrow, a curved one where `bend` is not 0."""
        self._axes.add_patch(
            FancyArrowPatch(
                start,
                end,
                arrowstyle="-|>",
                mutation_scale=11,
                color=LINES,
                linewidth=1.5,
                shrinkA=0,
                shrinkB=0,
                connectionstyle=f"arc3,rad={bend}",
            )
        )

    def label(
        self, x: float, y: float, text: str, size: float = 9.0, align: str = "center"
    ) -> None:
        """Writes on the page itself."""
        self._axes.text(x, y, text, size=size, color=LINES, ha=align, va="center", linespacing=1.4)

    def save(self, path: str) -> None:
        """Writes a PNG of two pixels for each point of an ordinary screen."""
        self.figure.savefig(
            path,
            dpi=140,
            transparent=True,
            metadata={"Software": None},
            pil_kwargs={"optimize": True},
        )
