"""Compares exported files with the models that they contain."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.config import AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.modeling.heads import MASKED_LOGIT
from albert_tf.serving.saved_model import INPUTS, Outputs

# Sizes of the batches for the comparison.
_ROWS, _LENGTHS = 4, (24, 7, 16)

# A quantized model is rejected if its cosine is too small and its difference too large.
_LEAST_COSINE, _LARGE_DIFFERENCE = 0.5, 0.1
_LEAST_EQUAL = 0.98  # share of labels or, without labels, cosine; below it, a warning is logged

Arrays = dict[str, np.ndarray]
Compute = Callable[[dict[str, tf.Tensor]], Outputs]


class Agreement(NamedTuple):
    """Comparison of one output of two models, without padding."""

    difference: float  # largest absolute difference
    cosine: float  # cosine similarity of the values of both models
    largest: float  # largest absolute value of the original model's output
    equal: float | None  # share of equal labels. `None` if the output has no labels.


def sample_batches(
    model: keras.Model, texts: tuple[str, ...], batch_size: int | None, length: int | None
) -> list[Arrays]:
    """Returns batches of texts or pairs, which contain a tab; of random ids if there are none.

    The first text also fills the last batch. Batches of random ids have more and more padding.
    """
    rows, most = batch_size or _ROWS, length or model.config.max_position_embeddings
    if not texts:
        shares = np.linspace(1, 0, len(_LENGTHS) * rows, endpoint=False).reshape(-1, rows, 1)
        columns = [length or min(longest, most) for longest in _LENGTHS]
        return [_random_batch(model.config, *sizes) for sizes in zip(columns, shares, strict=True)]
    parts = [text.split("\t") for text in texts + texts[:1] * rows]
    padding = "max_length" if length else "longest"
    groups = (zip(*parts[i : i + rows], strict=True) for i in range(0, len(texts), rows))
    return [model.tokenizer(*group, max_length=most, padding=padding) for group in groups]


def _random_batch(config: AlbertConfig, columns: int, shares: np.ndarray) -> Arrays:
    """Returns random ids, of which `shares`, [B, 1], are real tokens, at least one per row."""
    random = np.random.default_rng(columns)
    mask = np.arange(columns) < np.maximum(np.round(shares * columns), 1)
    sizes = (config.vocab_size, config.type_vocab_size)
    ids, segments = (random.integers(0, size, mask.shape) * mask for size in sizes)
    batch = zip(INPUTS, (ids, mask, segments), strict=True)
    return {name: values.astype(np.int32) for name, values in batch}


def compare(
    found: Sequence[Arrays],
    compute: Compute,
    batches: Sequence[Arrays],
    kind: str,
    tolerance: float | None,
) -> dict[str, Agreement]:
    """Compares the outputs of a file with the outputs of `compute`.

    Returns the agreement of each floating-point output, and logs a warning if many labels differ.
    Raises `ValueError` if an output is not finite or differs too much. `tolerance` is relative to
    the largest value if that exceeds 1, and `None` for a quantized model. `kind` is the name of the
    format in messages.
    """
    pairs: dict[str, list[tuple[np.ndarray, ...]]] = {}
    for batch, outputs in zip(batches, found, strict=True):
        is_real = batch["input_mask"] == 1
        given = compute({name: tf.constant(value) for name, value in batch.items()})
        expected = {name: value.numpy() for name, value in given.items()}
        for name, wanted in expected.items():
            values, sides = outputs[name], (outputs, expected)
            is_equal = np.equal(*(_labels(name, side, is_real) for side in sides)).all(-1)
            if values.shape[: is_real.ndim] == is_real.shape:
                values, wanted = values[is_real], wanted[is_real]
            is_masked = np.maximum(values, wanted) < MASKED_LOGIT / 2
            values, wanted = values[~is_masked], wanted[~is_masked]
            if np.issubdtype(wanted.dtype, np.floating):
                pairs.setdefault(name, []).append((values.ravel(), wanted.ravel(), is_equal))
    agreements = {}
    for name, parts in pairs.items():
        values, wanted, is_equal = (
            np.concatenate(side).astype(np.float64) for side in zip(*parts, strict=True)
        )
        scale = np.linalg.norm(values) * np.linalg.norm(wanted)
        agreements[name] = near = Agreement(
            difference=float(np.abs(values - wanted).max()),
            cosine=float(values @ wanted / scale if scale else np.array_equal(values, wanted)),
            largest=float(np.abs(wanted).max()),
            equal=float(is_equal.mean()) if is_equal.size else None,
        )
        agrees = near.cosine >= _LEAST_COSINE or near.difference <= _LARGE_DIFFERENCE
        if tolerance is not None:
            agrees = near.difference <= tolerance * max(1.0, near.largest)
        if not agrees:  # or if values are not finite
            raise UserError(
                f"{name} of the {kind} model differs from the original model by "
                f"{near.difference:.3g}; the largest value is {near.largest:.3g}, the cosine "
                f"{near.cosine:.3f}."
            )
        share, measure = (near.cosine, "cosine") if near.equal is None else (near.equal, "labels")
        if share < _LEAST_EQUAL:
            text = "The %s model differs from the original model: only %.1f%% agreement (%s of %s)."
            text += " Compare both on your own `texts`, or select another `quantization`."
            logging.warning(text, kind, 100 * share, measure, name)
    return agreements


def _labels(name: str, outputs: Arrays, is_real: np.ndarray) -> np.ndarray:
    """Returns the most probable classes or positions, or the classes of several, in rows.

    Outputs without labels have no rows.
    """
    values, several = outputs[name], outputs.get("predictions")
    is_score = name.endswith(("logits", "log_prob", "probabilities"))
    if not is_score or values.ndim < 2 or values.shape[-1] == 1:
        return np.zeros((0, 1))
    if several is not None and several.shape == values.shape:
        return several
    if name.startswith(("start", "end")):
        values = np.where(is_real, values, -np.inf)
    labels = values.argmax(-1)
    return (labels[is_real] if labels.shape == is_real.shape else labels.ravel())[:, None]
