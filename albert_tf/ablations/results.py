"""What the runs of `run_ablations.py` gave: read from their directories, brought into a table."""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
from collections.abc import Mapping, Sequence

from albert_tf.ablations.comparisons import BASE, COMPARISONS, Variant
from albert_tf.config import AlbertConfig
from albert_tf.data.files import file_exists, write_then_rename
from albert_tf.data.segments import NONE, NSP, SOP
from albert_tf.parameter_counts import parameter_counts
from albert_tf.run_records import METRICS_FILE, Record, read_records
from albert_tf.tools.glue_results import read_evaluations

TABLE_FILE = "ablations.md"
ROWS_FILE = "ablations.tsv"
RUNS_FILE = "ablations.json"
SENTENCE_METRICS = {SOP: "sentence_order_accuracy", NSP: "next_sentence_accuracy"}
# Columns of numbers: key, title, how it is written, whether it is a share.
_COLUMNS = (
    ("masked_lm_loss", "masked-LM loss", 3, False),
    ("masked_lm_accuracy", "masked-LM accuracy", 1, True),
    (SENTENCE_METRICS[SOP], "sentence order", 1, True),
    (SENTENCE_METRICS[NSP], "next sentence", 1, True),
    ("examples_per_second", "examples/s", 1, False),
)


@dataclasses.dataclass(frozen=True)
class AblationRun:
    """A finished run of one model.

    Attributes:
        variant: the model.
        seed: of the run.
        steps: it was trained for.
        encoder_parameters: trainable ones of the encoder with its pooler, as the paper counts.
        parameters: all trainable ones, heads included.
        scores: by the names of `eval_results.txt`, at the last step; `examples_per_second` of
            training, the median over the intervals logged, and the accuracy of the other sentence
            loss, where it was measured.
        curve: held-out masked-LM accuracy by step.
    """

    variant: Variant
    seed: int
    steps: int
    encoder_parameters: int
    parameters: int
    scores: Mapping[str, float]
    curve: Mapping[int, float]


def run_name(variant: Variant, seed: int) -> str:
    """The directory of a run, below that of all."""
    return f"{variant.name}-seed{seed}"


def finished_step(path: str) -> int:
    """The step of the evaluation in a run's `eval_results.txt`; 0 where there is none."""
    return max(read_evaluations(os.path.join(path, "eval_results.txt")), default=0)


def read_run(
    variant: Variant, seed: int, base: AlbertConfig, path: str, others: Mapping[str, str]
) -> AblationRun | None:
    """Reads a run.

    Args:
        variant: the model.
        seed: of the run.
        base: what the model is a variant of.
        path: directory of the run; need not exist.
        others: directories with an evaluation on the records of another sentence loss, by the loss.

    Returns:
        The run; None where it has not been evaluated yet.
    """
    step = finished_step(path)
    if not step:
        return None
    metrics_file = os.path.join(path, METRICS_FILE)
    records = read_records(metrics_file) if file_exists(metrics_file) else []
    speeds = _by_step(records, "train", "examples_per_second").values()
    scores = dict(read_evaluations(os.path.join(path, "eval_results.txt"))[step])
    if speeds:
        scores["examples_per_second"] = statistics.median(speeds)
    for loss, folder in others.items():
        found = read_evaluations(os.path.join(folder, "eval_results.txt")).get(step, {})
        if SENTENCE_METRICS[loss] in found:
            scores[SENTENCE_METRICS[loss]] = found[SENTENCE_METRICS[loss]]
    counts = parameter_counts(variant.config(base))
    head = counts.sentence_head if variant.sentence_loss == NONE else 0
    curve = _by_step(records, "eval", "masked_lm_accuracy")
    return AblationRun(
        variant, seed, step, counts.encoder, counts.pretraining - head, scores, curve
    )


def _by_step(records: Sequence[Record], phase: str, metric: str) -> dict[int, float]:
    return {r["step"]: r[metric] for r in records if r["phase"] == phase and metric in r}


def rows(runs: Sequence[AblationRun]) -> list[list[str]]:
    """Returns the table: a header, then a row for each model, the base first.

    Several seeds of a model give their mean and, in brackets, the lowest and the highest.
    """
    keys = [column for column in _COLUMNS if any(column[0] in run.scores for run in runs)]
    header = [
        "comparison",
        "model",
        "parameters",
        "steps",
        "seeds",
        *(title for _, title, *_ in keys),
    ]
    table = [header]
    for name in dict.fromkeys(run.variant.name for run in runs):
        same = [run for run in runs if run.variant.name == name]
        first = same[0]
        comparison = COMPARISONS.get(first.variant.comparison)
        table.append(
            [
                comparison.title if comparison else BASE,
                first.variant.value,
                f"{first.encoder_parameters:,}",
                str(first.steps),
                str(len(same)),
                *(_cell(same, key, digits, share) for key, _, digits, share in keys),
            ]
        )
    return table


def _cell(runs: Sequence[AblationRun], key: str, digits: int, is_share: bool) -> str:
    values = [run.scores[key] * (100 if is_share else 1) for run in runs if key in run.scores]
    if not values:
        return "-"
    mean = f"{statistics.mean(values):.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def markdown_table(runs: Sequence[AblationRun]) -> str:
    """Returns the results as Markdown, with a line about the columns."""
    table = rows(runs)
    table.insert(1, ["---", "---", *["---:"] * (len(table[0]) - 2)])
    lines = [f"| {' | '.join(cells)} |" for cells in table]
    lines += [
        "",
        "Each model differs from the base in one thing. Parameters are those of the encoder with "
        "its pooler. Losses and accuracies (in percent) are of held-out records; of several seeds "
        "the mean stands with the lowest and the highest.",
    ]
    return "\n".join(lines) + "\n"


def write_results(output_dir: str, runs: Sequence[AblationRun], picture: bytes) -> str:
    """Writes `ablations.md`, `.tsv`, `.json` and `.png`; returns the table as Markdown."""
    table = markdown_table(runs)
    lines = ["\t".join(cells) for cells in rows(runs)]
    content = [
        {
            "name": run.variant.name,
            "comparison": run.variant.comparison,
            "source": getattr(COMPARISONS.get(run.variant.comparison), "source", None),
            "changes": run.variant.changes,
            "sentence_loss": run.variant.sentence_loss,
            **{
                key: getattr(run, key)
                for key in ("seed", "steps", "encoder_parameters", "parameters", "scores", "curve")
            },
        }
        for run in runs
    ]
    files = {
        TABLE_FILE: table.encode(),
        ROWS_FILE: ("\n".join(lines) + "\n").encode(),
        RUNS_FILE: (json.dumps(content, indent=2) + "\n").encode(),
        "ablations.png": picture,
    }
    for name, data in files.items():
        with write_then_rename(os.path.join(output_dir, name)) as file:
            file.write(data)
    return table
