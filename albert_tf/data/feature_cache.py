"""Features kept in files, and used again only where they are what would be made anew."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from typing import Any

from absl import logging

from albert_tf.data.files import file_exists, open_binary, write_then_rename
from albert_tf.data.records import RecordError
from albert_tf.data.sequences import TokenSequences
from albert_tf.data.text_examples import DEV, TEST, TRAIN, TextData, TextExample
from albert_tf.data.text_features import TextFeatures, encode_labels, text_features
from albert_tf.data.text_records import read_text_records, write_text_records
from albert_tf.tokenization import SentencePieceTokenizer, Tokenizer

_FORMAT = 1  # to be raised when the same texts begin to give other features
_SEQUENCES = "sequences"
_FILE_NAMES = {TRAIN: "{}_train.tf_record", DEV: "{}_eval.tf_record", TEST: "predict.tf_record"}


def cached_text_features(
    data: TextData, split: str, tokenizer: Tokenizer, max_seq_length: int, cache_dir: str | None
) -> TextFeatures:
    """Gives the features of a split, from the cache if they are there.

    The files have the original's names: `<task>_train.tf_record`, `<task>_eval.tf_record`,
    `predict.tf_record`. A `.json` beside each says what it was made from: the rows, the tokenizer,
    the length, the task, its labels. If any of it differs, or the file is damaged, it is made
    anew. A file without a `.json` is somebody else's, and is neither read nor replaced.

    Args:
        data: where the texts come from; always read, for it is tokenizing that takes long.
        split: train, dev or test.
        tokenizer: what the model was trained with.
        max_seq_length: tokens of a sequence at most.
        cache_dir: folder of the files; None keeps none.

    Raises:
        ValueError: as `data.read` and `text_features`.

    Differs: the original reuses a file of the right name whatever it was made from.
    """
    examples = data.read(split)
    if cache_dir is None:
        return text_features(examples, data.labels, tokenizer, max_seq_length)
    path = os.path.join(cache_dir, _FILE_NAMES[split].format(data.name))
    origin = _origin(data, examples, tokenizer, max_seq_length)
    is_foreign = file_exists(path) and not file_exists(_note_path(path))
    if is_foreign:
        logging.warning(
            "%s is not used and left as it is: no %s says what it was made from. The features are "
            "made in memory; remove the file, or name another --cached_dir, to keep them.",
            path,
            os.path.basename(_note_path(path)),
        )
    elif file_exists(path):
        sequences = _kept_sequences(path, origin, data, tokenizer.vocab_size)
        if sequences is not None:
            guids = [example.guid for example in examples]
            return TextFeatures(sequences, encode_labels(examples, data.labels), guids)
    features = text_features(examples, data.labels, tokenizer, max_seq_length)
    if not is_foreign:
        _keep(path, features, origin, data)
    return features


def _origin(
    data: TextData, examples: Sequence[TextExample], tokenizer: Tokenizer, max_seq_length: int
) -> dict[str, Any]:
    """What features depend on, by the names used in the log."""
    rows = (json.dumps([row.guid, row.text_a, row.text_b, row.label]) for row in examples)
    return {
        "format": _FORMAT,
        "task": data.name,
        "labels": list(data.labels.names),
        "max_seq_length": max_seq_length,
        "tokenizer": _tokenizer_digest(tokenizer),
        "rows": _digest(f"{row}\n".encode() for row in rows),
    }


def _tokenizer_digest(tokenizer: Tokenizer) -> str:
    settings = [type(tokenizer).__name__, tokenizer.do_lower_case, tokenizer.tokens]
    model = b""
    if isinstance(tokenizer, SentencePieceTokenizer):
        settings.append(tokenizer.strip_digit_marker)
        model = tokenizer.model_proto
    return _digest([json.dumps(settings).encode(), model])


def _sequences_digest(sequences: TokenSequences) -> str:
    arrays = (sequences.tokens, sequences.starts, sequences.first_lengths)
    return _digest(array.tobytes() for array in arrays)


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _note_path(path: str) -> str:
    return f"{path}.json"


def _kept_sequences(
    path: str, origin: dict[str, Any], data: TextData, vocab_size: int
) -> TokenSequences | None:
    """What the file holds; None if it was made from something else or is damaged."""
    note = _read_note(path)
    changed = [name for name, value in origin.items() if note.get(name) != value]
    if changed:
        logging.info("%s is made anew: changed=%s", path, ",".join(changed))
        return None
    try:
        features = read_text_records(path, origin["max_seq_length"], data.labels, vocab_size)
    except RecordError as error:
        logging.warning("%s is made anew: %s", path, error)
        return None
    if _sequences_digest(features.sequences) != note.get(_SEQUENCES):
        logging.warning("%s is made anew: it does not hold what was written", path)
        return None
    logging.info("Features of %s are used again: rows=%d", path, len(features.guids))
    return features.sequences


def _read_note(path: str) -> dict[str, Any]:
    """The `.json` beside a file; empty if it is damaged, so that everything has changed."""
    try:
        with open_binary(_note_path(path), "rb") as file:
            note = json.loads(file.read())
    except ValueError:
        return {}
    return note if isinstance(note, dict) else {}


def _keep(path: str, features: TextFeatures, origin: dict[str, Any], data: TextData) -> None:
    """Writes a file and what it was made from.

    The latter comes first: stopped in between, or with two programs writing at once, it describes
    sequences that the file does not hold, which is noticed; a file alone would look foreign.
    """
    note = {**origin, _SEQUENCES: _sequences_digest(features.sequences)}
    with write_then_rename(_note_path(path)) as file:
        file.write(json.dumps(note, indent=1).encode())
    write_text_records(path, features, origin["max_seq_length"], data.labels)
    logging.info("Features kept in %s: rows=%d", path, len(features.guids))
