"""Describes files and directories: models with a sample output, exported models, records."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from albert_tf.checkpoints.archives import is_indirect
from albert_tf.checkpoints.formats import locate, open_model
from albert_tf.checkpoints.heads import heads_in
from albert_tf.checkpoints.load_tokenizer import load_tokenizer as load_model_tokenizer
from albert_tf.checkpoints.loading import build, without_scope
from albert_tf.checkpoints.model_contents import StoredModel
from albert_tf.checkpoints.model_directory import essential_differences
from albert_tf.checkpoints.model_source import ModelSettings, resolve_model
from albert_tf.checkpoints.names import suggestion
from albert_tf.checkpoints.original import GLOBAL_STEP, read_variables
from albert_tf.checkpoints.report import LoadError
from albert_tf.checkpoints.tf1_hub import GRAPH_FILE
from albert_tf.checkpoints.training_directory import TrainingDirectory
from albert_tf.classification.text_classifier import TextClassifier
from albert_tf.config import PRESETS, AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.data.files import file_size, open_binary
from albert_tf.data.records import example_features
from albert_tf.data.tfrecord import RecordError, count_records, read_records
from albert_tf.finetuning.encode_texts import TextEncoder
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForMultipleChoice,
    AlbertForPretraining,
    AlbertForQuestionAnswering,
    AlbertForQuestionAnsweringWithBeamSearch,
    AlbertForTokenClassification,
)
from albert_tf.modeling.original_names import is_slot
from albert_tf.modeling.parameter_sharing import parameter_counts
from albert_tf.multiple_choice.choose import MultipleChoice
from albert_tf.pretraining.fill_mask import FillMask
from albert_tf.pretraining.vocabulary import stored_fingerprint, vocabulary_fingerprint
from albert_tf.squad.ask import QuestionAnswerer
from albert_tf.token_classification.token_classifier import TokenClassifier
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.loading import load_tokenizer

_SHOWN = 8  # printed values of a list
_KINDS = {
    "original": "a release directory or training directory with checkpoints in the original format",
    "huggingface": "a Hugging Face directory",
    "keras_hub": "a KerasHub preset",
    "tf2_hub": "the weights of a TF2 SavedModel, such as a TF-Hub encoder",
    "tf1_hub": "a TF-Hub module of TF1",
}
_RECORD_KINDS = {  # by a feature that identifies the kind
    "masked_lm_positions": "pretraining, masked",
    "token_boundary": "pretraining, to be masked while training",
    "label_ids": "a classification or multiple choice",
    "start_positions": "question answering",
    "unique_ids": "question answering",
    "input_ids": "token sequences",
}
# Two sentences, a blank, a question, its context and two options.
_ENGLISH = (
    "The film was a joy from start to end.",
    "I would watch it again.",
    "The capital of France is the [MASK] of Paris.",
    "Who wrote the book?",
    "The book was written by Anna in 1921.",
    ("Anna", "Paul"),
)
_CHINESE = (
    "这部电影从头到尾都很好看。",
    "我还想再看一次。",
    "北京是中国的首[MASK]。",
    "这本书是谁写的？",
    "这本书是安娜在1921年写的。",
    ("安娜", "保罗"),
)


def describe(path: str) -> Iterator[str]:
    """Yields lines that describe a path.

    Args:
        path: a model of any format (see `albert_tf.load`), a SavedModel, a LiteRT model, a file of
            records, a tokenizer, or a configuration.

    Raises:
        ValueError: the path does not exist or cannot be read. Readable parts are yielded first.
    """
    if is_indirect(path):
        yield from _model(path)
        return
    is_file = tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path)
    if not (tf.io.gfile.exists(path) or tf.io.gfile.exists(f"{path}.index")):
        raise UserError(f"There is no file or directory {path!r}. {suggestion(path)}")
    if saved_model := find_saved_model(path):
        yield from describe_saved_model(saved_model)
        yield ""
        try:
            open_model(locate(saved_model))
        except LoadError as error:
            yield f"No command can load it: {error}"
        else:
            yield from _model(saved_model)
    else:
        yield from (describe_file(path) if is_file else None) or _model(path)


def compare_vocabularies(paths: Sequence[str]) -> Iterator[str]:
    """Yields whether record files were created with the vocabularies of the tokenizers.

    Record files without a fingerprint are skipped, see `pretraining.vocabulary`.
    """
    stored = {path: stored_fingerprint(path) for path in paths if not is_indirect(path)}
    records = {path: fingerprint for path, fingerprint in stored.items() if fingerprint}
    for path in [path for path in paths if records and path not in records]:
        with suppress(ValueError, OSError):  # has no tokenizer
            vocabulary = vocabulary_fingerprint(load_model_tokenizer(path).tokens)
            for file, fingerprint in records.items():
                is_same = fingerprint == vocabulary
                kind = "the vocabulary of" if is_same else "ANOTHER vocabulary than"
                yield f"{file} was created with {kind} {path}"


def find_saved_model(path: str) -> str | None:
    """Returns the directory of a SavedModel: the path or its newest numbered subdirectory."""
    names = tf.io.gfile.listdir(path) if tf.io.gfile.isdir(path) else []
    versions = sorted((n for n in (n.rstrip("/") for n in names) if n.isdecimal()), key=int)
    folders = [path, *(os.path.join(path, name) for name in versions[-1:])]
    return next((f for f in folders if tf.io.gfile.exists(os.path.join(f, GRAPH_FILE))), None)


def describe_saved_model(path: str) -> Iterator[str]:
    """Yields the signatures of a SavedModel. The graph is not run."""
    file = os.path.join(path, GRAPH_FILE)
    saved_model = saved_model_pb2.SavedModel()
    try:
        with open_binary(file, "rb") as opened:
            saved_model.ParseFromString(opened.read())
        graph = min(saved_model.meta_graphs, key=lambda graph: len(graph.meta_info_def.tags))
    except Exception as error:  # protobuf's DecodeError has no stable public name
        raise UserError(f"{file!r} is damaged: {error}") from error
    yield f"{path}: a SavedModel (TensorFlow {graph.meta_info_def.tensorflow_version})"
    for key, signature in sorted(graph.signature_def.items()):
        tensors = [*sorted(signature.inputs.items())]
        tensors += [(f"-> {name}", info) for name, info in sorted(signature.outputs.items())]
        if not key.startswith("__"):
            yield from _rows(f"Signature {key}", {name: _tensor(info) for name, info in tensors})


def _rows(title: str, values: Mapping[str, object]) -> Iterator[str]:
    """Yields an empty line, a title, and two columns."""
    yield from ("", title)
    for name, value in values.items():
        text = f"{value:,}" if type(value) is int else value
        yield f"  {name:28}  {text}"


def _tensor(info: Any) -> str:
    try:
        dtype = tf.as_dtype(info.dtype).name
    except TypeError:
        dtype = f"unknown type {info.dtype}"
    sizes = ["?" if dim.size < 0 else str(dim.size) for dim in info.tensor_shape.dim]
    return f"{dtype} [{'...' if info.tensor_shape.unknown_rank else ', '.join(sizes)}]"


def _values(values: Sequence[Any]) -> str:
    shown = [v.decode(errors="replace") if isinstance(v, bytes) else v for v in values[:_SHOWN]]
    texts = [f"{v:.4f}" if isinstance(v, float) else str(v) for v in shown]
    return ", ".join(texts) + (", ..." if len(values) > _SHOWN else "")


def describe_file(path: str) -> Iterator[str] | None:
    """Returns lines that describe a file. `None` for files that may contain weights."""
    with open_binary(path, "rb") as file:
        start = file.read(12)
    if start[4:8] == b"TFL3":
        return _litert(path)
    if path.endswith(".json"):
        return _config(path)
    if path.endswith((".model", ".spm", ".vocab", ".txt")):
        return _tokenizer(path)
    payload = None
    try:
        payload = next(read_records(path), None)
    except RecordError:
        if ".tfrecord" in path:
            raise
    return _records(path, payload) if payload is not None else None


def _litert(path: str) -> Iterator[str]:
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        Interpreter = tf.lite.Interpreter
    yield f"{path}: a LiteRT model"
    try:
        interpreter = Interpreter(model_path=path)
        types = {np.dtype(d["dtype"]).name for d in interpreter.get_tensor_details()}
    except (RuntimeError, ValueError) as error:
        raise UserError(f"{path!r} is damaged or not a LiteRT model: {error}") from error
    size = f"{file_size(path) / 1e6:,.2f} MB"
    yield from _rows("File", {"size": size, "types of tensors": ", ".join(sorted(types))})
    ends = {"Inputs": interpreter.get_input_details(), "Outputs": interpreter.get_output_details()}
    for title, details in ends.items():
        tensors = {}
        for detail in details:
            sizes = ["?" if size < 0 else str(size) for size in detail["shape_signature"]]
            tensors[detail["name"]] = f"{np.dtype(detail['dtype']).name} [{', '.join(sizes)}]"
        yield from _rows(title, tensors)


def _config(path: str) -> Iterator[str]:
    config = AlbertConfig.from_json_file(path)
    counts = parameter_counts(config)
    yield f"{path}: a configuration"
    yield from _rows("Configuration", config.to_dict())
    parameters = {"encoder": counts.encoder, "with both heads": counts.pretraining}
    yield from _rows("Parameters", parameters)


def _tokenizer(path: str) -> Iterator[str]:
    tokenizer = load_tokenizer(vocab_file=path)
    yield f"{path}: a tokenizer"
    yield from _rows("Tokenizer", _tokenizer_facts(tokenizer))
    ids = {name: getattr(tokenizer, f"{name}_id") for name in ("pad", "unk", "cls", "sep", "mask")}
    yield from _rows("Special tokens", {n: f"{i} {tokenizer.tokens[i]}" for n, i in ids.items()})
    yield from _rows("Sample output", {_ENGLISH[0]: " ".join(tokenizer.tokenize(_ENGLISH[0]))})


def _tokenizer_facts(tokenizer: Tokenizer) -> dict[str, object]:
    return {
        "kind": type(tokenizer).__name__.removesuffix("Tokenizer"),
        "entries": tokenizer.vocab_size,
        "vocabulary": vocabulary_fingerprint(tokenizer.tokens),
        "files": ", ".join(tokenizer.files),
    }


def _records(path: str, first: bytes) -> Iterator[str]:
    features = dict(sorted(example_features(first, path, 1).items()))
    kinds = (kind for name, kind in _RECORD_KINDS.items() if name in features)
    yield f"{path}: records of {next(kinds, 'another kind')}"
    vocabulary = stored_fingerprint(path) or "not stored"
    yield from _rows("File", {"records": count_records([path]), "vocabulary": vocabulary})
    found: dict[str, object] = {}
    for name, feature in features.items():
        kind = feature.WhichOneof("kind") or ""
        values = getattr(feature, kind).value if kind else []
        found[name] = f"{kind.removesuffix('_list')} [{len(values)}]: {_values(list(values))}"
    yield from _rows("First record", found)


def _model(path: str) -> Iterator[str]:
    stored = open_model(locate(path))
    yield f"{path}: {_KINDS[stored.format]} ({stored.format})"
    yield from _rows("Weights", _weights(stored))
    config = stored.config
    if config is None:
        yield from _rows("Configuration", {"none": "--albert_config_file must specify it"})
        return
    same = [n for n, preset in PRESETS.items() if not essential_differences(preset, config)]
    released = {"equal to": ", ".join(same) or "no released model"}
    yield from _rows(f"Configuration ({stored.config_file})", {**config.to_dict(), **released})
    model, report = build(resolve_model(ModelSettings(), stored), stored)
    counts, total = parameter_counts(config), sum(v.shape.num_elements() for v in model.weights)
    parts = dataclasses.asdict(counts).items()
    parameters = {n.replace("_", " "): size for n, size in parts if not n.endswith("_head")}
    parameters |= {"encoder": counts.encoder, "heads": total - counts.encoder, "all": total}
    yield from _rows(f"Parameters of {type(model).__name__}", parameters)
    loaded: dict[str, object] = {"variables restored": len(report.mapped)}
    for title, names in (("ignored", report.ignored), ("missing, not used", report.missing)):
        others = sorted(name for name in names if not is_slot(name))
        loaded |= {title: f"{len(others)}: {_values(others)}"} if others else {}
    yield from _rows("Loaded", loaded)
    if (task := model.trained_task) is not None:
        values = {"name": task.name, "max_seq_length": task.max_seq_length or "not known"}
        values |= {"labels": ", ".join(task.labels.names)} if task.labels.names else {}
        texts = {True: "pairs", False: "single", None: "not known"}[task.is_pair]
        yield from _rows("Task", {**values, "texts": texts, **task.settings})
    facts: dict[str, object] = {"kind": "none; pass --spm_model_file or --vocab_file"}
    if model.tokenizer is not None:
        facts = {**_tokenizer_facts(model.tokenizer), "lower-cases": stored.do_lower_case}
    yield from _rows("Tokenizer", facts)
    sample = _sample_output(model) if model.tokenizer else ("none (the model has no tokenizer)",)
    yield from ("", "Sample output")
    yield from (f"  {line}" for line in sample)


def _weights(stored: StoredModel) -> dict[str, object]:
    reader, shapes = stored.weights
    found: dict[str, object] = {"file": stored.checkpoint}
    if stored.format == "original":
        run = TrainingDirectory(os.path.dirname(stored.checkpoint))
        prefixes = filter(None, [*run.checkpoints(), run.best()])
        found["of the checkpoints"] = ", ".join(map(os.path.basename, prefixes))
    weights = [name for name in shapes if not is_slot(name) and name != GLOBAL_STEP]
    found["variables"] = len(weights)
    found["numbers in them"] = sum(math.prod(shapes[name]) for name in weights)
    found["optimizer slots"] = sum(map(is_slot, shapes)) or "none"
    if GLOBAL_STEP in shapes:
        found["step"] = int(read_variables(reader, stored.checkpoint, [GLOBAL_STEP])[GLOBAL_STEP])
    found["heads"] = ", ".join(heads_in(without_scope(shapes))) or "none"
    return found


def _sample_output(model: Any) -> Iterator[str]:
    """Yields a short text in the language of the model, and the output for it.

    Raises:
        ValueError: the model cannot take the text, or its outputs are not finite.
    """
    tokens, positions = model.tokenizer.tokens, model.config.max_position_embeddings
    is_chinese = 3 * sum(any("一" <= c <= "鿿" for c in token) for token in tokens) > len(tokens)
    first, second, blank, question, context, options = _CHINESE if is_chinese else _ENGLISH
    size: dict[str, Any] = {"max_seq_length": min(128, positions), "batch_size": 1}
    if isinstance(model, AlbertForClassification | AlbertForTokenClassification):
        has_labels = model.labels or model.num_labels == 1
        size["labels"] = None if has_labels else [f"label {n}" for n in range(model.num_labels)]
    if isinstance(model, AlbertForPretraining):
        yield blank
        for candidates in FillMask(model)([blank])[0]:
            yield "  " + "  ".join(f"{c.token} {c.probability:.1%}" for c in candidates)
    elif isinstance(model, AlbertForQuestionAnswering | AlbertForQuestionAnsweringWithBeamSearch):
        size |= {"max_query_length": min(64, positions // 2)}
        (answer,) = QuestionAnswerer(model, **size, null_score_diff_threshold=math.inf)(
            [question], contexts=[context]
        )
        odds = "" if answer.null_odds is None else f"  (null odds {answer.null_odds:.2f})"
        yield f"{question}  {context}"
        yield f"  {answer.answer} {answer.probability or 0:.1%}{odds}"
    elif isinstance(model, AlbertForMultipleChoice):
        chosen = MultipleChoice(model, **size)([question], contexts=[context], options=[options])[0]
        yield f"{question}  {context}"
        yield "  " + _shares(dict(zip(options, chosen.probabilities, strict=True)))
    elif isinstance(model, AlbertForClassification):
        classifier = TextClassifier(model, **size)
        pairs = ([first], [second]) if classifier.pairs else ([first],)
        prediction = classifier(*pairs)[0]
        yield "  ".join(text for (text,) in pairs)
        yield f"  {_shares(prediction.probabilities) or f'{prediction.value:.3f}'}"
    elif isinstance(model, AlbertForTokenClassification):
        yield first
        words = TokenClassifier(model, **size)(first).words
        yield "  " + "  ".join(f"{word.text}/{word.label}" for word in words)
    else:
        vectors = TextEncoder(model, pooling="pooled", **size)([first, second])
        cosine = -keras.losses.cosine_similarity(*vectors)
        yield f"{first}  {second}"
        yield f"  cosine of their pooled outputs {cosine:.3f}"


def _shares(probabilities: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {share:.1%}" for name, share in probabilities.items())
