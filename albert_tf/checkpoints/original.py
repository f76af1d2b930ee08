"""Checkpoints of the original release: name-based, read and written.

The original's names are the canonical ones: a format of another library is a map from its names to
these. Nothing here goes through `tf.train.Checkpoint`, which restores nothing from a name-based
file and does not say so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.checkpoints import formats
from albert_tf.checkpoints.bundle_index import check_index, check_variants
from albert_tf.checkpoints.report import (
    TRANSFORMER_SCOPE,
    DamagedError,
    LoadError,
    LoadReport,
)
from albert_tf.checkpoints.shipped import HINT
from albert_tf.checkpoints.stored_model import WeightsReader
from albert_tf.checkpoints.warm_start import names_by_place
from albert_tf.config import AlbertConfig
from albert_tf.data.files import explain_write_errors, reason_of, remove, rename, temporary_folder
from albert_tf.encoder import AlbertEncoder
from albert_tf.heads import ClassificationHead, MaskedLmHead
from albert_tf.layers import LayerNorm, Projection, TransformerBlock
from albert_tf.parameter_sharing import (
    BlockPlace,
    attention_norm_name,
    block_places,
    feed_forward_norm_name,
)
from albert_tf.span_heads import SpanBeamHead, SpanHead

GLOBAL_STEP = "global_step"
DATA_SUFFIX = ".data-00000-of-00001"
HUB_SCOPE = "module/"  # before the encoder's names when the original trains a TF-Hub module
PARTIAL = ".partial"  # ended the prefix of a checkpoint being written until version 0.1
SLOT_NAMES = ("adam_m", "adam_v")
_POOLER = "bert/pooler/"
# What TensorFlow's checkpoint reader raises, depending on the damage.
READ_ERRORS = (tf.errors.OpError, ValueError, RuntimeError, IndexError)
# Those of them that say nothing of the files: trying again later may well succeed.
_PASSING_ERRORS = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.PermissionDeniedError,
    tf.errors.ResourceExhaustedError,
    tf.errors.UnauthenticatedError,
    tf.errors.UnavailableError,
)

NamedVariables = Iterator[tuple[str, keras.Variable]]


def original_names(model: keras.Model) -> dict[str, keras.Variable]:
    """Returns the model's variables by the original release's names, in its order of creation.

    Args:
        model: an `AlbertEncoder`, or a model with one as `encoder` and heads beside it.
    """
    if isinstance(model, AlbertEncoder):
        return dict(_encoder(model))
    names = dict(_encoder(model.encoder))
    for layer in model.layers:
        if isinstance(layer, MaskedLmHead):
            names.update(_masked_lm_head(layer))
        elif isinstance(layer, ClassificationHead):
            # A classifier's variables stand at the top, those of pretraining below "cls".
            is_sentence_order = layer is getattr(model, "sentence_order_head", None)
            scope = "cls/seq_relationship/" if is_sentence_order else ""
            names[f"{scope}output_weights"] = layer.output_weights
            names[f"{scope}output_bias"] = layer.output_bias
        elif isinstance(layer, SpanHead):
            names["cls/squad/output_weights"] = layer.output_weights
            names["cls/squad/output_bias"] = layer.output_bias
        elif isinstance(layer, SpanBeamHead):
            names.update(_span_beam_head(layer))
    return names


def _encoder(encoder: AlbertEncoder) -> NamedVariables:
    embeddings = encoder.embeddings
    yield "bert/embeddings/word_embeddings", embeddings.word_embeddings
    yield "bert/embeddings/token_type_embeddings", embeddings.token_type_embeddings
    yield "bert/embeddings/position_embeddings", embeddings.position_embeddings
    yield from _layer_norm("bert/embeddings/LayerNorm", embeddings.layer_norm)
    if encoder.embedding_projection is not None:
        yield from _projection(
            "bert/encoder/embedding_hidden_mapping_in", encoder.embedding_projection
        )
    for place, block in zip(block_places(encoder.config), encoder.blocks, strict=True):
        yield from _block(place, block)
    yield from _projection("bert/pooler/dense", encoder.pooler)


def _block(place: BlockPlace, block: TransformerBlock) -> NamedVariables:
    """The variables of a block; blocks that share a part give it the same names."""
    scope = f"{TRANSFORMER_SCOPE}{place.scope}"
    attention, attention_scope = block.attention, f"{scope}/attention_{place.attention}"
    yield from _projection(f"{attention_scope}/self/query", attention.query)
    yield from _projection(f"{attention_scope}/self/key", attention.key)
    yield from _projection(f"{attention_scope}/self/value", attention.value)
    yield from _projection(f"{attention_scope}/output/dense", attention.output_projection)
    norm_name = attention_norm_name(place.attention)
    yield from _layer_norm(f"{scope}/{norm_name}", block.attention_norm)
    feed_forward, ffn_scope = block.feed_forward, f"{scope}/ffn_{place.feed_forward}"
    yield from _projection(f"{ffn_scope}/intermediate/dense", feed_forward.intermediate)
    yield from _projection(f"{ffn_scope}/intermediate/output/dense", feed_forward.output_projection)
    norm_name = feed_forward_norm_name(place.feed_forward)
    yield from _layer_norm(f"{scope}/{norm_name}", block.feed_forward_norm)


def _masked_lm_head(head: MaskedLmHead) -> NamedVariables:
    yield from _projection("cls/predictions/transform/dense", head.transform)
    yield from _layer_norm("cls/predictions/transform/LayerNorm", head.layer_norm)
    yield "cls/predictions/output_bias", head.output_bias


def _span_beam_head(head: SpanBeamHead) -> NamedVariables:
    yield from _projection("start_logits/dense", head.start_dense)
    yield from _projection("end_logits/dense_0", head.end_dense_0)
    yield from _layer_norm("end_logits/LayerNorm", head.end_layer_norm)
    yield from _projection("end_logits/dense_1", head.end_dense_1)
    yield from _projection("answer_class/dense_0", head.answer_dense_0)
    yield "answer_class/dense_1/kernel", head.answer_weights


def _projection(scope: str, layer: Projection) -> NamedVariables:
    yield f"{scope}/kernel", layer.kernel
    yield f"{scope}/bias", layer.bias


def _layer_norm(scope: str, layer: LayerNorm) -> NamedVariables:
    yield f"{scope}/beta", layer.beta
    yield f"{scope}/gamma", layer.gamma


def find_checkpoint(path: str, flag: str = "--init_checkpoint") -> str:
    """Returns the prefix of the checkpoint in the original's format that a user's path means.

    Args:
        path: a prefix (`model.ckpt-100`), one of its files (`model.ckpt-100.index`), or a
            directory, which stands for its newest checkpoint by its `checkpoint` file, else for
            its `model.ckpt-best`, else for the only checkpoint in it.
        flag: the flag the path came from, for messages.

    Raises:
        LoadError: there is no checkpoint, or several and nothing says which.
    """
    prefix = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", path)
    if tf.io.gfile.exists(prefix + ".index"):
        return prefix
    if not tf.io.gfile.isdir(path):
        raise LoadError(
            f"There is no checkpoint {path!r} ({flag}): no file {prefix + '.index'!r}. {HINT}"
        )
    named = named_checkpoint(path)
    if named and tf.io.gfile.exists(os.path.join(path, named) + ".index"):
        return os.path.join(path, named)
    found = _prefixes(path)
    if not found:
        raise LoadError(_no_model(path, flag))
    best = [prefix for prefix in found if prefix.endswith("model.ckpt-best")]
    if len(best or found) != 1:
        raise LoadError(
            f"Expected one checkpoint in the directory {path!r} ({flag}), found {len(found)}: "
            f"{', '.join(found)}. Give the prefix of one."
        )
    return (best or found)[0]


def named_checkpoint(directory: str) -> str | None:
    """Returns the name of the newest checkpoint by the file `checkpoint`, None where it says none.

    Only the name counts: the directory may have been copied from where it was written. A damaged
    file is passed over with a warning.
    """
    try:
        state = tf.train.get_checkpoint_state(directory)
    except ValueError as error:  # empty, or no UTF-8 text; TensorFlow warns of other damage
        logging.warning(
            "%s is damaged (%s) and is passed over; the names of the other files tell the newest "
            "checkpoint",
            os.path.join(directory, "checkpoint"),
            error,
        )
        return None
    return os.path.basename(state.model_checkpoint_path) if state else None


def _no_model(directory: str, flag: str) -> str:
    """What to say of a directory without weights of any format."""
    names = sorted(name.rstrip("/") for name in tf.io.gfile.listdir(directory))
    halves = [
        name for name in names if re.search(r"\.data-\d+-of-\d+$", name) and PARTIAL not in name
    ]
    if halves:
        return (
            f"{flag}={directory} holds half a checkpoint: {halves[0]} is there, but the .index "
            "file that belongs to it is missing. Copy both."
        )
    some = ", ".join(names[:8]) + (", ..." if names[8:] else "")
    return (
        f"There is no model in the directory {directory!r} ({flag}): no checkpoint (model.ckpt-* "
        "with .index), no saved_model.pb, model.safetensors, pytorch_model.bin or "
        f"model.weights.h5. It holds: {some or 'nothing'}."
    )


def has_checkpoint(directory: str) -> bool:
    """Whether there is a checkpoint in a directory, in the original's format."""
    return bool(_prefixes(directory))


