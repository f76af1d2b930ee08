"""Whether pretraining records are masked already, and what to say when they should not be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from albert_tf.data.pretraining import PREDICTION_FEATURES
from albert_tf.data.records import RecordError, example_features
from albert_tf.data.tfrecord import read_records

# A masked record without a prediction is rare (no word was small enough), not impossible.
_RECORDS_TO_ASK = 16


def are_masked(path: str, mask_id: int | None = None) -> bool | None:
    """Whether the first records of a file were masked when they were made.

    Args:
        path: TFRecord file.
        mask_id: id of [MASK], which tells where the features of predictions were left out.

    Returns:
        None where the file does not tell: it is empty, damaged, or holds no pretraining records.
    """
    answer = None
    for features in islice(_features(path), _RECORDS_TO_ASK):
        if "input_ids" not in features or "token_boundary" not in features:
            return None
        if PREDICTION_FEATURES[-1] in features:
            answer = any(features[PREDICTION_FEATURES[-1]].float_list.value)
        else:
            answer = mask_id is not None and mask_id in features["input_ids"].int64_list.value
        if answer:
            break
    return answer


def _features(path: str) -> Iterator[Any]:
    """Features of the records up to the first that cannot be read: others report that one."""
    try:
        for number, payload in enumerate(read_records(path), start=1):
            yield example_features(payload, path, number)
    except RecordError:
        return


def are_masked_alike(files: Sequence[str], mask_id: int) -> bool:
    """Whether records to evaluate on are masked; all files must be alike.

    Raises:
        RecordError: names a file of each kind.
    """
    first = {are_masked(path, mask_id): path for path in reversed(files)}
    if True in first and False in first:
        raise RecordError(
            f"{first[True]} holds records that are masked already and {first[False]} plain ones: "
            "evaluate on files of one kind (--eval_input_file)."
        )
    return True in first


def check_plain(files: Sequence[str], mask_id: int) -> None:
    """Refuses files whose records are masked already.

    Raises:
        RecordError: names the file.
    """
    for path in files:
        if are_masked(path, mask_id):
            raise RecordError(
                f"{path}: its records were masked when they were made, and --masked_lm_prob (or "
                "--masked_lm_budget) would mask them again. Leave that flag out, or make plain "
                "records: create_pretraining_data.py --masked_lm_prob=0."
            )


def check_masked(files: Sequence[str]) -> None:
    """Refuses files whose records have nothing to predict.

    Raises:
        RecordError: names the file.
    """
    for path in files:
        if are_masked(path) is False:
            raise RecordError(
                f"{path}: its records are plain, no token is masked. Give --masked_lm_prob=0.15 to "
                "mask them while training, or make masked records: create_pretraining_data.py "
                "without --masked_lm_prob=0."
            )
