"""The paper's comparisons at a scale of your own: models that differ from a base in one thing.

Each model is trained by `run_pretraining` in a process and a directory of its own, one after the
other; the results become a table and a picture. The paper's sizes are those of models that train
for days. Here sizes follow from the base, whatever it is, unless they are given.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import logging

from albert_tf.checkpoints.run_records import METRICS_FILE, read_records
from albert_tf.config import SHARING_MODES, AlbertConfig
from albert_tf.data.files import check_folder, file_exists, write_then_rename
from albert_tf.data.strict_json import JsonValue, read_json, shown
from albert_tf.modeling.parameter_sharing import parameter_counts
from albert_tf.pretraining.segments import NONE, NSP, SENTENCE_LOSSES, SOP
from albert_tf.tools.commands import command_arguments, started
from albert_tf.tools.glue_results import read_evaluations, write_table
from albert_tf.training.curves import png

Run = dict[str, Any]  # an element of ablations.json
BASE = "base"
SETTINGS_FILE = "ablation_settings.json"
_EVALUATIONS = 10  # points of a curve unless --save_checkpoints_steps says otherwise
_SENTENCE_METRICS = {SOP: "sentence_order_accuracy", NSP: "next_sentence_accuracy"}
# Columns of numbers: key, title, how it is written.
_COLUMNS = (
    ("masked_lm_loss", "masked-LM loss", "{:.3f}"),
    ("masked_lm_accuracy", "masked-LM accuracy", "{:.1%}"),
    (_SENTENCE_METRICS[SOP], "sentence order", "{:.1%}"),
    (_SENTENCE_METRICS[NSP], "next sentence", "{:.1%}"),
    ("examples_per_second", "examples/s", "{:.1f}"),
)
# Title, table of the paper, values to compare, and the fields of the configuration of one.
_Comparison = tuple[str, str, Sequence[Any], Callable[[Any], Mapping[str, Any]]]


def _comparisons(base: AlbertConfig) -> dict[str, _Comparison]:
    def half(size: int) -> int:
        return max(1, size // 2)

    def wider(width: int) -> Mapping[str, Any]:
        """Heads keep their size and the feed-forward part its ratio, as in the paper."""
        return {
            "hidden_size": width,
            "num_attention_heads": max(1, width // base.head_size),
            "intermediate_size": width * base.intermediate_size // base.hidden_size,
        }

    def dropout(rate: float) -> Mapping[str, Any]:
        return {"hidden_dropout_prob": rate, "attention_probs_dropout_prob": rate}

    E, H, L = base.embedding_size, base.hidden_size, base.num_hidden_layers
    sizes, depths, widths = (half(E), 2 * E, H), (1, half(L), 2 * L), (half(H), 2 * H)
    return {
        "embedding_size": ("embedding size E", "table 3", sizes, lambda e: {"embedding_size": e}),
        "sharing": (
            "what layers share",
            "table 4",
            SHARING_MODES,
            lambda mode: {"parameter_sharing": mode},
        ),
        "sentence_loss": ("sentence loss", "table 5", SENTENCE_LOSSES, lambda loss: {}),
        "dropout": ("dropout", "table 8", (0.0, 0.1), dropout),
        "depth": ("layers L", "table 11", depths, lambda depth: {"num_hidden_layers": depth}),
        "width": ("hidden size H", "table 12", widths, wider),
    }


COMPARISONS = ("embedding_size", "sharing", "sentence_loss", "dropout", "depth", "width")


@dataclasses.dataclass(frozen=True)
class Variant:
    """A model of a comparison, or the base.

    Attributes:
        comparison: one of `COMPARISONS`, or `BASE`.
        value: what is compared, in this model.
        config: its configuration.
        changes: in what that differs from the base.
        sentence_loss: one of `SENTENCE_LOSSES`.
        title: of the comparison.
        source: where the paper does it.
        seed: of its run.
    """

    comparison: str
    value: str
    config: AlbertConfig
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    sentence_loss: str = SOP
    title: str = BASE
    source: str | None = None
    seed: int = 0

    @property
    def name(self) -> str:
        """A name for files and tables: "base", "depth-12"."""
        return BASE if self.comparison == BASE else f"{self.comparison}-{self.value}"

    @property
    def run(self) -> str:
        """The directory of its run, below that of all."""
        return f"{self.name}-seed{self.seed}"


def choose_variants(
    base: AlbertConfig,
    comparisons: Sequence[str] = COMPARISONS,
    values: Mapping[str, Sequence[Any]] | None = None,
    losses: Sequence[str] = SENTENCE_LOSSES,
) -> list[Variant]:
    """Returns the models to train, the base first, each once.

    Values of a comparison take the place of those that follow from the base; there are records for
    the sentence `losses`.

    Raises:
        ValueError: there is no such comparison, or a model cannot be built; names it.
    """
    variants = [Variant(BASE, BASE, base)]
    for key in comparisons:
        if key not in COMPARISONS:
            raise ValueError(
                f"--comparisons must be some of {', '.join(COMPARISONS)}. Received: {key!r}"
            )
        title, source, defaults, changes_for = _comparisons(base)[key]
        for value in dict.fromkeys((values or {}).get(key) or defaults):
            loss, changes = value if key == "sentence_loss" else SOP, changes_for(value)
            try:
                config = base.replace(**changes)
            except ValueError as error:
                raise ValueError(f"The model {key}-{value} cannot be built: {error}") from error
            if loss in losses and (config, loss) != (base, SOP):
                variants.append(Variant(key, str(value), config, changes, loss, title, source))
    return variants


@dataclasses.dataclass(frozen=True)
class AblationSettings:
    """What is compared, and how all models are trained. Most are the flag of their name.

    Attributes:
        output_dir: takes `configs/`, a directory and a log for each run, and the results.
        records: files to train and to evaluate on, by sentence loss; there are some for sop.
        training_flags: further flags of every run, of `run_pretraining`.
        values: of a comparison, in place of those that follow from the base.
    """

    output_dir: str
    albert_config_file: str
    records: Mapping[str, tuple[Sequence[str], Sequence[str]]]
    num_train_steps: int
    training_flags: Sequence[str] = ()
    comparisons: Sequence[str] = COMPARISONS
    values: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)
    seeds: Sequence[int] = (12345,)
    base_seeds: Sequence[int] = ()

    def path(self, *names: str) -> str:
        """A path below the output directory."""
        return os.path.join(self.output_dir, *names)


def run_ablations(settings: AblationSettings, *, dry_run: bool = False) -> None:
    """Trains what is not finished; writes the results after each run and prints the table.

    A dry run tries one run of each sentence loss dry, and writes nothing.

    Raises:
        ValueError: the settings are wrong or not those of the runs in the directory; or runs
            failed, after the others have been done.
    """
    from albert_tf.checkpoints.huggingface import read_config  # loads TensorFlow

    base = read_config(settings.albert_config_file)
    losses = list(settings.records)
    base_run, *others = choose_variants(base, settings.comparisons, settings.values, losses)
    # The base comes first: its noise is known then.
    seeds = dict.fromkeys([*settings.seeds, *settings.base_seeds])
    runs = [dataclasses.replace(base_run, seed=seed) for seed in seeds]
    for seed in dict.fromkeys(settings.seeds):
        runs += [dataclasses.replace(variant, seed=seed) for variant in others]
    check_folder(settings.output_dir, "--output_dir")
    common = {
        "base": base.to_dict(),
        "num_train_steps": settings.num_train_steps,
        "records": settings.records,
        "training_flags": settings.training_flags,
    }
    check_same_settings(settings.output_dir, common)
    if dry_run:
        _try_out(settings, runs)
        return
    if not file_exists(settings.path(SETTINGS_FILE)):
        with write_then_rename(settings.path(SETTINGS_FILE)) as file:
            file.write((json.dumps(common, indent=2) + "\n").encode())
    failed, table = [], ""
    for number, variant in enumerate(runs, start=1):
        logging.info("run %d/%d: %s", number, len(runs), variant.run)
        if not _finish(settings, variant):
            failed.append(variant.run)
        found = [read_run(variant, settings.path(variant.run)) for variant in runs]
        done = [run for run in found if run and run["steps"] == settings.num_train_steps]
        table = write_results(settings.output_dir, done)
    print(table, end="")
    if failed:
        raise ValueError(
            f"{len(failed)} of {len(runs)} runs failed: {', '.join(failed)}. Their logs are in "
            f"{settings.output_dir}; run the command again to complete the missing runs."
        )


def check_same_settings(output_dir: str, settings: Mapping[str, Any]) -> None:
    """Compares what all runs have in common with what the runs in a directory had.

    Raises:
        ValueError: they differ, so that the models could not be compared, or the file that tells
            them is damaged.
    """
    path = os.path.join(output_dir, SETTINGS_FILE)
    if not file_exists(path):
        return
    before = JsonValue(read_json(path, f"--output_dir: {path}"), path).members()
    for name, value in settings.items():
        found = before[name].value if name in before else None
        if json.dumps(found) != json.dumps(value):
            raise ValueError(
                f"--output_dir {output_dir!r} contains runs with other settings, which cannot be "
                f"compared. {name} was {shown(found)}, and is {shown(value)} now. Use the same "
                "settings or a new directory."
            )


def _try_out(settings: AblationSettings, runs: Sequence[Variant]) -> None:
    tried = {variant.sentence_loss: variant for variant in reversed(runs) if not variant.changes}
    for loss, variant in tried.items():
        print(f"\nWith --sentence_loss={loss}:", flush=True)
        flags = _jobs(settings, variant)[0]
        flags |= {"albert_config_file": settings.albert_config_file, "dry_run": True}
        with started("run_pretraining", _arguments(settings, flags), None) as process:
            pass
        if process.returncode:
            raise ValueError(f"Runs with --sentence_loss={loss} would fail, as said above.")


def _jobs(settings: AblationSettings, variant: Variant) -> list[dict[str, Any]]:
    """The flags of a model's training, and of its evaluation on the records of the other loss."""
    train, held_out = settings.records[variant.sentence_loss]
    path = settings.path(variant.run)
    jobs: list[dict[str, Any]] = [
        {
            "input_file": ",".join(train),
            "eval_input_file": ",".join(held_out),
            "output_dir": path,
            "albert_config_file": settings.path("configs", f"{variant.name}.json"),
            "sentence_loss": variant.sentence_loss,
            "seed": variant.seed,
        }
    ]
    both = [loss for loss in _SENTENCE_METRICS if loss in settings.records]
    is_compared = variant.comparison in (BASE, "sentence_loss") and variant.sentence_loss in both
    for loss in both if is_compared and "sentence_loss" in settings.comparisons else ():
        if loss != variant.sentence_loss:
            evaluation = {
                "do_train": False,
                "input_file": ",".join(settings.records[loss][1]),
                "output_dir": os.path.join(path, f"as_{loss}"),
                "albert_config_file": os.path.join(path, "albert_config.json"),
                "eval_checkpoint": os.path.join(path, f"model.ckpt-{settings.num_train_steps}"),
                "sentence_loss": loss,
            }
            jobs.append(evaluation)
    return jobs


