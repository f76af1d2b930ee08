r"""Trains a SentencePiece vocabulary on text.

The settings are the same as for the released English models.

    albert_tf train_sentencepiece --input_file='text/*.txt' --model_prefix=vocab/30k \
        --vocab_size=30000
"""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from albert_tf.cli.app import command
from albert_tf.cli.flags import Flags
from albert_tf.pretraining.vocabulary import train_sentencepiece
from albert_tf.settings import Settings, dry_run_setting, required, setting


@dataclass(frozen=True, kw_only=True)
class VocabularySettings(Settings):
    """Settings of `train_sentencepiece`."""

    input_file: str = required("Data")("""
        Text to read: comma-separated files or globs. UTF-8, one sentence per line.""")
    do_lower_case: bool = setting(True, "Data")("""
        Lower-case the text. Use the same setting with the tokenizer.""")
    vocab_size: int = setting(30000, "Data", at_least=1)("""
        Number of pieces, including special symbols.""")
    model_prefix: str = required("Output")("""
        Path of the files to write, without their extensions .model and .vocab.""")
    dry_run: bool = dry_run_setting()


FLAGS = Flags(VocabularySettings)


def run(settings: VocabularySettings) -> None:
    # Signals are handled in the main thread, but only while it runs Python code.
    with ThreadPoolExecutor(1) as thread:
        training = thread.submit(
            train_sentencepiece,
            settings.input_file,
            settings.model_prefix,
            settings.vocab_size,
            settings.do_lower_case,
            dry_run=settings.dry_run,
        )
        while not training.done():
            time.sleep(0.1)
    training.result()


main = command(__name__, __doc__, FLAGS, run)