def _prefixes(directory: str) -> list[str]:
    """Those of all checkpoints in a directory that are written to their end."""
    if not tf.io.gfile.isdir(directory):
        return []
    # No pattern: a directory's own name may hold its signs, as in "runs [old]".
    indices = [name for name in tf.io.gfile.listdir(directory) if name.endswith(".index")]
    return sorted(
        os.path.join(directory, name[: -len(".index")])
        for name in indices
        if f"{PARTIAL}." not in name
    )


def match_names(
    model_names: Iterable[str],
    stored_names: Iterable[str],
    warm_start: AlbertConfig | None = None,
) -> dict[str, str]:
    """Maps model variables to the names in a checkpoint that fill them.

    Args:
        model_names: names of the model's variables.
        stored_names: names in the checkpoint.
        warm_start: None matches equal names only. The model's configuration lets the checkpoint
            have other layers and share other parts: a variable of a block takes the value of the
            part at its height, see `names_by_place`.

    Differs: the original's own matching leaves some of these variables unfilled while reporting
        them as restored, and knows no height: it fills from group 0 what has no equal name.
    """
    names, stored = list(model_names), set(stored_names)
    places = names_by_place(names, stored, warm_start) if warm_start else {}
    matches = {}
    for name in names:
        candidates = [places.get(name, name)]
        candidates += [HUB_SCOPE + candidate for candidate in candidates]
        match = next((candidate for candidate in candidates if candidate in stored), None)
        if match is not None:
            matches[name] = match
    return matches


