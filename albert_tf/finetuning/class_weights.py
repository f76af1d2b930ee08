"""Weights of the classes in the training loss (`class_weights`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.data.strict_json import listed, shown
from albert_tf.data.text_examples import decimal_number

BALANCED = "balanced"
_FLAG = "`class_weights`"


def class_weights(setting: str, labels: Sequence[str], counts: np.ndarray) -> np.ndarray:
    """Returns and logs the weights of the K classes, float32 [K].

    A loss is the sum of its terms, each multiplied by the weight of its label, divided by the sum
    of these weights.

    Args:
        setting: "balanced" for N / (K * count), N being the sum of the counts, as in scikit-learn;
            or comma-separated entries `label=weight`, such as "a=2,b=0.5". The weight of other
            labels is 1. Labels may contain "=" and ",": an entry begins with a label of the data,
            and its weight ends at the next comma.
        labels: names of the classes.
        counts: int [K], number of training labels per class.

    Raises:
        ValueError: a label is unknown or repeated, entries are ambiguous, a weight is not a number
            above 0, or a class of "balanced" has no example.
    """
    if setting == BALANCED:
        if absent := [name for name, count in zip(labels, counts, strict=True) if not count]:
            raise UserError(
                f"{_FLAG}={BALANCED} needs training examples of every label. There are none of: "
                f"{listed(absent)}"
            )
        weights = counts.sum() / (len(labels) * counts)
    else:
        given = _entries(setting, labels)
        weights = np.array([given.get(name, 1.0) for name in labels])
    pairs = zip(labels, weights, strict=True)
    logging.info("%s: %s", _FLAG, ", ".join(f"{name}={weight:.6g}" for name, weight in pairs))
    return weights.astype(np.float32)


def _entries(setting: str, labels: Sequence[str]) -> dict[str, float]:
    weights: dict[str, float] = {}
    rest: str | None = setting
    while rest is not None:
        rest = rest.lstrip()
        found = [
            (label, number, after if comma else None)
            for label in labels
            if rest.startswith(f"{label}=")
            for text, comma, after in [rest[len(label) + 1 :].partition(",")]
            if (number := decimal_number(text)) is not None
        ]
        if len(found) != 1:
            what = (
                "can be read in two ways" if found else "does not begin with a label and a weight"
            )
            raise UserError(
                f"{_FLAG} must be {BALANCED} or entries such as a=2,b=0.5, of the labels "
                f"{listed(labels)}. Received: {setting!r}, where {shown(rest)} {what}"
            )
        [(label, weight, after)] = found
        if not np.float32(weight) > 0 or label in weights:
            raise UserError(
                f"{_FLAG} must give a label one weight above 0. Received: {setting!r}, with "
                f"{label}={weight:g}{' a second time' * (label in weights)}"
            )
        weights[label] = weight
        rest = after
    return weights
