"""Tests for verified conversions."""

import json
import re
from functools import partial

import numpy as np
import pytest
from safetensors.numpy import load_file

from albert_tf.checkpoints import convert as conversion
from albert_tf.checkpoints.convert import (
    TOLERANCE,
    convert,
    export_weights,
    model_outputs,
    ragged_batch,
)
from albert_tf.checkpoints.formats import huggingface
from albert_tf.checkpoints.formats.choose import open_weights
from albert_tf.checkpoints.loading import load
from albert_tf.data.files import WriteError
from albert_tf.modeling.original_names import original_names
from albert_tf.training.optimization import Lamb
from albert_tf.training.training_directory import TrainingDirectory
from tests.changed_json import change_json
from tests.full_disk import file_size_limit


@pytest.fixture(scope="module")
def source(hub):
    """Returns a release directory."""
    return str(hub / "albert_directory")


@pytest.fixture(scope="module")
def module(hub):
    """Returns the TF1 module with the same weights."""
    return str(hub / "module")


@pytest.fixture
def target(tmp_path):
    return tmp_path / "out" / "model"


@pytest.fixture(scope="module")
def outputs_in_this_process(tmp_path_factory):
    def compute(format_name, directory):
        path = str(tmp_path_factory.mktemp("computed") / "outputs.npz")
        conversion.main(format_name, directory, path)
        with np.load(path) as file:
            return dict(file)

    return compute


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch, outputs_in_this_process):
    """Verifies without a new process; tests/e2e/test_formats.py starts one."""
    monkeypatch.setattr(conversion, "outputs_in_fresh_process", outputs_in_this_process)


@pytest.fixture(scope="module")
def computed(source, outputs_in_this_process):
    """Returns the outputs of the release directory."""
    return outputs_in_this_process("original", source)


@pytest.fixture
def proof(monkeypatch, computed):
    """Replaces the outputs of the result; tests change them."""
    outputs = {name: values.copy() for name, values in computed.items()}
    monkeypatch.setattr(conversion, "outputs_in_fresh_process", lambda *_: outputs)
    return outputs


def test_optimizer_state_is_converted(source, target):
    report = convert(source, "original", str(target), with_optimizer=True)
    assert sorted(path.name for path in target.iterdir()) == [
        "30k-clean.model",
        "30k-clean.vocab",
        "albert_config.json",
        "checkpoint",
        "model.ckpt-125000.data-00000-of-00001",
        "model.ckpt-125000.index",
    ]
    assert list(target.parent.iterdir()) == [target]
    old = open_weights(f"{source}/model.ckpt-best")
    new = open_weights(str(target / "model.ckpt-125000"))
    assert new.shapes == old.shapes
    np.testing.assert_equal(dict(new), dict(old))
    names = {"sequence_output", "pooled_output", "masked_lm_logits", "sentence_order_logits"}
    assert report.differences == dict.fromkeys(names, 0)
    model = load(target)
    optimizer = Lamb(1e-3)
    optimizer.build(model.trainable_variables)
    restored = TrainingDirectory(str(target)).restore_newest(model, optimizer)
    assert restored == (str(target / "model.ckpt-125000"), 125000)

    assert {
        "mapped: 32",
        "  cls/seq_relationship/output_weights [2, 24]",
        "optimizer slots in the source: 64",
        "tokenizer: the same",
        "  masked_lm_logits: 0.00e+00",
    } <= set(report.lines())


@pytest.mark.parametrize(
    ("largest", "difference"),
    [(100.0, 9e-4), (100.0, 2e-3), (0.1, 9e-6), (0.1, 2e-5), (0.1, np.nan)],
)
def test_differences_beyond_the_tolerance_are_rejected(
    module, target, monkeypatch, proof, largest, difference
):
    values = np.array([[largest, 0.5], [0.0, -0.1]])
    proof["logits"] = values + np.array([[0.0, difference], [0.0, 0.0]])
    monkeypatch.setattr(conversion, "model_outputs", lambda *_, **__: {"logits": values})
    if difference / max(largest, 1) < TOLERANCE:
        report = convert(module, "original", str(target))
        np.testing.assert_allclose(report.differences["logits"], 9e-6, rtol=1e-3)
        return
    with pytest.raises(ValueError, match=r"logits differs by (2|nan)"):
        convert(module, "original", str(target))
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize("name", ["masked_lm_logits", "tokens", "ids"])
def test_missing_outputs_and_other_ids_are_rejected(module, target, proof, name):
    proof.update(ids=np.arange(3)) if name == "ids" else proof.pop(name)
    with pytest.raises(ValueError, match=r"masked_lm_logits|tokenizer or do_lower_case"):
        convert(module, "original", str(target))
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, r"tokenizer: the same ids in \d+ texts"),
        ("12,000", r"tokenizer: the same ids .*commas differ.*12,000"),
        ("Σίσυφος", None),
    ],
)
def test_ids_of_the_tokenizers_library_are_compared(source, target, monkeypatch, text, expected):
    true_ids, seen = huggingface.library_ids, []

    def changed(directory, texts):
        seen.extend(texts)
        ids = true_ids(directory, texts)
        return [[7, *row] if text and text in t else row for t, row in zip(texts, ids, strict=True)]

    monkeypatch.setattr(huggingface, "library_ids", changed)
    if expected:
        lines = convert(source, "huggingface", str(target)).lines()
        assert any(re.match(expected, line) for line in lines)
    else:
        with pytest.raises(ValueError, match=rf"{text}.*instead of"):
            convert(source, "huggingface", str(target))
        assert list(target.parent.iterdir()) == []
    assert len(seen) > 40
    assert "학교" in "".join(seen)


