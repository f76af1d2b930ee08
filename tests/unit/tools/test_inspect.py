"""Descriptions of models, exported models and files, including damaged ones."""

import json
import random
import shutil

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.checkpoints.formats.original import write_checkpoint
from albert_tf.checkpoints.model_directory import ModelDirectory
from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.classification.export import export_classifier
from albert_tf.cli import inspect
from albert_tf.data.errors import UserError
from albert_tf.labels import Labels
from albert_tf.modeling.original_names import original_names
from albert_tf.settings import Settings
from albert_tf.tools.inspect import describe
from tests.small_model import ONE_BLOCK, small_config
from tests.small_records import write_records

CONFIG = small_config(vocab_size=1000, max_position_embeddings=64, **ONE_BLOCK)


def described(path) -> str:
    return "\n".join(describe(str(path)))


def facts(text: str) -> dict[str, str]:
    """Returns the two columns of all sections."""
    pairs = (line.strip().split("  ", 1) for line in text.splitlines() if line.startswith("  "))
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}


def written(path, model, tokenizer, task=None):
    """Writes a directory of a model with a checkpoint of a training at step 77."""
    random.seed(5)
    ModelDirectory(str(path), model.config, tokenizer).write()
    variables = original_names(model)
    slots = {f"{name}/adam_m": np.zeros(value.shape) for name, value in variables.items()}
    write_checkpoint(str(path / "model.ckpt-77"), {**variables, **slots}, global_step=77)
    if task:
        task.write(str(path))
    return path


def test_a_pretrained_model_in_another_format(golden, capsys):
    path = str(golden / "hub" / "module_cased_matmul")
    inspect.run(Settings(), [path])
    text = capsys.readouterr().out
    assert text.startswith(f"{path}: a SavedModel (TensorFlow 1.15.5)\n")
    assert f"\n{path}: a TF-Hub module of TF1 (tf1_hub)\n" in text
    found = facts(text)
    assert found["-> sop_log_probs"] == "float32 [?, 2]"
    assert found["variables"] == "32"
    assert found["parameters"] == found["all"] == "14,586"
    assert "masked LM, sentence order" in text
    assert found["vocab_size"] == "1,000"
    assert found["kind"] == "SentencePiece"
    assert found["lower-cases"] == "False"


@pytest.mark.parametrize("is_pair", [True, False])
def test_a_classifier_in_training(tmp_path, tokenizer, is_pair):
    task = StoredTask("mine", Labels(("no", "yes", "who knows")), is_pair, max_seq_length=32)
    model = albert_tf.AlbertForClassification(CONFIG, 3)
    text = described(written(tmp_path, model, tokenizer, task))
    found = facts(text)
    assert found["step"] == "77"
    assert found["optimizer slots"] == "27"
    assert found["all checkpoints"] == "model.ckpt-77"
    assert "3 classes" in text
    assert found["labels"] == "no, yes, who knows"
    assert found["texts"] == ("pairs" if is_pair else "single")
    assert found["lower-cases"] == "True"  # the default, which the directory does not contain


def test_readable_parts_are_printed_before_the_error(tmp_path, tokenizer, capsys):
    path = written(tmp_path, albert_tf.AlbertEncoder(CONFIG), tokenizer)
    config = json.loads((path / "albert_config.json").read_text())
    (path / "albert_config.json").write_text(json.dumps({**config, "hidden_size": 24}))
    with pytest.raises(ValueError, match=r"hidden_size|shape"):
        inspect.run(Settings(), [str(path)])
    assert facts(capsys.readouterr().out)["step"] == "77"
    data = path / "model.ckpt-77.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:50])
    with pytest.raises(ValueError, match=r"model\.ckpt-77"):
        described(path)


def test_missing_tokenizer_and_configuration_are_described(tmp_path):
    path = written(tmp_path, albert_tf.AlbertEncoder(CONFIG), None)
    assert "--spm_model_file" in described(path)
    (path / "albert_config.json").unlink()
    assert "--albert_config_file" in described(path).splitlines()[-1]


def test_a_keras_file(tmp_path, tokenizer, caplog):
    model = albert_tf.AlbertForClassification(CONFIG, 3)
    model.tokenizer = tokenizer
    model.save(tmp_path / "model.keras")
    text = described(tmp_path / "model.keras")
    assert "save:" not in caplog.text  # nothing is saved
    assert text.startswith(f"{tmp_path}/model.keras: a Keras file (keras)")
    assert "3 classes" in text


