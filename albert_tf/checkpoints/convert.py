"""Converts models between formats and verifies the outputs of the result.

As a program, this module computes the outputs of a converted model in a new process:

    python -m albert_tf.checkpoints.convert FORMAT DIRECTORY OUTPUTS.npz
"""

import dataclasses
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from unicodedata import normalize

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.formats.choose import ORIGINAL, format_module, writer_of
from albert_tf.checkpoints.formats.original import write_checkpoint
from albert_tf.checkpoints.loading import build, read_model
from albert_tf.checkpoints.model_choice import choose_model
from albert_tf.checkpoints.report import LoadReport
from albert_tf.checkpoints.stored_model import StoredModel
from albert_tf.config import EXACT_GELU, AlbertConfig
from albert_tf.data.arguments import as_path
from albert_tf.data.errors import UserError, visible, without_secrets
from albert_tf.data.files import (
    check_checkpoint_path,
    existing_path,
    finish,
    is_remote,
    raise_write_errors,
    real_name,
    temporary_folder,
    why_not_writable,
    write_error,
)
from albert_tf.modeling.base import ConfiguredModel
from albert_tf.modeling.original_names import PRETRAINING_HEADS, is_of_pretraining, is_slot
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.library import LibraryTokenizer

TOLERANCE = 1e-5  # largest difference, relative if the largest value exceeds 1
_ROWS, _LENGTH, _PREDICTIONS = 3, 24, 2

# Outputs that a conversion must preserve. For SQuAD 2.0, ends are scored given `start_positions`.
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
_LEAST = -1e4  # smaller scores are masked

# Tokenizers differ in upper case, marks, compatibility characters, white space, control characters
# and numbers with commas.
_TEXTS = (
    "The  Élan of ``ÉCLAIRS'' in 2,005 and 12,000: ﬁne, 中文 !",
    "``Élan'' \"I'm\" Straße GROẞE İstanbul Iğdır ǅ ﬃ №5 ½ x² Å ñ e\u0301 ȯ\u0323",
    "1️⃣ me ™️ it’s ‼️ 👨‍👩‍👧 👍🏽 🇩🇪 ❤️ x\ufe0f € £ – — … «x» 𝔘𝟏 𐍈 𠀀",
    "ΟΔΟΣ Σίσυφος ΆΣ Α.Σ.Α. ΑΣ' Σ ΣΣ ᾼ · Ελληνικά Йод Ёлка Її Հայ ქართული",
    "안녕하세요 학교에 \u1112\u1161\u11ab\u1100\u1173\u11af ᄒᆞ 日本語 ガギ ﾊﾟ が 々 中文，測試。㈱",
    "मैं आज हूँ क़लम ज़मीन বাংলা যাচ্ছি কো কৌ தமிழ் கொ கோ കൊ ಕೋ తెలుగు ગુજરાતી ਪੰਜਾਬੀ සිංහල",
    "ภาษาไทย น้ำ ກຳ မြန်မာ ភាសាខ្មែរ བོད་སྐད አማርኛ مرحبا حالُكَ ﷺ לא שָׁלוֹם",
    "a\u00a0b\u3000c\u2028d\u2029e\u1680f\u200bg\u200ch\u200di\ufeffj\u2060k\u00adl\u200em\u0085n",
    "\ta\x00b\x01c\x07d\x0be\x0cf\x1cg\x1fh\x7fi\r\nj\ufffdk\ue000l ▁m▁ ¨n ´ \u0345o  ",
)
_NOT_TEXT = re.compile(r"<.+>|\[.+\]")  # tokens such as [CLS] and <0x0A>
_PIECES = 5  # per text
_NUMBER = re.compile(r"\d,")  # see `SentencePieceTokenizer`
Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class ConversionReport:
    """Report of a conversion.

    Attributes:
        source: path of the model that was read.
        format_name: format of the result.
        output_dir: directory of the result.
        loaded: report on the weights that were read.
        unsupported_weights: weights that the format of the result does not support.
        tokenizer: what is known about the ids of the result's tokenizer.
        differences: largest difference of each output, see `TOLERANCE`. Empty for a dry run.
    """

    source: str
    format_name: str
    output_dir: str
    loaded: LoadReport
    unsupported_weights: Sequence[str]
    tokenizer: str
    differences: Mapping[str, float]

    def lines(self) -> Iterator[str]:
        """Yields the lines of the report: each weight with its shape, then the differences."""
        return map(visible, self._lines())

    def _lines(self) -> Iterator[str]:
        mapped, shapes = self.loaded.mapped, self.loaded.shapes
        yield f"{self.source} -> {self.output_dir} ({self.format_name})"
        yield f"weights: {self.loaded.source}"
        yield f"mapped: {len(mapped)}"
        for name, stored in mapped.items():
            origin = "" if name == stored else f" <- {stored}"
            yield f"  {name} {list(shapes[stored])}{origin}"
        for what, names in (
            ("ignored, not used by the model", self.loaded.ignored),
            ("missing, randomly initialized, not used by a stored head", self.loaded.missing),
            (f"omitted, not supported by {self.format_name}", self.unsupported_weights),
        ):
            yield f"{what}: {len(names)}"
            for name in names:
                yield f"  {name} {list(shapes[name]) if name in shapes else ''}".rstrip()
        if slots := sum(map(is_slot, shapes)):
            yield f"optimizer slots in the source: {slots}"
        yield f"tokenizer: {self.tokenizer}"
        yield "largest difference of each output, computed from the written files in a new process"
        yield "(divided by the largest absolute value of the output if this is above 1):"
        for name, difference in self.differences.items():
            yield f"  {name}: {difference:.2e}"


