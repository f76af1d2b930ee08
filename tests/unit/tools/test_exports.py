"""The functions of the commands that convert, export and inspect models."""

import sys
import time

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

import albert_tf
from albert_tf.serving import agreement, litert, onnx_export
from tests.programs import warm_python
from tests.serving import warmup_inputs

TEXTS = ["a moving film", "a waste of two hours"]


@pytest.fixture(scope="module")
def saved(small_pretrained, tmp_path_factory):
    path, settings = tmp_path_factory.mktemp("saved") / "model", {"max_seq_length": 16}
    albert_tf.TextClassifier.load(small_pretrained, labels=["no", "yes"], **settings).save(path)
    return path


@pytest.fixture(scope="module")
def expected(saved):
    return [list(p.probabilities.values()) for p in albert_tf.TextClassifier.load(saved)(TEXTS)]


@pytest.fixture(scope="module")
def exported_texts(saved, tmp_path_factory):
    return albert_tf.export_saved_model(saved, tmp_path_factory.mktemp("exported"), texts=True)


@pytest.mark.parametrize("texts", [True, False])
def test_a_saved_model_of_texts_or_token_ids(tmp_path, saved, exported_texts, expected, texts):
    exported = exported_texts if texts else albert_tf.export_saved_model(saved, tmp_path)
    inputs = {"texts": TEXTS} if texts else albert_tf.load_tokenizer(saved)(TEXTS)
    signature = "serving_default" if texts else "tokens"
    function = tf.saved_model.load(exported).signatures[signature]
    outputs = function(**{name: tf.constant(values) for name, values in inputs.items()})
    np.testing.assert_allclose(outputs["probabilities"], expected, rtol=0, atol=1e-5)


def test_a_saved_model_needs_a_fine_tuned_model(tmp_path):
    with pytest.raises(ValueError, match="path must be a fine-tuned model"):
        albert_tf.export_saved_model("mini", tmp_path)
    assert not list(tmp_path.iterdir())


def test_conversion_and_modules_are_verified(tmp_path, saved, expected, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(warm_python()))  # of the processes that verify
    report = albert_tf.convert(saved, "huggingface", tmp_path / "hf")
    assert max(report.differences.values()) < 1e-5
    found = albert_tf.TextClassifier.load(tmp_path / "hf")(TEXTS)
    values = [list(p.probabilities.values()) for p in found]
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-6)
    albert_tf.export_hub_module(saved, tmp_path / "encoder")
    assert "pooled_output" in albert_tf.inspect(tmp_path / "encoder")
    with pytest.raises(ValueError, match="`format`"):
        albert_tf.export_hub_module(saved, tmp_path / "other", format="tf3")


def test_warmed_up_exports_answer_without_delay(exported_texts):
    model = tf.saved_model.load(exported_texts)

    def cpu_seconds(inputs) -> float:
        begin = time.process_time()
        tensors = {name: tf.constant(values) for name, values in inputs.items()}
        outputs = model.signatures["serving_default"](**tensors)
        seconds = time.process_time() - begin
        assert len(outputs["predicted_labels"]) == len(inputs["texts"])
        return seconds

    requests = warmup_inputs(exported_texts)
    assert len({len(inputs["texts"]) for inputs in requests}) > 1
    warmup = [cpu_seconds(inputs) for inputs in requests]
    known = context.context().list_function_names()
    seconds = [cpu_seconds({"texts": texts}) for texts in (TEXTS, ["The end."] * 7, ["so " * 90])]
    assert context.context().list_function_names() == known  # nothing was traced
    assert warmup[0] > 5 * max(seconds)  # the first request optimized the graph
    assert type(albert_tf.load(exported_texts)) is albert_tf.AlbertForClassification
    assert "SavedModel" in albert_tf.inspect(exported_texts)


def test_litert(tmp_path, saved):
    agreement = albert_tf.export_litert(saved, tmp_path / "model.tflite", max_seq_length=9)
    assert agreement["probabilities"].difference < 1e-5
    text = albert_tf.inspect(tmp_path / "model.tflite")
    assert "[1, 9]" in text


