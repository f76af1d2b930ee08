"""Describes files: models, exported models, records, tokenizers and configurations."""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import compress, islice
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from albert_tf.checkpoints.archives import is_indirect
from albert_tf.checkpoints.errors import LoadError
from albert_tf.checkpoints.facts import Meeting, compare, config_facts
from albert_tf.checkpoints.formats.choose import open_model
from albert_tf.checkpoints.formats.huggingface import read_config
from albert_tf.checkpoints.formats.tf1_hub import GRAPH_FILE
from albert_tf.checkpoints.load_tokenizer import load_tokenizer as load_model_tokenizer
from albert_tf.checkpoints.loading import load
from albert_tf.checkpoints.stored_heads import heads_in
from albert_tf.checkpoints.stored_model import GLOBAL_STEP, StoredModel
from albert_tf.config import PRESETS
from albert_tf.data.errors import UserError, visible, without_secrets
from albert_tf.data.files import file_size, open_binary, read_file
from albert_tf.data.tfrecord import RecordError, count_records, read_records
from albert_tf.modeling.original_names import is_slot
from albert_tf.modeling.parameter_sharing import parameter_counts
from albert_tf.pretraining.instances import PREDICTION_FEATURES
from albert_tf.pretraining.record_checks import example_features
from albert_tf.pretraining.record_facts import VOCABULARY, stored_facts
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.library import JSON_FILE
from albert_tf.tokenization.loading import tokenizer_from_files
from albert_tf.training.training_directory import TrainingDirectory

Section = tuple[str, Mapping[str, object] | Sequence[str]]  # a title, and two columns or lines
_SHOWN = 8  # printed values of a list
_RECORDS_SHOWN = 3  # as pieces
_KINDS = {
    "original": "a release directory or training directory with checkpoints in the original format",
    "huggingface": "a Hugging Face directory",
    "keras": "a Keras file",
    "keras_hub": "a KerasHub preset",
    "tf2_hub": "the weights of a TF2 SavedModel, such as a TF-Hub encoder",
    "tf1_hub": "a TF-Hub module of TF1",
}
_RECORD_KINDS = {  # by a feature that identifies the kind
    "masked_lm_positions": "pretraining",
    "token_boundary": "pretraining, without masks",
    "label_ids": "classification or multiple choice",
    "start_positions": "question answering",
    "unique_ids": "question answering",
    "input_ids": "token sequences",
}


def describe(path: str) -> Iterator[str]:
    """Yields lines that describe a model of any format, records, a tokenizer or a configuration.

    Readable parts are yielded before `ValueError` is raised for a damaged or missing file.
    """
    for number, (title, content) in enumerate(_sections(path)):
        yield from [""] * (number > 0)
        yield visible(without_secrets(title))
        if isinstance(content, Mapping):
            content = [f"{k:28}  {f'{v:,}' if type(v) is int else v}" for k, v in content.items()]
        yield from (f"  {visible(line)}" for line in content)


def compare_vocabularies(paths: Sequence[str]) -> Iterator[str]:
    """Compares the vocabulary of each record file with the other paths. Yields a line per pair.

    Also yields the first records as pieces, unless their vocabulary is known to be another one.
    """
    records = {path: stored_facts(path) for path in paths if _is_record_file(path)}
    for path in [path for path in paths if records and path not in records]:
        with suppress(ValueError, OSError):  # has no tokenizer
            tokenizer = load_model_tokenizer(path)
            vocabulary = tokenizer.fingerprint
            for file, facts in records.items():
                is_same = facts.get(VOCABULARY, vocabulary) == vocabulary
                kind = "the vocabulary of" if is_same else "a DIFFERENT vocabulary from"
                if facts:
                    yield f"{file} was created with {kind} {path}"
                yield from _as_pieces(file, tokenizer) if is_same else ()


def _is_record_file(path: str) -> bool:
    with suppress(OSError, RecordError, tf.errors.OpError):
        return not is_indirect(path) and next(read_records(path), None) is not None
    return False


