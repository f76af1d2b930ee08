"""The command that exports for TF-Hub, in both formats, from directories and modules."""

import json

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from tests.programs import run_program

pytestmark = pytest.mark.slow  # each run starts a second process, which reads the export

TEXTS = ["The light of the first day.", "9, and 1,000 more"]


def tree(folder):
    return {str(p.relative_to(folder)): p.stat().st_mtime_ns for p in folder.rglob("*")}


def export(folder, **flags) -> str:
    result = run_program("export_to_tfhub.py", folder, flags)
    assert result.code == 0, result.output
    return result.output


def test_encoder_and_preprocessor_equal_the_model(golden, tmp_path):
    source = golden / "hub" / "albert_directory"
    before = tree(source)
    encoder_path, preprocessor_path = tmp_path / "new" / "encoder", tmp_path / "preprocessor"
    printed = export(
        tmp_path,
        albert_directory=source,
        export_path=encoder_path,
        preprocessor_path=preprocessor_path,
        use_einsum=False,
    )
    assert f"{source}/model.ckpt-best -> {encoder_path} (tf2_hub)" in printed
    assert "largest difference" in printed
    assert tree(source) == before
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == ["new", "preprocessor"]
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["encoder"]

    import tensorflow_text  # noqa: F401  registers the operations of the preprocessor

    preprocessor = tf.saved_model.load(str(preprocessor_path))
    inputs = preprocessor(tf.constant(TEXTS))
    assert inputs["input_word_ids"].shape == (2, 48)  # the maximum length of the model
    tokenizer, model = albert_tf.load_tokenizer(source), albert_tf.load(source)
    ids = [[tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id] for text in TEXTS]
    outputs = tf.saved_model.load(str(encoder_path))(inputs)
    for row, row_ids in enumerate(ids):
        expected = model.encoder(tf.constant([row_ids]))["pooled_output"][0]
        np.testing.assert_allclose(outputs["pooled_output"][row], expected, rtol=1e-5, atol=1e-5)


def test_exporting_a_tf1_module_from_another_module(golden, tmp_path):
    source = golden / "hub" / "module_cased_matmul"
    printed = export(
        tmp_path, albert_directory=source, export_path=tmp_path / "module", format="tf1_hub"
    )
    assert f"{source} -> {tmp_path}/module (tf1_hub)" in printed
    assert "tf1_hub: 0" in printed
    read = albert_tf.load_tokenizer(tmp_path / "module")
    assert read.clean("The A") == "The A"
    configs = [
        json.loads((path / "assets" / "albert_config.json").read_text())
        for path in (source, tmp_path / "module")
    ]
    assert configs[0].items() <= configs[1].items()
    theirs, ours = (
        albert_tf.original_names(albert_tf.load(path)) for path in (source, tmp_path / "module")
    )
    for name, variable in theirs.items():
        np.testing.assert_array_equal(ours[name], variable, err_msg=name)
