"""From one format of a model to another, proved by what the result computes."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.convert_proof import (
    Arrays,
    model_outputs,
    outputs_in_fresh_process,
    own_graphs,
    ragged_batch,
    tokenizer_outputs,
)
from albert_tf.checkpoints.formats import FORMAT_NAMES, ORIGINAL, format_module
from albert_tf.checkpoints.load_weights import open_checkpoint
from albert_tf.checkpoints.loading import build_model, read_contents
from albert_tf.checkpoints.model_contents import ModelContents
from albert_tf.checkpoints.original.names import is_slot
from albert_tf.checkpoints.report import LoadReport
from albert_tf.data.files import (
    explain_write_errors,
    is_remote,
    temporary_folder,
    why_not_writable,
    write_error,
)

TOLERANCE = 1e-5  # most difference of an output; of a larger one than 1, share of the largest value


@dataclasses.dataclass(frozen=True)
class ConversionReport:
    """What becomes of every weight, and what the result computes.

    Attributes:
        source: path of the model that was read.
        format_name: of the result.
        output_dir: where that lies.
        loaded: what was read, under the original's names.
        shapes: of every weight of the source, under the names it has there.
        unsupported_weights: weights the format of the result cannot hold.
        has_tokenizer: whether the result has the source's tokenizer.
        differences: largest difference of each output, see `TOLERANCE`; none of a dry run.
    """

    source: str
    format_name: str
    output_dir: str
    loaded: LoadReport
    shapes: Mapping[str, Sequence[int]]
    unsupported_weights: Sequence[str]
    has_tokenizer: bool
    differences: Mapping[str, float]

    def lines(self) -> Iterator[str]:
        """The report as text: each weight with its shape, then the comparison."""
        mapped, shapes = self.loaded.mapped, self.shapes
        yield f"{self.source} -> {self.output_dir} ({self.format_name})"
        yield f"weights: {self.loaded.source}"
        yield f"mapped: {len(mapped)}"
        for name, stored in mapped.items():
            origin = "" if name == stored else f" <- {stored}"
            yield f"  {name} {list(shapes[stored])}{origin}"
        yield from _listed("ignored, not used by the model", self.loaded.ignored, shapes)
        yield from _listed(
            "missing, randomly initialized, not used by any output", self.loaded.missing, {}
        )
        yield from _listed(
            f"omitted, not supported by {self.format_name}", self.unsupported_weights, shapes
        )
        slots = [name for name in shapes if is_slot(name)]
        if slots:
            yield f"optimizer slots in the source: {len(slots)}"
        yield f"tokenizer: {'the same' if self.has_tokenizer else 'none'}"
        yield "largest difference of each output, computed from the written files in a new process"
        yield "(of an output larger than 1, as a share of its largest value):"
        for name, difference in self.differences.items():
            yield f"  {name}: {difference:.2e}"


def _listed(what: str, names: Sequence[str], shapes: Mapping[str, Sequence[int]]) -> Iterator[str]:
    yield f"{what}: {len(names)}"
    for name in names:
        yield f"  {name} {list(shapes[name]) if name in shapes else ''}".rstrip()


def convert(
    model: str,
    format_name: str,
    output_dir: str,
    *,
    with_optimizer: bool = False,
    dtype: str = "float32",
    output_flag: str = "--output_dir",
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
        output_flag: the flag `output_dir` came from, for messages.
        dry_run: only check that the model can be read and written, and write nothing.
        **parts: of the model that do not lie with it, see `read_contents`.

    Raises:
        ValueError: the model cannot be read, the format cannot hold it, or the result computes
            something else.
        WriteError: it cannot be written.
    """
    check_target(output_dir, output_flag)
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
    _, shapes = open_checkpoint(loaded.source)
    unsupported_weights = format_module(format_name).unsupported_weights(contents)
    if unsupported_weights:
        logging.warning("%s cannot hold %s", format_name, ", ".join(unsupported_weights))
    differences: dict[str, float] = {}
    if not dry_run:
        with new_directory(output_dir, output_flag) as directory:
            format_module(format_name).write(directory, contents)
            actual = _outputs(directory, format_name, contents)
            differences = _differences(actual, format_name, contents, unsupported_weights)
    return ConversionReport(
        source=model,
        format_name=format_name,
        output_dir=output_dir,
        loaded=loaded,
        shapes=shapes,
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


def check_target(output_dir: str, flag: str = "--output_dir") -> None:
    """Refuses a directory that something is in, or that nothing may be written to.

    Raises:
        ValueError: it is a file, or not empty.
        WriteError: nothing may be written there.
    """
    exists = tf.io.gfile.exists(output_dir)
    if exists and (not tf.io.gfile.isdir(output_dir) or tf.io.gfile.listdir(output_dir)):
        raise ValueError(
            f"{flag}={output_dir} exists already and is not changed: use a new or an empty "
            "directory."
        )
    # What is written first lies beside it.
    if problem := why_not_writable(os.path.dirname(_target(output_dir))):
        raise write_error(output_dir, problem, flag)


def _target(output_dir: str) -> str:
    """What gets written: a link to an empty directory stays, what it leads to is replaced."""
    target = output_dir if is_remote(output_dir) else os.path.realpath(output_dir)
    return target.rstrip("/")


@contextmanager
def new_directory(output_dir: str, flag: str = "--output_dir") -> Iterator[str]:
    """Gives a directory to write into, which becomes `output_dir` if the block ends well.

    Args:
        output_dir: see `check_target`.
        flag: where it came from, for messages.

    Raises:
        WriteError: there is no room, or nothing may be written there.
    """
    target = _target(output_dir)
    with (
        explain_write_errors(output_dir, flag),
        tempfile.TemporaryDirectory() if is_remote(target) else temporary_folder(target) as made,
    ):
        yield made
        _move(made, target)


def _move(directory: str, target: str) -> None:
    """Gives a directory its final name; in a store without directories, copies its files."""
    if not is_remote(target):
        os.replace(directory, target)
        return
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


def _outputs(directory: str, format_name: str, contents: ModelContents) -> Arrays:
    """What a fresh process computes with what was written."""
    with tempfile.TemporaryDirectory(prefix="albert_tf_") as folder:
        batch = ragged_batch(contents.config)
        return outputs_in_fresh_process(format_name, directory, batch, folder)


def _differences(
    actual: Arrays, format_name: str, contents: ModelContents, unsupported_weights: Sequence[str]
) -> dict[str, float]:
    """Largest difference of each output of what was written; ValueError where it is too large."""
    held = {
        name: value for name, value in contents.weights.items() if name not in unsupported_weights
    }
    model = build_model(dataclasses.replace(contents, weights=held))
    has_graphs = own_graphs(format_name) is not None
    expected = model_outputs(model, ragged_batch(contents.config), as_graph=has_graphs)
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
