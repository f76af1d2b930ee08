"""Trains vocabularies, and stores their fingerprints next to the records created with them.

The fingerprint of `train.tfrecord` is stored in `.train.tfrecord.vocabulary`, which patterns such
as `records/*` do not match. This file also contains a digest of the record file, which detects a
replaced file. A missing fingerprint is accepted, because the original release does not write
fingerprints.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.data.files import (
    check_file,
    file_exists,
    file_size,
    match_files,
    open_binary,
    read_file,
    real_name,
    write_file,
)
from albert_tf.data.jobs import available_cores
from albert_tf.data.tfrecord import RecordError
from albert_tf.pretraining.corpus import check_text
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.sentence_piece import model_files, train_sentence_piece
from albert_tf.training.settings import as_type

_DIGESTED_BYTES = 1 << 16  # at each end of a record file
_FILES_AT_A_TIME = 16  # remote files respond slowly


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


def vocabulary_fingerprint(tokens: Sequence[str]) -> str:
    """Returns 64 hexadecimal digits that depend only on the tokens and their order."""
    return hashlib.sha256(json.dumps(list(tokens)).encode()).hexdigest()


def write_fingerprints(record_files: Sequence[str], tokens: Sequence[str]) -> None:
    """Stores the fingerprint of the vocabulary next to each record file, if possible."""
    fingerprint = vocabulary_fingerprint(tokens)

    def write(path: str) -> None:
        if not file_exists(path):  # a device or a named pipe
            return
        try:
            write_file(_fingerprint_file(path), f"{_digest(path)} {fingerprint}\n")
        except OSError as error:
            logging.warning("The vocabulary of %s cannot be checked later: %s", path, error)

    with ThreadPoolExecutor(_FILES_AT_A_TIME) as pool:
        list(pool.map(write, record_files))


def stored_fingerprint(record_file: str) -> str | None:
    """Returns the fingerprint stored for a record file, or `None` if there is no valid one."""
    path = _fingerprint_file(record_file)
    if not (file_exists(path) and file_exists(record_file) and file_size(record_file)):
        return None  # the digest of an empty file cannot detect a replaced file
    stored = re.fullmatch("([0-9a-f]{64}) ([0-9a-f]{64})\n", read_file(path).decode("latin-1"))
    return stored[2] if stored and stored[1] == _digest(record_file) else None


def check_vocabulary(record_files: Sequence[str], tokenizer: Tokenizer | None) -> None:
    """Raises RecordError if record files have fingerprints of different vocabularies.

    If `tokenizer` is not `None`, its vocabulary is also compared.
    """
    with ThreadPoolExecutor(_FILES_AT_A_TIME) as pool:
        stored = list(pool.map(stored_fingerprint, record_files))
    expected = vocabulary_fingerprint(tokenizer.tokens) if tokenizer is not None else None
    source = tokenizer.files[0] if tokenizer is not None else ""
    for path, found in zip(record_files, stored, strict=True):
        if found is None:
            continue
        if expected is None:
            expected, source = found, path
        elif found != expected:
            raise RecordError(
                f"{path} was not created with the vocabulary of {source}. Use the vocabulary of "
                "the records, or create the records again."
            )


def _fingerprint_file(record_file: str) -> str:
    folder, name = os.path.split(real_name(record_file))
    return os.path.join(folder, f".{name}.vocabulary")


def _digest(path: str) -> str:
    """Returns a digest of the size, the start and the end of a record file."""
    size = file_size(path)
    digest = hashlib.sha256(str(size).encode())
    with open_binary(path, "rb") as file:
        for start in (0, max(0, size - _DIGESTED_BYTES)):
            file.seek(start)
            digest.update(file.read(_DIGESTED_BYTES))
    return digest.hexdigest()
