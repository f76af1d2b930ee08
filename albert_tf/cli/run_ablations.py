r"""Pretrains the models of the paper's ablation studies on custom records.

The models are trained one after the other. Each differs from a base model in one respect and is
trained the same way. Arguments after -- are passed to every run of run_pretraining. The same
command resumes an interrupted study. The table in --output_dir is updated after each run.

    albert_tf run_ablations --albert_config_file=base.json \
        --input_file='records/train.tfrecord*' --eval_input_file='records/held_out.tfrecord*' \
        --output_dir=ablations --num_train_steps=2000 \
        -- --max_seq_length=128 --train_batch_size=32
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from absl import flags, logging

from albert_tf.cli.app import run_command
from albert_tf.cli.dry_run import define_dry_run_flag, is_dry_run
from albert_tf.cli.flags import flag_group

if TYPE_CHECKING:
    from albert_tf.ablations.comparisons import Variant
    from albert_tf.config import AlbertConfig

# What every run gets from here; after `--` it would make runs differ from what the table says.
_OWN_FLAGS = frozenset(
    {"input_file", "eval_input_file", "output_dir", "albert_config_file", "seed", "sentence_loss"}
    | {"num_train_steps", "do_train", "do_eval", "eval_checkpoint", "init_checkpoint"}
)
SETTINGS_FILE = "ablation_settings.json"


def define_flags() -> None:
    """Defines the flags of this command."""
    with flag_group("Actions"):
        flags.DEFINE_list(
            "comparisons",
            ["embedding_size", "sharing", "sentence_loss", "dropout", "depth", "width"],
            "Comparisons to make; a subset of the default.",
        )
        flags.DEFINE_list(
            "embedding_sizes",
            [],
            "Embedding sizes. Default: half and double the base's, and H.",
        )
        flags.DEFINE_list(
            "depths", [], "Numbers of layers. Default: 1, and half and double the base's."
        )
        flags.DEFINE_list("widths", [], "Hidden sizes. Default: half and double the base's.")
        flags.DEFINE_list("seeds", ["12345"], "Seeds with which every model is trained.")
        flags.DEFINE_list(
            "base_seeds",
            [],
            "Additional seeds of the base model, whose spread estimates the noise of the table. "
            "Default: none.",
        )
    define_dry_run_flag()
    _define_record_flags()
    with flag_group("Model"):
        flags.DEFINE_string(
            "albert_config_file",
            None,
            "Required. Configuration (albert_config.json) of the base model, of which all others "
            "are variants.",
            required=True,
        )
    with flag_group("Training"):
        flags.DEFINE_integer(
            "num_train_steps",
            None,
            "Required. Training steps of every run.",
            required=True,
            lower_bound=1,
        )
    with flag_group("Output"):
        flags.DEFINE_string(
            "output_dir",
            None,
            "Required. Directory of the results, with a subdirectory for each run. Completed runs "
            "found there are not repeated, interrupted ones are resumed.",
            required=True,
        )


def _define_record_flags() -> None:
    with flag_group("Data"):
        flags.DEFINE_string(
            "input_file",
            None,
            "Required. Records to train on, made with --sentence_loss=sop, the default: "
            "comma-separated files or globs.",
            required=True,
        )
        flags.DEFINE_string(
            "eval_input_file",
            None,
            "Required. Held-out records to evaluate on: comma-separated files or globs.",
            required=True,
        )
        for loss in ("nsp", "none"):
            without = (
                "this loss is not compared."
                if loss == "nsp"
                else "the model of this comparison uses only the masked tokens of --input_file."
            )
            flags.DEFINE_string(
                f"{loss}_input_file",
                None,
                f"Records made with --sentence_loss={loss}. Default: {without}",
            )
            flags.DEFINE_string(
                f"{loss}_eval_input_file",
                None,
                f"Held-out records made with --sentence_loss={loss}; required with "
                f"--{loss}_input_file.",
            )


def run(training_flags: list[str]) -> None:
    """Trains what is missing and writes the table anew after each run.

    Args:
        training_flags: flags for `run_pretraining.py`.
    """
    from albert_tf.ablations.runs import Ablations, ordered_jobs
    from albert_tf.config import AlbertConfig
    from albert_tf.data.disk import check_folder

    values = flags.FLAGS
    _check_training_flags(training_flags)
    records = _records(values)
    base = AlbertConfig.from_json_file(values.albert_config_file)
    variants = _variants(values, base, list(records))
    seeds, base_seeds = _numbers(values, "seeds"), _numbers(values, "base_seeds")
    if not seeds:
        raise ValueError("--seeds names no seed.")
    settings = {
        "base": base.to_dict(),
        "num_train_steps": values.num_train_steps,
        "records": records,
        "training_flags": training_flags,
    }
    _check_settings(values.output_dir, settings)
    check_folder(values.output_dir, "--output_dir")
    runs = Ablations(values.output_dir, base, records, values.num_train_steps, training_flags)
    compare_losses = "sentence_loss" in values.comparisons
    if is_dry_run(values):
        runs.try_out(ordered_jobs(variants, seeds, base_seeds), values.albert_config_file)
        return
    _keep_settings(values.output_dir, settings)
    runs.run(variants, seeds, base_seeds, compare_losses=compare_losses)


def _variants(values: flags.FlagValues, base: AlbertConfig, losses: list[str]) -> list[Variant]:
    from albert_tf.ablations.comparisons import choose_variants

    if "sentence_loss" in values.comparisons and "nsp" not in losses:
        logging.warning("No --nsp_input_file: next-sentence prediction is not compared")
    sizes = {
        "embedding_size": _numbers(values, "embedding_sizes"),
        "depth": _numbers(values, "depths"),
        "width": _numbers(values, "widths"),
    }
    return choose_variants(base, values.comparisons, sizes, losses)


def _check_training_flags(training_flags: list[str]) -> None:
    for flag in training_flags:
        name = flag.lstrip("-").split("=")[0]
        if not flag.startswith("-"):
            raise ValueError(f"After --, write --name=value. Received: {flag!r}")
        if name in _OWN_FLAGS or name.removeprefix("no") in _OWN_FLAGS:
            raise ValueError(
                f"{flag!r} cannot stand after --: run_ablations.py itself gives it to the runs."
            )


def _records(values: flags.FlagValues) -> dict[str, tuple[list[str], list[str]]]:
    """Files to train and to evaluate on, for each sentence loss that has some.

    Raises:
        ValueError: a file is missing, or of two flags that need each other one.
    """
    from albert_tf.data.files import match_files

    sop = (
        match_files(values.input_file, "--input_file"),
        match_files(values.eval_input_file, "--eval_input_file"),
    )
    records = {"sop": sop, "none": sop}
    for loss in ("nsp", "none"):
        train, held_out = f"{loss}_input_file", f"{loss}_eval_input_file"
        patterns = values.flag_values_dict()
        if bool(patterns[train]) != bool(patterns[held_out]):
            raise ValueError(f"Give --{train} and --{held_out} together, or neither.")
        if patterns[train]:
            records[loss] = (
                match_files(patterns[train], f"--{train}"),
                match_files(patterns[held_out], f"--{held_out}"),
            )
    return records


def _numbers(values: flags.FlagValues, flag: str) -> list[int]:
    numbers = []
    for text in values.flag_values_dict()[flag]:
        if not re.fullmatch(r"\s*[0-9]{1,18}\s*", text):
            raise ValueError(
                f"--{flag} should be whole numbers with commas. Received: {text!r:.80}"
            )
        numbers.append(int(text))
    return numbers


def _check_settings(output_dir: str, settings: Mapping[str, Any]) -> None:
    """Holds what all runs have in common against what the runs there had.

    Raises:
        ValueError: they differ, so that the models could not be compared, or the file that tells
            them is damaged.
    """
    from albert_tf.data.files import file_exists
    from albert_tf.data.strict_json import JsonValue, parse_json, read_json, shown

    path = os.path.join(output_dir, SETTINGS_FILE)
    if not file_exists(path):
        return
    where = f"--output_dir: {path}"
    before = JsonValue(read_json(path, where), where).members()
    for name, value in parse_json(json.dumps(settings), SETTINGS_FILE).items():
        found = before[name].value if name in before else None
        if found != value:
            raise ValueError(
                f"--output_dir {output_dir!r} holds runs with other settings, with which no model "
                f"could be compared. {name} was {shown(found)}, and is {shown(value)} now. Give "
                "the same, or a fresh directory."
            )


def _keep_settings(output_dir: str, settings: Mapping[str, Any]) -> None:
    """Writes what all runs have in common, unless it stands there already."""
    from albert_tf.data.files import file_exists, write_then_rename

    path = os.path.join(output_dir, SETTINGS_FILE)
    if not file_exists(path):
        with write_then_rename(path) as file:
            file.write((json.dumps(settings, indent=2) + "\n").encode())


def main() -> None:
    """Runs the command."""
    run_command(define_flags, run, takes_arguments=True)


if __name__ == "__main__":
    main()
