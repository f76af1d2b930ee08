"""What lies at a path that is no model to go on with: exported models, records, single files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from albert_tf.checkpoints.original import READ_ERRORS
from albert_tf.checkpoints.tf1_hub import GRAPH_FILE
from albert_tf.config import AlbertConfig
from albert_tf.data.files import open_binary
from albert_tf.data.records import example_features
from albert_tf.data.tfrecord import RecordError, count_records, read_records
from albert_tf.parameter_counts import parameter_counts
from albert_tf.text_layout import rows
from albert_tf.tokenization import SentencePieceTokenizer, Tokenizer, load_tokenizer

_TOKENIZER_ENDINGS = (".model", ".spm", ".vocab", ".txt")
_LITERT_MARK = b"TFL3"  # from byte 4 on
_SHOWN_VALUES = 8
# What TensorFlow raises where files are damaged or operations are missing.
_RUN_ERRORS = (*READ_ERRORS, KeyError, OSError)
_TEXT = "This is a short text."
# By what features the records of a kind are known.
_RECORD_KINDS = {
    "masked_lm_positions": "pretraining, masked",
    "token_boundary": "pretraining, to be masked while training",
    "label_ids": "a classification or multiple choice",
    "start_positions": "question answering",
    "unique_ids": "question answering",
    "input_ids": "token sequences",
}


def find_saved_model(path: str) -> str | None:
    """Returns the directory of a SavedModel: the path, or the newest of its numbered folders."""
    if tf.io.gfile.exists(os.path.join(path, GRAPH_FILE)):
        return path
    if not tf.io.gfile.isdir(path):
        return None
    versions = [name.rstrip("/") for name in tf.io.gfile.listdir(path)]
    versions = sorted((name for name in versions if name.isdecimal()), key=int)
    newest = os.path.join(path, versions[-1]) if versions else ""
    return newest if newest and tf.io.gfile.exists(os.path.join(newest, GRAPH_FILE)) else None


def describe_file(path: str) -> Iterator[str] | None:
    """Returns lines on a file that is no file of weights, None for all others.

    Raises:
        ValueError: it is damaged.
    """
    with open_binary(path, "rb") as file:
        start = file.read(12)
    if start[4:8] == _LITERT_MARK:
        return _litert(path)
    if path.endswith(".json"):
        return _config(path)
    if path.endswith(_TOKENIZER_ENDINGS):
        return _tokenizer(path)
    return _records(path) if ".tfrecord" in path or _is_record_file(path) else None


def describe_saved_model(path: str) -> Iterator[str]:
    """Yields lines on a SavedModel: what can be asked of it, and what it answers.

    Args:
        path: its directory, see `find_saved_model`.

    Raises:
        ValueError: it is damaged.
    """
    graph = _graph(path)
    yield f"{path}: a SavedModel (TensorFlow {graph.meta_info_def.tensorflow_version})"
    facts: dict[str, object] = {"size": _size(path)}
    for folder in ("assets", "assets.extra"):
        names = _names(os.path.join(path, folder))
        if names:
            facts[folder] = ", ".join(names)
    yield from rows("Files", facts)
    signatures = {k: v for k, v in graph.signature_def.items() if not k.startswith("__")}
    for key, signature in sorted(signatures.items()):
        ins, outs = (_tensors(infos) for infos in (signature.inputs, signature.outputs))
        yield from rows(
            f"Signature {key}", {**ins, **{f"-> {name}": v for name, v in outs.items()}}
        )
    yield ""
    yield "Sign of life of the graph"
    for line in _run(path, graph, signatures):
        yield f"  {line}"


def _graph(path: str) -> Any:
    file = os.path.join(path, GRAPH_FILE)
    saved_model = saved_model_pb2.SavedModel()
    try:
        with open_binary(file, "rb") as opened:
            saved_model.ParseFromString(opened.read())
        return min(saved_model.meta_graphs, key=lambda graph: len(graph.meta_info_def.tags))
    except Exception as error:  # protobuf's DecodeError is public under no stable name
        raise ValueError(f"{file!r} is damaged: {error}") from error


def _tensors(infos: Mapping[str, Any]) -> dict[str, object]:
    return {
        name: f"{_dtype_name(info.dtype)} {_shape(info.tensor_shape)}"
        for name, info in sorted(infos.items())
    }


def _dtype_name(number: int) -> str:
    try:
        return tf.as_dtype(number).name
    except TypeError:
        return f"unknown type {number}"


def _shape(shape: Any) -> str:
    if shape.unknown_rank:
        return "[...]"
    return f"[{', '.join('?' if dim.size < 0 else str(dim.size) for dim in shape.dim)}]"


def _names(folder: str) -> list[str]:
    return sorted(tf.io.gfile.listdir(folder)) if tf.io.gfile.isdir(folder) else []


def _size(path: str) -> str:
    files = [path]
    if tf.io.gfile.isdir(path):
        walked = tf.io.gfile.walk(path)
        files = [os.path.join(folder, name) for folder, _, names in walked for name in names]
    return f"{sum(tf.io.gfile.stat(file).length for file in files) / 1e6:,.2f} MB"


def _run(path: str, graph: Any, signatures: Mapping[str, Any]) -> Iterator[str]:
    """Runs a signature that takes token ids, or texts; on others nothing is known to be given."""
    for key, signature in sorted(signatures.items(), reverse=True):
        samples = {name: _sample(info, name) for name, info in sorted(signature.inputs.items())}
        given = {name: value for name, value in samples.items() if value is not None}
        if not given or len(given) < len(samples):
            continue
        loaded = _load(path, list(graph.meta_info_def.tags))
        try:
            outputs = loaded.signatures[key](**given)
        except _RUN_ERRORS as error:
            raise ValueError(f"{path!r} has a signature {key} that fails: {error}") from error
        yield f"{key}({', '.join(f'{n}={v.numpy().tolist()}' for n, v in given.items())})"
        for name, value in sorted(outputs.items()):
            values = np.ravel(value.numpy())
            shown = ", ".join(_value(v) for v in values[:_SHOWN_VALUES])
            more = ", ..." if values.size > _SHOWN_VALUES else ""
            yield f"  {name} {list(value.shape)}: {shown}{more}"
        return
    yield "none: no signature takes only token ids or only texts"


def _load(path: str, tags: list[str]) -> Any:
    try:
        return tf.saved_model.load(path, tags=tags)
    except _RUN_ERRORS:
        with suppress(ImportError):  # registers what models that take texts consist of
            import tensorflow_text  # noqa: F401
    try:
        return tf.saved_model.load(path, tags=tags)
    except _RUN_ERRORS as error:
        raise ValueError(f"{path!r} cannot be loaded: {error}") from error


def _sample(info: Any, name: str) -> tf.Tensor | None:
    """Something to give an input: three tokens of one text, or a text; None where it is unclear."""
    sizes = [1 if dim.size < 0 else dim.size for dim in info.tensor_shape.dim]
    rank = len(sizes)
    if info.dtype == tf.int32.as_datatype_enum and rank in (2, 3):
        sizes[-1] = 3 if info.tensor_shape.dim[-1].size < 0 else sizes[-1]
        return tf.fill(sizes, 0 if "segment" in name or "type" in name else 1)
    is_text = info.dtype == tf.string.as_datatype_enum and name not in ("input", "examples")
    return tf.fill(sizes, _TEXT) if is_text and rank in (1, 2) else None


def _value(value: object) -> str:
    if isinstance(value, bytes):
        return repr(value.decode(errors="replace"))
    return f"{value:.4f}" if isinstance(value, float | np.floating) else str(value)


def _litert(path: str) -> Iterator[str]:
    yield f"{path}: a LiteRT model"
    try:
        interpreter = _interpreter(path)
        yield from rows("File", {"size": _size(path)})
        for title, details in (
            ("Inputs", interpreter.get_input_details()),
            ("Outputs", interpreter.get_output_details()),
        ):
            shapes = {
                d["name"]: f"{np.dtype(d['dtype']).name} "
                f"[{', '.join('?' if n < 0 else str(n) for n in d['shape_signature'])}]"
                for d in details
            }
            yield from rows(title, shapes)
        kinds = {np.dtype(d["dtype"]).name for d in interpreter.get_tensor_details()}
        yield from rows("Tensors", {"types": ", ".join(sorted(kinds))})
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"{path!r} is damaged, or no LiteRT model: {error}") from error


def _interpreter(path: str) -> Any:
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        Interpreter = tf.lite.Interpreter
    return Interpreter(model_path=path)


def _config(path: str) -> Iterator[str]:
    config = AlbertConfig.from_json_file(path)
    yield f"{path}: a configuration"
    yield from rows("Configuration", config.to_dict())
    counts = parameter_counts(config)
    yield from rows(
        "Parameters", {"encoder": counts.encoder, "with both heads": counts.pretraining}
    )


def _tokenizer(path: str) -> Iterator[str]:
    tokenizer = load_tokenizer(vocab_file=path)
    yield f"{path}: a tokenizer"
    yield from rows("Tokenizer", tokenizer_facts(tokenizer))
    special = {
        name: f"{number} {tokenizer.tokens[number]}"
        for name, number in {
            "padding": tokenizer.pad_id,
            "unknown": tokenizer.unk_id,
            "first of a sequence": tokenizer.cls_id,
            "end of a text": tokenizer.sep_id,
            "blank": tokenizer.mask_id,
        }.items()
    }
    yield from rows("Special tokens", special)
    yield from rows("Sign of life", {_TEXT: " ".join(tokenizer.tokenize(_TEXT))})


def tokenizer_facts(tokenizer: Tokenizer) -> dict[str, object]:
    """Returns what can be told of a tokenizer, by name."""
    is_pieces = isinstance(tokenizer, SentencePieceTokenizer)
    return {
        "kind": "SentencePiece" if is_pieces else "WordPiece",
        "entries": tokenizer.vocab_size,
        "files": ", ".join(tokenizer.files),
    }


def _is_record_file(path: str) -> bool:
    try:
        return next(read_records(path), None) is not None
    except RecordError:
        return False


def _records(path: str) -> Iterator[str]:
    payload = next(read_records(path), None)
    if payload is None:
        raise ValueError(f"{path!r} is a file of records without any record.")
    features = example_features(payload, path, 1)
    kinds = (kind for name, kind in _RECORD_KINDS.items() if name in features)
    yield f"{path}: records of {next(kinds, 'another kind')}"
    yield from rows("File", {"size": _size(path), "records": count_records([path])})
    found: dict[str, object] = {}
    for name, feature in sorted(features.items()):
        kind = feature.WhichOneof("kind") or "empty"
        values = list(getattr(feature, kind).value) if kind != "empty" else []
        shown = ", ".join(_value(value) for value in values[:_SHOWN_VALUES])
        more = ", ..." if len(values) > _SHOWN_VALUES else ""
        found[name] = f"{kind.removesuffix('_list')} [{len(values)}]: {shown}{more}"
    yield from rows("First record", found)
