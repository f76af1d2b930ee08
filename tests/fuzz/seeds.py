"""Small good files, of every kind that is read; the same in every run.

What TensorFlow, PyTorch or SentencePiece have to write is written by `prepare`, in a process of its
own, and handed on as bytes: a process that has used TensorFlow must not be forked.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import struct
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

TEXT = "The cat's 1,024 dogs, ½ of them\tasleep."
PLAIN_TEXT = "the cat sat on the mat"
_GOLDEN = Path(__file__).parents[1] / "golden" / "data"
_PRETRAINING = Path(__file__).parents[1] / "earlier" / "pretraining"  # step 5 of 12
_CLASSIFIER = _PRETRAINING.parent / "classifier"
_SPECIAL = ("[CLS]", "[SEP]", "[MASK]")
_CONFIG = {
    "vocab_size": 30,
    "embedding_size": 4,
    "hidden_size": 6,
    "num_hidden_layers": 2,
    "num_hidden_groups": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
    "inner_group_num": 1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 16,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
    "net_structure_type": 0,
}

_prepared: dict[str, bytes] = {}


def prepare() -> dict[str, bytes]:
    """Writes what needs other libraries; its result goes to `use`."""
    with tempfile.TemporaryDirectory(dir=_memory_folder()) as folder:
        if "torch" in sys.modules:
            _write_pytorch(folder)
        files = {
            os.path.relpath(os.path.join(place, name), folder): Path(place, name).read_bytes()
            for place, _, names in os.walk(folder)
            for name in names
        }
    files["spm.model"] = _small_sentencepiece()
    files["tf1_hub.pb"] = _small_tf1_graph()
    files["tf2_hub.pb"] = _small_tf2_graph()
    return files


def use(prepared: Mapping[str, bytes]) -> None:
    """Takes what `prepare` wrote."""
    _prepared.update(prepared)


def _memory_folder() -> str | None:
    return "/dev/shm" if os.path.isdir("/dev/shm") else None


def _write_pytorch(folder: str) -> None:
    import torch

    values = {
        "albert.pooler.weight": torch.arange(6, dtype=torch.float32).reshape(2, 3),
        "albert.pooler.bias": torch.arange(2, dtype=torch.bfloat16),
    }
    torch.save(values, os.path.join(folder, "pytorch_model.bin"))
    torch.save(values, os.path.join(folder, "old.bin"), _use_new_zipfile_serialization=False)


def _small_sentencepiece() -> bytes:
    import sentencepiece

    with tempfile.TemporaryDirectory(dir=_memory_folder()) as folder:
        rules = os.path.join(folder, "rules.tsv")
        Path(rules).write_text("BD\t31 2044 32\n201C\t22\n")  # ½ and an opening quotation mark
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([PLAIN_TEXT, "a dog and 9, cats", "12, or the other"] * 3),
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
            normalization_rule_tsv=rules,
            minloglevel=2,
        )
    return model.getvalue()


def _small_tf1_graph() -> bytes:
    """The recorded module, but of its graphs only what names the tokenizer's file and settings."""
    from tensorflow.core.protobuf import saved_model_pb2

    saved_model = saved_model_pb2.SavedModel()
    saved_model.ParseFromString((_GOLDEN / "hub" / "module" / "saved_model.pb").read_bytes())
    for graph in saved_model.meta_graphs:
        nodes = {node.name: node for node in graph.graph_def.node}
        outputs = graph.signature_def["tokenization_info"].outputs
        wanted = [output.name.split(":")[0] for output in outputs.values()]
        kept = []
        while wanted:
            node = nodes.pop(wanted.pop(), None)
            if node is not None:
                kept.append(node)
                wanted += [name.split(":")[0] for name in node.input]
        del graph.graph_def.node[:]
        graph.graph_def.node.extend(kept)
        graph.graph_def.ClearField("library")
        graph.meta_info_def.ClearField("stripped_op_list")
        for key in list(graph.collection_def):
            if key != "saved_model_assets":
                del graph.collection_def[key]
    return saved_model.SerializeToString(deterministic=True)


def _tf2_files() -> dict[str, bytes]:
    with zipfile.ZipFile(_GOLDEN / "tf2_hub" / "albert_encoder.zip") as archive:
        return {
            name.partition("/")[2]: archive.read(name)
            for name in archive.namelist()
            if not name.endswith("/")
        }


