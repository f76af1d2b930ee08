"""Commands with models of all formats."""

import tarfile

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.checkpoints.formats.choose import FORMAT_NAMES, format_module
from albert_tf.checkpoints.loading import read_model
from albert_tf.cli import convert_checkpoint
from tests.classifier_run import ClassifierRun
from tests.pretraining_run import PretrainingRun, read_checkpoint
from tests.programs import Program


def test_the_command_lists_all_formats():
    """The command has its own list, because --help does not import TensorFlow."""
    assert set(convert_checkpoint.FORMATS) == set(FORMAT_NAMES)


def test_a_released_file_is_converted(golden, tmp_path):
    """Released models are tar files with one directory."""
    released, out = tmp_path / "albert_small.tar.gz", tmp_path / "out"
    with tarfile.open(released, "w:gz") as archive:
        archive.add(golden / "hub" / "albert_directory", "albert_small")
    flags = {"model": released, "format": "huggingface", "output_dir": out}
    environment = {"ALBERT_TF_HOME": str(tmp_path / "cache")}
    result = Program("convert_checkpoint.py", tmp_path, flags, environment).wait()
    assert result.code == 0, result.output
    assert "mapped: 32\n" in result.output
    assert "sequence_output: " in result.output
    assert (out / "model.safetensors").exists()
    assert (tmp_path / "cache" / "unpacked").exists()


@pytest.fixture(scope="module")
def models(golden, tmp_path_factory):
    """Returns a directory with the small model in every format."""
    contents, _ = read_model(str(golden / "hub" / "albert_directory"))
    folder = tmp_path_factory.mktemp("models")
    for name in FORMAT_NAMES:
        (folder / name).mkdir()
        format_module(name).write(str(folder / name), contents)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FORMAT_NAMES, "mini"])
def test_a_classifier_is_trained_from_any_format(models, golden, tmp_path, name):
    """Configuration and tokenizer come from the model. "mini" is part of the package."""
    run = ClassifierRun(tmp_path, golden)
    output = run.must_work(
        albert_config_file=None,
        spm_model_file="from_tf_hub",
        albert_hub_module_handle=name if name == "mini" else models / name,
        do_train=True,
        train_step=1,
        max_seq_length=20,
    )
    assert "25 of 27 variables restored" in output
    assert (run.output / "30k-clean.model").exists()


@pytest.mark.slow
def test_pretraining_starts_from_another_format(tmp_path):
    """The command line names neither configuration nor vocabulary."""
    run = PretrainingRun(tmp_path)
    prefix = run.fresh_checkpoint(tmp_path / "model")
    contents, _ = read_model(prefix)
    (tmp_path / "there").mkdir()
    format_module("huggingface").write(str(tmp_path / "there"), contents)
    (tmp_path / "model" / "albert_config.json").unlink()
    flags = {"albert_config_file": None, "init_checkpoint": tmp_path / "there"}
    run.must_work(**flags, num_train_steps=1, learning_rate=1e-30, save_checkpoints_steps=1)
    after, before = (read_checkpoint(path) for path in (run.output / "model.ckpt-1", prefix))
    for name in before.keys() - {"global_step"}:
        np.testing.assert_allclose(after[name], before[name], rtol=0, atol=1e-20, err_msg=name)
    assert (run.output / "vocab.txt").exists()
    # A resumed run reads both from the output directory.
    run.must_work(albert_config_file=None, num_train_steps=2, save_checkpoints_steps=1)


@pytest.mark.slow
def test_an_encoder_and_its_preprocessor_equal_the_model(golden, tmp_path):
    source = golden / "hub" / "albert_directory"
    encoder_path, preprocessor_path = tmp_path / "new" / "encoder", tmp_path / "preprocessor"
    flags = {
        "albert_directory": source,
        "export_path": encoder_path,
        "preprocessor_path": preprocessor_path,
        "use_einsum": False,
    }
    result = Program("export_to_tfhub.py", tmp_path, flags).wait()
    assert result.code == 0, result.output
    assert f"{source}/model.ckpt-best -> {encoder_path} (tf2_hub)" in result.output
    assert "largest difference" in result.output

    import tensorflow_text  # noqa: F401  registers the operations of the preprocessor

    texts = ["The light of the first day.", "9, and 1,000 more"]
    inputs = tf.saved_model.load(str(preprocessor_path))(tf.constant(texts))
    assert inputs["input_word_ids"].shape == (2, 48)  # the maximum length of the model
    outputs = tf.saved_model.load(str(encoder_path))(inputs)["pooled_output"]
    tokenizer, model = albert_tf.load_tokenizer(source), albert_tf.load(source)
    for row, text in enumerate(texts):
        ids = [[tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id]]
        expected = model.encoder(tf.constant(ids))["pooled_output"][0]
        np.testing.assert_allclose(outputs[row], expected, rtol=1e-5, atol=1e-5)