def convert(
    path: str | os.PathLike,
    format: str,
    output_dir: str | os.PathLike,
    *,
    with_optimizer: bool = False,
    dtype: str = "float32",
    dry_run: bool = False,
    **parts: Any,
) -> ConversionReport:
    """Writes a model in another format and verifies it, as `convert_checkpoint.py` does.

    Args:
        path: a model of any format, see `albert_tf.load`.
        format: "original", "huggingface", "keras_hub", "tf2_hub" or "tf1_hub".
        output_dir: a new or an empty directory. If the conversion fails, it is left unchanged.
        with_optimizer: for "original", whether to include the optimizer's moments and the step.
        dtype: type of the stored weights, "float32", or "float16" for "huggingface".
        dry_run: whether to check only that the model can be converted.
        **parts: see `albert_tf.export_litert`.

    Returns:
        A report on every weight, with the largest difference of each output.

    Raises:
        ValueError: the format does not support the model, or the outputs of the result differ.
        OSError: the directory cannot be written.
    """
    path = as_path("path", path)
    output_dir = as_path("output_dir", output_dir, "path of a directory")
    check_target(output_dir, format not in ("huggingface", "keras_hub"))
    for setting, is_given, supported in (
        ("`with_optimizer`", with_optimizer, ORIGINAL),
        (f"`dtype`={dtype}", dtype != "float32", "huggingface"),
    ):
        if is_given and format != supported:
            raise UserError(f"{setting} needs `format`={supported}. Received: `format`={format}")
    writer = writer_of(format)
    stored, loaded = read_model(path, with_optimizer=with_optimizer, **parts)
    if dtype != "float32":
        stored = stored.with_weights(_rounded(stored.weights, dtype))
    if with_optimizer and not any(map(is_slot, stored.weights)):
        raise UserError(
            f"`with_optimizer`: {loaded.source} contains no optimizer moments. Pass a checkpoint "
            "of a training run, such as `checkpoint_name`=model.ckpt-1000."
        )
    if format == ORIGINAL and stored.required_config.hidden_act.lower() == EXACT_GELU:
        logging.warning("The original's programs cannot run models with %r.", EXACT_GELU)
    if format == ORIGINAL and isinstance(stored.tokenizer, LibraryTokenizer):
        logging.warning("The original's programs cannot use %s.", stored.tokenizer.source)
    unsupported_weights = writer.unsupported_weights(stored)
    if unsupported_weights:
        logging.warning("%s does not support %s", format, ", ".join(unsupported_weights))
    differences: dict[str, float] = {}
    tokenizer = "none" if stored.tokenizer is None else "not compared"
    if not dry_run:
        with new_directory(output_dir) as directory:
            writer.write(directory, stored)
            actual, differences = _differences(directory, format, stored, unsupported_weights)
            if stored.tokenizer is not None:
                tokenizer = _compare_ids(stored.tokenizer, actual, format)
    if note := stored.stored_tokenizer.note:
        tokenizer += f", compared with this package, which differs from the source: {note}"
    return ConversionReport(
        source=without_secrets(path),
        format_name=format,
        output_dir=output_dir,
        loaded=loaded,
        unsupported_weights=unsupported_weights,
        tokenizer=tokenizer,
        differences=differences,
    )


