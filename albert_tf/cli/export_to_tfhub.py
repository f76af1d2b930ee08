r"""Exports a pretrained model for TF-Hub, for TensorFlow 2 or 1.

A new process loads the result and compares its outputs with the outputs of the model.

    albert_tf export_to_tfhub --albert_directory=pretrained --export_path=hub/encoder \
        --preprocessor_path=hub/preprocessor

    albert_tf export_to_tfhub --albert_directory=pretrained --export_path=hub/module \
        --format=tf1_hub
"""

from absl import flags

from albert_tf.cli.app import command
from albert_tf.cli.flags import (
    ALBERT_DIRECTORY,
    DRY_RUN,
    LOWER_CASE,
    Flag,
    Groups,
    lower_case_from_flags,
)

FLAGS: Groups = {
    "Model": {**ALBERT_DIRECTORY, **LOWER_CASE},
    "Output": {
        Flag("format", "tf2", choices=("tf2", "tf1_hub")): "Format to write. tf2: an encoder for "
        "hub.KerasLayer and hub.load. tf1_hub: a module for hub.Module and the original's "
        "programs, as the original writes it.",
        Flag("export_path", required=True): "Required. Directory to write, which must be empty or "
        "not exist. It appears only when it is complete.",
        Flag("preprocessor_path"): "Directory of a preprocessor that turns texts into inputs of "
        "the encoder; only for --format=tf2. Default: no preprocessor.",
    },
    "Accepted without effect": {
        Flag("use_einsum", True): "No effect: the graph has plain matrix products, which TFLite "
        "supports.",
    },
    "Actions": DRY_RUN,
}


def run() -> None:
    from albert_tf.checkpoints.model_source import model_in
    from albert_tf.serving.hub import export_hub_module

    values = flags.FLAGS
    model = model_in(
        values.albert_directory, values.checkpoint_name, values["checkpoint_name"].present > 0
    )
    report = export_hub_module(
        model,
        values.export_path,
        format=values.format,
        preprocessor_path=values.preprocessor_path,
        do_lower_case=lower_case_from_flags(values),
        dry_run=values.dry_run,
    )
    if not values.dry_run:
        print(*report.lines(), sep="\n")


main = command(__name__, __doc__, FLAGS, run, devices="cpu")