def test_an_exported_classifier_in_a_numbered_directory(tmp_path):
    model = albert_tf.AlbertForClassification(CONFIG, 2)
    path = export_classifier(model, Labels(("a", "b")), str(tmp_path), 16)
    shutil.copytree(path, tmp_path / "9")  # older than any second of our time
    text = described(tmp_path)
    assert text.startswith(f"{path}: a SavedModel (TensorFlow {tf.__version__})")
    assert facts(text)["-> probabilities"] == "float32 [?, 2]"
    assert "2 classes" in text  # of the weights, which another training may start from
    data = tmp_path / "9" / "variables" / "variables.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:50])
    assert "9/variables/variables' is damaged" in described(tmp_path / "9")
    (tmp_path / "9" / "saved_model.pb").write_bytes(b"\xff\xff")
    with pytest.raises(ValueError, match=r"saved_model\.pb'"):
        described(tmp_path / "9")


def test_files(golden, tmp_path):
    records = described(golden / "glue" / "mrpc_dev_32.tfrecord")
    assert "records of classification or multiple choice" in records
    assert facts(records)["records"] == "15"
    assert facts(records)["input_ids"].startswith("int64 [32]: 2, 21, 13, ")
    pretraining = described(golden / "pretraining_data" / "spm_no_masking.tfrecord")
    assert ": records of pretraining\n" in pretraining
    config = described(golden / "hub" / "albert_directory" / "albert_config.json")
    assert facts(config)["encoder"] == "13,320"
    tokenizer = described(golden / "hub" / "albert_directory" / "30k-clean.model")
    assert facts(tokenizer)["entries"] == "1,000"
    assert facts(tokenizer)["mask"] == "4 [MASK]"


def test_a_litert_model(tmp_path):
    function = tf.function(lambda ids: {"doubled": 2 * ids})
    concrete = function.get_concrete_function(tf.TensorSpec([1, 7], tf.int32, name="ids"))
    converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete])
    path = tmp_path / "model.tflite"
    path.write_bytes(converter.convert())
    text = described(path)
    assert text.startswith(f"{path}: a LiteRT model\n")
    assert facts(text)["ids"] == "int32 [1, 7]"
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(ValueError, match=r"model\.tflite"):
        described(path)


@pytest.mark.parametrize("content", [None, b"", b"once upon a time there was a text"])
def test_other_files_are_rejected(tmp_path, content):
    if content is not None:
        (tmp_path / "thing").write_bytes(content)
    with pytest.raises(ValueError, match="thing"):
        described(tmp_path / "thing")
    with pytest.raises(ValueError, match="PATH"):
        inspect.run(Settings(), [])


def test_records_are_shown_as_pieces(golden, tmp_path, tokenizer, capsys):
    path, model = str(tmp_path / "records"), str(golden / "tokenizer" / "small_1000.model")
    ids = [tokenizer.cls_id, *tokenizer.encode("the road was long"), tokenizer.sep_id]
    features = {
        "input_ids": [*ids[:3], tokenizer.mask_id, *ids[4:], 0, 0],
        "input_mask": [1] * len(ids) + [0, 0],
        "masked_lm_positions": [3, 0],
        "masked_lm_ids": [ids[3], 0],
        "masked_lm_weights": np.float32([1, 0]),
        "next_sentence_labels": [1],
    }
    write_records(path, {name: np.array([values] * 4) for name, values in features.items()})
    inspect.run(Settings(), [path, model])
    lines = capsys.readouterr().out.splitlines()[-3:]
    pieces = tokenizer.convert_ids_to_tokens(ids)
    pieces[3] = f"[MASK]={pieces[3]}"
    assert lines[0] == f"{path}, record 1, label [1]: {' '.join(pieces)}"
    assert [line.split(",")[1] for line in lines] == [" record 1", " record 2", " record 3"]


def test_onnx_files_with_other_values_than_tensors(tmp_path):
    onnx = pytest.importorskip("onnx")
    make, path = onnx.helper, str(tmp_path / "a.onnx")
    tensor = make.make_tensor_type_proto(onnx.TensorProto.INT64, ["batch", None, 3])
    kinds = {
        "tensor": (tensor, "int64 [batch, ?, 3]"),
        "rank": (make.make_tensor_type_proto(onnx.TensorProto.FLOAT, None), "float32 [...]"),
        "a": (make.make_sequence_type_proto(tensor), "sequence"),
        "b": (make.make_map_type_proto(onnx.TensorProto.STRING, tensor), "map"),
        "c": (make.make_optional_type_proto(tensor), "optional"),
        "d": (make.make_sparse_tensor_type_proto(onnx.TensorProto.FLOAT, [2]), "sparse_tensor"),
        "e": (onnx.TypeProto(), "unknown"),
    }
    values = [make.make_value_info(name, kind) for name, (kind, _) in kinds.items()]
    onnx.save(make.make_model(make.make_graph([], "graph", values, values)), path)
    printed = described(path)
    for name, (_, expected) in kinds.items():
        assert printed.count(f"  {name:28}  {expected}\n") + printed.endswith(expected) == 2
    values = [make.make_value_info("a", make.make_tensor_type_proto(0, []))]
    onnx.save(make.make_model(make.make_graph([], "graph", values, [])), path)
    with pytest.raises(UserError, match="is damaged or not an ONNX model"):
        described(path)