def _arguments(settings: AblationSettings, flags: Mapping[str, Any]) -> list[str]:
    often, steps = max(1, settings.num_train_steps // _EVALUATIONS), settings.num_train_steps
    return [
        *command_arguments({"save_checkpoints_steps": often, "keep_checkpoint_max": 2}),
        *settings.training_flags,
        *command_arguments({"do_eval": True, "num_train_steps": steps, **flags}),
    ]


def _finish(settings: AblationSettings, variant: Variant) -> bool:
    """Trains and evaluates a model, as far as that has not been done; returns success."""
    variant.config.to_json_file(settings.path("configs", f"{variant.name}.json"))
    log = settings.path(f"{variant.run}.log")
    for flags in _jobs(settings, variant):
        if _finished_step(flags["output_dir"]) < settings.num_train_steps:
            arguments = _arguments(settings, flags)
            with open(log, "ab") as file, started("run_pretraining", arguments, file) as process:
                pass
            if process.returncode:
                logging.error("The run ended with status %d; see %s", process.returncode, log)
                return False
    return True


def _finished_step(path: str) -> int:
    """The step of the evaluation in a run's `eval_results.txt`; 0 where there is none."""
    return max(read_evaluations(os.path.join(path, "eval_results.txt")), default=0)


def read_run(variant: Variant, path: str) -> Run | None:
    """Reads the directory of a model's run, which need not exist.

    Returns:
        None where it has not been evaluated yet; else what the model is, and:

        - `encoder_parameters`: trainable ones of the encoder with its pooler, as the paper counts;
        - `parameters`: all trainable ones, heads included;
        - `scores`: by the names of `eval_results.txt`, at the last step; `examples_per_second` of
          training, the median over the intervals logged; and the accuracy of the other sentence
          loss, where it was measured;
        - `curve`: held-out masked-LM accuracy by step.
    """
    step = _finished_step(path)
    if not step:
        return None
    scores = dict(read_evaluations(os.path.join(path, "eval_results.txt"))[step])
    for loss, metric in _SENTENCE_METRICS.items():
        other = os.path.join(path, f"as_{loss}", "eval_results.txt")
        found = read_evaluations(other).get(step, {})
        scores.update({metric: found[metric]} if metric in found else {})
    metrics_file = os.path.join(path, METRICS_FILE)
    records = read_records(metrics_file) if file_exists(metrics_file) else []

    def by_step(phase: str, metric: str) -> dict[int, float]:
        return {r["step"]: r[metric] for r in records if r["phase"] == phase and metric in r}

    if speeds := by_step("train", "examples_per_second").values():
        scores["examples_per_second"] = statistics.median(speeds)
    counts = parameter_counts(variant.config)
    unused = counts.sentence_head if variant.sentence_loss == NONE else 0
    model = {field.name: getattr(variant, field.name) for field in dataclasses.fields(variant)}
    del model["config"]
    return {
        "name": variant.name,
        **model,
        "steps": step,
        "encoder_parameters": counts.encoder,
        "parameters": counts.pretraining - unused,
        "scores": scores,
        "curve": by_step("eval", "masked_lm_accuracy"),
    }


def write_results(output_dir: str, runs: Sequence[Run]) -> str:
    """Writes `ablations.md`, `.json` and `.png`; returns the table as Markdown."""
    if not runs:
        return ""
    note = (
        "Each model differs from the base in one thing. Parameters are those of the encoder "
        "with its pooler. Losses and accuracies (in percent) are of held-out records; for several "
        "seeds, the mean with the lowest and highest value."
    )
    path = os.path.join(output_dir, "ablations")
    return write_table(path, rows(runs), [note], runs, _picture(runs))


def rows(runs: Sequence[Run]) -> list[list[str]]:
    """Returns the table: a header, then a row for each model, the base first.

    Several seeds of a model give their mean and, in brackets, the lowest and the highest.
    """
    columns = [column for column in _COLUMNS if any(column[0] in run["scores"] for run in runs)]
    titles = [title for _, title, _ in columns]
    table = [["comparison", "model", "parameters", "steps", "seeds", *titles]]
    for first, same in _by_model(runs):
        table.append([first["title"], first["value"], f"{first['encoder_parameters']:,}"])
        table[-1] += [str(first["steps"]), str(len(same))]
        for key, _, form in columns:
            values = [run["scores"][key] for run in same if key in run["scores"]]
            numbers = [statistics.mean(values), min(values), max(values)] if values else []
            texts = [form.format(number).rstrip("%") for number in numbers] or ["-"]
            spread = f" ({texts[1]} to {texts[2]})" if len(values) > 1 else ""
            table[-1].append(texts[0] + spread)
    return table


def _by_model(runs: Sequence[Run]) -> list[tuple[Run, list[Run]]]:
    """The first run of each model, and all of them."""
    names = dict.fromkeys(run["name"] for run in runs)
    groups = [[run for run in runs if run["name"] == name] for name in names]
    return [(group[0], group) for group in groups]


def _picture(runs: Sequence[Run]) -> bytes:
    """Held-out masked-LM accuracy against the step, a panel for each comparison.

    A model's line is the mean of its seeds. The base is black, and grey between its seeds.
    """
    from matplotlib.figure import Figure  # slow to import

    models = _by_model(runs)
    panels = {f["comparison"]: f["title"] for f, _ in models if f["name"] != BASE} or {BASE: BASE}
    figure = Figure(figsize=(1 + 3.6 * len(panels), 3.4), layout="constrained")
    drawn = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    for key, axes in zip(panels, drawn, strict=True):
        for first, same in models:
            if first["comparison"] not in (BASE, key):
                continue
            steps = sorted(set.intersection(*(set(run["curve"]) for run in same)))
            values = [[100 * run["curve"][step] for run in same] for step in steps]
            style = "k.-" if first["name"] == BASE else ".-"
            axes.plot(steps, list(map(statistics.mean, values)), style, label=first["value"])
            if first["name"] == BASE:
                axes.fill_between(steps, [*map(min, values)], [*map(max, values)], color="0.8")
        axes.set_title(panels[key], fontsize="medium")
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    drawn[0].set_ylabel("held-out masked-LM accuracy, percent")
    return png(figure, dpi=80)
