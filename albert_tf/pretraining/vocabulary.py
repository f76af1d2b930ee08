"""Trains vocabularies: `train_sentencepiece`."""

from collections.abc import Iterator, Sequence

from absl import logging

from albert_tf.data.files import check_file, match_files, open_binary
from albert_tf.data.parallel import available_cores
from albert_tf.pretraining.corpus import check_text
from albert_tf.pretraining.settings import VocabularySettings
from albert_tf.tokenization.sentence_piece import model_files, train_sentence_piece


def train_sentencepiece(
    input_file: str,
    model_prefix: str,
    vocab_size: int = 30000,
    do_lower_case: bool = True,
    *,
    dry_run: bool = False,
) -> None:
    """Trains a SentencePiece vocabulary, as `train_sentencepiece.py` does.

    Args:
        input_file: comma-separated paths or globs of UTF-8 text files with one sentence per line.
        model_prefix: path of the output files, without the extensions .model and .vocab.
        vocab_size: V, number of pieces, including special symbols.
        do_lower_case: whether the text is lower-cased. Use the same value with the tokenizer.
        dry_run: whether to only check the arguments and the text.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: a file is not UTF-8, there is no text, or `vocab_size` does not fit the text.
    """
    settings = VocabularySettings(
        input_file=input_file,
        model_prefix=model_prefix,
        vocab_size=vocab_size,
        do_lower_case=do_lower_case,
        dry_run=dry_run,
    )
    files = match_files(settings.input_file)
    for path in model_files(settings.model_prefix):
        check_file(path)
    check_text(files, available_cores())
    if settings.dry_run:
        return
    prefix, size = settings.model_prefix, settings.vocab_size
    train_sentence_piece(_lines(files), prefix, size, settings.do_lower_case)
    logging.info("vocab_size=%d model=%s.model input_files=%d", size, prefix, len(files))


def _lines(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        with open_binary(path, "rb") as file:
            for line in file:
                yield line.decode()
