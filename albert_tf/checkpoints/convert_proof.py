"""What a model computes on a ragged batch, so that a conversion can be held against its source.

Run as a program, it reads a model that was just written, in a process that knows nothing of the
source, and writes its outputs:

    python -m albert_tf.checkpoints.convert_proof FORMAT DIRECTORY BATCH.npz OUTPUTS.npz
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf.checkpoints.formats import format_module
from albert_tf.config import AlbertConfig
from albert_tf.data.files import TEMPORARY_FILES, explain_write_errors
from albert_tf.tokenization.base import Tokenizer

_ROWS, _LENGTH, _PREDICTIONS = 3, 24, 2

# Outputs of the models that a conversion has to keep; of the spans those for given starts.
_OUTPUTS = (
    "sequence_output",
    "pooled_output",
    "masked_lm_logits",
    "sentence_order_logits",
    "logits",
    "start_logits",
    "end_logits",
    "start_log_probs",
    "end_log_probs",
    "cls_logits",
)

_OF_TOKENS = ("sequence_output", "start_logits", "end_logits", "start_log_probs", "end_log_probs")
_LEAST = -1e4  # below it, a score only says that a place is masked

TOKENS, IDS = "tokens", "ids"  # of the tokenizer, and of `_TEXT`, beside the outputs

# Upper case, accents, a comma among digits, and what is cleaned: tokenizers differ in these.
_TEXT = "The  Élan of ``ÉCLAIRS'' in 2,005 and 12,000: ﬁne, 中文 [MASK]!"
Arrays = dict[str, np.ndarray]


def tokenizer_outputs(tokenizer: Tokenizer) -> Arrays:
    """What a conversion has to keep of a tokenizer: all tokens, and what it makes of a text."""
    return {TOKENS: np.array(tokenizer.tokens), IDS: np.array(tokenizer.encode(_TEXT))}


def ragged_batch(config: AlbertConfig) -> Arrays:
    """Makes pairs of texts of different lengths, the last one padded most.

    Returns:
        `input_ids`, `input_mask` and `segment_ids`, int32 [B, S]; `masked_lm_positions`, int32
        [B, P]; `start_positions`, int32 [B].
    """
    random = np.random.default_rng(12)
    length = min(_LENGTH, config.max_position_embeddings)
    real = np.maximum(2, length * np.arange(_ROWS, 0, -1) // _ROWS)[:, None]
    places = np.arange(length)[None]
    mask = places < real
    ids = random.integers(0, config.vocab_size, (_ROWS, length))
    segments = (places >= real // 2) & (config.type_vocab_size > 1)
    positions = random.integers(0, real, (_ROWS, _PREDICTIONS))
    batch = {
        "input_ids": ids * mask,
        "input_mask": mask,
        "segment_ids": segments & mask,
        "masked_lm_positions": positions,
        "start_positions": np.zeros(_ROWS),
    }
    return {name: values.astype(np.int32) for name, values in batch.items()}


def model_outputs(
    model: keras.Model, batch: Mapping[str, np.ndarray], *, as_graph: bool = False
) -> Arrays:
    """Computes what a conversion has to keep.

    Args:
        model: of any class of this package.
        batch: see `ragged_batch`.
        as_graph: let TensorFlow rewrite the whole computation first, as it does with that of a
            SavedModel. It adds up in another order then: sensitive weights give differences of
            1e-5, which are not those of a conversion.

    Returns:
        Outputs by their names, float32; those of padding are zero, as they mean nothing.
    """
    compute = tf.function(model.__call__, autograph=False) if as_graph else model
    outputs = compute({name: tf.constant(values) for name, values in batch.items()})
    return comparable({name: outputs[name] for name in _OUTPUTS if name in outputs}, batch)


def comparable(outputs: Mapping[str, tf.Tensor], batch: Mapping[str, np.ndarray]) -> Arrays:
    """Outputs as arrays, without what padding and masked places give."""
    arrays = {}
    for name, output in outputs.items():
        values = np.asarray(output, np.float32)
        values = np.where(values < _LEAST, np.float32(0), values)
        if name in _OF_TOKENS:
            mask = batch["input_mask"].astype(bool)
            values = np.where(mask[..., None] if values.ndim == 3 else mask, values, 0)
        # A score for each of several texts: [B] or [B, 1], which is all the same.
        arrays[name] = values.reshape(len(values)) if values.size == len(values) else values
    return arrays


def outputs_in_fresh_process(
    format_name: str, directory: str, batch: Arrays, folder: str
) -> Arrays:
    """Computes what `model_outputs` does of a stored model, in a process of its own.

    A format whose module has a `compute(directory, batch)` computes by a graph of its own, which
    then counts; every format is read as `read_contents` reads it.

    Args:
        format_name: of the stored model.
        directory: where it lies.
        batch: see `ragged_batch`.
        folder: for the files that the processes exchange.

    Returns:
        The outputs, and those of the tokenizer, if there is one; see `tokenizer_outputs`.

    Raises:
        ValueError: the other process failed.
    """
    batch_file, outputs_file = (
        os.path.join(folder, f"{name}.npz") for name in ("batch", "outputs")
    )
    _save(batch_file, batch)
    done = subprocess.run(
        [sys.executable, "-m", __name__, format_name, directory, batch_file, outputs_file],
        env={**os.environ, "PYTHONPATH": _search_path(), "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise ValueError(f"The converted model cannot be loaded: {last}")
    with np.load(outputs_file) as file:
        return dict(file)


def own_graphs(format_name: str) -> Callable[[str, Arrays], Mapping[str, Any]] | None:
    """Returns what computes outputs with a stored model's own graphs, None where it has none."""
    return getattr(format_module(format_name), "compute", None)


def _save(path: str, arrays: Mapping[str, Any]) -> None:
    with explain_write_errors(path, TEMPORARY_FILES):
        np.savez(path, **arrays)


def _search_path() -> str:
    """Where the other process finds this package, however this one found it."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])


def main(format_name: str, directory: str, batch_file: str, outputs_file: str) -> None:
    """Reads a stored model and writes its outputs."""
    from albert_tf.checkpoints.loading import build_model, read_contents

    with np.load(batch_file) as file:
        batch = dict(file)
    contents, _ = read_contents(directory)
    compute = own_graphs(format_name)
    outputs = model_outputs(build_model(contents), batch, as_graph=compute is not None)
    if compute is not None:  # those count
        own = compute(directory, batch)
        outputs.update(comparable({name: own[name] for name in _OUTPUTS if name in own}, batch))
    if contents.tokenizer is not None:
        outputs.update(tokenizer_outputs(contents.tokenizer))
    _save(outputs_file, outputs)


if __name__ == "__main__":
    main(*sys.argv[1:])