def _rounded(weights: Mapping[str, np.ndarray], dtype: str) -> dict[str, np.ndarray]:
    """Converts the weights to a smaller type. Raises `ValueError` if a value is out of range."""
    limit = float(np.finfo(dtype).max)
    for name, values in weights.items():
        largest = float(np.abs(values).max())
        if largest > limit:
            raise UserError(
                f"`dtype`={dtype}: {name} has a value of {largest:g}, and the largest possible "
                f"value is {limit:g}. Omit `dtype`."
            )
    return {name: values.astype(dtype) for name, values in weights.items()}


def check_target(output_dir: str, has_checkpoint: bool = True, advice: str = "") -> None:
    """Raises `ValueError` unless a directory is new or empty, `WriteError` if it is not writable.

    If `has_checkpoint`, the path must not contain pattern characters. `advice` names another way.
    """
    if has_checkpoint:
        check_checkpoint_path(output_dir)
    output_dir = existing_path(output_dir)
    exists = tf.io.gfile.exists(output_dir)
    if exists and (not tf.io.gfile.isdir(output_dir) or tf.io.gfile.listdir(output_dir)):
        raise UserError(f"{output_dir} already exists. Use a new or empty directory{advice}.")
    # Temporary files are created next to the directory.
    if problem := why_not_writable(os.path.dirname(real_name(output_dir).rstrip("/"))):
        raise write_error(output_dir, problem)


@contextmanager
def new_directory(output_dir: str, *, overwrite: bool = False) -> Iterator[str]:
    """Context manager for a temporary directory, which becomes `output_dir` at the end.

    A local directory is renamed; its files are copied to a remote directory. If the block raises an
    error, `output_dir` is left unchanged.
    """
    target = real_name(output_dir).rstrip("/")
    if is_remote(target):
        with tempfile.TemporaryDirectory() as made:
            yield made
            with raise_write_errors(output_dir):
                for folder, _, names in os.walk(made):
                    inner = folder.replace(made, target, 1)
                    tf.io.gfile.makedirs(inner)
                    for name in names:
                        tf.io.gfile.copy(os.path.join(folder, name), f"{inner}/{name}")
    else:
        with temporary_folder(output_dir) as made:
            yield made
            finish(made, target, overwrite=overwrite)


def export_weights(model: str, export_path: str, *, dry_run: bool = False) -> list[str]:
    """Writes encoder and pretraining heads as a checkpoint of step 0; returns variable names.

    Source: export_checkpoints.py of the original release.
    Differs: missing heads are omitted; the original writes random heads, and a `.meta` file.
    """
    check_checkpoint_path(export_path)
    if tf.io.gfile.exists(export_path + ".index"):
        raise UserError(f"The checkpoint {export_path} already exists. Use another name.")
    if problem := why_not_writable(os.path.dirname(export_path) or os.curdir):
        raise write_error(export_path, problem)
    stored, report = read_model(model)
    for head in PRETRAINING_HEADS:
        if not any(name.startswith(head) for name in stored.weights):
            logging.warning("%s has no %s: the head is omitted", report.source, head)
    weights = {name: v for name, v in stored.weights.items() if is_of_pretraining(name)}
    if not dry_run:
        write_checkpoint(export_path, weights, 0)
    return list(weights)


