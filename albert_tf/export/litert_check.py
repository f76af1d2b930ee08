"""Whether a LiteRT model says what the model it was made from says.

It is run as a phone would run it: in a process that has the file and an interpreter, and nothing of
this package.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.data.files import TEMPORARY_FILES, explain_write_errors
from albert_tf.data.sequences import TokenSequences
from albert_tf.export import litert_program

_BATCHES, _ROWS, _LENGTHS = 3, 3, (24, 7, 16)
# Largest difference of single precision, for numbers up to 1; larger ones have as many digits.
# ALBERT-xlarge comes to a third of it: sums of thousands of terms, in another order.
_TOLERANCE = 3e-5
# A quantized model below and above these has nothing to do with what it was made from.
_LEAST_COSINE, _LARGE_DIFFERENCE = 0.5, 0.1

Arrays = dict[str, np.ndarray]


class Agreement(NamedTuple):
    """How near one output of two models is.

    Attributes:
        difference: the largest, of all numbers that are not of padding.
        cosine: of the angle between all numbers of one and all of the other; 1 = the same.
        largest: the number farthest from 0 that was to come out.
    """

    difference: float
    cosine: float
    largest: float


def check_batches(
    config: AlbertConfig,
    batch_size: int | None,
    length: int | None,
    sequences: TokenSequences | None = None,
) -> list[Arrays]:
    """Makes ragged batches that a model takes.

    Args:
        config: of the model.
        batch_size: B; None for any.
        length: S; None for any.
        sequences: what rows are taken from; None makes ids at random.

    Returns:
        `input_ids`, `input_mask` and `segment_ids`, int32 [B, S], of each batch.
    """
    random = np.random.default_rng(3)
    rows = batch_size or _ROWS
    batches = []
    for number in range(_BATCHES):
        if sequences is None:
            columns = length or min(_LENGTHS[number], config.max_position_embeddings)
            batches.append(_random_batch(random, config, number, rows, columns))
        else:
            chosen = random.choice(len(sequences), rows)
            columns = length or int(sequences.lengths[chosen].max())
            batches.append(sequences.padded(chosen, columns))
    return batches


def _random_batch(
    random: np.random.Generator, config: AlbertConfig, number: int, rows: int, columns: int
) -> Arrays:
    """Two segments a row; the first row of the first batch is full, the others less and less."""
    share = 1 - (number * rows + np.arange(rows)) / (_BATCHES * rows)
    lengths = np.maximum(np.round(share * columns), 1)[:, None]
    places = np.arange(columns)
    mask = places < lengths
    segments = (places >= lengths // 2) & mask & (config.type_vocab_size > 1)
    ids = random.integers(0, config.vocab_size, mask.shape) * mask
    arrays = {"input_ids": ids, "input_mask": mask, "segment_ids": segments}
    return {name: values.astype(np.int32) for name, values in arrays.items()}


def check(
    model_file: str,
    compute: Callable[[dict[str, tf.Tensor]], Mapping[str, tf.Tensor]],
    batches: Sequence[Arrays],
    *,
    is_exact: bool,
) -> dict[str, Agreement]:
    """Compares a LiteRT model with the one it was made from.

    Args:
        model_file: a local path.
        compute: gives the outputs of the one it was made from.
        batches: see `check_batches`.
        is_exact: whether it holds numbers of single precision.

    Returns:
        The agreement of each output of floating-point numbers.

    Raises:
        ValueError: it does not run, or gives something else.
    """
    found = run_in_fresh_process(model_file, batches)
    pairs: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for batch, outputs in zip(batches, found, strict=True):
        inputs = {name: tf.constant(values) for name, values in batch.items()}
        for name, expected in compute(inputs).items():
            is_real = batch["input_mask"] == 1
            values, wanted = outputs[name], expected.numpy()
            if values.shape != wanted.shape:
                raise ValueError(f"{name} is {values.shape}, and should be {wanted.shape}.")
            if values.shape[:2] == is_real.shape:
                values, wanted = values[is_real], wanted[is_real]
            if np.issubdtype(wanted.dtype, np.floating):
                pairs.setdefault(name, []).append((values.ravel(), wanted.ravel()))
    agreements = {}
    for name, parts in pairs.items():
        values, wanted = (np.concatenate(side) for side in zip(*parts, strict=True))
        agreements[name] = agreement(values, wanted)
        _check_agreement(name, values, agreements[name], is_exact)
    return agreements


def agreement(values: np.ndarray, wanted: np.ndarray) -> Agreement:
    """Compares two sets of numbers of one shape."""
    first, second = values.ravel().astype(np.float64), wanted.ravel().astype(np.float64)
    scale = np.linalg.norm(first) * np.linalg.norm(second)
    return Agreement(
        difference=float(np.abs(first - second).max()),
        cosine=float(first @ second / scale) if scale else float(np.array_equal(first, second)),
        largest=float(np.abs(second).max()),
    )


def _check_agreement(name: str, values: np.ndarray, found: Agreement, is_exact: bool) -> None:
    if not np.isfinite(values).all():
        raise ValueError(f"the LiteRT model gives {name} that is not finite.")
    tolerance = _TOLERANCE * max(1.0, found.largest)
    # Of a source that is not finite neither comparison holds.
    agrees = (
        found.difference <= tolerance
        if is_exact
        else found.cosine >= _LEAST_COSINE or found.difference <= _LARGE_DIFFERENCE
    )
    if not agrees:
        raise ValueError(
            f"the LiteRT model's {name} is not that of the model it was made from: it differs by "
            f"{found.difference:.3g}, where the largest number is {found.largest:.3g}; the cosine "
            f"of both is {found.cosine:.3f}."
        )


def run_in_fresh_process(model_file: str, batches: Sequence[Arrays]) -> list[Arrays]:
    """Gives the outputs of each batch.

    Raises:
        ValueError: the model does not run.
    """
    inputs: dict[str, Any] = {
        f"{number}/{name}": values
        for number, batch in enumerate(batches)
        for name, values in batch.items()
    }
    with open(litert_program.__file__, encoding="utf-8") as source:
        program = source.read()
    with tempfile.TemporaryDirectory() as folder:
        inputs_file, outputs_file = (
            os.path.join(folder, f"{name}.npz") for name in ("inputs", "outputs")
        )
        with explain_write_errors(inputs_file, TEMPORARY_FILES):
            np.savez(inputs_file, **inputs)
        done = subprocess.run(
            [sys.executable, "-c", program, model_file, inputs_file, outputs_file],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            last = "\n".join(done.stderr.strip().splitlines()[-3:])
            raise ValueError(f"the LiteRT model does not run: {last}")
        outputs: list[Arrays] = [{} for _ in batches]
        with np.load(outputs_file) as file:
            for key in file.files:
                number, name = key.split("/")
                outputs[int(number)][name] = file[key]
    return outputs
