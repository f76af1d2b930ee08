"""The weights of a pretrained model as a checkpoint of their own, for programs of the original."""

from __future__ import annotations

import os

import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.loading import read_contents
from albert_tf.checkpoints.original.files import write_checkpoint
from albert_tf.checkpoints.original.names import PRETRAINING_HEADS, is_of_pretraining
from albert_tf.data.files import explain_write_errors, why_not_writable, write_error


def export_weights(model: str, export_path: str, *, dry_run: bool = False) -> list[str]:
    """Writes encoder and pretraining heads, without slots, and the step 0.

    Args:
        model: of any format (--albert_directory, --checkpoint_name); is only read.
        export_path: prefix to write (--export_path); what is there already stays.
        dry_run: check all that can be known before, and write nothing.

    Returns:
        Names of the variables written.

    Raises:
        ValueError: the model cannot be read, or `export_path` is taken.
        WriteError: nothing can be written there.

    Source: export_checkpoints.py of the original release.

    Differs: heads that the checkpoint lacks are left out, and named; the original writes random
    ones. No graph (`.meta`) is written, and no file `checkpoint`.
    """
    if tf.io.gfile.exists(export_path + ".index"):
        raise ValueError(
            f"--export_path={export_path}: the checkpoint exists already and is not changed. Use "
            "another name."
        )
    if problem := why_not_writable(os.path.dirname(export_path) or os.curdir):
        raise write_error(export_path, problem, "--export_path")
    contents, report = read_contents(model, "--albert_directory")
    for head in PRETRAINING_HEADS:
        if not any(name.startswith(head) for name in contents.weights):
            logging.warning("%s has no %s: it is omitted", report.source, head)
    weights = {name: v for name, v in contents.weights.items() if is_of_pretraining(name)}
    if not dry_run:
        with explain_write_errors(export_path, "--export_path"):
            write_checkpoint(export_path, weights, 0)
    return list(weights)