def load_weights(
    model: keras.Model,
    path: str,
    *,
    init_from_group0: bool = False,
    allow_partial: bool = False,
    skip: Mapping[str, str] | None = None,
) -> LoadReport:
    """Fills a model from a checkpoint of the original release, or from a model of any format.

    Args:
        model: see `original_names`.
        path: see `formats.recognise`.
        init_from_group0: fill a less shared or deeper model, see `warm_start` of `match_names`.
        allow_partial: accept encoder variables that the checkpoint does not fill, and blocks of
            the checkpoint that the model has no place for.
        skip: variables to leave as they are even where the checkpoint has values of their shape,
            and why, as in `{"output_weights": "other labels"}`.

    Returns:
        What was mapped, missing, skipped, ignored (slots and the step are not counted) or of
        another shape.

    Raises:
        LoadError: no such checkpoint, a damaged one, one that does not fill the encoder, or one of
            a model that shares less; the model is left as it was.
    """
    prefix = formats.find_weights(path)
    variables = original_names(model)
    reader, shapes = open_checkpoint(prefix)
    skip = {name: why for name, why in (skip or {}).items() if name in variables}
    wanted = [name for name in variables if name not in skip]
    encoder = model if isinstance(model, AlbertEncoder) else model.encoder
    matches = match_names(wanted, shapes, encoder.config if init_from_group0 else None)
    mismatched = [
        (name, tuple(shapes[stored]), tuple(variables[name].shape))
        for name, stored in matches.items()
        if tuple(shapes[stored]) != tuple(variables[name].shape)
    ]
    mapped = {
        name: stored
        for name, stored in matches.items()
        if name not in {row[0] for row in mismatched}
    }
    missing = [name for name in wanted if name not in matches]
    report = LoadReport(
        source=prefix,
        mapped=mapped,
        missing=missing,
        ignored=[
            name
            for name in shapes
            if name not in {*matches.values(), *skip, GLOBAL_STEP} and not is_slot(name)
        ],
        mismatched=mismatched,
        skipped=skip,
        unused=[] if _uses_pooler(model) else [n for n in missing if n.startswith(_POOLER)],
    )
    report.check_encoder(allow_partial)
    if not (allow_partial or init_from_group0):
        report.check_no_block_is_left()
    values = read_variables(reader, prefix, mapped.values())
    for name, stored in mapped.items():
        variables[name].assign(values[stored])
    return report


