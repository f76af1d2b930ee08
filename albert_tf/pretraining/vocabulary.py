"""Trains vocabularies: `train_sentencepiece`."""

from collections.abc import Iterator, Sequence

from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.data.files import check_file, match_files, open_binary
from albert_tf.data.parallel import available_cores
from albert_tf.pretraining.corpus import check_text
from albert_tf.settings import as_type
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
    input_file = as_type("input_file", input_file, str)
    model_prefix = as_type("model_prefix", model_prefix, str)
    vocab_size = as_type("vocab_size", vocab_size, int)
    do_lower_case = as_type("do_lower_case", do_lower_case, bool)
    dry_run = as_type("dry_run", dry_run, bool)
    if vocab_size < 1:
        raise UserError(f"`vocab_size` must be at least 1. Received: {vocab_size}")
    files = match_files(input_file)
    for path in model_files(model_prefix):
        check_file(path)
    check_text(files, available_cores())
    if dry_run:
        return
    train_sentence_piece(_lines(files), model_prefix, vocab_size, do_lower_case)
    logging.info(
        "vocab_size=%d model=%s.model input_files=%d", vocab_size, model_prefix, len(files)
    )


def _lines(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        with open_binary(path, "rb") as file:
            for line in file:
                yield line.decode()
