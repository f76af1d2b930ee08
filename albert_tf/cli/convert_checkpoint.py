r"""Converts a model to another format and verifies the result.

A new process loads the result and compares its outputs with the outputs of --model. The tokenizer
and the configuration are also converted.

    albert_tf convert_checkpoint --model=albert_base --format=huggingface --output_dir=base_hf
"""

import os

from absl import flags

from albert_tf.cli.app import command
from albert_tf.cli.flags import DRY_RUN, MODEL_PARTS, Flag, Groups, model_parts_from_flags

# The formats of `checkpoints/formats.py`, whose import is slow.
FORMATS = ("original", "huggingface", "keras_hub", "tf2_hub", "tf1_hub")


FLAGS: Groups = {
    "Model": {
        Flag("model", required=True): "Required. Model to convert, of any supported format: a "
        "directory, a checkpoint, a released tar file, the URL of a TF-Hub module, or a name such "
        "as base_v2 or mini. It is not modified.",
        Flag("checkpoint_name"): "Checkpoint in --model, if it has several. Default: "
        "model.ckpt-best, or the newest if there is no best.",
        **MODEL_PARTS,
    },
    "Output": {
        Flag("format", choices=FORMATS, required=True): "Required. Format to write.",
        Flag("output_dir", required=True): "Required. Directory to write, which must be empty or "
        "not exist. It appears only when it is complete.",
        Flag("with_optimizer", False): "Also convert the optimizer's moments and the step, to "
        "resume training in --output_dir; only for --format=original.",
        Flag("dtype", "float32", choices=("float32", "float16")): "Type of the stored weights; "
        "float16 only for --format=huggingface.",
    },
    "Actions": DRY_RUN,
}


def run() -> None:
    from albert_tf.checkpoints.convert import convert

    values = flags.FLAGS
    model = values.model
    if values.checkpoint_name:
        model = os.path.join(model, values.checkpoint_name)
    report = convert(
        model,
        values.format,
        values.output_dir,
        with_optimizer=values.with_optimizer,
        dtype=values.dtype,
        dry_run=values.dry_run,
        **model_parts_from_flags(values),
    )
    if not values.dry_run:
        print(*report.lines(), sep="\n")


main = command(__name__, __doc__, FLAGS, run, devices="cpu")