def _uses_pooler(model: keras.Model) -> bool:
    """Whether an output of the model is made from the pooled one; other libraries leave it out."""
    return isinstance(model, AlbertEncoder) or any(
        isinstance(layer, ClassificationHead) for layer in model.layers
    )


def is_slot(name: str) -> bool:
    """Whether a variable is a moment of an optimizer."""
    return name.rsplit("/", 1)[-1] in SLOT_NAMES


def open_checkpoint(prefix: str) -> tuple[WeightsReader, dict[str, list[int]]]:
    """Returns a reader of a checkpoint of any format, and the shape of every variable in it.

    Args:
        prefix: of TensorFlow's files, or the file of weights; see `StoredModel.checkpoint`.

    Raises:
        DamagedError: the files are not a checkpoint, or are damaged.
        LoadError: they cannot be reached.
    """
    reader = formats.open_weights(prefix)
    return reader, dict(sorted(reader.get_variable_to_shape_map().items()))


def open_tensorflow_checkpoint(prefix: str) -> WeightsReader:
    """Returns TensorFlow's reader of a checkpoint, name-based or not.

    Raises:
        DamagedError: the files are not a checkpoint, or are damaged.
        LoadError: they cannot be reached.
    """
    check_index(prefix)
    try:
        reader = tf.train.load_checkpoint(prefix)
        reader.get_variable_to_shape_map()  # fails where names are no text
    except READ_ERRORS as error:
        if "[" in prefix and tf.io.gfile.exists(f"{prefix}.index"):
            raise LoadError(
                f"{prefix!r} cannot be read: TensorFlow takes the [ in its path for a pattern of "
                "names. Rename the directory, or give the checkpoint by another path (a link)."
            ) from error
        raise _kind(error)(
            f"{prefix!r} cannot be read as a checkpoint: {reason_of(error)}"
        ) from error
    return reader


def _kind(error: Exception) -> type[LoadError]:
    if isinstance(error, LoadError):  # of a format that says itself what is wrong
        return type(error)
    return LoadError if isinstance(error, _PASSING_ERRORS) else DamagedError