def _differences(
    directory: str, format_name: str, stored: StoredModel, unsupported_weights: Sequence[str]
) -> tuple[Arrays, dict[str, float]]:
    """Returns the outputs and the largest difference of each.

    Raises `ValueError` if any difference is too large.
    """
    actual = outputs_in_fresh_process(format_name, directory)
    held = {
        name: value for name, value in stored.weights.items() if name not in unsupported_weights
    }
    model, _ = build(stored.with_weights(held))
    expected = model_outputs(model, as_graph=hasattr(format_module(format_name), "compute"))
    differences = {}
    for name, values in expected.items():
        if name not in actual or actual[name].shape != values.shape:
            shapes = {key: value.shape for key, value in actual.items()}
            raise UserError(
                f"The converted model ({format_name}) must return {name} of shape {values.shape}. "
                f"Received: {shapes}. The model was deleted."
            )
        difference = np.abs(actual[name] - values).max()
        differences[name] = float(difference / max(1.0, np.abs(values).max()))
    # Also detects NaN.
    wrong = [name for name, value in differences.items() if not value <= TOLERANCE]
    if wrong:
        raise UserError(
            f"The outputs of the converted model ({format_name}) differ from the source: "
            f"{', '.join(f'{name} differs by {differences[name]:.2e}' for name in wrong)}; at "
            f"most {TOLERANCE:.0e} is accepted. The model was deleted."
        )
    return actual, differences


def comparison_texts(tokenizer: Tokenizer) -> list[str]:
    """Returns texts in many scripts, and texts that contain all pieces of the vocabulary."""
    ids = [i for i, token in enumerate(tokenizer.tokens) if not _NOT_TEXT.fullmatch(token)]
    pieces = [ids[start : start + _PIECES] for start in range(0, len(ids), _PIECES)]
    # Cleaned, because the versions of Unicode decompose different characters.
    # The tokenizers library sorts marks, and SentencePiece does not.
    texts = (normalize("NFC", text) if tokenizer.keep_accents else text for text in _TEXTS)
    return [*texts, *map(tokenizer.clean, map(tokenizer.decode, pieces))]


def tokenizer_outputs(tokenizer: Tokenizer) -> Arrays:
    """Returns all tokens, and the ids of each text for the comparison as a string."""
    ids = tokenizer.encode_batch(comparison_texts(tokenizer))
    return {"tokens": np.array(tokenizer.tokens), "ids": _joined(ids)}


def _joined(rows: Sequence[Sequence[int]]) -> np.ndarray:
    return np.array([" ".join(map(str, row)) for row in rows])


def _compare_ids(tokenizer: Tokenizer, actual: Arrays, format_name: str) -> str:
    """Describes the result's tokenizer. Raises `ValueError` if it returns other ids."""
    expected = tokenizer_outputs(tokenizer)
    if not all(np.array_equal(values, actual.get(name, ())) for name, values in expected.items()):
        raise UserError(
            f"The converted model ({format_name}) has a different tokenizer or do_lower_case than "
            "the source, or no tokenizer. The model was deleted."
        )
    theirs = actual.get("library_ids")
    if theirs is None:
        return "the same"
    if not theirs.ndim:
        return f"the same in this package; {theirs}"
    texts = comparison_texts(tokenizer)
    numbers = []
    for text, *rows in zip(texts, expected["ids"], theirs, strict=True):
        our_ids, their_ids = (list(map(int, row.split())) for row in rows)
        # The order of equally probable pieces depends on rounding.
        if sorted(our_ids) == sorted(their_ids):
            continue
        if not _NUMBER.search(tokenizer.clean(text)):
            raise UserError(
                f"The tokenizers library reads the converted tokenizer ({format_name}) in another "
                f"way: {text!r} becomes {tokenizer.convert_ids_to_tokens(their_ids)} instead of "
                f"{tokenizer.convert_ids_to_tokens(our_ids)}. The model was deleted."
            )
        numbers.append(text)
    found = f"the same ids in {len(texts) - len(numbers)} texts"
    return found + (f"; numbers with commas differ, as in {numbers[0]!r}" if numbers else "")


