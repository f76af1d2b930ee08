"""Commands with models of all formats, and interrupted conversions."""

import signal
import sys
import tarfile
import time

import numpy as np
import pytest

from albert_tf.checkpoints.formats import FORMAT_NAMES, format_module
from albert_tf.checkpoints.loading import read_contents
from albert_tf.checkpoints.model_directory import essential_differences
from albert_tf.cli import convert_checkpoint
from tests.classifier_run import ClassifierRun
from tests.pretraining_run import PretrainingRun, read_checkpoint
from tests.programs import Program

# keras-hub needs Python 3.11.
NAMES = [name for name in FORMAT_NAMES if name != "keras_hub" or sys.version_info >= (3, 11)]


@pytest.fixture(scope="module")
def released(golden, tmp_path_factory):
    """Returns a small model in the form of the released models: a tar file with one directory."""
    path = tmp_path_factory.mktemp("released") / "albert_small.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(golden / "hub" / "albert_directory", "albert_small")
    return path


def test_the_command_lists_all_formats():
    """The command has its own list, because --help does not import TensorFlow."""
    assert set(convert_checkpoint.FORMATS) == set(FORMAT_NAMES)


def test_a_released_file_is_converted(released, tmp_path):
    out = tmp_path / "out"
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
    contents, _ = read_contents(str(golden / "hub" / "albert_directory"))
    folder = tmp_path_factory.mktemp("models")
    for name in NAMES:
        (folder / name).mkdir()
        format_module(name).write(str(folder / name), contents)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize("source", NAMES)
def test_every_pair_of_formats(models, golden, tmp_path, source, target):
    """Converts to a format and back to the original's format, which restores the same numbers."""
    flags = {"model": models / source, "format": target, "output_dir": tmp_path / "there"}
    result = Program("convert_checkpoint.py", tmp_path, flags).wait()
    assert result.code == 0, result.output
    heads = 5 if "keras_hub" in (source, target) else 7  # its masked LM has no sentence order
    before, _ = read_contents(str(golden / "hub" / "albert_directory"))
    after, _ = read_contents(str(tmp_path / "there"))
    assert len(after.weights) == 25 + heads
    for name, value in after.weights.items():
        np.testing.assert_array_equal(value, before.weights[name], err_msg=name)
    assert essential_differences(after.config, before.config) == []
    assert after.tokenizer.tokens == before.tokenizer.tokens
    assert after.do_lower_case is before.do_lower_case


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_conversion_leaves_no_files(golden, tmp_path, number):
    target = tmp_path / "out" / "model"
    flags = {
        "model": golden / "hub" / "module",
        "format": "original",
        "output_dir": target,
    }
    program = Program("convert_checkpoint.py", tmp_path, flags)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("out/model.tmp-*/model.ckpt-best.index")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    program.send(number)
    assert program.wait().code != 0
    if number == signal.SIGKILL:
        assert len(list(target.parent.iterdir())) == 1
        assert Program("convert_checkpoint.py", tmp_path, flags).wait().code == 0
        assert list(target.parent.iterdir()) == [target]
    else:
        assert list(target.parent.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NAMES, "mini"])
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
    contents, _ = read_contents(prefix)
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
