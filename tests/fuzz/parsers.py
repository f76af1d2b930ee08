"""All functions that read user files.

Each function runs in a copy of one of its sample directories, in which one file is damaged.
"""

from __future__ import annotations

import json
import operator
import os
import struct
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import IO, Any, cast
from unittest import mock

import numpy as np
import sentencepiece

from albert_tf.checkpoints.archives import local_directory
from albert_tf.checkpoints.downloads import check_sums
from albert_tf.checkpoints.formats import huggingface, keras_file, keras_hub, tf1_hub, tf2_hub
from albert_tf.checkpoints.formats.choose import open_weights
from albert_tf.checkpoints.formats.huggingface.tensors import open_tensors
from albert_tf.checkpoints.formats.huggingface.tokenizer import read_tokenizer
from albert_tf.checkpoints.formats.huggingface.tokenizer_writing import tokenizer_json
from albert_tf.checkpoints.formats.original import find_checkpoint
from albert_tf.checkpoints.model_directory import read_run_config
from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.classification.data import CustomData, GlueData
from albert_tf.classification.text_predictor import check_file
from albert_tf.config import PRESETS, AlbertConfig
from albert_tf.data.rows import read_rows
from albert_tf.data.streams import open_input, read_lines
from albert_tf.data.tfrecord import FeatureSpec, count_records, masked_crc32c, read_records
from albert_tf.multiple_choice.data import read_choices, read_race
from albert_tf.pretraining import batching
from albert_tf.pretraining.corpus import contains_text, cut_into_blocks, read_documents
from albert_tf.pretraining.record_checks import (
    are_masked,
    check_record_files,
    check_sentence_pairs,
    explain_read_errors,
)
from albert_tf.squad.answerer import check_questions, read_plain_questions
from albert_tf.squad.data import read_squad
from albert_tf.token_classification.data import lines_with_predictions, read_sentences
from albert_tf.token_classification.labels import recognize_scheme
from albert_tf.tokenization.loading import tokenizer_from_files
from albert_tf.tools import ablations
from albert_tf.tools.glue_results import read_runs
from albert_tf.tools.inspect import describe_file, describe_saved_model, find_saved_model
from albert_tf.training.evaluation import BestCheckpoint, EvaluationResults
from albert_tf.training.run_log import RunLog
from albert_tf.training.training_directory import TrainingDirectory
from tests.fuzz import mutations as m

_INDEX, _SHARD = "model.safetensors.index.json", "model-00001-of-00001.safetensors"
_WEIGHTS, _QUESTIONS = "model.safetensors", "questions.json"
UNKNOWN = object()  # result of an independent reader that does not support the content
NEED_TORCH = frozenset({"pytorch"})
SAMPLES = Path(__file__).parent / "samples"
_TEXT = "The cat's 1,024 dogs, ½ of them\tasleep."
_PLAIN_TEXT = "the cat sat on the mat"

# TensorFlow allocates memory for a length with a correct checksum, and aborts if it is too large.
_READ_BY_TENSORFLOW = (m.damage_records,) * 2
_READ_IN_PYTHON = partial(m.damage_records, lengths=(0, 10**6, 2**31, 2**40, 2**63, 2**64 - 1))
_JSON = (m.damage_json, m.damage_text)
_MUTATIONS = {
    ".json": _JSON,
    ".jsonl": _JSON,
    ".model": (m.damage_message,) * 2,
    ".pb": (m.damage_message,) * 2,
    ".safetensors": (m.damage_safetensors,),
    ".bin": (),
    ".h5": (),
    ".gz": (m.damage_tar,) * 3,
    ".tfrecord": (_READ_IN_PYTHON,) * 2,
    ".index": (),
    ".data-00000-of-00001": (),
}


@dataclass(frozen=True)
class Parser:
    """A kind of user file and the function that reads it.

    Attributes:
        name: value of `--parsers`.
        file: path of the damaged file in the sample directories.
        read: reads the file and returns something comparable.
        folders: sample directories.
        named: texts of which a clear error must contain at least one.
        mutations: mutations in addition to `damage_bytes`.
        independent: reads the file in another way. Returns `UNKNOWN`, or raises any exception, if
            it does not support the content.
        is_same: compares the results of `read` and `independent`.
    """

    name: str
    file: str
    read: Callable[[], Any]
    folders: Sequence[Path]
    named: Sequence[str]
    mutations: Sequence[m.Mutation]
    independent: Callable[[], Any] | None = None
    is_same: Callable[[Any, Any], bool] = operator.eq


