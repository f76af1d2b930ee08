"""Writes the weights of a pretrained model alone, as the original's command of this name does."""

from __future__ import annotations

import os

from absl import flags, logging

from albert_tf.cli.command import run_command


def define_flags() -> None:
    """Defines the flags of this command; nothing is defined by importing it."""
    flags.DEFINE_string(
        "albert_directory",
        None,
        "Directory with albert_config.json and a checkpoint, or a model of another format.",
        required=True,
    )
    flags.DEFINE_string(
        "checkpoint_name", "model.ckpt-best", "Which checkpoint of --albert_directory."
    )
    flags.DEFINE_bool("do_lower_case", True, "Accepted for older commands; changes nothing.")
    flags.DEFINE_string(
        "export_path", None, "Prefix of the checkpoint to write; there must be none.", required=True
    )


def run() -> None:
    """Reads the model and writes its weights."""
    from albert_tf.export.pretrained_weights import export_weights  # TensorFlow

    values = flags.FLAGS
    name = values.checkpoint_name
    names = export_weights(values.albert_directory, name, values.export_path)
    logging.info("%d variables are in %s", len(names), os.path.abspath(values.export_path))


def main() -> None:
    """Runs the command."""
    run_command(define_flags, run)


if __name__ == "__main__":
    main()
