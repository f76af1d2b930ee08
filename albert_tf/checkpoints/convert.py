"""From one format of a model to another, proved by what the result computes.

Run as a program, it reads a model that was just written, in a process that knows nothing of the
source, and writes its outputs:

    python -m albert_tf.checkpoints.convert FORMAT DIRECTORY BATCH.npz OUTPUTS.npz
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.formats import FORMAT_NAMES, ORIGINAL, format_module
from albert_tf.checkpoints.loading import build_model, read_contents
from albert_tf.checkpoints.model_contents import ModelContents
from albert_tf.checkpoints.original.files import write_checkpoint
from albert_tf.checkpoints.report import LoadReport
from albert_tf.config import AlbertConfig
from albert_tf.data.files import (
    check_checkpoint_path,
    is_remote,
    raise_write_errors,
    temporary_folder,
    why_not_writable,
    write_error,
)
from albert_tf.modeling.models import AlbertForMultipleChoice, LabelModel
from albert_tf.modeling.original_names import PRETRAINING_HEADS, is_of_pretraining, is_slot
from albert_tf.tokenization.base import Tokenizer

TOLERANCE = 1e-5  # most difference of an output; of a larger one than 1, share of the largest value
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

# Upper case, accents, a comma among digits, and what is cleaned: tokenizers differ in these.
_TEXT = "The  Élan of ``ÉCLAIRS'' in 2,005 and 12,000: ﬁne, 中文 [MASK]!"
Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class ConversionReport:
    """What becomes of every weight, and what the result computes.

    Attributes:
        source: path of the model that was read.
        format_name: of the result.
        output_dir: where that lies.
        loaded: what was read, under the original's names.
        unsupported_weights: weights the format of the result cannot hold.
        has_tokenizer: whether the result has the source's tokenizer.
        differences: largest difference of each output, see `TOLERANCE`; none of a dry run.
    """

    source: str
    format_name: str
    output_dir: str
    loaded: LoadReport
    unsupported_weights: Sequence[str]
    has_tokenizer: bool
    differences: Mapping[str, float]

    def lines(self) -> Iterator[str]:
        """The report as text: each weight with its shape, then the comparison."""
        mapped, shapes = self.loaded.mapped, self.loaded.shapes
        yield f"{self.source} -> {self.output_dir} ({self.format_name})"
        yield f"weights: {self.loaded.source}"
        yield f"mapped: {len(mapped)}"
        for name, stored in mapped.items():
            origin = "" if name == stored else f" <- {stored}"
            yield f"  {name} {list(shapes[stored])}{origin}"
        for what, names in (
            ("ignored, not used by the model", self.loaded.ignored),
            ("missing, randomly initialized, not used by any output", self.loaded.missing),
            (f"omitted, not supported by {self.format_name}", self.unsupported_weights),
        ):
            yield f"{what}: {len(names)}"
            for name in names:
                yield f"  {name} {list(shapes[name]) if name in shapes else ''}".rstrip()
        if slots := sum(map(is_slot, shapes)):
            yield f"optimizer slots in the source: {slots}"
        yield f"tokenizer: {'the same' if self.has_tokenizer else 'none'}"
        yield "largest difference of each output, computed from the written files in a new process"
        yield "(of an output larger than 1, as a share of its largest value):"
        for name, difference in self.differences.items():
            yield f"  {name}: {difference:.2e}"


def convert(
    model: str,
    format_name: str,
    output_dir: str,
    *,
    with_optimizer: bool = False,
    dtype: str = "float32",
    dry_run: bool = False,
    **parts: Any,
) -> ConversionReport:
    """Writes a model in another format, reads it back in a fresh process and compares outputs.

    Args:
        model: see `albert_tf.load`; is only read.
        format_name: one of `FORMAT_NAMES`.
        output_dir: must not exist, or be empty; has the whole result in the end, or is as it was.
        with_optimizer: keep the optimizer's moments and the step as well.
        dtype: in which the weights are stored, "float32" or "float16"; the latter is for
            huggingface alone. What is written computes what the rounded weights do.
        dry_run: only check that the model can be read and written, and write nothing.
        **parts: of the model that do not lie with it, see `read_contents`.

    Raises:
        ValueError: the model cannot be read, the format cannot hold it, or the result computes
            something else.
        WriteError: it cannot be written.
    """
    check_target(output_dir, format_name not in ("huggingface", "keras_hub"))
    if with_optimizer and format_name != ORIGINAL:
        raise ValueError(
            f"--with_optimizer: of the formats {', '.join(FORMAT_NAMES)} only {ORIGINAL} holds the "
            f"optimizer's moments. Received: --format={format_name}"
        )
    if dtype != "float32" and format_name != "huggingface":
        raise ValueError(
            f"--dtype={dtype}: of the formats {', '.join(FORMAT_NAMES)} only huggingface stores "
            f"it. Received: --format={format_name}"
        )
    contents, loaded = read_contents(model, with_optimizer=with_optimizer, **parts)
    if dtype != "float32":
        contents = dataclasses.replace(contents, weights=_rounded(contents.weights, dtype))
    if with_optimizer and not any(map(is_slot, contents.weights)):
        raise ValueError(
            f"--with_optimizer: {loaded.source} contains no optimizer moments. Omit the flag, or "
            "use a checkpoint of a training run (model.ckpt-<step>)."
        )
    unsupported_weights = format_module(format_name).unsupported_weights(contents)
    if unsupported_weights:
        logging.warning("%s cannot hold %s", format_name, ", ".join(unsupported_weights))
    differences: dict[str, float] = {}
    if not dry_run:
        with new_directory(output_dir) as directory:
            format_module(format_name).write(directory, contents)
            differences = _differences(directory, format_name, contents, unsupported_weights)
    return ConversionReport(
        source=model,
        format_name=format_name,
        output_dir=output_dir,
        loaded=loaded,
        unsupported_weights=unsupported_weights,
        has_tokenizer=contents.tokenizer is not None,
        differences=differences,
    )


def _rounded(weights: Mapping[str, np.ndarray], dtype: str) -> dict[str, np.ndarray]:
    """The weights in a smaller type; ValueError where it has no room for a value."""
    limit = float(np.finfo(dtype).max)
    for name, values in weights.items():
        largest = float(np.abs(values).max())
        if largest > limit:
            raise ValueError(
                f"--dtype={dtype}: {name} has a value of {largest:g}, and the largest possible "
                f"value is {limit:g}. Omit the flag."
            )
    return {name: values.astype(dtype) for name, values in weights.items()}


def check_target(output_dir: str, has_checkpoint: bool = True) -> None:
    """Refuses a directory that something is in, or that nothing may be written to.

    Raises:
        ValueError: it is a file, or not empty, or TensorFlow could not read a checkpoint in it.
        WriteError: nothing may be written there.
    """
    if has_checkpoint:
        check_checkpoint_path(output_dir)
    exists = tf.io.gfile.exists(output_dir)
    if exists and (not tf.io.gfile.isdir(output_dir) or tf.io.gfile.listdir(output_dir)):
        raise ValueError(
            f"{output_dir} exists already and is not changed: use a new or an empty directory."
        )
    # What is written first lies beside it.
    if problem := why_not_writable(os.path.dirname(_target(output_dir))):
        raise write_error(output_dir, problem)


def _target(output_dir: str) -> str:
    """What gets written: a link to an empty directory stays, what it leads to is replaced."""
    target = output_dir if is_remote(output_dir) else os.path.realpath(output_dir)
    return target.rstrip("/")


@contextmanager
def new_directory(output_dir: str) -> Iterator[str]:
    """Gives a directory to write into, which becomes `output_dir` if the block ends well.

    Raises:
        WriteError: there is no room, or nothing may be written there.
    """
    target = _target(output_dir)
    if is_remote(target):
        with tempfile.TemporaryDirectory() as made:
            yield made
            with raise_write_errors(output_dir):
                _copy(made, target)
    else:
        with temporary_folder(output_dir) as made:
            yield made
            os.replace(made, target)


def _copy(directory: str, target: str) -> None:
    """Copies all files to a store without directories."""
    try:
        for folder, _, names in os.walk(directory):
            inner = folder.replace(directory, target, 1)
            tf.io.gfile.makedirs(inner)
            for name in names:
                tf.io.gfile.copy(os.path.join(folder, name), f"{inner}/{name}")
    except BaseException:
        if tf.io.gfile.isdir(target):
            tf.io.gfile.rmtree(target)
        raise


def export_weights(model: str, export_path: str, *, dry_run: bool = False) -> list[str]:
    """Writes encoder and pretraining heads, without slots, and the step 0; returns their names.

    Args:
        model: of any format (--albert_directory, --checkpoint_name).
        export_path: prefix to write (--export_path); what is there already stays.
        dry_run: check all that can be known before, and write nothing.

    Raises:
        ValueError: the model cannot be read, or `export_path` is taken.
        WriteError: nothing can be written there.

    Source: export_checkpoints.py of the original release.
    Differs: heads that the checkpoint lacks are left out, and named; the original writes random
    ones. No graph (`.meta`) is written, and no file `checkpoint`.
    """
    check_checkpoint_path(export_path)
    if tf.io.gfile.exists(export_path + ".index"):
        raise ValueError(
            f"The checkpoint {export_path} exists already and is not changed. Use another name."
        )
    if problem := why_not_writable(os.path.dirname(export_path) or os.curdir):
        raise write_error(export_path, problem)
    contents, report = read_contents(model)
    for head in PRETRAINING_HEADS:
        if not any(name.startswith(head) for name in contents.weights):
            logging.warning("%s has no %s: it is omitted", report.source, head)
    weights = {name: v for name, v in contents.weights.items() if is_of_pretraining(name)}
    if not dry_run:
        write_checkpoint(export_path, weights, 0)
    return list(weights)


def _differences(
    directory: str, format_name: str, contents: ModelContents, unsupported_weights: Sequence[str]
) -> dict[str, float]:
    """Largest difference of each output of what was written; ValueError where it is too large."""
    batch = ragged_batch(contents.config)
    with tempfile.TemporaryDirectory(prefix="albert_tf_") as folder:
        actual = outputs_in_fresh_process(format_name, directory, batch, folder)
    held = {
        name: value for name, value in contents.weights.items() if name not in unsupported_weights
    }
    model = build_model(dataclasses.replace(contents, weights=held))
    expected = model_outputs(model, batch, as_graph=_own_graphs(format_name) is not None)
    differences = {}
    for name, values in expected.items():
        if name not in actual or actual[name].shape != values.shape:
            shapes = {key: value.shape for key, value in actual.items()}
            raise ValueError(
                f"The converted model ({format_name}) returns no {name} of shape {values.shape}, "
                f"but {shapes}. It was deleted."
            )
        difference = np.abs(actual[name] - values).max()
        differences[name] = float(difference / max(1.0, np.abs(values).max()))
    # Also true where a number is not finite.
    wrong = [name for name, value in differences.items() if not value <= TOLERANCE]
    if wrong:
        raise ValueError(
            f"The outputs of the converted model ({format_name}) differ from those of the source: "
            f"{', '.join(f'{name} differs by {differences[name]:.2e}' for name in wrong)}; at "
            f"most {TOLERANCE:.0e} is accepted. It was deleted."
        )
    texts = tokenizer_outputs(contents.tokenizer) if contents.tokenizer else {}
    if not all(np.array_equal(values, actual.get(name, ())) for name, values in texts.items()):
        raise ValueError(
            f"The converted model ({format_name}) has a different tokenizer or do_lower_case than "
            "the source, or no tokenizer. It was deleted."
        )
    return differences


def tokenizer_outputs(tokenizer: Tokenizer) -> Arrays:
    """What a conversion has to keep of a tokenizer: all tokens, and what it makes of a text."""
    return {"tokens": np.array(tokenizer.tokens), "ids": np.array(tokenizer.encode(_TEXT))}


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
    """Computes what a conversion has to keep of a model of any class of this package.

    As a graph, TensorFlow rewrites the whole computation first, as it does with that of a
    SavedModel. It adds up in another order then: sensitive weights give differences of 1e-5, which
    are not those of a conversion.

    Returns:
        Outputs by their names, float32; those of padding are zero, as they mean nothing.
    """
    has_logits_alone = isinstance(model, LabelModel | AlbertForMultipleChoice)
    compute = partial(model, **({"output_hidden_states": True} if has_logits_alone else {}))
    if as_graph:
        compute = tf.function(compute, autograph=False)
    outputs = compute({name: tf.constant(values) for name, values in batch.items()})
    return _comparable({name: outputs[name] for name in _OUTPUTS if name in outputs}, batch)


def _comparable(outputs: Mapping[str, tf.Tensor], batch: Mapping[str, np.ndarray]) -> Arrays:
    """Outputs as arrays, without what padding and masked places give."""
    arrays = {}
    for name, output in outputs.items():
        values = np.asarray(output, np.float32)
        values = np.where(values < _LEAST, np.float32(0), values)
        if name in _OF_TOKENS or (name == "logits" and values.ndim == 3):
            mask = batch["input_mask"].astype(bool)
            values = np.where(mask[..., None] if values.ndim == 3 else mask, values, 0)
        # A score for each of several texts: [B] or [B, 1], which is all the same.
        arrays[name] = values.reshape(len(values)) if values.size == len(values) else values
    return arrays


def outputs_in_fresh_process(
    format_name: str, directory: str, batch: Arrays, folder: str
) -> Arrays:
    """Computes the outputs of a stored model and of its tokenizer in a process of its own.

    A format whose module has a `compute(directory, batch)` computes by a graph of its own, which
    then counts; every format is read as `read_contents` reads it. The processes exchange files in
    `folder`.

    Raises:
        ValueError: the other process failed.
    """
    batch_file, outputs_file = (
        os.path.join(folder, f"{name}.npz") for name in ("batch", "outputs")
    )
    _save(batch_file, batch)
    # The other process finds this package however this one found it.
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    search_path = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", __name__, format_name, directory, batch_file, outputs_file],
        env={**os.environ, "PYTHONPATH": search_path, "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise ValueError(f"The converted model cannot be loaded: {last}")
    with np.load(outputs_file) as file:
        return dict(file)


def _own_graphs(format_name: str) -> Callable[[str, Arrays], Mapping[str, Any]] | None:
    """What computes outputs with a stored model's own graphs, None where it has none."""
    return getattr(format_module(format_name), "compute", None)


def _save(path: str, arrays: Mapping[str, Any]) -> None:
    with raise_write_errors(path):
        np.savez(path, **arrays)


def main(format_name: str, directory: str, batch_file: str, outputs_file: str) -> None:
    """Reads a stored model and writes its outputs."""
    with np.load(batch_file) as file:
        batch = dict(file)
    contents, _ = read_contents(directory)
    compute = _own_graphs(format_name)
    outputs = model_outputs(build_model(contents), batch, as_graph=compute is not None)
    if compute is not None:  # those count
        own = compute(directory, batch)
        outputs.update(_comparable({name: own[name] for name in _OUTPUTS if name in own}, batch))
    if contents.tokenizer is not None:
        outputs.update(tokenizer_outputs(contents.tokenizer))
    _save(outputs_file, outputs)


if __name__ == "__main__":
    main(*sys.argv[1:])