PARSERS: dict[str, Parser] = {}


def _add(
    name: str,
    file: str,
    read: Callable[[], Any],
    folder: str = "",
    values: str = "",
    **settings: Any,
) -> None:
    """Adds a parser with samples in the directories `samples/<folder>`, `samples/<folder>-2`, ...

    The default folder is the name. By default, errors must contain the name of the file, and the
    mutations depend on its suffix. `values` is a JSON file with the values that `read` returns.
    """
    first = SAMPLES / (folder or name)
    folders = [first, *sorted(first.parent.glob(f"{first.name}-*"))]
    mutations = _MUTATIONS.get(os.path.splitext(file)[1], (m.damage_text,))
    if values:
        settings |= {"independent": lambda: _json_content(values), "is_same": _shares_values}
    defaults = {"named": (os.path.basename(file),), "mutations": mutations}
    PARSERS[name] = Parser(name, file, read, folders, **{**defaults, **settings})


def _shares_values(ours: Any, theirs: Any) -> bool:
    """Returns whether the values that both readers return are equal."""
    if ours is None or not isinstance(theirs, dict):
        return ours is None
    return all(ours[k] == v for k, v in theirs.items() if k in ours and v is not None)


def _json_content(name: str) -> Any:
    return json.loads(Path(name).read_text("utf-8"))


def _labels() -> Any:
    task = StoredTask.read(".")
    return task and task.to_dict()


def _tokenizer(name: str) -> Any:
    tokenizer = tokenizer_from_files(vocab_file=name)
    tokenizer.encode_batch([_TEXT] * 20)
    tokenizer.encode_with_offsets(_TEXT)
    return tokenizer


def _pieces() -> Any:
    processor = sentencepiece.SentencePieceProcessor(model_file="spm.model")
    found = [processor.id_to_piece(number) for number in range(processor.get_piece_size())]
    return found, processor.encode(_PLAIN_TEXT, out_type=str)


def _sentencepiece_model() -> Any:
    tokenizer = _tokenizer("spm.model")
    tokenizer_json(tokenizer)
    return tokenizer.tokens, tokenizer.tokenize_clean(_PLAIN_TEXT)


def _tensors(name: str) -> Any:
    opened = open_tensors(name)
    values = {tensor: opened.get(tensor) for tensor in opened.shapes}
    dict(huggingface.open_weights(name))
    return {key: (value.dtype, value.shape, value.tobytes()) for key, value in values.items()}


def _tensors_by_hand() -> Any:
    data = Path(_WEIGHTS).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    values = {}
    for key, entry in header.items():
        start, end = entry["data_offsets"]
        dtype = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "F64": np.dtype("<f8")}
        values[key] = dtype[entry["dtype"]], tuple(entry["shape"]), data[8 + length :][start:end]
    return values


def _hf_config() -> None:
    huggingface.is_here(".")
    huggingface.open_weights(_WEIGHTS)
    huggingface.read(".")


def _tokenizer_json() -> Any:
    os.environ["ALBERT_TF_HOME"] = "cache"
    files = read_tokenizer(".").files
    return _tokenizer(files[0]).tokens if files else None


def _tf2_hub_module() -> None:
    tf2_hub.is_here(".")
    dict(tf2_hub.open_weights(tf2_hub.read(".").checkpoint))


def _tf1_hub_module() -> None:
    tf1_hub.is_here(".")
    tf1_hub.read(".")


def _ablation() -> None:
    base = ablations.Variant(ablations.BASE, "", PRESETS["base_v2"])
    ablations.read_run(base, ".")


def _input_description() -> None:
    TrainingDirectory(".").input_description("./model.ckpt-5")


def _race() -> None:
    list(read_race(".", "train", levels=("middle",)))


def _checkpoint() -> None:
    dict(open_weights("./model.ckpt-5"))


def _tar_members() -> dict[str, bytes]:
    with tarfile.open("model.tar.gz") as file:
        members = [member for member in file if not member.isdir()]
        names = (os.path.normpath(member.name.lstrip("/")) for member in members)
        contents = (cast(IO[bytes], file.extractfile(member)).read() for member in members)
        return dict(zip(names, contents, strict=True))


