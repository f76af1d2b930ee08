"""Writes the weights of a pretrained model alone, as the original does.

The optimizer's moments and the step are left out: a third of the file remains.

    export_checkpoints --albert_directory=pretrained --export_path=released/model.ckpt
"""

from __future__ import annotations

import os

from absl import flags, logging

from albert_tf.cli.command import run_command
from albert_tf.cli.dry_run import define_dry_run_flag, is_dry_run
from albert_tf.cli.flag_groups import MODEL, OUTPUT, WITHOUT_EFFECT, flag_group


def define_flags() -> None:
    """Defines the flags of this command; nothing is defined by importing it."""
    with flag_group(MODEL):
        flags.DEFINE_string(
            "albert_directory",
            None,
            "Directory with albert_config.json and a checkpoint, or a model of another format. It "
            "is only read.",
            required=True,
        )
        flags.DEFINE_string(
            "checkpoint_name",
            "model.ckpt-best",
            "Checkpoint in --albert_directory. Where the default is not there, the newest is "
            "taken.",
        )
    with flag_group(OUTPUT):
        flags.DEFINE_string(
            "export_path",
            None,
            "Prefix of the checkpoint to write; there must be none.",
            required=True,
        )
    with flag_group(WITHOUT_EFFECT):
        flags.DEFINE_bool("do_lower_case", True, "Changes nothing: there are only weights.")
    define_dry_run_flag()


def run() -> None:
    """Reads the model and writes its weights."""
    # TensorFlow, which --help need not wait for.
    from albert_tf.checkpoints.model_source import model_in
    from albert_tf.cli.devices import log_devices
    from albert_tf.export.pretrained_weights import export_weights

    log_devices()
    values = flags.FLAGS
    model = model_in(
        values.albert_directory, values.checkpoint_name, values["checkpoint_name"].present > 0
    )
    dry_run = is_dry_run(values)
    names = export_weights(model, values.export_path, dry_run=dry_run)
    if not dry_run:
        logging.info("%d variables are in %s", len(names), os.path.abspath(values.export_path))


def main() -> None:
    """Runs the command."""
    run_command(define_flags, run)


if __name__ == "__main__":
    main()
