"""Runs every step from raw text to an exported model, in a few minutes.

It collects texts from Python's documentation, trains a vocabulary, creates records, pretrains a
tiny model, exports it, and evaluates and queries the exported model. Finally it fine-tunes mini,
the model that is part of albert_tf, to classify texts by their chapter of the documentation.

    albert_tf demo --output_dir=demo_output
"""

from dataclasses import dataclass

from albert_tf.cli.app import command
from albert_tf.cli.flags import Flags
from albert_tf.settings import Settings, setting


@dataclass(frozen=True, kw_only=True)
class DemoSettings(Settings):
    """Settings of `demo`."""

    max_documents: int | None = setting(None, "Data", at_least=2)("""
        Number of documents of the corpus. Default: all.""")
    vocab_size: int = setting(1000, "Data", at_least=1)("Size of the vocabulary.")
    num_train_steps: int = setting(1500, "Training", at_least=1)("Number of pretraining steps.")
    num_fine_tuning_steps: int | None = setting(None, "Training", at_least=0)("""
        Number of steps of fine-tuning the classifier; 0 skips it. Default: the recipe of mini.""")
    output_dir: str = setting("demo_output", "Output")("Local directory for all results.")


def run(settings: DemoSettings) -> None:
    from albert_tf.tools.demo import run_demo

    run_demo(**vars(settings))


main = command(__name__, __doc__, Flags(DemoSettings), run, devices="all")