def test_other_rules_of_the_source_are_reported(source, target, tmp_path):
    convert(source, "huggingface", str(target))
    assert convert(str(target), "original", str(tmp_path / "a")).tokenizer == "the same"
    (target / "tokenizer.json").unlink()
    change_json(target / "tokenizer_config.json", remove_space=False)
    assert "remove_space" in convert(str(target), "original", str(tmp_path / "b")).tokenizer
    report = convert(source, "keras_hub", str(tmp_path / "c"))
    assert report.tokenizer == "the same in this package; KerasHub does not normalize text"


def test_full_disks_and_existing_targets(module, target):
    with file_size_limit(20000), pytest.raises(WriteError, match=f"{target} "):
        convert(module, "original", str(target))
    assert list(target.parent.iterdir()) == []
    target.mkdir()
    (target / "mine").write_text("kept")
    for taken in (target, target / "mine"):
        with pytest.raises(ValueError, match=r" already exists"):
            convert(module, "original", str(taken))
    assert (target / "mine").read_text() == "kept"


@pytest.mark.parametrize("name", ["a[1]", "a\\b"])
def test_pattern_characters_are_rejected_for_checkpoints(module, tmp_path, name):
    target = str(tmp_path / name)
    for export in (partial(convert, module, "original"), partial(export_weights, module)):
        with pytest.raises(ValueError, match=re.escape(repr(target))):
            export(target)
    assert not list(tmp_path.iterdir())
    convert(module, "huggingface", target, dry_run=True)


@pytest.mark.usefixtures("proof")
@pytest.mark.parametrize("exists", [True, False])
def test_target_of_a_link_is_replaced(source, tmp_path, exists):
    real, link = tmp_path / "real", tmp_path / "link"
    if exists:
        real.mkdir()
    link.symlink_to("real")
    convert(source, "original", f"{link}/")
    assert link.is_symlink()
    assert (real / "model.ckpt-best.index").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"link", "real"}


def test_unsupported_settings_are_rejected(module, target):
    for name, settings, message in (
        ("keras_hub", {"with_optimizer": True}, r"`with_optimizer`.*`format`=keras_hub"),
        ("original", {"with_optimizer": True}, r"`with_optimizer`: .*moments"),
        ("keras_hub", {"dtype": "float16"}, r"`dtype`=float16.*`format`=keras_hub"),
    ):
        with pytest.raises(ValueError, match=message):
            convert(module, name, str(target), **settings)
    with pytest.raises(ValueError, match=r"`dtype`=float16: bias .*65600"):
        conversion._rounded({"bias": np.array([1.0, -65600.0])}, "float16")


def test_half_precision_is_stored(source, target):
    report = convert(source, "huggingface", str(target), dtype="float16")
    assert set(report.differences.values()) <= {0.0}
    stored = load_file(target / "model.safetensors")
    assert {values.dtype for values in stored.values()} == {np.dtype("float16")}
    assert json.loads((target / "config.json").read_text())["dtype"] == "float32"
    before, after = (original_names(load(str(path))) for path in (source, target))
    for name, variable in before.items():
        expected = variable.numpy().astype(np.float16).astype(np.float32)
        np.testing.assert_array_equal(after[name], expected)
        assert after[name].dtype == "float32"


def test_outputs_depend_on_all_inputs_except_padding(source, computed):
    model = load(source)
    batch = ragged_batch(model.config)
    for name in ("input_ids", "segment_ids", "input_mask"):
        changed = {key: value.copy() for key, value in batch.items()}
        changed[name][2, 3] ^= 1
        outputs = model_outputs(model, changed)
        assert np.abs(outputs["pooled_output"] - computed["pooled_output"]).max() > 1e-4
    batch["input_ids"] = np.where(batch["input_mask"], batch["input_ids"], 9).astype(np.int32)
    found = model_outputs(model, batch)
    np.testing.assert_equal(found, {name: computed[name] for name in found})