def _small_tf2_graph() -> bytes:
    """The recorded encoder, without the nodes of its graphs, of which nothing is read."""
    from tensorflow.core.protobuf import saved_model_pb2

    saved_model = saved_model_pb2.SavedModel()
    saved_model.ParseFromString(_tf2_files()["saved_model.pb"])
    for graph in saved_model.meta_graphs:
        graph.ClearField("graph_def")
        graph.meta_info_def.ClearField("stripped_op_list")
    return saved_model.SerializeToString(deterministic=True)


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"


def _json_lines(*rows: Any) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def configs() -> list[bytes]:
    odd = {
        **_CONFIG,
        "parameter_sharing": "attention",
        "down_scale_factor": 1,
        "layers_to_keep": [],
    }
    return [_json(_CONFIG), _json(odd)]


def labels() -> list[bytes]:
    from albert_tf.checkpoints.trained_task import QUESTION_TASKS

    questions = {
        "task_name": sorted(QUESTION_TASKS)[-1],
        "settings": {"start_n_top": 5, "null_score_diff_threshold": -1.5},
        "max_seq_length": None,
    }
    return [(_CLASSIFIER / "labels.json").read_bytes(), _json(questions)]


def hugging_face_configs() -> list[bytes]:
    model = {
        **{key: value for key, value in _CONFIG.items() if key != "hidden_act"},
        "model_type": "albert",
        "architectures": ["AlbertForSequenceClassification"],
        "hidden_act": "gelu_new",
        "layer_norm_eps": 1e-12,
        "position_embedding_type": "absolute",
        "classifier_dropout_prob": 0.1,
        "id2label": {"0": "no", "1": "yes"},
        "label2id": {"no": 0, "yes": 1},
        "finetuning_task": "mrpc",
        "problem_type": "single_label_classification",
        "num_labels": 2,
    }
    return [_json(model), _json({**model, "architectures": ["AlbertForPreTraining"]})]


def keras_hub_descriptions() -> dict[str, bytes]:
    backbone = {
        "registered_name": "keras_hub>AlbertBackbone",
        "config": {
            "vocabulary_size": 31,
            "embedding_dim": 8,
            "hidden_dim": 12,
            "num_layers": 4,
            "num_groups": 2,
            "num_heads": 3,
            "intermediate_dim": 20,
            "num_inner_repetitions": 2,
            "max_sequence_length": 16,
            "num_segments": 5,
            "dropout": 0.25,
        },
    }
    classifier = {"backbone": backbone, "num_classes": 3, "activation": "linear"}
    task = {"registered_name": "keras_hub>AlbertTextClassifier", "config": classifier}
    ours = {"do_lower_case": False, "config": {"initializer_range": 0.3, "gap_size": 2}}
    return {
        "config.json": _json(backbone),
        "task.json": _json(task),
        "metadata.json": _json({"keras_hub_version": "0.32.0", "albert_tf": ours}),
    }


def keras_hub_description(name: str) -> list[bytes]:
    return [keras_hub_descriptions()[name]]


def safetensors() -> list[bytes]:
    entries = {
        "albert.pooler.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "albert.pooler.bias": {"dtype": "F16", "shape": [2], "data_offsets": [24, 28]},
        "other": {"dtype": "F64", "shape": [], "data_offsets": [28, 36]},
    }
    values = struct.pack("<6f2ed", 0.5, -1, 2, 3, 4, 5, 1, 2, 0.25)
    brain = {"albert.pooler.bias": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}
    return [
        _safetensors({"__metadata__": {"format": "pt"}, **entries}, values),
        _safetensors(brain, b"\x80\x3f\x00\x40"),
    ]


def _safetensors(header: Any, values: bytes) -> bytes:
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + values


def hugging_face_others() -> dict[str, bytes]:
    return {"model.safetensors": safetensors()[0]}


_SHARD = "model-00001-of-00001.safetensors"


def hugging_face_index() -> list[bytes]:
    places = dict.fromkeys(("albert.pooler.weight", "albert.pooler.bias", "other"), _SHARD)
    return [_json({"metadata": {"total_size": 36}, "weight_map": places})]


def hugging_face_shards() -> dict[str, bytes]:
    return {_SHARD: safetensors()[0]}


def tokenizer_configs() -> list[bytes]:
    return [_json({"do_lower_case": True, "keep_accents": False, "model_max_length": 16})]


