"""Whether records are what a sentence loss needs: pairs of segments, or anything for none."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from absl import logging

from albert_tf.data.records import RecordError, example_features
from albert_tf.data.segments import NONE, NSP, SOP
from albert_tf.data.tfrecord import read_records


def check_sentence_pairs(files: Sequence[str], sentence_loss: str) -> None:
    """Compares the first record of each file with the sentence loss.

    Records of pairs have segment ids 1, records of single runs have none. Records of swapped parts
    and of parts from elsewhere look alike.

    Args:
        files: TFRecord files with the features of pretraining.
        sentence_loss: one of `SENTENCE_LOSSES`.

    Raises:
        RecordError: a file of single runs, from which no sentence loss can be learnt, or one whose
            first record cannot be read.
    """
    are_pairs = {
        path: _is_pair(payload, path) for path in files for payload in islice(read_records(path), 1)
    }
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


def _is_pair(payload: bytes, path: str) -> bool:
    return any(example_features(payload, path, 1)["segment_ids"].int64_list.value)
