"""Converts a model to another format, and proves that it computes the same.

What was written is read by a fresh process, and its outputs are compared with those of --model.
Tokenizer and configuration come along.

    convert_checkpoint --model=albert_base --format=huggingface --output_dir=base_hf
"""

from __future__ import annotations

import os

from absl import flags

from albert_tf.cli.command import run_command
from albert_tf.cli.dry_run import define_dry_run_flag, is_dry_run
from albert_tf.cli.flag_groups import MODEL, OUTPUT, flag_group
from albert_tf.cli.model_part_flags import define_model_part_flags, model_parts_from_flags

# Those of `checkpoints/formats.py`, whose import takes seconds.
FORMATS = ("original", "huggingface", "keras_hub", "tf2_hub", "tf1_hub")


def define_flags() -> None:
    """Defines the flags of this command; nothing is defined by importing it."""
    with flag_group(MODEL):
        flags.DEFINE_string(
            "model",
            None,
            "Model to convert, of any format: a directory, a checkpoint, a released tar file, or "
            "the URL of a TF-Hub module, or mini. It is only read.",
            required=True,
        )
        flags.DEFINE_string(
            "checkpoint_name",
            None,
            "Which checkpoint of --model, if it has several. Not given: the newest.",
        )
    define_model_part_flags()
    with flag_group(OUTPUT):
        flags.DEFINE_enum("format", None, FORMATS, "Format to write.", required=True)
        flags.DEFINE_string(
            "output_dir",
            None,
            "Directory to write; must not exist, or be empty. It is there in the end with all that "
            "belongs to it, or not at all.",
            required=True,
        )
        flags.DEFINE_bool(
            "with_optimizer",
            False,
            "Keep the optimizer's moments and the step too, to go on training in --output_dir; "
            "--format=original only.",
        )
        flags.DEFINE_enum(
            "dtype",
            "float32",
            ("float32", "float16"),
            "Type to store weights in. float16 halves the file; --format=huggingface only.",
        )
    define_dry_run_flag()


def run() -> None:
    """Converts, and prints what became of every weight."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # both sides of the proof compute alike
    # TensorFlow, which --help need not wait for.
    from albert_tf.cli.devices import log_devices
    from albert_tf.conversion.convert import prepare_conversion

    log_devices()
    values = flags.FLAGS
    model = values.model
    if values.checkpoint_name:
        model = os.path.join(model, values.checkpoint_name)
    conversion = prepare_conversion(
        model,
        values.format,
        values.output_dir,
        with_optimizer=values.with_optimizer,
        dtype=values.dtype,
        **model_parts_from_flags(values),
    )
    if is_dry_run(values):
        return
    for line in conversion.write().lines():
        print(line)


def main() -> None:
    """Runs the command."""
    run_command(define_flags, run)


if __name__ == "__main__":
    main()
