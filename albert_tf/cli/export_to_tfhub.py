r"""Exports a pretrained model for TF-Hub, for TensorFlow 2 or 1.

A new process loads the result and compares its outputs with the outputs of the model.

    albert_tf export_to_tfhub --albert_directory=pretrained --export_path=hub/encoder \
        --preprocessor_path=hub/preprocessor

    albert_tf export_to_tfhub --albert_directory=pretrained --export_path=hub/module \
        --format=tf1_hub
"""

from collections.abc import Iterator
from dataclasses import dataclass

import albert_tf
from albert_tf.cli.app import command
from albert_tf.cli.flags import Flags, PretrainedModel
from albert_tf.settings import TokenizerRules, dry_run_setting, required, setting, settings_of


@dataclass(frozen=True, kw_only=True)
class HubSettings(PretrainedModel, TokenizerRules):
    """Settings of `export_to_tfhub`."""

    format: str = setting("tf2", "Output", choices=("tf2", "tf1_hub"))("""
        Format to write. tf2: an encoder for hub.KerasLayer and hub.load. tf1_hub: a module for
        hub.Module and the original's programs, as the original writes it.""")
    export_path: str = required("Output")("""
        Directory to write, which must be empty or not exist. It appears only when it is
        complete.""")
    preprocessor_path: str | None = setting(None, "Output")("""
        Directory of a preprocessor that turns texts into inputs of the encoder; only for
        --format=tf2. Default: no preprocessor.""")
    dry_run: bool = dry_run_setting()


def run(settings: HubSettings) -> Iterator[str]:
    from albert_tf.checkpoints.model_choice import model_in

    of_model = settings_of(PretrainedModel)
    options = {name: value for name, value in vars(settings).items() if name not in of_model}
    return albert_tf.export_hub_module(model_in(*settings.location()), **options).lines()


_REASON = "No effect: the graph has plain matrix products, which TFLite supports."
FLAGS = Flags(HubSettings, {"use_einsum": (True, _REASON)})
main = command(__name__, __doc__, FLAGS, run, devices="cpu")
