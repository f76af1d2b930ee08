"""What lies at a path: a model of any format and its sample output, an exported model, a file."""

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
from albert_tf.checkpoints.formats import recognise
from albert_tf.checkpoints.load_tokenizer import load_tokenizer as load_model_tokenizer
from albert_tf.checkpoints.load_weights import open_checkpoint
from albert_tf.checkpoints.loading import build_model, read_contents
from albert_tf.checkpoints.model_contents import ModelContents, StoredModel
from albert_tf.checkpoints.model_directory import essential_differences
from albert_tf.checkpoints.names import suggestion
from albert_tf.checkpoints.original.files import GLOBAL_STEP, read_variables
from albert_tf.checkpoints.report import LoadError
from albert_tf.checkpoints.text_models import heads_in
from albert_tf.checkpoints.tf1_hub import GRAPH_FILE
from albert_tf.checkpoints.training_directory import TrainingDirectory
from albert_tf.config import PRESETS, AlbertConfig
from albert_tf.data.files import file_size, open_binary
from albert_tf.data.records import example_features
from albert_tf.data.text_examples import TextExample
from albert_tf.data.tfrecord import RecordError, count_records, read_records
from albert_tf.finetuning.texts import text_sequences
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
from albert_tf.pretraining.fill_mask import MASK, FillMask
from albert_tf.pretraining.vocabulary import stored_fingerprint, vocabulary_fingerprint
from albert_tf.squad.ask import QuestionAnswerer
from albert_tf.token_classification.tag import TokenClassifier
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.loading import load_tokenizer
from albert_tf.tokenization.sentence_piece import SentencePieceTokenizer

_FLAG = "PATH"
_SHOWN = 8  # values of a tensor or a list
_KINDS = {
    "original": "a release directory or training directory with checkpoints in the original format",
    "huggingface": "a Hugging Face directory",
    "keras_hub": "a KerasHub preset",
    "tf2_hub": "the weights of a TF2 SavedModel, such as a TF-Hub encoder",
    "tf1_hub": "a TF-Hub module of TF1",
}
# By what features the records of a kind are known.
_RECORD_KINDS = {
    "masked_lm_positions": "pretraining, masked",
    "token_boundary": "pretraining, to be masked while training",
    "label_ids": "a classification or multiple choice",
    "start_positions": "question answering",
    "unique_ids": "question answering",
    "input_ids": "token sequences",
}
# Two sentences, a blank, a question and its context.
_ENGLISH = (
    "The film was a joy from start to end.",
    "I would watch it again.",
    "The capital of France is the [MASK] of Paris.",
    "Who wrote the book?",
    "The book was written by Anna in 1921.",
)
_CHINESE = (
    "这部电影从头到尾都很好看。",
    "我还想再看一次。",
    "北京是中国的首[MASK]。",
    "这本书是谁写的？",
    "这本书是安娜在1921年写的。",
)


def describe(path: str) -> Iterator[str]:
    """Yields lines on what lies at a path, the surest first.

    Args:
        path: a model of any format, see `albert_tf.load`; a SavedModel of a task; a LiteRT model;
            a file of records, a tokenizer, or a configuration.

    Raises:
        ValueError: there is nothing, or what is there cannot be read; what can be is yielded first.
    """
    if is_indirect(path):
        yield from _model(path, recognise(path, _FLAG))
        return
    exists = tf.io.gfile.exists
    if not (exists(path) or exists(f"{path}.index")):
        raise ValueError(f"There is no file or directory {path!r}. {suggestion(path)}")
    saved_model = find_saved_model(path)
    if saved_model is not None:
        yield from describe_saved_model(saved_model)
        yield ""
        try:
            stored = recognise(saved_model, _FLAG)
        except LoadError as error:
            yield f"No command can load it: {error}"
        else:
            yield from _model(saved_model, stored)
        return
    is_file = exists(path) and not tf.io.gfile.isdir(path)
    lines = describe_file(path) if is_file else None
    yield from lines or _model(path, recognise(path, _FLAG))


