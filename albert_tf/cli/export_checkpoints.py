"""Exports the weights of a pretrained model without its optimizer state.

As in the original, optimizer moments and the step are omitted, which reduces the file size to a
third.

    albert_tf export_checkpoints --albert_directory=pretrained --export_path=released/model.ckpt
"""

import os
from dataclasses import dataclass

from absl import logging

from albert_tf.cli.app import command
from albert_tf.cli.flags import Flags, PretrainedModel
from albert_tf.settings import dry_run_setting, required


@dataclass(frozen=True, kw_only=True)
class ExportSettings(PretrainedModel):
    """Settings of `export_checkpoints`."""

    export_path: str = required("Output")("""
        Prefix of the checkpoint to write, which must not exist.""")
    dry_run: bool = dry_run_setting()


def run(settings: ExportSettings) -> None:
    from albert_tf.checkpoints.convert import export_weights
    from albert_tf.checkpoints.model_choice import model_in

    model = model_in(*settings.location())
    names = export_weights(model, settings.export_path, dry_run=settings.dry_run)
    if not settings.dry_run:
        logging.info("%d variables are in %s", len(names), os.path.abspath(settings.export_path))


FLAGS = Flags(ExportSettings, {"do_lower_case": (True, "No effect: only weights are written.")})
main = command(__name__, __doc__, FLAGS, run, devices="all")