def _as_pieces(path: str, tokenizer: Tokenizer) -> Iterator[str]:
    """Yields the first records as pieces. A masked piece follows its replacement: "[MASK]=the"."""
    for number, payload in enumerate(islice(read_records(path), _RECORDS_SHOWN), start=1):
        features = example_features(payload, path, number)
        values = {n: [*f.int64_list.value, *f.float_list.value] for n, f in features.items()}
        tokens = dict(enumerate(tokenizer.tokens))
        pieces = [tokens.get(i, str(i)) for i in values.get("input_ids", ())]
        masked = (values.get(name, ()) for name in PREDICTION_FEATURES)
        for position, label, weight in zip(*masked, strict=True):
            pieces[position] += f"={tokens.get(label, label)}" * bool(weight)
        text = " ".join(compress(pieces, values.get("input_mask", ())))
        label = values.get("next_sentence_labels") or values.get("label_ids")
        yield f"{path}, record {number}, label {label}: {text}"


def _sections(path: str) -> Iterator[Section]:
    is_found = not is_indirect(path) and tf.io.gfile.exists(path)
    if is_found and not tf.io.gfile.isdir(path):
        yield from describe_file(path) or _model(path)
    elif is_found and (saved_model := find_saved_model(path)):
        yield from describe_saved_model(saved_model)
        try:
            open_model(saved_model)
        except LoadError as error:
            yield f"No command can load it: {error}", ()
        else:
            yield from _model(saved_model)
    else:
        yield from _model(path)


def find_saved_model(path: str) -> str | None:
    """Returns the directory of a SavedModel: `path` or its newest numbered subdirectory."""
    names = [name.rstrip("/") for name in tf.io.gfile.listdir(path)]
    versions = sorted(filter(str.isdecimal, names), key=int)
    folders = [path, *(os.path.join(path, name) for name in versions[-1:])]
    return next((f for f in folders if tf.io.gfile.exists(os.path.join(f, GRAPH_FILE))), None)


def describe_saved_model(path: str) -> Iterator[Section]:
    """Yields the signatures of a SavedModel. The graph is not run."""
    file = os.path.join(path, GRAPH_FILE)
    saved_model, signatures = saved_model_pb2.SavedModel(), {}
    try:
        saved_model.ParseFromString(read_file(file))
        graph = min(saved_model.meta_graphs, key=lambda graph: len(graph.meta_info_def.tags))
        names = [name for name in sorted(graph.signature_def) if not name.startswith("__")]
        for key in names:
            signature = graph.signature_def[key]
            outputs = ((f"-> {name}", info) for name, info in sorted(signature.outputs.items()))
            tensors = [*sorted(signature.inputs.items()), *outputs]
            signatures[f"Signature {key}"] = {name: _tensor_info(info) for name, info in tensors}
    except Exception as error:  # protobuf's DecodeError has no stable public name
        raise UserError(f"{file!r} is damaged: {error}") from error
    yield f"{path}: a SavedModel (TensorFlow {graph.meta_info_def.tensorflow_version})", ()
    yield from signatures.items()


def _tensor_info(info: Any) -> str:
    shape = info.tensor_shape
    return _tensor(info.dtype, None if shape.unknown_rank else [dim.size for dim in shape.dim])


def _tensor(dtype: Any, sizes: Sequence[int] | None) -> str:
    """Returns a description such as "int32 [?, 128]". `sizes` is `None` for an unknown rank."""
    texts = ["..."] if sizes is None else ["?" if size < 0 else str(size) for size in sizes]
    return f"{tf.as_dtype(dtype).name} [{', '.join(texts)}]"


def _values(values: Sequence[Any]) -> str:
    shown = [v.decode(errors="replace") if isinstance(v, bytes) else v for v in values[:_SHOWN]]
    texts = [f"{v:.4f}" if isinstance(v, float) else str(v) for v in shown]
    return ", ".join(texts) + (", ..." if len(values) > _SHOWN else "")


