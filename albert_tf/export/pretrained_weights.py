"""The weights of a pretrained model as a checkpoint of their own, for programs of the original."""

from __future__ import annotations

import dataclasses
import os

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.original import write_checkpoint
from albert_tf.checkpoints.report import ENCODER_PREFIX
from albert_tf.data.disk import why_not_writable
from albert_tf.data.files import explain_write_errors, write_error
from albert_tf.loading import read_contents
from albert_tf.model_files.contents import ModelContents

_HEADS = ("cls/predictions/", "cls/seq_relationship/")


@dataclasses.dataclass(frozen=True)
class WeightsExport:
    """An export that has been checked, and of which nothing is written yet.

    Attributes:
        model: path of the model that was read.
        checkpoint: its weights.
        contents: all of it.
        export_path: prefix to write.
        missing_heads: scopes of the heads that the model lacks.
    """

    model: str
    checkpoint: str
    contents: ModelContents
    export_path: str
    missing_heads: list[str]

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """What is written, by the original's names."""
        return {
            name: value
            for name, value in self.contents.weights.items()
            if name.startswith((ENCODER_PREFIX, *_HEADS))
        }

    def write(self) -> list[str]:
        """Writes the weights; returns their names.

        Raises:
            WriteError: nothing can be written there.
        """
        weights = self.weights
        with explain_write_errors(self.export_path, "--export_path"):
            write_checkpoint(self.export_path, weights, 0)
        return list(weights)


def prepare_export(model: str, export_path: str) -> WeightsExport:
    """Reads a model and checks that its weights can be written alone; writes nothing.

    Args:
        model: of any format (--albert_directory, --checkpoint_name); is only read.
        export_path: prefix to write (--export_path); what is there already stays.

    Raises:
        ValueError: the model cannot be read, or `export_path` is taken.
        WriteError: nothing may be written there.
    """
    if tf.io.gfile.exists(export_path + ".index"):
        raise ValueError(
            f"--export_path={export_path}: there is a checkpoint already, and it is not changed. "
            "Give another name."
        )
    if problem := why_not_writable(os.path.dirname(export_path) or os.curdir):
        raise write_error(export_path, problem, "--export_path")
    contents, report = read_contents(model, "--albert_directory")
    names = list(contents.weights)
    missing = [head for head in _HEADS if not any(name.startswith(head) for name in names)]
    for head in missing:
        logging.warning("%s has no %s: it is left out", report.source, head)
    return WeightsExport(model, report.source, contents, export_path, missing)