def read_variables(
    reader: WeightsReader, prefix: str, names: Iterable[str]
) -> dict[str, np.ndarray]:
    """Returns the values of some variables of an open checkpoint.

    Args:
        reader: from `open_checkpoint`.
        prefix: of the checkpoint, for messages.
        names: of variables that are in it.

    Raises:
        DamagedError: the data file is missing or damaged.
        LoadError: it cannot be reached.
    """
    try:
        return {name: reader.get_tensor(name) for name in names}
    except READ_ERRORS as error:
        raise _kind(error)(f"The checkpoint {prefix!r} is damaged: {reason_of(error)}") from error


def check_tensors(prefix: str) -> None:
    """Reads every tensor of an object-based checkpoint and compares its checksum.

    Args:
        prefix: of what `tf.train.Checkpoint.write` wrote; the state of an input may be in it.

    Raises:
        DamagedError: a file is missing or damaged.
        LoadError: it cannot be reached.
    """
    check_index(prefix)
    check_variants(prefix)
    try:
        dtypes = tf.train.load_checkpoint(prefix).get_variable_to_dtype_map()
        tf.raw_ops.RestoreV2(  # unlike the reader, it takes the variants that iterators are
            prefix=prefix,
            tensor_names=list(dtypes),
            shape_and_slices=[""] * len(dtypes),
            dtypes=list(dtypes.values()),
        )
    except READ_ERRORS as error:
        raise _kind(error)(f"{prefix!r} is damaged: {reason_of(error)}") from error


def read_global_step(prefix: str) -> int:
    """Returns the training step a checkpoint was written at, 0 where it does not say."""
    reader, shapes = open_checkpoint(prefix)
    if GLOBAL_STEP not in shapes:
        return 0
    return int(read_variables(reader, prefix, [GLOBAL_STEP])[GLOBAL_STEP])


def slot_variables(
    model: keras.Model, optimizer: keras.optimizers.Optimizer
) -> dict[str, keras.Variable]:
    """Returns the optimizer's moments by the original's names, `<variable>/adam_m` and `adam_v`.

    Args:
        model: see `original_names`.
        optimizer: an `AdamWeightDecay` or `Lamb`, built for the model's variables.
    """
    return {
        f"{name}/{slot}": moment
        for name, variable in original_names(model).items()
        if variable.trainable  # of others the original keeps no moments
        for slot, moment in optimizer.slots(variable).items()
    }


def write_checkpoint(prefix: str, variables: Mapping[str, Any], global_step: int | None) -> None:
    """Writes a name-based checkpoint; under its final name it is complete or absent.

    Args:
        prefix: where to, without `.index`.
        variables: values (variables, tensors or arrays) by the original's names.
        global_step: the training step, stored as int64 beside them; None stores none.

    Raises:
        WriteError: there is no room, or nothing may be written there.
    """
    values = {name: tf.convert_to_tensor(value) for name, value in variables.items()}
    if global_step is not None:
        values[GLOBAL_STEP] = tf.constant(np.int64(global_step))
    with new_checkpoint(prefix) as temporary:
        tf.raw_ops.SaveV2(
            prefix=temporary,
            tensor_names=list(values),
            shape_and_slices=[""] * len(values),
            tensors=list(values.values()),
        )


@contextmanager
def new_checkpoint(prefix: str) -> Iterator[str]:
    """Gives a prefix to write a checkpoint to, which becomes `prefix` if the block ends well.

    Raises:
        WriteError: there is no room, or nothing may be written there.
    """
    with explain_write_errors(prefix), temporary_folder(prefix) as folder:
        temporary = os.path.join(folder, os.path.basename(prefix))
        yield temporary
        # The index goes first when the old checkpoint leaves and last when the new one comes:
        # without an index, no reader takes a data file for a checkpoint.
        for suffix in (".index", DATA_SUFFIX):
            remove(prefix + suffix)
        for suffix in (DATA_SUFFIX, ".index"):
            rename(temporary + suffix, prefix + suffix)
