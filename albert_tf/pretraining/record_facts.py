"""Checks that record files belong together, by their names and by the facts stored next to them.

The facts of `train.tfrecord` are the fingerprint of the vocabulary, `do_lower_case`, the sentence
loss and, if it is true, `keep_accents`. They are stored in `.train.tfrecord.vocabulary`, which
patterns such as `records/*` do not match, after a digest of the record file, which detects a
replaced file. Missing facts are accepted, because the original release does not write them.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from absl import logging

from albert_tf.checkpoints.facts import Meeting, Sources, settle
from albert_tf.data.files import (
    file_exists,
    file_size,
    open_binary,
    read_file,
    real_name,
    write_file,
)
from albert_tf.data.strict_json import listed
from albert_tf.data.tfrecord import RecordError
from albert_tf.tokenization.base import Tokenizer

T = TypeVar("T")
VOCABULARY, LOWER_CASE, SENTENCE_LOSS = "vocabulary", "do_lower_case", "sentence_loss"
KEEP_ACCENTS = "keep_accents"
_DIGESTED_BYTES = 1 << 17  # of a record file
_FILES_AT_A_TIME = 16  # remote files respond slowly
_SHARD = re.compile(r"(.*)-([0-9]{5,8})-of-([0-9]{5,8})(.*)", re.DOTALL)
# Digest and facts
_STORED = re.compile("([0-9a-f]{64}) ([0-9a-f]{64}) (True|False) ([a-z]+)( keep_accents)?\n")


def check_shards(*lists: Sequence[str]) -> None:
    """Raises RecordError if sets of shards, such as `a-00000-of-00002`, are mixed or incomplete.

    The files of a set may be in different lists, but a list must not contain a file twice. A
    warning is logged for files of a set that exist, but are in no list.
    """
    sets: dict[tuple[str, str], dict[str, set[int]]] = {}
    for files in lists:
        paths: dict[str, str] = {}  # by real name
        for path in files:
            if (other := paths.setdefault(real_name(path), path)) != path:
                raise RecordError(f"{path} and {other} are the same file. Omit one of them.")
            if match := _SHARD.fullmatch(path):
                start, number, count, end = match.groups()
                sets.setdefault((start, end), {}).setdefault(count, set()).add(int(number))
    for (start, end), counts in sets.items():
        names = [f"{start}-*-of-{count}{end}" for count in counts]
        if len(names) > 1:
            raise RecordError(f"{' and '.join(names)} are different sets. Use one of them.")
        [(count, numbers)] = counts.items()
        first = int(count) in numbers  # some programs count from 1
        wanted = {*range(first, first + int(count))} - numbers
        omitted = [f"{start}-{n:0{len(count)}}-of-{count}{end}" for n in sorted(wanted)]
        if missing := [shard for shard in omitted if not file_exists(shard)]:
            raise RecordError(
                f"{len(missing)} of the {int(count)} files {names[0]} are missing: "
                f"{_names(missing)}. Copy or create them again."
            )
        if omitted:
            logging.warning("Only a part of %s is used, without %s", names[0], _names(omitted))


def write_facts(record_files: Sequence[str], tokenizer: Tokenizer, sentence_loss: str) -> None:
    """Stores the facts of newly created records next to each record file, if possible."""
    facts = f"{tokenizer.fingerprint} {tokenizer.do_lower_case} {sentence_loss}"
    facts += f" {KEEP_ACCENTS}" * tokenizer.keep_accents

    def write(path: str) -> None:
        if not file_exists(path):  # a device or a named pipe
            return
        try:
            write_file(_facts_file(path), f"{digest(path, 2)} {facts}\n")
        except OSError as error:
            logging.warning("The facts about %s cannot be checked later: %s", path, error)

    for_each_file(write, record_files)


def stored_facts(record_file: str) -> dict[str, Any]:
    """Returns the facts stored for a record file; empty if there are no valid facts."""
    path = _facts_file(record_file)
    if not (file_exists(path) and file_exists(record_file) and file_size(record_file)):
        return {}  # the digest of an empty file cannot detect a replaced file
    stored = _STORED.fullmatch(read_file(path).decode("latin-1"))
    if not stored or stored[1] != digest(record_file, 2):
        logging.warning("%s is ignored, because it does not belong to %s", path, record_file)
        return {}
    return {
        VOCABULARY: stored[2],
        LOWER_CASE: stored[3] == "True",
        SENTENCE_LOSS: stored[4],
        KEEP_ACCENTS: bool(stored[5]),
    }


def common_facts(record_files: Sequence[str], expected: Sources | None = None) -> dict[str, Any]:
    """Returns the facts of `expected` and of record files, which must be the same."""
    stored = for_each_file(stored_facts, record_files)
    if unknown := [path for path, facts in stored.items() if not facts]:
        text = (
            "The tokenizer and sentence loss of some records are unknown and assumed to match: %s"
        )
        logging.info(text, _names(unknown))
    return settle({**(expected or {}), **stored}, Meeting.RECORDS)


def for_each_file(function: Callable[[str], T], files: Iterable[str]) -> dict[str, T]:
    """Returns the result of a function for each file, calling it for several files at a time."""
    names = list(dict.fromkeys(files))
    with ThreadPoolExecutor(_FILES_AT_A_TIME) as pool:
        return dict(zip(names, pool.map(function, names), strict=True))


def _names(paths: Sequence[str]) -> str:
    return listed(map(os.path.basename, paths))


def _facts_file(record_file: str) -> str:
    folder, name = os.path.split(real_name(record_file))
    return os.path.join(folder, f".{name}.vocabulary")


def digest(path: str, samples: int = 8) -> str:
    """Returns a digest of the size, the start, the end and, for more `samples`, of other parts.

    At most 128 KiB are read; smaller files are read completely.
    """
    size, width = file_size(path), _DIGESTED_BYTES // samples
    result = hashlib.sha256(str(size).encode())
    with open_binary(path, "rb") as file:
        for number in range(samples):
            file.seek(max(0, size - width) * number // (samples - 1))
            result.update(file.read(width))
    return result.hexdigest()