def describe_file(path: str) -> Iterator[Section] | None:
    """Returns sections that describe a file. `None` for files that may contain weights."""
    with open_binary(path, "rb") as file:
        start = file.read(12)
    if start[4:8] == b"TFL3":
        return _litert(path)
    if path.endswith(".onnx"):
        return _onnx(path)
    if path.endswith((".model", ".spm", ".vocab", ".txt", JSON_FILE)):
        return _tokenizer(path)
    if path.endswith(".json"):
        return _config(path)
    try:
        first = next(read_records(path), None)
    except RecordError:
        if ".tfrecord" in path:
            raise
        return None
    return None if first is None else _records(path, first)


def _megabytes(path: str) -> str:
    return f"{file_size(path) / 1e6:,.2f} MB"


def _litert(path: str) -> Iterator[Section]:
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        Interpreter = tf.lite.Interpreter
    yield f"{path}: a LiteRT model", ()
    try:
        interpreter = Interpreter(model_path=path)
        tensors = interpreter.get_tensor_details()
        inputs, outputs = interpreter.get_input_details(), interpreter.get_output_details()
    except (RuntimeError, ValueError) as error:
        raise UserError(f"{path!r} is damaged or not a LiteRT model: {error}") from error
    types = sorted({np.dtype(tensor["dtype"]).name for tensor in tensors})
    yield "File", {"size": _megabytes(path), "types of tensors": ", ".join(types)}
    for title, details in (("Inputs", inputs), ("Outputs", outputs)):
        yield title, {d["name"]: _tensor(d["dtype"], d["shape_signature"]) for d in details}


def _onnx(path: str) -> Iterator[Section]:
    yield f"{path}: an ONNX model", ()
    try:
        import onnx

        model = onnx.load(path, load_external_data=False)
        graph, dtype = model.graph, onnx.helper.tensor_dtype_to_np_dtype
        types = sorted({dtype(weight.data_type).name for weight in graph.initializer})
        tensors = {}
        for title, values in (("Inputs", graph.input), ("Outputs", graph.output)):
            tensors[title] = found = dict[str, str]()
            for value in values:
                form = (value.type.WhichOneof("value") or "unknown").removesuffix("_type")
                kind = value.type.tensor_type
                dims = (getattr(d, d.WhichOneof("value") or "", "?") for d in kind.shape.dim)
                sizes = ", ".join(map(str, dims)) if kind.HasField("shape") else "..."
                text = form if form != "tensor" else f"{dtype(kind.elem_type).name} [{sizes}]"
                found[value.name] = text
    except ModuleNotFoundError:
        yield "File", {"size": _megabytes(path)}
        return
    except Exception as error:  # of Protocol Buffers
        raise UserError(f"{path!r} is damaged or not an ONNX model: {error}") from error
    writer = f"{model.producer_name} {model.producer_version}".strip() or "unknown"
    facts = {"size": _megabytes(path), "written by": writer, "operations": len(graph.node)}
    yield "File", {**facts, "types of weights": ", ".join(types)}
    yield from tensors.items()


def _config(path: str) -> Iterator[Section]:
    config = read_config(path)
    counts = parameter_counts(config)
    yield f"{path}: a configuration", ()
    yield "Configuration", config.to_dict()
    yield "Parameters", {"encoder": counts.encoder, "with both heads": counts.pretraining}


def _tokenizer(path: str) -> Iterator[Section]:
    tokenizer = tokenizer_from_files(vocab_file=path)
    yield f"{path}: a tokenizer", ()
    yield "Tokenizer", _tokenizer_facts(tokenizer)
    ids = {name: getattr(tokenizer, f"{name}_id") for name in ("pad", "unk", "cls", "sep", "mask")}
    yield "Special tokens", {name: f"{i} {tokenizer.tokens[i]}" for name, i in ids.items()}


