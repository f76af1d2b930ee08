"""Fingerprints of vocabularies, stored next to the records that were created with them.

The ids in records mean nothing with another vocabulary, and nothing in the records shows it. The
fingerprint of `train.tfrecord` is stored in `.train.tfrecord.vocabulary`, together with a digest of
the record file. Patterns such as `records/*` do not match that name. If another file has taken the
name `train.tfrecord`, the digest differs and the fingerprint is ignored. A missing fingerprint is
accepted: the records of the original release have none.
"""

import hashlib
import json
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from absl import logging

from albert_tf.data.files import file_exists, file_size, open_binary, real_name, write_then_rename
from albert_tf.data.tfrecord import RecordError
from albert_tf.tokenization.base import Tokenizer

_DIGESTED_BYTES = 1 << 16  # at each end of a record file
_FILES_AT_A_TIME = 16  # remote ones take long to answer


def vocabulary_fingerprint(tokens: Sequence[str]) -> str:
    """Returns 64 hexadecimal digits that depend on the tokens and their order only."""
    return hashlib.sha256(json.dumps(list(tokens)).encode()).hexdigest()


def write_fingerprints(record_files: Sequence[str], tokens: Sequence[str]) -> None:
    """Stores the fingerprint of the vocabulary next to each complete record file.

    If that fails, a warning is logged: the records are usable without a fingerprint.
    """
    fingerprint = vocabulary_fingerprint(tokens)

    def write(path: str) -> None:
        if not file_exists(path):  # a device or a named pipe
            return
        try:
            with write_then_rename(_fingerprint_file(path)) as file:
                file.write(f"{_digest(path)} {fingerprint}\n".encode())
        except OSError as error:
            logging.warning("%s: no fingerprint of the vocabulary is stored: %s", path, error)

    with ThreadPoolExecutor(_FILES_AT_A_TIME) as pool:
        list(pool.map(write, record_files))


def stored_fingerprint(record_file: str) -> str | None:
    """Returns the fingerprint that was stored for a record file; `None` if it has none."""
    path = _fingerprint_file(record_file)
    if not (file_exists(path) and file_exists(record_file) and file_size(record_file)):
        return None  # empty files are equal for all vocabularies
    with open_binary(path, "rb") as file:
        stored = re.fullmatch("([0-9a-f]{64}) ([0-9a-f]{64})\n", file.read().decode("latin-1"))
    return stored[2] if stored and stored[1] == _digest(record_file) else None


def check_vocabulary(record_files: Sequence[str], tokenizer: Tokenizer | None) -> None:
    """Checks that all records were created with the vocabulary of `tokenizer`.

    If `tokenizer` is `None`, the records are only compared with each other. Record files without a
    fingerprint are accepted.

    Raises:
        RecordError: a record file was created with another vocabulary.
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
                f"{path} was created with another vocabulary than that of {source}. Use the "
                "vocabulary that the records were created with, or create the records again."
            )


def _fingerprint_file(record_file: str) -> str:
    folder, name = os.path.split(real_name(record_file))
    return os.path.join(folder, f".{name}.vocabulary")


def _digest(path: str) -> str:
    """Tells record files apart by their size, beginning and end."""
    size = file_size(path)
    digest = hashlib.sha256(str(size).encode())
    with open_binary(path, "rb") as file:
        for start in (0, max(0, size - _DIGESTED_BYTES)):
            file.seek(start)
            digest.update(file.read(_DIGESTED_BYTES))
    return digest.hexdigest()
