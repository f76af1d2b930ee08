r"""Converts a model to another format and verifies the result.

A new process loads the result and compares its outputs with the outputs of --model. The tokenizer
and the configuration are also converted.

    albert_tf convert_checkpoint --model=base_v2 --format=huggingface --output_dir=base_hf
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass

import albert_tf
from albert_tf.cli.app import command
from albert_tf.cli.flags import Flags, ModelParts
from albert_tf.settings import dry_run_setting, required, setting

# The formats of `checkpoints/formats/choose.py`, whose import is slow.
FORMATS = ("original", "huggingface", "keras_hub", "tf2_hub", "tf1_hub")


@dataclass(frozen=True, kw_only=True)
class ConversionSettings(ModelParts):
    """Settings of `convert_checkpoint`."""

    model: str = required("Model")("""
        Model to convert, of any supported format: a directory, a checkpoint, a released tar file,
        the URL of a TF-Hub module, or a name such as base_v2 or mini. It is not modified.""")
    checkpoint_name: str | None = setting(None, "Model")("""
        Checkpoint in --model, if it has several. Default: model.ckpt-best, or the newest if there
        is no best.""")
    format: str = required("Output", choices=FORMATS)("""
        Format to write.""")
    output_dir: str = required("Output")("""
        Directory to write, which must be empty or not exist. It appears only when it is
        complete.""")
    with_optimizer: bool = setting(False, "Output")("""
        Also convert the optimizer's moments and the step, to resume training in --output_dir; only
        for --format=original.""")
    dtype: str = setting("float32", "Output", choices=("float32", "float16"))("""
        Type of the stored weights; float16 only for --format=huggingface.""")
    dry_run: bool = dry_run_setting()


def run(settings: ConversionSettings) -> Iterator[str]:
    arguments = settings.arguments()
    if name := arguments.pop("checkpoint_name"):
        arguments["path"] = os.path.join(settings.model, name)
    return albert_tf.convert(**arguments).lines()


main = command(__name__, __doc__, Flags(ConversionSettings), run, devices="cpu")
