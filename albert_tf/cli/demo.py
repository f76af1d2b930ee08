"""Runs every step from raw text to an exported model, in a few minutes.

It collects texts from Python's documentation, trains a vocabulary, creates records, pretrains a
tiny model, exports it, and evaluates and queries the exported model. Finally it fine-tunes mini,
the model that is part of albert_tf, to classify texts by their chapter of the documentation.

    albert_tf demo --output_dir=demo_output
"""

from absl import flags

from albert_tf.cli.app import command
from albert_tf.cli.flags import Flag, Groups

FLAGS: Groups = {
    "Data": {
        Flag("max_documents", int, at_least=2): "Number of documents of the corpus. Default: all.",
        Flag("vocab_size", 1000, at_least=1): "Size of the vocabulary.",
    },
    "Training": {
        Flag("num_train_steps", 1500, at_least=1): "Number of pretraining steps.",
        Flag("num_fine_tuning_steps", 160, at_least=0): "Number of steps of fine-tuning the "
        "classifier; 0 skips it.",
    },
    "Output": {Flag("output_dir", "demo_output"): "Local directory for all results."},
}


def run() -> None:
    from albert_tf.tools.demo import run_demo

    values = flags.FLAGS
    run_demo(
        values.output_dir,
        num_train_steps=values.num_train_steps,
        vocab_size=values.vocab_size,
        max_documents=values.max_documents,
        num_fine_tuning_steps=values.num_fine_tuning_steps,
    )


main = command(__name__, __doc__, FLAGS, run, devices="all")
