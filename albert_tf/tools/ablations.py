"""Compares variants of a base model, as in the ablation studies of the paper.

`run_pretraining` trains one variant after the other. The results are written to a table.
"""

import json
import os
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from absl import logging

from albert_tf.checkpoints.formats.huggingface import read_config
from albert_tf.config import SHARING_MODES, AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.data.files import file_exists, read_utf8, write_file
from albert_tf.modeling.parameter_sharing import parameter_counts
from albert_tf.pretraining.instances import NONE, NSP, SENTENCE_LOSSES, SOP
from albert_tf.tools.ablation_settings import COMPARISONS, AblationSettings
from albert_tf.tools.commands import command_arguments, read_evaluations, run_command, write_table
from albert_tf.training.run_records import METRICS_FILE, read_records

BASE = "base"
_LOSS, _ACCURACY = _MASKED_LM = "masked_lm_loss", "masked_lm_accuracy"
_SPEED = "examples_per_second"
_SENTENCE_METRICS = {SOP: "sentence_order_accuracy", NSP: "next_sentence_accuracy"}
_COLUMNS = {  # title and format of a score
    _LOSS: ("masked-LM loss", "{:.3f}"),
    _ACCURACY: ("masked-LM accuracy", "{:.1%}"),
    _SENTENCE_METRICS[SOP]: ("sentence order", "{:.1%}"),
    _SENTENCE_METRICS[NSP]: ("next sentence", "{:.1%}"),
    _SPEED: ("examples/s", "{:.1f}"),
}
_NOTE = (
    "Each model differs from the base in one respect. Parameters are counted for the encoder with "
    "its pooler. Losses and accuracies (in percent) are measured on the same held-out records; for "
    "several seeds, the table shows the mean with the lowest and highest value. Models and base "
    "have the same seeds; more seeds of the base show the spread."
)


class Variant(NamedTuple):
    """The base model, or a model that differs from it in one respect."""

    comparison: str  # key of `COMPARISONS`, or `BASE`
    value: str  # the compared value
    config: AlbertConfig
    sentence_loss: str = SOP
    seed: int = 0

    @property
    def name(self) -> str:
        """Name of the model, such as "base" or "depth-12"."""
        return BASE if self.comparison == BASE else f"{self.comparison}-{self.value}"

    def run_dir(self, output_dir: str) -> str:
        """Returns the output directory of the run."""
        return os.path.join(output_dir, f"{self.name}-seed{self.seed}")


