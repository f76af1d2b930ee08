"""All functions that read user files, with valid files and independent readers.

Readers run in a folder of their own, which holds the damaged file and those that belong to it.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import math
import os
import struct
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import IO, Any, cast
from unittest import mock

import numpy as np
import sentencepiece
import tensorflow as tf

from albert_tf.checkpoints import huggingface, keras_hub, tf1_hub, tf2_hub
from albert_tf.checkpoints.archives import local_directory
from albert_tf.checkpoints.huggingface.tokenizer import (
    find_lower_case,
    find_tokenizer_files,
    parse_model,
    tokenizer_json,
    tokens_in,
)
from albert_tf.checkpoints.huggingface.weights import HuggingFaceWeights, open_tensors
from albert_tf.checkpoints.load_weights import open_checkpoint
from albert_tf.checkpoints.names import check_sums
from albert_tf.checkpoints.original import find_checkpoint, read_variables
from albert_tf.checkpoints.run_records import read_run_config
from albert_tf.checkpoints.trained_task import QUESTION_TASKS, TrainedTask
from albert_tf.checkpoints.training_directory import TrainingDirectory
from albert_tf.classification.data import CustomData, GlueData
from albert_tf.classification.predict_texts import check_file
from albert_tf.config import PRESETS, AlbertConfig
from albert_tf.data.streams import open_input, read_lines
from albert_tf.data.tables import read_table
from albert_tf.data.text_examples import Labels
from albert_tf.data.tfrecord import (
    FeatureSpec,
    count_records,
    encode_examples,
    frame_records,
    masked_crc32c,
    read_records,
)
from albert_tf.multiple_choice.data import read_choices, read_race
from albert_tf.pretraining import batching
from albert_tf.pretraining.batching import check_record_files, explain_read_errors
from albert_tf.pretraining.corpus import check_block, cut_into_blocks, read_documents
from albert_tf.squad.ask import check_questions, read_plain_questions
from albert_tf.squad.data import read_squad
from albert_tf.token_classification.data import read_sentences, write_predictions
from albert_tf.token_classification.labels import recognize_scheme
from albert_tf.tokenization.loading import load_tokenizer
from albert_tf.tools import ablations
from albert_tf.tools.glue_results import read_runs
from albert_tf.tools.inspect import describe_file, describe_saved_model, find_saved_model
from albert_tf.training.evaluation import BestCheckpoint, EvaluationResults
from albert_tf.training.run_log import RunLog
from tests.fuzz import mutations as m

UNKNOWN = object()
_TEXT = "The cat's 1,024 dogs, ½ of them\tasleep."
_PLAIN_TEXT = "the cat sat on the mat"
_TESTS = Path(__file__).parents[1]
_GOLDEN = _TESTS / "golden" / "data"
_RUN = _TESTS / "earlier" / "pretraining"  # a training directory: step 5 of 12
_SPECIAL = ("[CLS]", "[SEP]", "[MASK]")

File = bytes | Path | Callable[[], bytes]


def content_of(file: File) -> bytes:
    """Returns the content of a valid file: bytes, a file on disk, or the result of a function."""
    if isinstance(file, Path):
        return file.read_bytes()
    return file if isinstance(file, bytes) else file()


def same(ours: Any, theirs: Any) -> bool:
    """Returns whether two values are equal, including NaN and arrays."""
    if isinstance(ours, np.ndarray) or isinstance(theirs, np.ndarray):
        is_float = ours.dtype.kind == "f"
        return ours.dtype == theirs.dtype and np.array_equal(ours, theirs, equal_nan=is_float)
    if isinstance(ours, float) and isinstance(theirs, float):
        return ours == theirs or (math.isnan(ours) and math.isnan(theirs))
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        return ours.keys() == theirs.keys() and all(same(ours[k], theirs[k]) for k in ours)
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return ours == theirs


def _shares_values(ours: Any, theirs: Any) -> bool:
    """Returns whether the values that both readers return are equal."""
    if ours is None or not isinstance(theirs, dict):
        return ours is None
    there = {key: value for key, value in theirs.items() if value is not None}
    return all(same(ours[key], there[key]) for key in ours.keys() & there.keys())


@dataclass(frozen=True)
class Parser:
    """A kind of user file and the function that reads it.

    Attributes:
        name: on the command line of the fuzzers.
        file: the name of the damaged file.
        read: reads it; what it returns is compared.
        good_files: what is damaged.
        others: files that belong to it, and stay good.
        named: what a clear error names; the name of the file if nothing is said.
        mutations: besides those of bytes; those of the file's ending if nothing is said.
        independent: another reader: `UNKNOWN`, or any error, where it cannot tell.
        is_same: compares what both say.
        writes: reading writes files; all are then made anew for each input.
    """

    name: str
    file: str
    read: Callable[[], Any]
    good_files: tuple[File, ...]
    others: Mapping[str, File] = field(default_factory=dict)
    named: tuple[str, ...] = ()
    mutations: tuple[m.Mutation, ...] = ()
    independent: Callable[[], Any] | None = None
    is_same: Callable[[Any, Any], bool] = same
    writes: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return self.named or (os.path.basename(self.file),)

    def good(self) -> list[bytes]:
        return list(map(content_of, self.good_files))


_ALL: list[Parser] = []
_JSON = (m.damage_json, m.damage_text)
_LINES = (m.damage_json_lines, m.damage_text)
_TABLE = (m.damage_table, m.damage_text)
_TEXT_LINES = (m.damage_text,)
_MESSAGE = (m.damage_message,) * 2


_MUTATIONS = {
    ".json": _JSON,
    ".jsonl": _LINES,
    ".csv": _TABLE,
    ".tsv": _TABLE,
    ".vocab": _TABLE,
    ".txt": _TEXT_LINES,
    "": _TEXT_LINES,
    ".model": _MESSAGE,
    "saved_model.pb": _MESSAGE,
    "keras_metadata.pb": _TEXT_LINES,
}


def _add(name: str, file: str, *args: Any, **settings: Any) -> None:
    by_ending = _MUTATIONS.get(
        os.path.basename(file), _MUTATIONS.get(os.path.splitext(file)[1], ())
    )
    _ALL.append(Parser(name, file, *args, **{"mutations": by_ending, **settings}))


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"


def _json_lines(*rows: Any) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _whole_json(name: str) -> Callable[[], Any]:
    return lambda: json.loads(Path(name).read_text(encoding="utf-8"))


# Configurations, labels, settings.

_CONFIG = json.loads(
    """{
    "vocab_size": 30, "embedding_size": 4, "hidden_size": 6, "num_hidden_layers": 2,
    "num_hidden_groups": 1, "num_attention_heads": 2, "intermediate_size": 8,
    "inner_group_num": 1, "hidden_act": "gelu", "hidden_dropout_prob": 0,
    "attention_probs_dropout_prob": 0.1, "max_position_embeddings": 16, "type_vocab_size": 2,
    "initializer_range": 0.02, "net_structure_type": 0
    }"""
)
_ODD_CONFIG = {"parameter_sharing": "attention", "down_scale_factor": 1, "layers_to_keep": []}
_QUESTION_LABELS = {
    "task_name": sorted(QUESTION_TASKS)[-1],
    "settings": {"start_n_top": 5, "null_score_diff_threshold": -1.5},
    "max_seq_length": None,
}


def _labels() -> Any:
    task = TrainedTask.read(".")
    return task and task.to_dict()


_add(
    "config",
    "albert_config.json",
    lambda: AlbertConfig.from_json_file("albert_config.json").to_dict(),
    (_json(_CONFIG), _json({**_CONFIG, **_ODD_CONFIG})),
    independent=_whole_json("albert_config.json"),
    is_same=_shares_values,
)
_add(
    "labels",
    "labels.json",
    _labels,
    (_TESTS / "earlier" / "classifier" / "labels.json", _json(_QUESTION_LABELS)),
    independent=_whole_json("labels.json"),
    is_same=_shares_values,
)

# Hugging Face: configuration, weights, tokenizer.

_HF_CONFIG = _CONFIG | json.loads(
    """{
    "model_type": "albert", "architectures": ["AlbertForSequenceClassification"],
    "hidden_act": "gelu_new", "layer_norm_eps": 1e-12, "position_embedding_type": "absolute",
    "classifier_dropout_prob": 0.1, "finetuning_task": "mrpc", "num_labels": 2,
    "id2label": {"0": "no", "1": "yes"}, "label2id": {"no": 0, "yes": 1},
    "problem_type": "single_label_classification"
    }"""
)
_MRPC_LABELS = TrainedTask("mrpc", Labels(("no", "yes"))).to_dict()
_TENSORS = {
    "albert.pooler.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "albert.pooler.bias": {"dtype": "F16", "shape": [2], "data_offsets": [24, 28]},
    "other": {"dtype": "F64", "shape": [], "data_offsets": [28, 36]},
}
_BFLOAT = {"albert.pooler.bias": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}


def _safetensors(header: Any, values: bytes) -> bytes:
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + values


_SAFETENSORS = _safetensors(
    {"__metadata__": {"format": "pt"}, **_TENSORS},
    struct.pack("<6f2ed", 0.5, -1, 2, 3, 4, 5, 1, 2, 0.25),
)


def _hugging_face() -> Any:
    huggingface.is_here(".")
    huggingface.open_weights("model.safetensors")
    stored = huggingface.read(".")
    return stored.config and stored.config.to_dict()


def _tensors(name: str) -> Any:
    opened = open_tensors(name)
    values = {tensor: opened.get(tensor) for tensor in opened.shapes}
    weights = HuggingFaceWeights(name)
    for weight in weights.get_variable_to_shape_map():
        weights.get_tensor(weight)
    return values


def _tensors_by_hand() -> Any:
    data = Path("model.safetensors").read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    values = {}
    for key, entry in header.items():
        start, end = entry["data_offsets"]
        dtype = {"F32": "<f4", "F16": "<f2", "F64": "<f8"}[entry["dtype"]]
        content = np.frombuffer(data[8 + length :][start:end], dtype)
        values[key] = content.reshape(entry["shape"])
    return values


def _pytorch(is_zip: bool) -> bytes:
    import torch

    values = {
        "albert.pooler.weight": torch.arange(6, dtype=torch.float32).reshape(2, 3),
        "albert.pooler.bias": torch.arange(2, dtype=torch.bfloat16),
    }
    file = io.BytesIO()
    torch.save(values, file, _use_new_zipfile_serialization=is_zip)
    return file.getvalue()


_add(
    "hf_config",
    "config.json",
    _hugging_face,
    (_json(_HF_CONFIG), _json({**_HF_CONFIG, "architectures": ["AlbertForPreTraining"]})),
    {"model.safetensors": _SAFETENSORS, "labels.json": _json(_MRPC_LABELS)},
)
_SHARD = "model-00001-of-00001.safetensors"
_INDEX = "model.safetensors.index.json"
_add(
    "hf_index",
    _INDEX,
    partial(_tensors, _INDEX),
    (_json({"metadata": {"total_size": 36}, "weight_map": dict.fromkeys(_TENSORS, _SHARD)}),),
    {_SHARD: _SAFETENSORS},
    (_INDEX, _SHARD),
)
_add(
    "safetensors",
    "model.safetensors",
    partial(_tensors, "model.safetensors"),
    (_SAFETENSORS, _safetensors(_BFLOAT, b"\x80\x3f\x00\x40")),
    mutations=(m.damage_header_of_safetensors,),
    independent=_tensors_by_hand,
)
_add(
    "pytorch",
    "pytorch_model.bin",
    partial(_tensors, "pytorch_model.bin"),
    (partial(_pytorch, True), partial(_pytorch, False)),
    mutations=(m.damage_zip,) * 2,
)

# Pieces as they stand in tokenizer.json.
_UNIGRAM = json.loads(
    """{
    "added_tokens": [
        {"id": 0, "content": "<pad>", "special": true},
        {"id": 1, "content": "<unk>", "special": true},
        {"id": 2, "content": "[CLS]", "special": true},
        {"id": 3, "content": "[SEP]", "special": true},
        {"id": 4, "content": "[MASK]", "special": true}
    ],
    "normalizer": {"type": "Sequence", "normalizers": [
        {"type": "NFKD"}, {"type": "Lowercase"},
        {"type": "Precompiled", "precompiled_charsmap": ""}
    ]},
    "model": {"type": "Unigram", "unk_id": 1, "vocab": [
        ["<pad>", 0], ["<unk>", 0], ["[CLS]", 0], ["[SEP]", 0], ["[MASK]", 0], ["▁", -1.5],
        ["▁the", -2.0], ["t", -3.0], ["9,", -104.0], ["9", -4.5]
    ]}
    }"""
)
_WORDPIECE = json.loads(
    """{
    "added_tokens": [],
    "normalizer": {"type": "BertNormalizer", "lowercase": true},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
        "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "the": 5,
            "##e": 6, "cat": 7}}
    }"""
)


def _tokenizer_json() -> Any:
    os.environ["ALBERT_TF_HOME"] = "cache"
    find_lower_case(".")
    files = find_tokenizer_files(".")
    if not files:
        return None
    tokenizer = load_tokenizer(spm_model_file=files[0])
    tokenizer.encode(_TEXT)
    return tokenizer.tokens


_add(
    "hf_tokenizer_config",
    "tokenizer_config.json",
    lambda: find_lower_case("."),
    (_json({"do_lower_case": True, "keep_accents": False, "model_max_length": 16}),),
)
_add(
    "tokenizer_json",
    "tokenizer.json",
    _tokenizer_json,
    (_json(_UNIGRAM), _json(_WORDPIECE)),
    named=("tokenizer.json", "spiece.model", "vocab.txt"),
    independent=lambda: tokens_in("tokenizer.json"),
    is_same=lambda ours, theirs: ours is None or ours == theirs,
    writes=True,
)

# KerasHub presets.

_BACKBONE = json.loads(
    """{
    "registered_name": "keras_hub>AlbertBackbone",
    "config": {
        "vocabulary_size": 31, "embedding_dim": 8, "hidden_dim": 12, "num_layers": 4,
        "num_groups": 2, "num_heads": 3, "intermediate_dim": 20, "num_inner_repetitions": 2,
        "max_sequence_length": 16, "num_segments": 5, "dropout": 0.25
    }}"""
)
_HEAD = {"backbone": _BACKBONE, "num_classes": 3, "activation": "linear"}
_OURS = {"do_lower_case": False, "config": {"initializer_range": 0.3, "gap_size": 2}}
_PRESET = {
    "config.json": _json(_BACKBONE),
    "task.json": _json({"registered_name": "keras_hub>AlbertTextClassifier", "config": _HEAD}),
    "metadata.json": _json({"keras_hub_version": "0.32.0", "albert_tf": _OURS}),
}


def _keras_hub() -> Any:
    config, do_lower_case = keras_hub.read_config(".")
    return config.to_dict(), do_lower_case


for _name in _PRESET:
    _add(
        f"keras_hub_{_name.removesuffix('.json')}",
        _name,
        _keras_hub,
        (_PRESET[_name],),
        _PRESET,
        ("config.json", _name),
    )

# TF-Hub modules and SavedModels.


def _small_tf1_graph() -> bytes:
    """Returns the recorded module with only the parts of its graphs that describe the tokenizer."""
    from tensorflow.core.protobuf import saved_model_pb2

    saved_model = saved_model_pb2.SavedModel()
    saved_model.ParseFromString((_GOLDEN / "hub" / "module" / "saved_model.pb").read_bytes())
    for graph in saved_model.meta_graphs:
        nodes = {node.name: node for node in graph.graph_def.node}
        outputs = graph.signature_def["tokenization_info"].outputs
        wanted = [output.name.split(":")[0] for output in outputs.values()]
        kept = []
        while wanted:
            if node := nodes.pop(wanted.pop(), None):
                kept.append(node)
                wanted += [name.split(":")[0] for name in node.input]
        del graph.graph_def.node[:]
        graph.graph_def.node.extend(kept)
        graph.graph_def.ClearField("library")
        graph.meta_info_def.ClearField("stripped_op_list")
        for key in set(graph.collection_def) - {"saved_model_assets"}:
            del graph.collection_def[key]
    return saved_model.SerializeToString(deterministic=True)


def _tf2_file(name: str) -> bytes:
    with zipfile.ZipFile(_GOLDEN / "tf2_hub" / "albert_encoder.zip") as archive:
        return archive.read(f"albert_encoder/{name}")


def _small_tf2_graph() -> bytes:
    """Returns the recorded encoder without the nodes of its graphs, which are not read."""
    from tensorflow.core.protobuf import saved_model_pb2

    saved_model = saved_model_pb2.SavedModel()
    saved_model.ParseFromString(_tf2_file("saved_model.pb"))
    for graph in saved_model.meta_graphs:
        graph.ClearField("graph_def")
        graph.meta_info_def.ClearField("stripped_op_list")
    return saved_model.SerializeToString(deterministic=True)


_DATA = "data-00000-of-00001"
_VARIABLES = ("variables/variables.index", f"variables/variables.{_DATA}")
_TF1_ASSETS = ("assets/30k-clean.model", "assets/albert_config.json", *_VARIABLES)
_TF2_FILES = ("assets/toy.model", *_VARIABLES, "fingerprint.pb", "keras_metadata.pb")
# What Keras notes of an encoder, among other things.
_KERAS_NOTES = """{"class_name": "AlbertEncoder", "config": {"num_layers": 3,
"activation": {"class_name": "function", "config": "Text>gelu"}, "dropout_rate": 0.1,
"attention_dropout_rate": 0.1, "more": [1, {"a": null}]}, "x": 1}"""
_TF2_OTHERS = {
    **{name: partial(_tf2_file, name) for name in _TF2_FILES},
    "saved_model.pb": _small_tf2_graph,
}


def _tf1_hub() -> None:
    tf1_hub.is_here(".")
    tf1_hub.read(".")


def _tf2_hub() -> None:
    tf2_hub.is_here(".")
    weights = tf2_hub.open_weights(tf2_hub.read(".").checkpoint)
    for name in weights.get_variable_to_shape_map():
        weights.get_tensor(name)


_add(
    "tf1_hub",
    "saved_model.pb",
    _tf1_hub,
    (_small_tf1_graph,),
    {name: _GOLDEN / "hub" / "module" / name for name in _TF1_ASSETS},
    ("saved_model.pb", "albert_config.json", ".: "),
)
_KERAS_PROTO = b"\n\x84\x01\x08\x00\x12" + _KERAS_NOTES.encode() + b"\x00\xff"
for _name, _file, _good, _named in (
    ("tf2_hub", "saved_model.pb", _small_tf2_graph, "saved_model.pb"),
    ("tf2_hub_variables", _VARIABLES[0], partial(_tf2_file, _VARIABLES[0]), "variables/variables"),
    ("tf2_hub_notes", "keras_metadata.pb", _KERAS_PROTO, "keras_metadata.pb"),
):
    _add(_name, _file, _tf2_hub, (_good,), _TF2_OTHERS, (_named, ".: "))
_add(
    "inspected_saved_model",
    "saved_model.pb",
    lambda: list(describe_saved_model(find_saved_model("."))),
    (_small_tf2_graph,),
    _TF2_OTHERS,
)

# What a training directory holds, and what is downloaded.

_RESULTS = "eval_accuracy = 0.75\nf1 = 0.5\nglobal_step = {}\nloss = 0.5\nbest = -1\n" + "=" * 50
_EVAL_RESULTS = f"{_RESULTS.format(5)}\n{_RESULTS.format(7)}\n".encode()
_BEST_TRIALS = (b"7:5:0.75\n", b"7:5:0.75")
_CHECKPOINTS = (
    b'model_checkpoint_path: "model.ckpt-7"\nall_model_checkpoint_paths: "model.ckpt-5"\n'
    b'all_model_checkpoint_paths: "model.ckpt-7"\n'
)
_PARTS = ("model.ckpt-5.index", f"model.ckpt-5.{_DATA}")


def _metrics() -> None:
    with mock.patch.object(RunLog, "_write_summaries"):  # for TensorBoard: takes 30 ms
        RunLog(".", 10, start_step=4)


def _ablation() -> Any:
    return ablations.read_run(ablations.Variant(ablations.BASE, "", PRESETS["base_v2"]), ".")


def _best_trial() -> Any:
    best = BestCheckpoint(TrainingDirectory("."), "eval_accuracy")
    return best.last_step, best.step, best.value


def _checkpoint_names() -> Any:
    found = TrainingDirectory(".").checkpoints()
    return [*map(os.path.basename, found), os.path.basename(find_checkpoint("."))]


def _checkpoint() -> Any:
    reader, shapes = open_checkpoint("./model.ckpt-5")
    return read_variables(reader, "./model.ckpt-5", shapes)


def _archive() -> Any:
    os.environ["ALBERT_TF_HOME"] = "cache"
    local_directory("model.tar.gz")
    (root,) = Path("cache", "unpacked").iterdir()
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def _tar_members() -> dict[str, bytes]:
    with tarfile.open("model.tar.gz") as archive:
        members = [member for member in archive if not member.isdir()]
        names = (os.path.normpath(member.name.lstrip("/")) for member in members)
        contents = (cast(IO[bytes], archive.extractfile(member)).read() for member in members)
        return dict(zip(names, contents, strict=True))


def _tar(format: int = tarfile.PAX_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=format) as archive:
        for name, content in (("albert_config.json", _json(_CONFIG)), ("é" * 60, b"[PAD]\n")):
            member = tarfile.TarInfo(f"albert_tiny/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


_add("run_config", "run_config.json", lambda: read_run_config("."), (_RUN / "run_config.json",))
for _name, _read, _settings in (
    ("metrics", _metrics, {"writes": True}),
    ("ablation", _ablation, {"others": {"eval_results.txt": _EVAL_RESULTS}}),
):
    _add(_name, "metrics.jsonl", _read, (_RUN / "metrics.jsonl",), **_settings)
_add("best_trial", "best_trial.txt", _best_trial, _BEST_TRIALS, {"model.ckpt-best.index": b""})
_add("eval_results", "eval_results.txt", lambda: EvaluationResults(".", 5), (_EVAL_RESULTS,))
_add(
    "glue_results",
    "mrpc-seed1/eval_results.txt",
    lambda: read_runs("."),
    (_EVAL_RESULTS,),
    {"mrpc-seed1/best_trial.txt": _BEST_TRIALS[0]},
)
_add(
    "glue_best",
    "mrpc-seed1/best_trial.txt",
    lambda: read_runs("."),
    _BEST_TRIALS,
    {"mrpc-seed1/eval_results.txt": _EVAL_RESULTS},
)
_add(
    "checkpoint_file",
    "checkpoint",
    _checkpoint_names,
    (_CHECKPOINTS,),
    {"model.ckpt-5.index": b"", "model.ckpt-7.index": b""},
    ("checkpoint", "model.ckpt-5"),
)
for _name, _file in zip(("checkpoint_index", "checkpoint_data"), _PARTS, strict=True):
    _add(
        _name,
        _file,
        _checkpoint,
        (_RUN / _file,),
        {part: _RUN / part for part in _PARTS},
        ("model.ckpt-5",),
    )
_add(
    "input_description",
    "train_state/5.json",
    lambda: TrainingDirectory(".").input_description("./model.ckpt-5"),
    (_RUN / "train_state" / "5.json",),
)
_add(
    "checksums",
    "SHA256SUMS",
    lambda: check_sums("."),
    (f"{hashlib.sha256(_json(_CONFIG)).hexdigest()}  config.json\n".encode(),),
    {"config.json": _json(_CONFIG)},
    ("SHA256SUMS", "config.json"),
)
_add(
    "archive",
    "model.tar.gz",
    _archive,
    (lambda: gzip.compress(_tar(), mtime=0), _tar, partial(_tar, tarfile.GNU_FORMAT)),
    mutations=(m.damage_tar,) * 3,
    independent=_tar_members,
    writes=True,
)

# Record files.

_PART = "part.tfrecord"
_SPECS = (
    FeatureSpec("input_ids", "int64", 4, 50),
    FeatureSpec("input_mask", "int64", 4, 2),
    FeatureSpec("weights", "float32", 2),
)
_WRITTEN = tuple(FeatureSpec(name, "int64", 4) for name in ("segment_ids", "token_boundary"))


@cache
def _records() -> bytes:
    columns = {
        "input_ids": np.arange(12).reshape(3, 4) * 4,
        "input_mask": np.array([[1, 1, 1, 0]] * 3),
        "weights": np.full((3, 2), 0.5, np.float32),
        "segment_ids": np.array([[0, 0, 1, 0]] * 3),
        "token_boundary": np.ones((3, 4), np.int64),
    }
    return b"".join(frame_records(encode_examples(columns, (*_SPECS, *_WRITTEN))))


def _in_one_step(make: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that returns all elements of a data set at once.

    An iterator takes 20 ms and more to be made, a graph that gives one element less than 1 ms.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.threading.private_threadpool_size = 1

    @tf.function(autograph=False)
    def read(*arguments: Any) -> Any:
        return make(*arguments).batch(100_000).with_options(options).get_single_element()

    return lambda *arguments: read(*map(tf.constant, arguments))


@_in_one_step
def _tensorflow_records(path: Any) -> Any:
    # The last one stands for itself: a file may have none.
    return tf.data.TFRecordDataset(path).concatenate(tf.data.Dataset.from_tensors(""))


def _records_of_tensorflow() -> Any:
    return _tensorflow_records(_PART).numpy()[:-1].tolist()


@_in_one_step
def _evaluation_rows(path: Any) -> Any:
    return batching.evaluation_batches([path], _SPECS, 2).unbatch()


def _pipeline() -> None:
    check_record_files([_PART], _SPECS)
    with explain_read_errors([_PART], _SPECS):
        _evaluation_rows(_PART)


def _asked_records() -> None:
    """Runs the checks before a run: the kind of the records, and whether they contain pairs."""
    batching.are_masked(_PART, 4)
    batching.check_sentence_pairs([_PART], "sop")


@_in_one_step
def _good_rows(path: Any, size: Any) -> Any:
    good = batching.good_records(path, size, _SPECS)
    return batching.carry_places(good).concatenate(tf.data.Dataset.from_tensors(("", "")))


def _skipping() -> Any:
    batching.readable_files([_PART])
    return _good_rows(_PART, np.int64(os.path.getsize(_PART)))[0].numpy()[:-1].tolist()


def _sound_records() -> Any:
    """Returns the payloads before the first wrong checksum."""
    data, place, found = Path(_PART).read_bytes(), 0, []
    while place < len(data):
        header = data[place : place + 8]
        end = place + 16 + int.from_bytes(header, "little")
        payload = data[place + 12 : end - 4]
        is_sound = masked_crc32c(header) == data[place + 8 : place + 12]
        if end > len(data) or not is_sound or masked_crc32c(payload) != data[end - 4 : end]:
            break
        found.append(payload)
        place = end
    return found


def _keeps_good_records(ours: Any, theirs: Any) -> bool:
    """Returns whether all unchanged records were read, and no damaged ones."""
    good = {record[12:-4] for record in m.split_records(_records())}
    return all(payload in theirs for payload in ours) and (
        [payload for payload in ours if payload in good]
        == [payload for payload in theirs if payload in good]
    )


_AT_WILL = (m.damage_records_at_will,) * 2
_CAREFULLY = (m.damage_records,) * 2
for _name, _read, _mutations, _settings in (
    (
        "tfrecord",
        lambda: list(read_records(_PART)),
        _AT_WILL,
        {"independent": _records_of_tensorflow},
    ),
    (
        "tfrecord_count",
        lambda: count_records([_PART]),
        _AT_WILL,
        {"independent": lambda: len(_records_of_tensorflow())},
    ),
    ("tfrecord_pipeline", _pipeline, _CAREFULLY, {}),
    ("tfrecord_kind", _asked_records, _AT_WILL, {}),
    (
        "tfrecord_skipping",
        _skipping,
        _CAREFULLY,
        {"independent": _sound_records, "is_same": _keeps_good_records},
    ),
    ("inspected_records", lambda: list(describe_file(_PART) or ()), _AT_WILL, {}),
):
    _add(_name, _PART, _read, (_records,), mutations=_mutations, **_settings)

# Questions, tables, texts.


def _squad_file(version: str, *questions: dict[str, Any]) -> bytes:
    context = "Ada wrote the first program in 1843."
    paragraph = {"context": context, "qas": list(questions)}
    return _json({"version": version, "data": [{"title": "Ada", "paragraphs": [paragraph]}]})


_ADA = {"text": "Ada", "answer_start": 0}
_YEAR = {"text": "1843", "answer_start": 31}
_SQUAD_V1 = _squad_file(
    "1.1",
    {"id": "a", "question": "Who?", "answers": [_ADA, _ADA]},
    {"id": "b", "question": "When?", "answers": [_YEAR]},
)
_SQUAD_V2 = _squad_file(
    "v2.0",
    {"id": "a", "question": "Who?", "answers": [_ADA], "is_impossible": False},
    {"id": "b", "question": "Why?", "answers": [], "is_impossible": True},
)
_PLAIN_QUESTIONS = (
    {"id": "a", "context": "Ada wrote it.", "question": "Who?"},
    {"id": 7, "context": "In 1843.", "question": "When?"},
)
_PASSAGE = b"""{"id": "middle1.txt", "article": "Ada wrote it.",
"questions": ["Who _ ?", "When?"], "answers": ["A", "D"],
"options": [["Ada", "Bob", "Cy", "Di"], ["1", "2", "3", "4"]]}"""
_CHOICES = (
    {"context": "Ada.", "question": "Who?", "options": ["Ada", "Bob"], "label": "A"},
    {"context": "x", "question": "_ y", "options": ["a", "b"], "label": "b"},
)
_NUMBERED_CHOICE = {"id": 7, "context": "x", "question": "y", "options": ["a", 2, "c"], "label": 2}
_ROWS = (
    {"text_a": "one", "label": "yes", "score": 1},
    {"text_a": "two, three", "label": "no", "score": 2.5},
    {"text_a": "“four”", "label": True, "other": None},
)
_CSV = (
    b'text_a,text_b,label\none,"two, three",yes\n"a ""b""\nc",four,no\nfive,six,yes\n',
    b"text_a,label\none,1\ntwo,2.5\nthree,-3\n",
)
_TSV = b'text_a\ttext_b\tlabel\none\ttwo, "three\tyes\nfour\tfive\tno\n'
_MRPC = (
    b"Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    b'1\t10\t11\tHe said "so.\tSo he said.\n0\t12\t13\tOne.\tTwo.\n'
)


def _squad(version: int, is_training: bool) -> Any:
    path = "questions.json"
    data = read_squad(path, version=version, is_training=is_training)
    return [(q.qas_id, q.question, data.contexts[q.paragraph]) for q in data.questions]


def _plain_questions() -> Any:
    check_questions("questions.json")
    with open_input("questions.json") as file:
        groups = list(read_plain_questions(read_lines(file), "questions.json"))
    return [tuple(question) for group in groups for question in group]


def _table(name: str) -> Any:
    table = read_table(name)
    return table.columns, [cells for _, cells in table.rows]


def _delimited_rows(name: str) -> Any:
    text = Path(name).read_bytes().decode().lstrip("\ufeff")
    if name.endswith(".csv"):
        rows = csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
    else:
        if "\r" in text or "\0" in text:  # which end lines for csv, and are text here
            return UNKNOWN
        rows = csv.reader(io.StringIO(text, newline=""), delimiter="\t", quoting=csv.QUOTE_NONE)
    columns, *cells = [row for row in rows if row and (len(row) > 1 or row[0].strip())]
    while columns and not columns[-1].strip():
        columns.pop()
    if len(columns) < 2:  # empty lines are then rows
        return UNKNOWN
    return [column.strip() for column in columns], cells


def _custom() -> Any:
    data = CustomData(train_file="rows.csv", text_a_column="text_a")
    return data.labels, data.read("train")


def _answers(rows: Any) -> Any:
    return [(row.context, row.question, row.options) for row in rows]


def _words(name: str) -> Any:
    sentences = list(read_sentences(name))
    scheme = recognize_scheme(sentences)

    def predict(words: Sequence[Sequence[str]]) -> list[tuple[list[str], list[float]]]:
        return [(["O"] * len(row), [1.0] * len(row)) for row in words]

    write_predictions(name, io.BytesIO(), predict, scheme)
    return sentences, scheme


_CONLL = b"-DOCSTART- O\n\n# sent_id = 1\nAda B-PER\nLovelace I-PER\nwas O\n\n# newdoc\n# O\n"
_WORDS = _json_lines(
    {"tokens": ["Ada", "was"], "labels": ["B-PER", "O"]},
    {"text": "Ada was here.", "entities": [{"start": 0, "end": 3, "label": "PER"}]},
)
_add("squad_v1", "questions.json", partial(_squad, 1, True), (_SQUAD_V1,))
_add("squad_v2", "questions.json", partial(_squad, 2, False), (_SQUAD_V2,))
_add(
    "plain_questions",
    "questions.json",
    _plain_questions,
    (_json_lines(*_PLAIN_QUESTIONS), json.dumps(_PLAIN_QUESTIONS).encode()),
    mutations=_LINES,
)
_add("json_rows", "rows.jsonl", partial(_table, "rows.jsonl"), (_json_lines(*_ROWS),))
for _file, _good in (("rows.csv", _CSV), ("rows.tsv", (_TSV,))):
    _add(
        _file[-3:],
        _file,
        partial(_table, _file),
        _good,
        independent=partial(_delimited_rows, _file),
    )
_add("custom_rows", "rows.csv", _custom, _CSV)
_add("glue", "MRPC/train.tsv", lambda: GlueData("mrpc", ".").read("train"), (_MRPC,))
_add(
    "race",
    "train/middle/1.txt",
    lambda: _answers(read_race(".", "train", levels=("middle",))),
    (_PASSAGE,),
    mutations=_JSON,
    named=("1.txt", "/train"),
)
_add(
    "choices",
    "choices.jsonl",
    lambda: _answers(read_choices("choices.jsonl")),
    (_json_lines(*_CHOICES), _json_lines(_NUMBERED_CHOICE)),
)
for _file, _good in (("words.txt", _CONLL), ("words.jsonl", _WORDS)):
    _add(_file, _file, partial(_words, _file), (_good,))
_add(
    "texts",
    "texts.txt",
    lambda: check_file("texts.txt", is_pair=True),
    ("one\ttwo\nthree\tfour “x”\n\nfive\tsix\r\n".encode(),),
)

# The corpus, vocabularies.

_VOCABULARY = ("[PAD]", "[UNK]", *_SPECIAL, "the", "cat", "##s", "'", "1", ",", "é", "##e")
_CORPUS = "The first line of it.\nThe second, in “quotes”.\n\nAnother document.\n\tWith a tab.\n\n"


@cache
def _small_sentencepiece() -> bytes:
    model = io.BytesIO()
    with tempfile.NamedTemporaryFile("w") as rules:
        rules.write("BD\t31 2044 32\n201C\t22\n")  # ½ and an opening quotation mark
        rules.flush()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([_PLAIN_TEXT, "a dog and 9, cats", "12, or the other"] * 3),
            model_writer=model,
            vocab_size=40,
            hard_vocab_limit=False,
            num_threads=1,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            control_symbols=list(_SPECIAL),
            user_defined_symbols=["(", ")", "9,"],
            normalization_rule_tsv=rules.name,
            minloglevel=2,
        )
    return model.getvalue()


def _small_piece_list() -> bytes:
    found = parse_model(_small_sentencepiece(), "spm.model").pieces
    return "".join(f"{piece.piece}\t{piece.score:g}\n" for piece in found).encode()


def _corpus() -> Any:
    tokenizer = _corpus_tokenizer()
    blocks = cut_into_blocks(["corpus.txt"], 100)
    for block in blocks:
        check_block(block)
        read_documents(block, tokenizer)
    return b"".join(span.read() for block in blocks for span in block.spans)


@cache
def _corpus_tokenizer() -> Any:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("".join(f"{token}\n" for token in _VOCABULARY))
        file.flush()
        return load_tokenizer(vocab_file=file.name)


def _tokenizer(name: str) -> Any:
    tokenizer = load_tokenizer(vocab_file=name)
    tokenizer.encode_batch([_TEXT] * 20)
    tokenizer.encode_with_offsets(_TEXT)
    return tokenizer


def _vocabulary() -> Any:
    tokenizer = _tokenizer("vocab.txt")
    return tokenizer.tokens, tokenizer.encode(_TEXT)


def _sentencepiece() -> Any:
    tokenizer = _tokenizer("spm.model")
    tokenizer_json(tokenizer)
    return tokenizer.tokens, tokenizer.tokenize_clean(_PLAIN_TEXT)


def _pieces() -> Any:
    processor = sentencepiece.SentencePieceProcessor(model_file="spm.model")
    found = [processor.id_to_piece(number) for number in range(processor.get_piece_size())]
    return found, processor.encode(_PLAIN_TEXT, out_type=str)


_add(
    "corpus",
    "corpus.txt",
    _corpus,
    (_CORPUS.encode() * 2,),
    independent=lambda: Path("corpus.txt").read_bytes(),
)
_add(
    "vocabulary",
    "vocab.txt",
    _vocabulary,
    ("".join(f"{token}\n" for token in _VOCABULARY).encode(),),
)
_add("sentencepiece", "spm.model", _sentencepiece, (_small_sentencepiece,), independent=_pieces)
_add(
    "sentencepiece_vocab",
    "spm.vocab",
    lambda: load_tokenizer(spm_model_file="spm.model", vocab_file="spm.vocab").tokens,
    (_small_piece_list,),
    {"spm.model": _small_sentencepiece},
)

PARSERS: Mapping[str, Parser] = {parser.name: parser for parser in _ALL}
# Of a format that PyTorch alone writes and reads.
NEED_TORCH = frozenset({"pytorch"})