def tokenizer_jsons() -> list[bytes]:
    special = [
        {"id": number, "content": name, "special": True}
        for number, name in enumerate(("<pad>", "<unk>", *_SPECIAL))
    ]
    vocabulary = [[token["content"], 0.0] for token in special]
    vocabulary += [["▁", -1.5], ["▁the", -2.0], ["t", -3.0], ["9,", -104.0], ["9", -4.5]]
    unigram = {
        "added_tokens": special,
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "NFKD"},
                {"type": "Lowercase"},
                {"type": "Precompiled", "precompiled_charsmap": ""},
            ],
        },
        "model": {"type": "Unigram", "unk_id": 1, "vocab": vocabulary},
    }
    tokens = ["[PAD]", "[UNK]", *_SPECIAL, "the", "##e", "cat"]
    wordpiece = {
        "added_tokens": [],
        "normalizer": {"type": "BertNormalizer", "lowercase": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "vocab": {token: number for number, token in enumerate(tokens)},
        },
    }
    return [_json(unigram), _json(wordpiece)]


def pytorch() -> list[bytes]:
    return [_prepared["pytorch_model.bin"], _prepared["old.bin"]]


def of_training(name: str) -> list[bytes]:
    """A file of the training directory of a pretraining."""
    return [(_PRETRAINING / name).read_bytes()]


def training_files(*names: str) -> dict[str, bytes]:
    """Several of its files, by name."""
    return {name: (_PRETRAINING / name).read_bytes() for name in names}


def best_trials() -> list[bytes]:
    return [b"7:5:0.75\n", b"7:5:0.75"]


def eval_results() -> list[bytes]:
    rule = "=" * 50
    block = (
        "eval_accuracy = 0.75\nf1 = 0.5\nglobal_step = {}\nloss = 0.5\nbest = -1\n" + rule + "\n"
    )
    return [(block.format(5) + block.format(7)).encode()]


def checkpoint_files() -> list[bytes]:
    return [
        b'model_checkpoint_path: "model.ckpt-7"\nall_model_checkpoint_paths: "model.ckpt-5"\n'
        b'all_model_checkpoint_paths: "model.ckpt-7"\n'
    ]


def tf1_hub() -> list[bytes]:
    return [_prepared["tf1_hub.pb"]]


def tf1_hub_others() -> dict[str, bytes]:
    module = _GOLDEN / "hub" / "module"
    names = (
        "assets/30k-clean.model",
        "assets/albert_config.json",
        "variables/variables.index",
        "variables/variables.data-00000-of-00001",
    )
    return {name: (module / name).read_bytes() for name in names}


def tf2_hub() -> list[bytes]:
    return [_prepared["tf2_hub.pb"]]


def tf2_hub_index() -> list[bytes]:
    return [_tf2_files()["variables/variables.index"]]


def keras_notes() -> list[bytes]:
    """What Keras notes of an encoder, among other things."""
    notes = {
        "num_layers": 3,
        "activation": {"class_name": "function", "config": "Text>gelu"},
        "dropout_rate": 0.1,
        "attention_dropout_rate": 0.1,
        "more": [1, {"a": None}],
    }
    text = f'{{"class_name": "AlbertEncoder", "config": {json.dumps(notes)}, "x": 1}}'
    return [b"\n\x84\x01\x08\x00\x12" + text.encode() + b"\x00\xff"]


def tf2_hub_others() -> dict[str, bytes]:
    return {**_tf2_files(), "saved_model.pb": _prepared["tf2_hub.pb"]}


