"""Draws how the models of each comparison learn, beside the base."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from albert_tf.ablations.comparisons import BASE, COMPARISONS
from albert_tf.ablations.results import AblationRun
from albert_tf.pictures import png

_COLUMNS = 3


def draw_curves(runs: Sequence[AblationRun]) -> bytes:
    """Draws held-out masked-LM accuracy against the step, a panel for each comparison.

    A model's line is the mean of its seeds. The base is black, and grey between its seeds.

    Args:
        runs: of all models; those of the base appear in every panel.

    Returns:
        A PNG image.
    """
    from matplotlib.figure import Figure  # slow to import

    keys = [key for key in COMPARISONS if any(run.variant.comparison == key for run in runs)]
    keys = keys or [BASE]
    columns = min(len(keys), _COLUMNS)
    lines = -(-len(keys) // columns)
    figure = Figure(figsize=(1 + 3.6 * columns, 0.6 + 2.8 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).flat
    for key, axes in zip(keys, panels, strict=False):
        _draw_panel(axes, key, runs)
    for axes in list(panels)[len(keys) :]:
        axes.set_visible(False)
    figure.supxlabel("step", fontsize="medium")
    figure.supylabel("held-out masked-LM accuracy, percent", fontsize="medium")
    return png(figure, dpi=80)


def _draw_panel(axes: Any, key: str, runs: Sequence[AblationRun]) -> None:
    bases = [run for run in runs if run.variant.comparison == BASE]
    if bases:
        steps, values = _points(bases)
        axes.fill_between(steps, list(map(min, values)), list(map(max, values)), color="0.8")
        axes.plot(steps, list(map(statistics.mean, values)), "k.-", label=BASE)
    names = dict.fromkeys(run.variant.name for run in runs if run.variant.comparison == key != BASE)
    for name in names:
        same = [run for run in runs if run.variant.name == name]
        steps, values = _points(same)
        axes.plot(steps, list(map(statistics.mean, values)), ".-", label=same[0].variant.value)
    axes.set_title(COMPARISONS[key].title if key in COMPARISONS else key, fontsize="medium")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def _points(runs: Sequence[AblationRun]) -> tuple[list[int], list[list[float]]]:
    """Steps at which all the runs were evaluated, and there the percents of each."""
    steps = sorted(set.intersection(*(set(run.curve) for run in runs)))
    return steps, [[100 * run.curve[step] for run in runs] for step in steps]
