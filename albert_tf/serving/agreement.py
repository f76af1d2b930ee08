"""Compares exported files with the models that they contain."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.modeling.heads import MASKED_LOGIT
from albert_tf.serving.saved_model import INPUTS, Outputs

# Sizes of the batches for the comparison.
_ROWS, _LENGTHS = 3, (24, 7, 16)

# A quantized model is rejected if its cosine is too small and its difference too large.
_LEAST_COSINE, _LARGE_DIFFERENCE = 0.5, 0.1

Arrays = dict[str, np.ndarray]
Compute = Callable[[dict[str, tf.Tensor]], Outputs]


class Agreement(NamedTuple):
    """Comparison of one output of two models, without padding."""

    difference: float  # largest absolute difference
    cosine: float  # cosine similarity of the values of both models
    largest: float  # largest absolute value of the original model's output


def random_batches(
    config: AlbertConfig, batch_size: int | None = None, length: int | None = None
) -> list[Arrays]:
    """Returns random batches with more and more padding. The first row has no padding."""
    random = np.random.default_rng(3)
    rows = batch_size or _ROWS
    batches = []
    for number, longest in enumerate(_LENGTHS):
        columns = length or min(longest, config.max_position_embeddings)
        share = 1 - (number * rows + np.arange(rows)) / (len(_LENGTHS) * rows)
        lengths = np.maximum(np.round(share * columns), 1)[:, None]
        positions = np.arange(columns)
        mask = positions < lengths
        segments = (positions >= lengths // 2) & mask & (config.type_vocab_size > 1)
        ids = random.integers(0, config.vocab_size, mask.shape) * mask
        arrays = dict(zip(INPUTS, (ids, mask, segments), strict=True))
        batches.append({name: values.astype(np.int32) for name, values in arrays.items()})
    return batches


def compare(
    found: Sequence[Arrays],
    compute: Compute,
    batches: Sequence[Arrays],
    kind: str,
    tolerance: float | None,
) -> dict[str, Agreement]:
    """Compares the outputs of a file with the outputs of `compute`.

    Returns the agreement of each floating-point output. Raises `ValueError` if an output is not
    finite or differs too much. `tolerance` is relative to the largest value if that exceeds 1, and
    `None` for a quantized model. `kind` is the name of the format in messages.
    """
    pairs: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for batch, outputs in zip(batches, found, strict=True):
        is_real = batch["input_mask"] == 1
        for name, expected in compute({k: tf.constant(v) for k, v in batch.items()}).items():
            values, wanted = outputs[name], expected.numpy()
            if values.shape[: is_real.ndim] == is_real.shape:
                values, wanted = values[is_real], wanted[is_real]
            is_masked = np.maximum(values, wanted) < MASKED_LOGIT / 2
            values, wanted = values[~is_masked], wanted[~is_masked]
            if np.issubdtype(wanted.dtype, np.floating):
                pairs.setdefault(name, []).append((values.ravel(), wanted.ravel()))
    agreements = {}
    for name, parts in pairs.items():
        values, wanted = (
            np.concatenate(side).astype(np.float64) for side in zip(*parts, strict=True)
        )
        scale = np.linalg.norm(values) * np.linalg.norm(wanted)
        agreements[name] = near = Agreement(
            difference=float(np.abs(values - wanted).max()),
            cosine=float(values @ wanted / scale if scale else np.array_equal(values, wanted)),
            largest=float(np.abs(wanted).max()),
        )
        if tolerance is not None:
            agrees = near.difference <= tolerance * max(1.0, near.largest)
        else:
            agrees = near.cosine >= _LEAST_COSINE or near.difference <= _LARGE_DIFFERENCE
        if not agrees:  # or if values are not finite
            raise UserError(
                f"{name} of the {kind} model differs from the original model by "
                f"{near.difference:.3g}; the largest value is {near.largest:.3g}, the cosine "
                f"{near.cosine:.3f}."
            )
    return agreements