def archives() -> list[bytes]:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, content in {"albert_config.json": configs()[0], "vocab.txt": b"[PAD]\n"}.items():
            member = tarfile.TarInfo(f"albert_tiny/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return [gzip.compress(file.getvalue(), mtime=0), file.getvalue()]


def checksums() -> list[bytes]:
    digest = hashlib.sha256(configs()[0]).hexdigest()
    return [f"{digest}  config.json\n".encode()]


def records() -> list[bytes]:
    import numpy as np

    from albert_tf.data.tf_examples import FeatureSpec, encode_examples
    from albert_tf.data.tfrecord import frame_records

    specs = (
        FeatureSpec("input_ids", "int64", 4),
        FeatureSpec("input_mask", "int64", 4),
        FeatureSpec("weights", "float32", 2),
        FeatureSpec("segment_ids", "int64", 4),
        FeatureSpec("token_boundary", "int64", 4),
    )
    columns = {
        "input_ids": np.arange(12).reshape(3, 4) * 4,
        "input_mask": np.array([[1, 1, 1, 0]] * 3),
        "weights": np.full((3, 2), 0.5, np.float32),
        "segment_ids": np.array([[0, 0, 1, 0]] * 3),
        "token_boundary": np.ones((3, 4), np.int64),
    }
    return [b"".join(frame_records(encode_examples(columns, specs)))]


def _squad(version: str, *questions: dict[str, Any]) -> bytes:
    context = "Ada wrote the first program in 1843."
    paragraph = {"context": context, "qas": list(questions)}
    return _json({"version": version, "data": [{"title": "Ada", "paragraphs": [paragraph]}]})


_ADA = {"text": "Ada", "answer_start": 0}
_YEAR = {"text": "1843", "answer_start": 31}


def squad_v1() -> list[bytes]:
    return [
        _squad(
            "1.1",
            {"id": "a", "question": "Who?", "answers": [_ADA, _ADA]},
            {"id": "b", "question": "When?", "answers": [_YEAR]},
        )
    ]


def squad_v2() -> list[bytes]:
    return [
        _squad(
            "v2.0",
            {"id": "a", "question": "Who?", "answers": [_ADA], "is_impossible": False},
            {"id": "b", "question": "Why?", "answers": [], "is_impossible": True},
        )
    ]


def plain_questions() -> list[bytes]:
    first = {"id": "a", "context": "Ada wrote it.", "question": "Who?"}
    second = {"id": 7, "context": "In 1843.", "question": "When?"}
    return [_json_lines(first, second), json.dumps([first, second]).encode()]


def json_rows() -> list[bytes]:
    return [
        _json_lines(
            {"text_a": "one", "label": "yes", "score": 1},
            {"text_a": "two, three", "label": "no", "score": 2.5},
            {"text_a": "“four”", "label": True, "other": None},
        )
    ]


def csv() -> list[bytes]:
    return [
        b'text_a,text_b,label\none,"two, three",yes\n"a ""b""\nc",four,no\nfive,six,yes\n',
        b"text_a,label\none,1\ntwo,2.5\nthree,-3\n",
    ]


def tsv() -> list[bytes]:
    return [b'text_a\ttext_b\tlabel\none\ttwo, "three\tyes\nfour\tfive\tno\n']


def glue() -> list[bytes]:
    return [
        b"Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
        b'1\t10\t11\tHe said "so.\tSo he said.\n0\t12\t13\tOne.\tTwo.\n'
    ]


def race() -> list[bytes]:
    passage = {
        "id": "middle1.txt",
        "article": "Ada wrote it.",
        "questions": ["Who _ ?", "When?"],
        "options": [["Ada", "Bob", "Cy", "Di"], ["1", "2", "3", "4"]],
        "answers": ["A", "D"],
    }
    return [json.dumps(passage).encode()]


def choices() -> list[bytes]:
    return [
        _json_lines(
            {"context": "Ada.", "question": "Who?", "options": ["Ada", "Bob"], "label": "A"},
            {"context": "x", "question": "_ y", "options": ["a", "b"], "label": "b"},
        ),
        _json_lines(
            {"id": 7, "context": "x", "question": "y", "options": ["a", 2, "c"], "label": 2}
        ),
    ]


def corpora() -> list[bytes]:
    text = "The first line of it.\nThe second, in “quotes”.\n\nAnother document.\n\tWith a tab.\n\n"
    return [text.encode() * 2]


@cache
def tokenizer() -> Any:
    """A word-piece tokenizer."""
    from albert_tf.tokenization.word_piece import WordPieceTokenizer

    return WordPieceTokenizer(vocabularies()[0].decode().splitlines(), True, ["vocab.txt"])


def vocabularies() -> list[bytes]:
    tokens = ("[PAD]", "[UNK]", *_SPECIAL, "the", "cat", "##s", "'", "1", ",", "é", "##e")
    return ["".join(f"{token}\n" for token in tokens).encode()]


def sentencepiece_models() -> list[bytes]:
    return [_prepared["spm.model"]]


def piece_lists() -> list[bytes]:
    from albert_tf.checkpoints.huggingface.tokenizer import parse_model

    found = parse_model(_prepared["spm.model"], "spm.model").pieces
    return ["".join(f"{piece.piece}\t{piece.score:g}\n" for piece in found).encode()]


def ablation_settings() -> list[bytes]:
    return [_json({"steps": 5, "text": "x", "more": [1, 2]})]


def texts() -> list[bytes]:
    return ["one\ttwo\nthree\tfour “x”\n\nfive\tsix\r\n".encode()]