def _tokenizer_facts(tokenizer: Tokenizer) -> dict[str, object]:
    return {
        "kind": type(tokenizer).__name__.removesuffix("Tokenizer"),
        "entries": tokenizer.vocab_size,
        "vocabulary": tokenizer.fingerprint,
        "files": ", ".join([tokenizer.source, *tokenizer.files[1:]]),
    }


def _records(path: str, first: bytes) -> Iterator[Section]:
    features = dict(sorted(example_features(first, path, 1).items()))
    kinds = (kind for name, kind in _RECORD_KINDS.items() if name in features)
    yield f"{path}: records of {next(kinds, 'another kind')}", ()
    facts = stored_facts(path) or {VOCABULARY: "not stored"}
    pieces = {"pieces": "shown if a model or a tokenizer is passed as another path"}
    yield "File", {"records": count_records([path]), **facts, **pieces}
    found: dict[str, object] = {}
    for name, feature in features.items():
        kind = feature.WhichOneof("kind") or ""
        values = getattr(feature, kind).value if kind else []
        found[name] = f"{kind.removesuffix('_list')} [{len(values)}]: {_values(list(values))}"
    yield "First record", found


def _model(path: str) -> Iterator[Section]:
    stored = open_model(path)
    yield f"{path}: {_KINDS[stored.format]} ({stored.format})", ()
    yield "Weights", _weights(stored)
    config = stored.config
    if config is None:
        yield "Configuration", {"none": "pass --albert_config_file"}
        return
    releases = {name: config_facts(preset) for name, preset in PRESETS.items()}
    own = {path: config_facts(config)}
    same = [n for n, r in releases.items() if not compare({n: r, **own}, Meeting.LOAD)]
    released = {"equal to": ", ".join(same) or "no released model"}
    yield f"Configuration ({stored.config_file})", {**config.to_dict(), **released}
    model = load(path)
    encoder = parameter_counts(config).encoder
    total = sum(variable.shape.num_elements() for variable in model.weights)
    parameters = {"encoder": encoder, "heads": total - encoder, "all": total}
    yield f"Parameters of {type(model).__name__}", parameters
    if (task := model.trained_task) is not None:
        values = {"name": task.name, "max_seq_length": task.max_seq_length or "unknown"}
        values |= {"labels": ", ".join(task.labels.names)} if task.labels.names else {}
        texts = {True: "pairs", False: "single", None: "unknown"}[task.is_pair]
        yield "Task", {**values, "texts": texts, **task.settings}
    note = stored.stored_tokenizer.note
    notes = {"differences": note} if note else {}
    if model.tokenizer is None:
        yield "Tokenizer", {"kind": "none; pass --spm_model_file or --vocab_file", **notes}
        return
    facts = _tokenizer_facts(model.tokenizer)
    accents = {"keeps accents": True} if model.tokenizer.keep_accents else {}
    facts |= {"lower-cases": model.tokenizer.do_lower_case, **accents}
    yield "Tokenizer", {**facts, **notes}


def _weights(stored: StoredModel) -> dict[str, object]:
    shapes = stored.weights.shapes
    found: dict[str, object] = {"file": stored.checkpoint}
    if stored.format == "original":
        run = TrainingDirectory(os.path.dirname(stored.checkpoint))
        prefixes = filter(None, [*run.checkpoints(), run.best()])
        found["all checkpoints"] = ", ".join(map(os.path.basename, prefixes))
    weights = [name for name in shapes if not is_slot(name) and name != GLOBAL_STEP]
    found["variables"] = len(weights)
    found["parameters"] = sum(math.prod(shapes[name]) for name in weights)
    found["optimizer slots"] = sum(map(is_slot, shapes)) or "none"
    if GLOBAL_STEP in shapes:
        found["step"] = stored.weights.global_step
    found["heads"] = ", ".join(heads_in(shapes)) or "none"
    return found
