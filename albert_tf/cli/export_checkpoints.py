"""Exports the weights of a pretrained model without its optimizer state.

As in the original, optimizer moments and the step are omitted, which reduces the file size to a
third.

    albert_tf export_checkpoints --albert_directory=pretrained --export_path=released/model.ckpt
"""

import os

from absl import flags, logging

from albert_tf.cli.app import command
from albert_tf.cli.flags import ALBERT_DIRECTORY, DRY_RUN, Flag, Groups

FLAGS: Groups = {
    "Model": ALBERT_DIRECTORY,
    "Output": {
        Flag("export_path", required=True): "Required. Prefix of the checkpoint to write, which "
        "must not exist.",
    },
    "Accepted without effect": {
        Flag("do_lower_case", True): "No effect: only weights are written.",
    },
    "Actions": DRY_RUN,
}


def run() -> None:
    from albert_tf.checkpoints.convert import export_weights
    from albert_tf.checkpoints.model_source import model_in

    values = flags.FLAGS
    model = model_in(
        values.albert_directory, values.checkpoint_name, values["checkpoint_name"].present > 0
    )
    names = export_weights(model, values.export_path, dry_run=values.dry_run)
    if not values.dry_run:
        logging.info("%d variables are in %s", len(names), os.path.abspath(values.export_path))


main = command(__name__, __doc__, FLAGS, run, devices="all")