def _metrics() -> None:
    with mock.patch.object(RunLog, "_write_summaries"):  # writing for TensorBoard takes 30 ms
        RunLog(".", 10, start_step=4)


def _checkpoint_file() -> None:
    TrainingDirectory(".").checkpoints()
    find_checkpoint(".")


def _archive() -> Any:
    os.environ["ALBERT_TF_HOME"] = "cache"
    local_directory("model.tar.gz")
    (root,) = Path("cache", "unpacked").iterdir()
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


_PART = "part.tfrecord"
_SPECS = (
    FeatureSpec("input_ids", "int64", 4, 50),
    FeatureSpec("input_mask", "int64", 4, 2),
    FeatureSpec("weights", "float32", 2),
)


def _records_by_hand() -> list[bytes]:
    """Returns the payloads before the first wrong checksum."""
    found = []
    for record in m.split_records(Path(_PART).read_bytes()):
        header, payload = record[:8], record[12:-4]
        checks = masked_crc32c(header), masked_crc32c(payload)
        if checks != (record[8:12], record[-4:]) or len(record) != len(payload) + 16:
            break
        found.append(payload)
    return found


def _tfrecord_pipeline() -> None:
    check_record_files([_PART], _SPECS)
    with explain_read_errors([(_PART, _SPECS)]):
        rows = batching.evaluation_batches([_PART], _SPECS, 2).unbatch()
        rows.batch(100_000).get_single_element()  # much faster than iterating


def _tfrecord_kind() -> None:
    are_masked(_PART)
    check_sentence_pairs([_PART], "sop")


def _words(name: str) -> None:
    def predict(words: Sequence[Sequence[str]]) -> list[tuple[list[str], list[float]]]:
        return [(["O"] * len(row), [1.0] * len(row)) for row in words]

    scheme = recognize_scheme(list(read_sentences(name)))
    list(lines_with_predictions(name, predict, scheme))


@cache
def _corpus_tokenizer() -> Any:
    return tokenizer_from_files(vocab_file=SAMPLES / "vocabulary" / "vocab.txt")


def _plain_questions() -> None:
    check_questions(_QUESTIONS, _corpus_tokenizer())
    with open_input(_QUESTIONS) as file:
        list(read_plain_questions(read_lines(file), _QUESTIONS))


def _custom_rows() -> Any:
    data = CustomData(train_file="rows.csv", text_a_column="text_a")
    return data.labels, data.read("train")


def _corpus() -> Any:
    blocks = cut_into_blocks(["corpus.txt"], 100)
    for block in blocks:
        contains_text(None, block)
        read_documents(block, _corpus_tokenizer())
    return b"".join(span.read() for block in blocks for span in block.spans)


_CONFIG = "albert_config.json"
_add("config", _CONFIG, lambda: AlbertConfig.from_json_file(_CONFIG).to_dict(), values=_CONFIG)
_add("labels", "labels.json", _labels, values="labels.json")
_add("vocabulary", "vocab.txt", lambda: _tokenizer("vocab.txt"))
_add("sentencepiece_model", "spm.model", _sentencepiece_model, independent=_pieces)
_VOCABULARY_FILES = {"spm_model_file": "spm.model", "vocab_file": "spm.vocab"}
_add("sentencepiece_vocab", "spm.vocab", lambda: tokenizer_from_files(**_VOCABULARY_FILES))
_add("hf_config", "config.json", _hf_config)
_add("hf_index", _INDEX, lambda: _tensors(_INDEX), named=(_INDEX, _SHARD))
_add("safetensors", _WEIGHTS, lambda: _tensors(_WEIGHTS), independent=_tensors_by_hand)
_add("hdf5", "tf_model.h5", lambda: _tensors("tf_model.h5"))
_add("pytorch", "pytorch_model.bin", lambda: _tensors("pytorch_model.bin"))
_add("hf_tokenizer_config", "tokenizer_config.json", lambda: read_tokenizer("."))
_add(
    "tokenizer_json",
    "tokenizer.json",
    _tokenizer_json,
    named=("tokenizer.json", "spiece.model", "vocab.txt"),
)
_LIBRARY = "tokenizer.json"
_add("library_tokenizer", _LIBRARY, lambda: _tokenizer(_LIBRARY).tokens, "tokenizer_json")
for _name in ("config", "task", "metadata"):
    _add(
        f"keras_hub_{_name}",
        f"{_name}.json",
        lambda: keras_hub.read_config("."),
        "keras_hub",
        named=("config.json", f"{_name}.json"),
    )