@pytest.mark.parametrize(
    ("export", "writer"),
    [
        (albert_tf.export_litert, litert.LiteRTExport),
        (albert_tf.export_onnx, onnx_export.OnnxExport),
    ],
)
def test_quantized_files_are_compared_on_texts(tmp_path, saved, export, writer, monkeypatch):
    texts, compared = tmp_path / "texts.txt", []
    monkeypatch.setattr(writer, "write", lambda self: compared.append(self.texts))
    texts.write_text("a moving film\n\nthe end\n")
    export(saved, tmp_path / "model", quantization="int8", texts=texts)
    export(saved, tmp_path / "model", quantization="float16")
    export(saved, tmp_path / "model")
    assert [len(texts) for texts in compared] == [2, 64, 0]
    for content in ("", "one\ttwo\nthree\n", "a\tb\tc\n"):
        texts.write_text(content)
        with pytest.raises(ValueError, match="`texts`"):
            export(saved, tmp_path / "model", quantization="int8", texts=texts, dry_run=True)


@pytest.mark.parametrize(("rows", "length"), [(1, None), (1, 16), (3, None), (None, 16)])
def test_random_samples_have_more_and_more_padding(saved, rows, length):
    batches = agreement.sample_batches(albert_tf.load(saved), (), rows, length)
    masks = [row for batch in batches for row in batch["input_mask"]]
    shares = [mask.mean() for mask in masks]
    assert len(masks) == 3 * (rows or 4)
    assert shares[0] == 1 > shares[-1] > 0
    assert shares == sorted(shares, reverse=True)
    for batch in batches:
        is_padding = batch["input_mask"] == 0
        assert not batch["input_ids"][is_padding].any()
        assert not batch["segment_ids"][is_padding].any()
        assert batch["segment_ids"].any()


@pytest.mark.parametrize("length", [None, 16])
def test_samples_contain_all_texts(saved, length):
    model = albert_tf.load(saved)
    pairs = [("a moving film", "the end"), ("no", "so"), ("why", "why not")]
    texts = tuple("\t".join(pair) for pair in pairs)
    batches = agreement.sample_batches(model, texts, 2, length)
    rows = [row for batch in batches for row in batch["input_ids"]]
    for row, pair in zip(rows, [*pairs, pairs[0]], strict=True):
        ids = model.tokenizer(*pair)["input_ids"][0]
        np.testing.assert_array_equal(row[: len(ids)], ids)
        assert not row[len(ids) :].any()
        assert length in (None, len(row))


@pytest.mark.parametrize(
    ("name", "values", "wanted", "equal"),
    [
        ("logits", [[1, 2], [2, 1]], [[1, 3], [1, 2]], 0.5),
        ("logits", [[[1, 2]] * 3] * 2, [[[1, 2], [2, 1], [1, 2]], [[2, 1], [1, 2], [2, 1]]], 0.6),
        ("start_log_prob", [[1, 2, 3], [2, 1, 3]], [[9, 2, 1], [2, 1, 0]], 0.5),
        ("logits", [[1], [2]], [[1], [2]], None),
        ("pooled_output", [[1, 2], [2, 1]], [[1, 3], [1, 2]], None),
    ],
)
def test_different_labels_are_reported(name, values, wanted, equal, caplog):
    batch = {"input_mask": np.array([[1, 1, 1], [1, 1, 0]])}
    source = {name: tf.constant(wanted, tf.float32)}
    found = [{name: np.float32(values)}]
    result = agreement.compare(found, lambda _: source, [batch], "ONNX", None)[name]
    assert result.equal == equal
    assert ("agreement" in caplog.text) == (result.cosine < 0.98)


def test_texts_of_several_labels_are_equal_if_all_labels_are(caplog):
    batch = {"input_mask": np.ones([4, 3], np.int32)}
    found = {"probabilities": np.float32([[0.9, 0.6]] * 4), "predictions": np.int32([[1, 1]] * 4)}
    source = {name: tf.constant(values) for name, values in found.items()}
    found["predictions"] = np.int32([[1, 1], [1, 0], [1, 1], [1, 1]])
    result = agreement.compare([found], lambda _: source, [batch], "ONNX", None)
    assert result["probabilities"].equal == 0.75
    assert "75.0% agreement" in caplog.text


@pytest.mark.parametrize("name", ["original", "huggingface"])
def test_save_in_a_format_and_overwrite(tmp_path, saved, name):
    model = albert_tf.load(saved)
    directory = tmp_path / "kept"
    directory.mkdir()
    (directory / "notes.txt").write_text("former")
    with pytest.raises(ValueError, match="kept"):
        albert_tf.save(model, directory, format=name)
    albert_tf.save(model, directory, format=name, overwrite=True)
    assert not (directory / "notes.txt").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    again = albert_tf.load(directory)
    assert again.labels == model.labels
    for ours, theirs in zip(again.weights, model.weights, strict=True):
        if "dropout" not in ours.path and "seed" not in ours.path:
            np.testing.assert_array_equal(ours, theirs)
