r"""Trains a SentencePiece vocabulary on text.

By default, the vocabulary has the settings of the released English models. For other languages,
use --keep_accents.

    albert_tf train_sentencepiece --input_file='text/*.txt' --model_prefix=vocab/30k \
        --vocab_size=30000 --keep_accents
"""

import dataclasses
import time
from concurrent.futures import ThreadPoolExecutor

from albert_tf.cli.app import command
from albert_tf.cli.flags import Flags
from albert_tf.pretraining.settings import VocabularySettings
from albert_tf.pretraining.vocabulary import train_sentencepiece


def run(settings: VocabularySettings) -> None:
    # Signals are handled in the main thread, but only while it runs Python code.
    with ThreadPoolExecutor(1) as thread:
        training = thread.submit(train_sentencepiece, **dataclasses.asdict(settings))
        while not training.done():
            time.sleep(0.1)
    training.result()


main = command(__name__, __doc__, Flags(VocabularySettings), run)
