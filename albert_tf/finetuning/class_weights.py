"""Weights of classes in the training loss."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from absl import logging

from albert_tf.data.arguments import value_of
from albert_tf.data.errors import UserError, visible
from albert_tf.data.strict_json import listed
from albert_tf.labels import decimal_number
from albert_tf.settings import as_type


def class_weights(
    setting: str | Mapping[str, float], labels: Sequence[str], counts: np.ndarray
) -> np.ndarray:
    """Returns and logs the weights of the K classes in the training loss, float32 [K].

    `setting` maps labels to weights, or consists of comma-separated entries `label=weight`, such as
    "a=2,b=0.5", with weight 1 for other labels; or it is "balanced" for N / (K * count), as in
    scikit-learn. N is the sum of `counts`, int [K], the numbers of training labels. Raises
    ValueError if a label is unknown or repeated, if a weight is not a number above 0, or if
    "balanced" finds a class without examples.
    """
    if isinstance(setting, str) and setting == "balanced":
        if absent := [name for name, count in zip(labels, counts, strict=True) if not count]:
            raise UserError(
                "`class_weights`=balanced needs training examples of every label. Labels without "
                f"examples: {listed(absent)}"
            )
        weights = counts.sum() / (len(labels) * counts)
    else:
        given = _parse_weights(setting, labels)
        weights = np.array([given.get(name, 1.0) for name in labels])
    pairs = zip(labels, weights, strict=True)
    text = ", ".join(f"{name}={weight:.6g}" for name, weight in pairs)
    logging.info("`class_weights`: %s", visible(text))
    return weights.astype(np.float32)


def _parse_weights(
    setting: str | Mapping[str, float], labels: Sequence[str]
) -> Mapping[str, float]:
    pairs = [
        (str(value_of(label)), as_type(f"class_weights[{label!r}]", value, float))
        for label, value in (setting.items() if isinstance(setting, Mapping) else ())
    ]
    if isinstance(setting, str):
        entries = (entry.strip().rpartition("=") for entry in setting.split(","))
        pairs = [(label, decimal_number(number) or 0.0) for label, _, number in entries]
    given = dict(pairs)
    is_valid = isinstance(setting, str | Mapping) and all(
        label in labels and 0 < np.float32(n) < math.inf for label, n in pairs
    )
    if not is_valid or len(given) < len(pairs):
        raise UserError(
            "`class_weights` must be balanced, or entries such as a=2,b=0.5 (in Python also a "
            "dictionary) with each label at most once and weights above 0. The labels are "
            f"{listed(labels)}. Received: {setting!r}"
        )
    return given
