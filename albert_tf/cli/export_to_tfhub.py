"""Exports a pretrained model for TF-Hub, for TensorFlow 2 or 1.

What was written is read by a fresh process, and its outputs are compared with the model's.

    export_to_tfhub --albert_directory=pretrained --export_path=hub/encoder
        --preprocessor_path=hub/preprocessor

    export_to_tfhub --albert_directory=pretrained --export_path=hub/module --format=tf1_hub
"""

from __future__ import annotations

import os

from absl import flags

from albert_tf.cli.command import run_command
from albert_tf.cli.dry_run import define_dry_run_flag, is_dry_run
from albert_tf.cli.flag_groups import MODEL, OUTPUT, WITHOUT_EFFECT, flag_group


def define_flags() -> None:
    """Defines the flags of this command; nothing is defined by importing it."""
    with flag_group(MODEL):
        flags.DEFINE_string(
            "albert_directory",
            None,
            "The model: a directory with albert_config.json, tokenizer and checkpoint, or a model "
            "of any other format. It is only read.",
            required=True,
        )
        flags.DEFINE_string(
            "checkpoint_name",
            "model.ckpt-best",
            "Checkpoint in --albert_directory. Where the default is not there, the newest is "
            "taken.",
        )
        flags.DEFINE_bool(
            "do_lower_case",
            True,
            "Whether the model's text is lower-cased. Not given: as the model says of itself.",
        )
    with flag_group(OUTPUT):
        flags.DEFINE_enum(
            "format",
            "tf2",
            ["tf2", "tf1_hub"],
            "What to write. tf2: an encoder for hub.KerasLayer and hub.load. tf1_hub: a module for "
            "hub.Module and the original's programs, as the original writes it.",
        )
        flags.DEFINE_string(
            "export_path",
            None,
            "Directory to write; must not exist, or be empty. It is there in the end with all that "
            "belongs to it, or not at all.",
            required=True,
        )
        flags.DEFINE_string(
            "preprocessor_path",
            None,
            "Directory for a preprocessor as well, from texts to the encoder's inputs; "
            "--format=tf2. Not given: none is written.",
        )
    with flag_group(WITHOUT_EFFECT):
        flags.DEFINE_bool(
            "use_einsum",
            True,
            "Changes nothing: the graph has plain matrix products either way, which TFLite knows.",
        )
    define_dry_run_flag()


def run() -> None:
    """Exports, and prints what became of every weight."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # both sides of the proof compute alike
    # TensorFlow, which --help need not wait for.
    from albert_tf.checkpoints.model_source import model_in
    from albert_tf.cli.devices import log_devices
    from albert_tf.export.hub import export_to_tfhub

    log_devices()
    values = flags.FLAGS
    model = model_in(
        values.albert_directory, values.checkpoint_name, values["checkpoint_name"].present > 0
    )
    dry_run = is_dry_run(values)
    report = export_to_tfhub(
        model,
        values.format,
        values.export_path,
        values.preprocessor_path,
        do_lower_case=values.do_lower_case if values["do_lower_case"].present else None,
        dry_run=dry_run,
    )
    if not dry_run:
        for line in report.lines():
            print(line)


def main() -> None:
    """Runs the command."""
    run_command(define_flags, run)


if __name__ == "__main__":
    main()
