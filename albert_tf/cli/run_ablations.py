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

from absl import flags, logging

from albert_tf.cli.app import run_command
from albert_tf.cli.dry_run import define_dry_run_flag
from albert_tf.cli.flags import flag_group

# What every run gets from here; after `--` it would make runs differ from what the table says.
_OWN_FLAGS = frozenset(
    {"input_file", "eval_input_file", "output_dir", "albert_config_file", "seed", "sentence_loss"}
    | {"num_train_steps", "do_train", "do_eval", "eval_checkpoint", "init_checkpoint"}
)

_NUMBERS = ("embedding_sizes", "depths", "widths", "seeds", "base_seeds")  # lists of them


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
            "Required. Records to train on, created with --sentence_loss=sop, the default: "
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
                f"Records created with --sentence_loss={loss}. Default: {without}",
            )
            flags.DEFINE_string(
                f"{loss}_eval_input_file",
                None,
                f"Held-out records created with --sentence_loss={loss}; required with "
                f"--{loss}_input_file.",
            )


def run(training_flags: list[str]) -> None:
    """Trains what is missing and writes the table anew after each run.

    Args:
        training_flags: flags for `run_pretraining.py`.
    """
    from albert_tf.tools.ablations import AblationSettings, run_ablations

    values = flags.FLAGS.flag_values_dict()
    for flag in training_flags:
        name = flag.lstrip("-").split("=")[0]
        if not flag.startswith("-"):
            raise ValueError(f"After --, write --name=value. Received: {flag!r}")
        if name in _OWN_FLAGS or name.removeprefix("no") in _OWN_FLAGS:
            raise ValueError(f"{flag!r} cannot be passed after --: run_ablations sets it.")
    for flag in _NUMBERS:
        if wrong := [text for text in values[flag] if not text.strip().isdecimal()]:
            raise ValueError(f"--{flag} must be whole numbers. Received: {wrong[0]!r:.80}")
    sizes, depths, widths, seeds, base_seeds = (list(map(int, values[flag])) for flag in _NUMBERS)
    if not seeds:
        raise ValueError("--seeds names no seed.")
    records = _records(values)
    if "sentence_loss" in values["comparisons"] and "nsp" not in records:
        logging.warning("No --nsp_input_file: next-sentence prediction is not compared")
    settings = AblationSettings(
        output_dir=values["output_dir"],
        albert_config_file=values["albert_config_file"],
        records=records,
        num_train_steps=values["num_train_steps"],
        training_flags=training_flags,
        comparisons=values["comparisons"],
        values={"embedding_size": sizes, "depth": depths, "width": widths},
        seeds=seeds,
        base_seeds=base_seeds,
    )
    run_ablations(settings, dry_run=values["dry_run"])


def _records(values: dict[str, str]) -> dict[str, tuple[list[str], list[str]]]:
    """Files to train and to evaluate on, for each sentence loss that has some.

    Raises:
        ValueError: a file is missing, or of two flags that need each other one.
    """
    from albert_tf.data.files import match_files

    records = {}
    for loss, prefix in (("sop", ""), ("nsp", "nsp_"), ("none", "none_")):
        pair = [f"{prefix}input_file", f"{prefix}eval_input_file"]
        if any(values[flag] for flag in pair):
            if not all(values[flag] for flag in pair):
                raise ValueError(f"Pass both --{pair[0]} and --{pair[1]}, or neither.")
            train, held_out = (match_files(values[flag], f"--{flag}") for flag in pair)
            records[loss] = (train, held_out)
    return {"none": records["sop"], **records}


def main() -> None:
    """Runs the command."""
    run_command(define_flags, run, takes_arguments=True)


if __name__ == "__main__":
    main()