_add(
    "keras_description",
    "config.json",
    lambda: keras_file.check_description(Path("config.json").read_bytes(), "config.json", 10**6),
)
_add(
    "tf1_hub_module",
    "saved_model.pb",
    _tf1_hub_module,
    named=("saved_model.pb", "albert_config.json", ".: "),
)
for _name, _file in (
    ("module", "saved_model.pb"),
    ("variables", "variables/variables.index"),
    ("metadata", "keras_metadata.pb"),
):
    _named = (_file.removesuffix(".index"), ".: ")
    _add(f"tf2_hub_{_name}", _file, _tf2_hub_module, "tf2_hub", named=_named)
_GRAPH = "saved_model.pb"
_add("saved_model", _GRAPH, lambda: list(describe_saved_model(find_saved_model("."))), "tf2_hub")
_add("run_config", "run_config.json", lambda: read_run_config("."), "training_run")
_add("metrics", "metrics.jsonl", _metrics, "training_run")
_add("ablation", "metrics.jsonl", _ablation)
_BEST = "best_trial.txt"
_add("best_trial", _BEST, lambda: BestCheckpoint(TrainingDirectory("."), "eval_accuracy"))
_add("eval_results", "eval_results.txt", lambda: EvaluationResults(".", 5))
_add("glue_results", "mrpc-seed1/eval_results.txt", lambda: read_runs("."), "glue_results")
_add("glue_best_trial", "mrpc-seed1/best_trial.txt", lambda: read_runs("."), "glue_results")
_add("checkpoint_file", "checkpoint", _checkpoint_file, named=("checkpoint", "model.ckpt-5"))
for _name, _suffix in (("index", ".index"), ("data", ".data-00000-of-00001")):
    _file = f"model.ckpt-5{_suffix}"
    _add(f"checkpoint_{_name}", _file, _checkpoint, "training_run", named=("model.ckpt-5",))
_add("input_description", "train_state/5.json", _input_description, "training_run")
_add("checksums", "SHA256SUMS", lambda: check_sums("."), named=("SHA256SUMS", "config.json"))
_add("archive", "model.tar.gz", _archive, independent=_tar_members)
_add("tfrecord", _PART, lambda: list(read_records(_PART)), "records", independent=_records_by_hand)
_add(
    "tfrecord_count",
    _PART,
    lambda: count_records([_PART]),
    "records",
    independent=_records_by_hand,
    is_same=lambda count, records: count >= len(records),
)
_add("tfrecord_pipeline", _PART, _tfrecord_pipeline, "records", mutations=_READ_BY_TENSORFLOW)
_add("tfrecord_kind", _PART, _tfrecord_kind, "records")
_add("inspected_records", _PART, lambda: list(describe_file(_PART) or ()), "records")
_add("squad_v1", _QUESTIONS, lambda: read_squad(_QUESTIONS, version=1, is_training=True))
_add("squad_v2", _QUESTIONS, lambda: read_squad(_QUESTIONS, version=2, is_training=False))
_add("plain_questions", _QUESTIONS, _plain_questions)
_add("json_rows", "rows.jsonl", lambda: list(read_rows("rows.jsonl").rows))
_add("csv", "rows.csv", lambda: list(read_rows("rows.csv").rows))
_add("tsv", "rows.tsv", lambda: list(read_rows("rows.tsv").rows))
_add("custom_rows", "rows.csv", _custom_rows, "csv")
_add("glue", "MRPC/train.tsv", lambda: GlueData("mrpc", ".").read("train"))
_add("race", "train/middle/1.txt", _race, mutations=_JSON, named=("1.txt", "/train"))
_add("choices", "choices.jsonl", lambda: list(read_choices("choices.jsonl")))
_add("words", "words.txt", lambda: _words("words.txt"))
_add("words_json", "words.jsonl", lambda: _words("words.jsonl"))
_add("texts", "texts.txt", lambda: check_file("texts.txt", True, _corpus_tokenizer()))
_add("corpus", "corpus.txt", _corpus, independent=lambda: Path("corpus.txt").read_bytes())