def ragged_batch(config: AlbertConfig) -> Arrays:
    """Creates pairs of texts of different lengths: int32 inputs [B, S], [B, P] or [B] by name."""
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
    model: ConfiguredModel,
    batch: Mapping[str, np.ndarray] | None = None,
    *,
    as_graph: bool = False,
) -> Arrays:
    """Returns the outputs that a conversion must preserve, float32, zero at padding.

    If `batch` is `None`, a ragged batch is used. With `as_graph`, outputs are computed in a graph,
    as in a SavedModel. TensorFlow then adds numbers in another order, which changes the outputs of
    some models by 1e-5.
    """
    batch = batch or ragged_batch(model.config)
    compute = partial(model, output_hidden_states=True)
    if as_graph:
        compute = tf.function(compute, autograph=False)
    outputs = compute({name: tf.constant(values) for name, values in batch.items()})
    return _comparable(outputs, batch)


def _comparable(outputs: Mapping[str, tf.Tensor], batch: Mapping[str, np.ndarray]) -> Arrays:
    """Converts outputs into arrays, with zeros at padding and masked positions."""
    arrays = {}
    for name in filter(outputs.__contains__, _OUTPUTS):
        values = np.asarray(outputs[name], np.float32)
        values = np.where(values < _LEAST, np.float32(0), values)
        if name in _OF_TOKENS or (name == "logits" and values.ndim == 3):
            mask = batch["input_mask"].astype(bool)
            values = np.where(mask[..., None] if values.ndim == 3 else mask, values, 0)
        # Scores [B] and [B, 1] are compared as [B].
        arrays[name] = values.reshape(len(values)) if values.size == len(values) else values
    return arrays


def outputs_in_fresh_process(format_name: str, directory: str) -> Arrays:
    """Computes the outputs of a stored model and of its tokenizer in a new process."""
    # The new process must import the same package.
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    search_path = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryDirectory(prefix="albert_tf_") as folder:
        outputs_file = os.path.join(folder, "outputs.npz")
        done = subprocess.run(
            [sys.executable, "-m", __name__, format_name, directory, outputs_file],
            env={**os.environ, "PYTHONPATH": search_path, "CUDA_VISIBLE_DEVICES": "-1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            last = "\n".join(done.stderr.strip().splitlines()[-5:])
            raise UserError(f"The converted model cannot be loaded: {last}")
        with np.load(outputs_file) as file:
            return dict(file)


def main(format_name: str, directory: str, outputs_file: str) -> None:
    """Writes the outputs of a stored model; see `outputs_in_fresh_process`."""
    stored, module = choose_model(directory), format_module(format_name)
    model, _ = build(stored)
    compute = getattr(module, "compute", None)
    outputs: dict[str, Any] = {**model_outputs(model, as_graph=compute is not None)}
    if compute is not None:  # replace the outputs of the Keras model
        batch = ragged_batch(model.config)
        outputs.update(_comparable(compute(directory, batch), batch))
    if stored.tokenizer is not None:
        outputs.update(tokenizer_outputs(stored.tokenizer))
        if library_ids := getattr(module, "library_ids", None):
            found = library_ids(directory, comparison_texts(stored.tokenizer))
            outputs["library_ids"] = np.array(found) if isinstance(found, str) else _joined(found)
    with raise_write_errors(outputs_file):
        np.savez(outputs_file, **outputs)


if __name__ == "__main__":
    main(*sys.argv[1:])
