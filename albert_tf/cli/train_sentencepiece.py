r"""Trains a SentencePiece vocabulary on text.

The settings are the same as for the released English models.

    albert_tf train_sentencepiece --input_file='text/*.txt' --model_prefix=vocab/30k \
        --vocab_size=30000
"""

import time
from concurrent.futures import ThreadPoolExecutor

from absl import flags

from albert_tf.cli.app import command
from albert_tf.cli.flags import DRY_RUN, Flag, Groups
from albert_tf.pretraining.vocabulary import train_sentencepiece

FLAGS: Groups = {
    "Data": {
        Flag("input_file", required=True): "Required. Text to read: comma-separated files or "
        "globs. UTF-8, one sentence per line.",
        Flag("do_lower_case", True): "Lower-case the text. Use the same setting with the "
        "tokenizer.",
        Flag("vocab_size", 30000, at_least=1): "Number of pieces, including special symbols.",
    },
    "Output": {
        Flag("model_prefix", required=True): "Required. Path of the files to write, without their "
        "extensions .model and .vocab.",
    },
    "Actions": DRY_RUN,
}


def run() -> None:
    values = flags.FLAGS
    # Signals are handled in the main thread, but only while it runs Python code.
    with ThreadPoolExecutor(1) as thread:
        training = thread.submit(
            train_sentencepiece,
            values.input_file,
            values.model_prefix,
            values.vocab_size,
            values.do_lower_case,
            dry_run=values.dry_run,
        )
        while not training.done():
            time.sleep(0.1)
    training.result()


main = command(__name__, __doc__, FLAGS, run)
