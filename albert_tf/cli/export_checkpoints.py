"""Exports the weights of a pretrained model without its optimizer state.

As in the original, optimizer moments and the step are omitted, which reduces the file size to a
third.

    albert_tf export_checkpoints --albert_directory=pretrained --export_path=released/model.ckpt
"""

import os

from absl import flags, logging

from albert_tf.cli.app import command
from albert_tf.cli.flags import DRY_RUN, Flag, Groups

FLAGS: Groups = {
    "Model": {
        Flag("albert_directory", required=True): "Required. Directory with albert_config.json and "
        "a checkpoint, or a model of another format. It is not modified.",
        Flag("checkpoint_name", "model.ckpt-best"): "Checkpoint in --albert_directory. If the "
        "default does not exist, the newest is used.",
    },
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
    """Reads the model and writes its weights."""
    from albert_tf.checkpoints.convert import export_weights
    from albert_tf.checkpoints.model_source import model_in
    from albert_tf.training.distribution import log_devices

    log_devices()
    values = flags.FLAGS
    model = model_in(
        values.albert_directory, values.checkpoint_name, values["checkpoint_name"].present > 0
    )
    names = export_weights(model, values.export_path, dry_run=values.dry_run)
    if not values.dry_run:
        logging.info("%d variables are in %s", len(names), os.path.abspath(values.export_path))


main = command(__name__, __doc__, FLAGS, run)
