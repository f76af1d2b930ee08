"""Estimates the largest batch and the time of the published pretraining schedule.

The estimates are interpolated between steps that `benchmarks.compiled_step` compiles. Their figures
are recorded in scaling.json, which only needs to be computed again if the training step changes:

    python -m benchmarks.scaling_table --jax_site=jax_site --target=v5e --preset=base_v2
    python -m benchmarks.scaling_table --docs=docs/scaling.md

The first command compiles the missing steps. The second one writes the tables between the markers
in the page. Memory and time are linear in the batch size and in the number of layers. With
`--remat`, all layers are compiled, because compilation takes equally long for any number of layers.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from absl import app, flags

from albert_tf.config import BFLOAT16, AlbertConfig
from benchmarks.compiled_step import TARGETS, compile_program, export_step, figures
from benchmarks.matmul import pretraining_operations

FLAGS = flags.FLAGS
_RECORDED = Path(__file__).with_name("scaling.json")
LENGTH, PREDICTIONS = 512, 77
SEQUENCES = 125_000 * 4096  # of the published schedule
# Batch sizes that are compiled.
PRESETS = {"base_v2": (16, 32), "large_v2": (8, 24), "xlarge_v2": (8, 16), "xxlarge_v2": (4, 8)}
MEMORY = {"h200": (16, 24, 40, 80, 141), "v5e": (16,), "v5p": (95,), "v6e": (32,)}
USABLE = 0.9  # share of the memory


def points(preset: str, remat: bool) -> list[tuple[int, int]]:
    """Returns the numbers of layers and sequences to compile."""
    few, more = PRESETS[preset]
    if remat:
        layers = AlbertConfig.from_preset(preset).num_hidden_layers
        return [(layers, few), (layers, more)]
    return [(2, few), (4, few), (2, more), (4, more)]


def measure(target: str, preset: str, remat: bool, layers: int, B: int) -> list[float]:
    """Compiles a step. Returns its memory in bytes and its shortest and longest time in seconds."""
    config = AlbertConfig.from_preset(preset).replace(
        num_hidden_layers=layers, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    settings = {"precision": BFLOAT16, "attention": "plain", "remat": remat}
    program = export_step(target, config, B, LENGTH, PREDICTIONS, **settings)
    found = figures(program, compile_program(program, target, FLAGS.jax_site), target, 1.0)
    return [found.memory, found.shortest, found.longest]


def key(target: str, preset: str, remat: bool, layers: int, B: int) -> str:
    """Returns the name of a step in scaling.json."""
    return f"{target} {preset} {layers} x {B}{' remat' if remat else ''}"


def estimate(
    recorded: dict[str, list[float]], target: str, preset: str, remat: bool, B: int
) -> list[float]:
    """Returns the figures of a whole model for any batch size."""
    found = [recorded[key(target, preset, remat, *point)] for point in points(preset, remat)]
    if not remat:
        layers = AlbertConfig.from_preset(preset).num_hidden_layers
        found = [
            [a + (layers - 2) / 2 * (b - a) for a, b in zip(two, four, strict=True)]
            for two, four in (found[:2], found[2:])
        ]
    few, more = PRESETS[preset]
    return [a + (B - few) / (more - few) * (b - a) for a, b in zip(*found, strict=True)]


def largest_batch(
    recorded: dict[str, list[float]], target: str, preset: str, remat: bool, gigabytes: float
) -> int:
    """Returns the largest power of two, at most 1024, that fits into the memory; 0 if none."""
    sizes = [2**n for n in range(11)]
    needed = [estimate(recorded, target, preset, remat, B)[0] for B in sizes]
    return max(
        (B for B, m in zip(sizes, needed, strict=True) if m <= USABLE * gigabytes * 1e9), default=0
    )


def _name(preset: str) -> str:
    return preset.removesuffix("_v2")


def tables(recorded: dict[str, list[float]]) -> str:
    """Returns both tables in Markdown, without devices whose steps are not recorded."""

    def is_known(target: str, preset: str) -> bool:
        names = [key(target, preset, r, *p) for r in (False, True) for p in points(preset, r)]
        return all(name in recorded for name in names)

    targets = [t for t in MEMORY if any(is_known(t, preset) for preset in PRESETS)]
    columns = [(target, memory) for target in targets for memory in MEMORY[target]]
    titles = [f"{'GPU' if t == 'h200' else f'TPU {t}'}, {memory} GB" for t, memory in columns]
    lines = [f"| largest batch | {' | '.join(titles)} |", f"|---|{'---:|' * len(titles)}"]
    for preset in PRESETS:
        cells = []
        for target, memory in columns:
            if is_known(target, preset):
                batches = [
                    largest_batch(recorded, target, preset, r, memory) for r in (False, True)
                ]
                cells.append(" / ".join(str(B) for B in batches))
            else:
                cells.append("")
        lines.append(f"| {_name(preset)} | {' | '.join(cells)} |")
    lines += [
        "",
        "| model | device | fastest setting | sequences/s | share of peak | device-hours "
        "| hours on 8 devices |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    known = [
        (preset, target) for preset in PRESETS for target in targets if is_known(target, preset)
    ]
    return "\n".join([*lines, *(_fastest(recorded, target, preset) for preset, target in known)])


def _fastest(recorded: dict[str, list[float]], target: str, preset: str) -> str:
    """Returns the row of the setting with the highest throughput."""
    choices = []
    for remat in (False, True):
        B = largest_batch(recorded, target, preset, remat, MEMORY[target][-1])
        if B:
            _, shortest, longest = estimate(recorded, target, preset, remat, B)
            choices.append((longest / B, shortest / B, B, remat))
    slow, fast, B, remat = min(choices)
    times = sorted({slow, fast}, reverse=True)  # of one sequence
    config = AlbertConfig.from_preset(preset)
    operations = 3 * pretraining_operations(config, 1, LENGTH, PREDICTIONS)

    def span(values: list[float], unit: str = "") -> str:
        return " to ".join(f"{value:,.0f}{unit}" for value in sorted(values))

    hours = [SEQUENCES * time / 3600 for time in times]
    cells = [
        _name(preset),
        "H200" if target == "h200" else f"TPU {target}",
        f"batch {B}{', `--remat`' if remat else ''}",
        span([1 / time for time in times]),
        span([100 * operations / time / TARGETS[target].peak for time in times], "%"),
        span(hours),
        span([hour / 8 for hour in hours]),
    ]
    return f"| {' | '.join(cells)} |"


def main(_: list[str]) -> None:
    """Compiles missing steps, or writes the tables."""
    data = json.loads(_RECORDED.read_text()) if _RECORDED.exists() else {}
    if FLAGS.docs is not None:
        page = Path(FLAGS.docs)
        start, end = "<!-- scaling table -->", "<!-- end of scaling table -->"
        text = f"{start}\n{tables(data)}\n{end}"
        page.write_text(re.sub(f"{start}.*{end}", lambda _: text, page.read_text(), flags=re.S))
        return
    for remat in (True, False):
        for layers, B in points(FLAGS.preset, remat):
            name = key(FLAGS.target, FLAGS.preset, remat, layers, B)
            if name not in data:
                data[name] = measure(FLAGS.target, FLAGS.preset, remat, layers, B)
                _RECORDED.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    flags.DEFINE_string("jax_site", ".venv/jax", "Directory of JAX's packages.")
    flags.DEFINE_enum("target", "h200", TARGETS, "Device.")
    flags.DEFINE_enum("preset", "base_v2", PRESETS, "Model.")
    flags.DEFINE_string("docs", None, "Page in which to write the tables.")
    app.run(main)
