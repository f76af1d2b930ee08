"""Whether records are what a sentence loss needs: pairs of segments, or anything for none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import tensorflow as tf
from absl import logging

from albert_tf.data.segments import NONE, NSP, SOP
from albert_tf.data.tfrecord import RecordError, read_records


def check_sentence_pairs(files: Sequence[str], sentence_loss: str) -> None:
    """Compares the first record of each file with the sentence loss.

    Records of pairs have segment ids 1, records of single runs have none. Records of swapped parts
    and of parts from elsewhere look alike.

    Args:
        files: TFRecord files with the features of pretraining.
        sentence_loss: one of `SENTENCE_LOSSES`.

    Raises:
        RecordError: a file of single runs, from which no sentence loss can be learnt.
    """
    are_pairs = {path: _is_pair(payload) for path in files for payload in _first_record(path)}
    if sentence_loss != NONE:
        for path, is_pair in are_pairs.items():
            if not is_pair:
                raise RecordError(
                    f"{path} holds single runs of text (made with --sentence_loss={NONE}), no pairs"
                    f" of segments: --sentence_loss={sentence_loss} has nothing to learn there. "
                    f"Give --sentence_loss={NONE}, or records made with {SOP} or {NSP}."
                )
    elif any(are_pairs.values()):
        logging.info(
            "%d of %d files hold pairs of segments: with --sentence_loss=%s their masked tokens "
            "alone are learnt",
            sum(are_pairs.values()),
            len(files),
            NONE,
        )


def _first_record(path: str) -> Iterator[bytes]:
    """The first record of a file, if it has one."""
    return islice(read_records(path), 1)


def _is_pair(payload: bytes) -> bool:
    features = tf.train.Example.FromString(payload).features.feature
    return any(features["segment_ids"].int64_list.value)