def compare_vocabularies(paths: Sequence[str]) -> Iterator[str]:
    """Yields a line for each record file and each tokenizer: whether their vocabularies are equal.

    Record files without a fingerprint are left out, see `pretraining.vocabulary`.
    """
    stored = {path: stored_fingerprint(path) for path in paths if not is_indirect(path)}
    records = {path: fingerprint for path, fingerprint in stored.items() if fingerprint}
    for path in [path for path in paths if records and path not in records]:
        with suppress(ValueError, OSError):  # no tokenizer
            vocabulary = vocabulary_fingerprint(load_model_tokenizer(path).tokens)
            for file, fingerprint in records.items():
                is_same = fingerprint == vocabulary
                kind = "the vocabulary of" if is_same else "ANOTHER vocabulary than"
                yield f"{file} was created with {kind} {path}"


def find_saved_model(path: str) -> str | None:
    """Returns the directory of a SavedModel: the path, or the newest of its numbered folders."""
    names = tf.io.gfile.listdir(path) if tf.io.gfile.isdir(path) else []
    versions = sorted((n for n in (n.rstrip("/") for n in names) if n.isdecimal()), key=int)
    folders = [path, *(os.path.join(path, name) for name in versions[-1:])]
    return next((f for f in folders if tf.io.gfile.exists(os.path.join(f, GRAPH_FILE))), None)


def describe_saved_model(path: str) -> Iterator[str]:
    """Yields lines on the SavedModel in a directory: its signatures. The graph is not run.

    Raises:
        ValueError: it is damaged.
    """
    file = os.path.join(path, GRAPH_FILE)
    saved_model = saved_model_pb2.SavedModel()
    try:
        with open_binary(file, "rb") as opened:
            saved_model.ParseFromString(opened.read())
        graph = min(saved_model.meta_graphs, key=lambda graph: len(graph.meta_info_def.tags))
    except Exception as error:  # protobuf's DecodeError is public under no stable name
        raise ValueError(f"{file!r} is damaged: {error}") from error
    yield f"{path}: a SavedModel (TensorFlow {graph.meta_info_def.tensorflow_version})"
    for key, signature in sorted(graph.signature_def.items()):
        if key.startswith("__"):
            continue
        tensors = {name: _tensor(info) for name, info in sorted(signature.inputs.items())}
        for name, info in sorted(signature.outputs.items()):
            tensors[f"-> {name}"] = _tensor(info)
        yield from _rows(f"Signature {key}", tensors)


def _rows(title: str, values: Mapping[str, object]) -> Iterator[str]:
    """An empty line, a title, and names and values in two columns."""
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


def _values(values: Sequence[Any] | np.ndarray) -> str:
    """The first of some values."""

    def text(value: Any) -> str:
        if isinstance(value, bytes):
            return repr(value.decode(errors="replace"))
        return f"{value:.4f}" if isinstance(value, float | np.floating) else str(value)

    more = ", ..." if len(values) > _SHOWN else ""
    return ", ".join(map(text, values[:_SHOWN])) + more