def choose_variants(settings: AblationSettings) -> list[Variant]:
    """Returns all runs: the base with all of its seeds, then the other models with each seed."""
    base, variants = read_config(settings.albert_config_file), []
    E, L, H = base.embedding_size, base.num_hidden_layers, base.hidden_size
    values: dict[str, Sequence[Any]] = {
        "embedding_size": settings.numbers("embedding_sizes") or (max(1, E // 2), 2 * E, H),
        "sharing": SHARING_MODES,
        "sentence_loss": [loss for loss in SENTENCE_LOSSES if loss in settings.records()],
        "dropout": (0.0, 0.1),
        "depth": settings.numbers("depths") or (1, max(1, L // 2), 2 * L),
        "width": settings.numbers("widths") or (max(1, H // 2), 2 * H),
    }
    for key in settings.comparisons:
        if key not in COMPARISONS:
            known = ", ".join(COMPARISONS)
            raise UserError(f"`comparisons` must be some of {known}. Received: {key!r}")
        for value in dict.fromkeys(values[key]):
            changes = dict.fromkeys(COMPARISONS[key][1], value)
            if key == "width":  # keeps the size of heads and the ratio F / H
                changes["num_attention_heads"] = max(1, value // base.head_size)
                changes["intermediate_size"] = value * base.intermediate_size // H
            try:
                config = base.replace(**changes)
            except ValueError as error:
                raise UserError(f"The model {key}-{value} cannot be built: {error}") from error
            loss = value if key == "sentence_loss" else SOP
            if (config, loss) != (base, SOP):
                variants.append(Variant(key, str(value), config, loss))
    seeds = settings.numbers("seeds")
    base_seeds = dict.fromkeys([*seeds, *settings.numbers("base_seeds")])
    runs = [Variant(BASE, BASE, base, seed=seed) for seed in base_seeds]
    return runs + [variant._replace(seed=seed) for seed in seeds for variant in variants]


def run_ablations(settings: AblationSettings) -> None:
    """Trains missing or incomplete runs, updates the results after each run, prints the table.

    A dry run makes a dry run of `run_pretraining` for each sentence loss, and writes nothing.
    Raises `ValueError` if the settings are invalid or differ from earlier runs in the directory,
    or, at the end, if a run failed.
    """
    variants, output_dir = choose_variants(settings), settings.output_dir
    common = {
        "base": variants[0].config.to_dict(),
        "num_train_steps": settings.num_train_steps,
        "records": settings.records(),
        "training_flags": settings.training_flags,
    }
    text = json.dumps(common, indent=2) + "\n"
    path = os.path.join(output_dir, "ablation_settings.json")
    if file_exists(path) and read_utf8(path) != text:
        raise UserError(
            f"The directory {output_dir!r} contains runs with other settings ({path}), "
            "which cannot be compared. Use the same settings or a new directory."
        )
    if settings.dry_run:
        with tempfile.TemporaryDirectory() as folder:
            for loss, variant in {v.sentence_loss: v for v in reversed(variants)}.items():
                print(f"\nWith --sentence_loss={loss}:", flush=True)
                _, arguments = next(_jobs(settings, variant, folder))
                if run_command("run_pretraining", [*arguments, "--dry_run"]):
                    raise UserError(f"Runs with `sentence_loss`={loss} would fail; see above.")
        return
    write_file(path, text)
    failed, table = [], ""
    for number, variant in enumerate(variants, start=1):
        name = os.path.basename(variant.run_dir(output_dir))
        logging.info("run %d/%d: %s", number, len(variants), name)
        with open(f"{variant.run_dir(output_dir)}.log", "ab") as log:
            for directory, arguments in _jobs(settings, variant, f"{output_dir}/configs"):
                is_finished = settings.num_train_steps in read_evaluations(directory)
                if not is_finished and run_command("run_pretraining", arguments, log):
                    logging.error("The run failed; see %s", log.name)
                    failed.append(name)
                    break
        found = [read_run(variant, variant.run_dir(output_dir)) for variant in variants]
        finished = [run for run in found if run["steps"] == settings.num_train_steps]
        table = write_results(output_dir, finished)
    print(table, end="")
    if failed:
        raise UserError(
            f"{len(failed)} of {len(variants)} runs failed: {', '.join(failed)}. Their logs are in "
            f"{output_dir}; run the command again to complete them."
        )


def _jobs(
    settings: AblationSettings, variant: Variant, configs: str
) -> Iterator[tuple[str, list[str]]]:
    """Yields directory and arguments of a run, and of its evaluation on the other records."""
    config_file = os.path.join(configs, f"{variant.name}.json")
    variant.config.to_json_file(config_file)
    steps, records, own_loss = settings.num_train_steps, settings.records(), variant.sentence_loss
    defaults = {"save_checkpoints_steps": max(1, steps // 10), "keep_checkpoint_max": 2}
    common = {"albert_config_file": config_file, "num_train_steps": steps, "do_eval": True}

    def job(directory: str, loss: str, **flags: object) -> tuple[str, list[str]]:
        flags |= {**common, "sentence_loss": loss, "seed": variant.seed, "output_dir": directory}
        arguments = [*command_arguments(defaults), *settings.training_flags]
        return directory, [*arguments, *command_arguments(flags)]

    run_dir = variant.run_dir(settings.output_dir)
    train, held_out = map(",".join, records[own_loss])
    yield job(run_dir, own_loss, input_file=train, eval_input_file=held_out)
    if variant.comparison == BASE:  # also scored on the pairs of the variant "nsp"
        compares = "sentence_loss" in settings.comparisons and NSP in records
        others = [(NSP, NSP)] if compares else []
    else:  # masked-LM scores are only comparable on the same records
        others = [(SOP, NONE if own_loss == NONE else SOP)] if own_loss != SOP else []
    for kind, loss in others:
        evaluated = {"do_train": False, "eval_checkpoint": f"{run_dir}/model.ckpt-{steps}"}
        held_out = ",".join(records[kind][1])
        yield job(os.path.join(run_dir, f"as_{kind}"), loss, input_file=held_out, **evaluated)


def read_run(variant: Variant, path: str) -> dict[str, Any]:
    """Returns the variant of a run with the results in its directory, which need not exist.

    `steps` is the last evaluated step, or 0. `scores` includes the median training speed. All
    masked-LM scores are measured on the held-out records of the loss "sop". `curve` is the accuracy
    on the held-out records of the run by step.
    """
    evaluations = read_evaluations(path)
    step = max(evaluations, default=0)
    scores = dict(evaluations.get(step, {}))
    if variant.sentence_loss != SOP:
        scores = {name: score for name, score in scores.items() if name not in _MASKED_LM}
    for kind, metric in _SENTENCE_METRICS.items():
        other = read_evaluations(os.path.join(path, f"as_{kind}")).get(step, {})
        names = (metric, *_MASKED_LM) if kind == SOP else (metric,)
        scores |= {name: other[name] for name in names if name in other}
    file = os.path.join(path, METRICS_FILE)
    records = read_records(file) if file_exists(file) else []
    if speeds := [r[_SPEED] for r in records if _SPEED in r]:
        scores[_SPEED] = statistics.median(speeds)
    evaluated = [r for r in records if r["phase"] == "eval" and _ACCURACY in r]
    return {
        "name": variant.name,
        **variant._asdict(),
        "config": variant.config.to_dict(),
        "steps": step,
        "parameters": parameter_counts(variant.config).encoder,
        "scores": scores,
        "curve": {record["step"]: record[_ACCURACY] for record in evaluated},
    }


def write_results(output_dir: str, runs: Sequence[Mapping[str, Any]]) -> str:
    """Writes `ablations.md` and `.json`. Returns the Markdown table."""
    path = os.path.join(output_dir, "ablations")
    return write_table(path, result_rows(runs), [_NOTE], runs) if runs else ""


def result_rows(runs: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Returns the header and a row for each model, with the scores of its seeds."""
    compared = {run["seed"] for run in runs if run["name"] != BASE}
    has_more = bool(compared) and not compared.issuperset(run["seed"] for run in runs)
    models: dict[tuple[str, str], list[Mapping[str, Any]]] = {}  # runs by comparison and model
    for run in runs:
        if run["seed"] in compared or not compared:
            models.setdefault((run["comparison"], run["value"]), []).append(run)
        if run["name"] == BASE and has_more:
            models.setdefault((BASE, f"{BASE}, all seeds"), []).append(run)
    columns = {k: v for k, v in _COLUMNS.items() if any(k in run["scores"] for run in runs)}
    header = ["comparison", "model", "parameters", "steps", "seeds"]
    rows = [header + [title for title, _ in columns.values()]]
    for (comparison, value), seeds in models.items():
        sizes = [f"{seeds[0]['parameters']:,}", str(seeds[0]["steps"]), str(len(seeds))]
        scores = [_score(seeds, key, form) for key, (_, form) in columns.items()]
        rows.append([COMPARISONS.get(comparison, (BASE,))[0], value, *sizes, *scores])
    return rows


def _score(seeds: Sequence[Mapping[str, Any]], key: str, form: str) -> str:
    """Returns the mean of a score, with its lowest and highest value; "-" if it is missing."""
    values = [run["scores"][key] for run in seeds if key in run["scores"]]
    numbers = [statistics.mean(values), min(values), max(values)] if values else []
    texts = [form.format(number).rstrip("%") for number in numbers] or ["-"]
    return texts[0] + (f" ({texts[1]} to {texts[2]})" if len(values) > 1 else "")