def describe_file(path: str) -> Iterator[str] | None:
    """Returns lines on a file that is no file of weights, None for all others.

    Raises:
        ValueError: it is damaged.
    """
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
        inputs, outputs = interpreter.get_input_details(), interpreter.get_output_details()
        types = {np.dtype(d["dtype"]).name for d in interpreter.get_tensor_details()}
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"{path!r} is damaged or not a LiteRT model: {error}") from error
    size = f"{file_size(path) / 1e6:,.2f} MB"
    yield from _rows("File", {"size": size, "types of tensors": ", ".join(sorted(types))})
    for title, details in (("Inputs", inputs), ("Outputs", outputs)):
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
    is_pieces = isinstance(tokenizer, SentencePieceTokenizer)
    return {
        "kind": "SentencePiece" if is_pieces else "WordPiece",
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


def _model(path: str, stored: StoredModel) -> Iterator[str]:
    yield f"{path}: {_KINDS[stored.format]} ({stored.format})"
    yield from _rows("Weights", _weights(stored))
    if stored.config is None:
        yield from _rows("Configuration", {"none": "--albert_config_file must specify it"})
        return
    presets = {name: AlbertConfig.from_preset(name) for name in PRESETS}
    same = [n for n, preset in presets.items() if not essential_differences(preset, stored.config)]
    released = {"is that of": ", ".join(same) or "no released model"}
    configuration = {**stored.config.to_dict(), **released}
    yield from _rows(f"Configuration ({stored.config_file})", configuration)
    contents, report = read_contents(path, _FLAG)
    model = build_model(contents)
    yield from _rows(f"Parameters of {type(model).__name__}", _parameters(contents))
    loaded: dict[str, object] = {"variables restored": len(report.mapped)}
    for name, names in (
        ("ignored", report.ignored),
        ("missing, not used by any output", report.missing),
    ):
        others = sorted(n for n in names if not is_slot(n))
        loaded |= {name: f"{len(others)}: {_values(others)}"} if others else {}
    yield from _rows("Loaded", loaded)
    if (task := contents.task) is not None:
        values = {"name": task.name, "max_seq_length": task.max_seq_length or "not known"}
        values |= {"labels": ", ".join(task.labels.names)} if task.labels.names else {}
        texts = {True: "pairs", False: "single", None: "not known"}[task.is_pair]
        yield from _rows("Task", {**values, "texts": texts, **task.settings})
    kind: dict[str, object] = {"kind": "none; pass --spm_model_file or --vocab_file"}
    if contents.tokenizer is not None:
        kind = {**_tokenizer_facts(contents.tokenizer), "lower-cases": contents.do_lower_case}
    yield from _rows("Tokenizer", kind)
    yield ""
    yield "Sample output"
    yield from (f"  {line}" for line in sample_output(model, contents))


def _weights(stored: StoredModel) -> dict[str, object]:
    """What the file of weights holds, by its own account."""
    reader, shapes = open_checkpoint(stored.checkpoint)
    found: dict[str, object] = {"file": stored.checkpoint}
    if stored.format == "original":
        run = TrainingDirectory(os.path.dirname(stored.checkpoint))
        prefixes = filter(None, [*run.checkpoints(), run.best()])
        found["of the checkpoints"] = ", ".join(map(os.path.basename, prefixes))
    weights = [name for name in shapes if not is_slot(name) and name != GLOBAL_STEP]
    found["variables"] = len(weights)
    found["numbers in them"] = sum(int(np.prod(shapes[name], dtype=np.int64)) for name in weights)
    found["optimizer slots"] = sum(map(is_slot, shapes)) or "none"
    if GLOBAL_STEP in shapes:
        found["step"] = int(read_variables(reader, stored.checkpoint, [GLOBAL_STEP])[GLOBAL_STEP])
    found["heads"] = ", ".join(heads_in(shapes)) or "none"
    return found


def _parameters(contents: ModelContents) -> dict[str, object]:
    counts = parameter_counts(contents.config)
    parts = dataclasses.asdict(counts).items()
    total = sum(value.size for name, value in contents.weights.items() if not is_slot(name))
    return {
        **{name.replace("_", " "): count for name, count in parts if not name.endswith("_head")},
        "encoder": counts.encoder,
        "heads": total - counts.encoder,
        "all": total,
    }


def sample_output(model: keras.Model, contents: ModelContents) -> Iterator[str]:
    """Yields what a model makes of a sample text of its language: a proof that its parts fit.

    The model is what `loading.build_model` makes of the contents.

    Raises:
        ValueError: the model cannot take the text, or its outputs are not finite.
    """
    tokenizer, task = contents.tokenizer, contents.task
    if tokenizer is None:
        yield "none (the model has no tokenizer)"
        return
    chinese = sum(any("一" <= c <= "鿿" for c in token) for token in tokenizer.tokens)
    texts = _CHINESE if 3 * chinese > tokenizer.vocab_size else _ENGLISH
    first, second, blank, question, context = texts
    if isinstance(model, AlbertForPretraining):
        room = model.config.max_position_embeddings - len(MASK)
        blank = blank if len(tokenizer.encode(blank)) <= room else MASK  # of a toy
        yield blank
        for candidates in FillMask(model, tokenizer)([blank])[0]:
            yield "  " + "  ".join(f"{c.token} {c.probability:.1%}" for c in candidates)
    elif isinstance(model, AlbertForQuestionAnswering | AlbertForQuestionAnsweringWithBeamSearch):
        yield f"{question}  {context}"
        yield f"  {_answer(model, tokenizer, question, context)}"
    elif isinstance(model, AlbertForMultipleChoice):
        inputs = _inputs(model, tokenizer, (first, second), (first, first))
        logits = _finite(model({name: ids[tf.newaxis] for name, ids in inputs.items()})["logits"])
        yield first
        yield "  " + _shares((second, first), logits[0])
    elif isinstance(model, AlbertForClassification):
        parts = (first, second) if task and task.is_pair else (first,)
        logits = _finite(model(_inputs(model, tokenizer, parts))["logits"])[0]
        names = task.labels.names if task else ()
        if len(names) != len(logits):
            names = tuple(f"label {number}" for number in range(len(logits)))
        yield "  ".join(parts)
        shares = _shares(names, logits, model.multi_label)
        yield f"  {logits[0]:.3f}" if len(logits) == 1 else f"  {shares}"
    elif isinstance(model, AlbertForTokenClassification):
        labels = model.labels or [f"label {number}" for number in range(model.num_labels)]
        yield first
        words = TokenClassifier(model, tokenizer, labels=labels)(first).words
        yield "  " + "  ".join(f"{word.text}/{word.label}" for word in words)
    else:  # of an encoder alone there is nothing to read
        vectors = _finite(model(_inputs(model, tokenizer, (first,), (second,)))["pooled_output"])
        norms = np.linalg.norm(vectors, axis=1)
        cosine = vectors[0] @ vectors[1] / max(norms[0] * norms[1], 1e-30)
        yield f"{first}  {second}"
        yield f"  cosine of their pooled outputs {cosine:.3f}"


def _inputs(model: keras.Model, tokenizer: Tokenizer, *texts: Sequence[str]) -> dict[str, Any]:
    """`input_ids`, `input_mask` and `segment_ids`, int32 [B, S], of texts or pairs of texts."""
    examples = [TextExample("", *parts) for parts in texts]
    sequences = text_sequences(examples, tokenizer, model.config.max_position_embeddings)
    batch = sequences.padded(np.arange(len(examples)), int(sequences.lengths.max()))
    return {name: tf.constant(values) for name, values in batch.items()}


def _finite(tensor: tf.Tensor) -> np.ndarray:
    values = np.asarray(tensor)
    if not np.isfinite(values).all():
        raise ValueError("The model's output is not finite: its weights are damaged or diverged.")
    return values


def _shares(names: Sequence[str], logits: np.ndarray, multi_label: bool = False) -> str:
    values = tf.sigmoid(logits) if multi_label else tf.nn.softmax(logits)
    shares = zip(names, values.numpy(), strict=True)
    return "  ".join(f"{name} {share:.1%}" for name, share in shares)


def _answer(
    model: AlbertForQuestionAnswering | AlbertForQuestionAnsweringWithBeamSearch,
    tokenizer: Tokenizer,
    question: str,
    context: str,
) -> str:
    length = min(128, model.config.max_position_embeddings)
    answerer = QuestionAnswerer(
        model,
        tokenizer,
        max_seq_length=length,
        max_query_length=min(64, length // 2),
        null_score_diff_threshold=math.inf,
        batch_size=1,
    )
    (answer,) = answerer([question], [context])
    best = "no answer" if answer.start is None else f"{answer.answer} {answer.probability:.1%}"
    odds = "" if answer.null_odds is None else f"  (null odds {answer.null_odds:.2f})"
    return best + odds
