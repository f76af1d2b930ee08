"""Tests for choosing the parts of a model. For contradictions, see test_contradictions.py."""

import inspect
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from albert_tf.checkpoints.downloads import bundled_directory
from albert_tf.checkpoints.errors import LoadError
from albert_tf.checkpoints.formats.choose import open_model
from albert_tf.checkpoints.formats.huggingface import read_config
from albert_tf.checkpoints.formats.original import write_checkpoint
from albert_tf.checkpoints.model_choice import choose_model, model_in
from albert_tf.checkpoints.model_directory import ModelDirectory
from albert_tf.config import AlbertConfig


@pytest.fixture
def bare(release):
    """A release directory without a tokenizer."""
    for name in ("30k-clean.model", "30k-clean.vocab"):
        (release / name).unlink()
    return release


@pytest.fixture
def other_tokenizer(golden, tmp_path):
    """Writes a vocabulary of the same size, in which two tokens are swapped."""
    lines = (golden / "hub" / "albert_directory" / "30k-clean.vocab").read_text().split("\n")
    tokens = [line.split("\t")[0].replace("▁", "##") for line in lines if line]
    tokens[500], tokens[501] = tokens[501], tokens[500]
    path = tmp_path / "other.txt"
    path.write_text("\n".join(tokens))
    return path


def config_at(path, source, **changes):
    """Writes a changed copy of a configuration to a new directory."""
    path.parent.mkdir()
    config = AlbertConfig.from_json_file(str(source / "albert_config.json"))
    config.replace(**changes).to_json_file(str(path))
    return str(path)


def test_model_of_single_files(release, tmp_path, warnings):
    config = config_at(tmp_path / "config" / "mine.json", release)
    for name in ("albert_config.json", "30k-clean.model", "30k-clean.vocab"):
        shutil.move(release / name, tmp_path / name)
    source = choose_model(
        albert_config_file=config,
        init_checkpoint=str(release / "model.ckpt-best"),
        spm_model_file=str(tmp_path / "30k-clean.model"),
    )
    assert source.config_file == config
    assert source.config.num_attention_heads == 4
    assert source.checkpoint == str(release / "model.ckpt-best")
    assert source.tokenizer.files[0] == str(tmp_path / "30k-clean.model")
    assert source.tokenizer.do_lower_case is True
    assert warnings == []


def test_configuration_of_transformers_is_read(tmp_path):
    mini = Path(bundled_directory("mini"))
    config = choose_model(albert_config_file=str(mini / "config.json")).config
    assert config == open_model(str(mini)).config
    exact = json.loads((mini / "config.json").read_text()) | {"hidden_act": "gelu"}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(exact))
    assert choose_model(albert_config_file=str(path)).config == config.replace(
        hidden_act="gelu_exact"
    )


def test_vocabulary_of_chinese_models_is_found(bare, other_tokenizer):
    shutil.move(other_tokenizer, bare / "vocab_chinese.txt")
    source = choose_model(albert_hub_module_handle=str(bare))
    assert source.tokenizer.files == [str(bare / "vocab_chinese.txt")]


def test_command_line_of_the_original_script(hub, warnings):
    """Its run_glue.sh passes a module, an empty checkpoint, and files that may be missing."""
    source = choose_model(
        albert_hub_module_handle=str(hub / "module"),
        init_checkpoint="",
        vocab_file="/absent/vocab.txt",
        spm_model_file="/absent/30k-clean.model",
        do_lower_case=True,
    )
    assert source.checkpoint.endswith("module/variables/variables")
    assert source.tokenizer.files[0].endswith("module/assets/30k-clean.model")
    assert len(warnings) == 2
    assert "The file /absent/vocab.txt does not exist" in warnings[1]


def test_from_tf_hub_selects_the_tokenizer_of_the_module(hub, other_tokenizer):
    source = choose_model(
        albert_hub_module_handle=str(hub / "module"),
        spm_model_file="from_tf_hub",
        vocab_file=str(other_tokenizer),
    )
    assert source.tokenizer.files[0].endswith("module/assets/30k-clean.model")


def test_missing_tokenizer_is_rejected(bare):
    with pytest.raises(ValueError, match="from_tf_hub needs an `albert_hub_module_handle`"):
        choose_model(init_checkpoint=str(bare), spm_model_file="from_tf_hub")
    with pytest.raises(ValueError, match="`spm_model_file` or `vocab_file`"):
        _ = choose_model(init_checkpoint=str(bare)).required_tokenizer


def test_weights_of_init_checkpoint_have_priority(hub, release):
    source = choose_model(
        albert_hub_module_handle=str(hub / "module"), init_checkpoint=str(release)
    )
    assert source.checkpoint == str(release / "model.ckpt-best")
    assert source.config_file == str(hub / "module" / "assets" / "albert_config.json")


def test_error_without_a_model_lists_the_arguments(tmp_path):
    with pytest.raises(ValueError, match="No model is named") as error:
        choose_model(albert_hub_module_handle="", output_dir=str(tmp_path / "fresh"))
    ways = {*inspect.signature(choose_model).parameters}
    for flag in ways - {"path", "eval_checkpoint", "do_lower_case", "keep_accents"}:
        assert f"`{flag}`" in str(error.value) or flag == "has_more_layers"


@pytest.mark.parametrize("is_intended", [False, True])
def test_intended_layers_are_not_reported(hub, tmp_path, caplog, is_intended):
    model = hub / "albert_directory"
    config = read_config(str(model / "albert_config.json"))
    path = tmp_path / "albert_config.json"
    config.replace(num_hidden_layers=config.num_hidden_layers + 1).to_json_file(str(path))
    choose_model(
        albert_config_file=str(path), init_checkpoint=str(model), has_more_layers=is_intended
    )
    assert ("num_hidden_layers is" in caplog.text) != is_intended


def test_empty_init_checkpoint_is_rejected(hub):
    with pytest.raises(ValueError, match="`init_checkpoint` is empty"):
        choose_model(
            albert_config_file=str(hub / "albert_directory" / "albert_config.json"),
            albert_hub_module_handle="",
            init_checkpoint="",
        )


@pytest.mark.parametrize("checkpoint", ["model.ckpt-13", "model.ckpt-best"])
def test_model_of_an_output_directory(release, tmp_path, warnings, checkpoint):
    trained = choose_model(init_checkpoint=str(release), do_lower_case=False)
    run = str(tmp_path / "run")
    ModelDirectory(run, trained.config, trained.tokenizer).write()
    write_checkpoint(f"{run}/{checkpoint}", {"x": np.zeros(3)}, 13)
    again = choose_model(output_dir=run)
    assert not again.checkpoint
    assert again.config == trained.config
    assert again.tokenizer.tokens == trained.tokenizer.tokens
    assert again.tokenizer.do_lower_case is False
    assert warnings == []
    assert choose_model(init_checkpoint=run).tokenizer.do_lower_case is False
    assert choose_model(albert_hub_module_handle=run).checkpoint == f"{run}/{checkpoint}"


def test_missing_models_are_rejected(release):
    message = "directory.*`init_checkpoint`"
    for path in ("/absent/module", str(release / "model.ckpt-best")):
        with pytest.raises(ValueError, match=message):
            choose_model(albert_hub_module_handle=path)
    for path in release.glob("model.ckpt*"):
        path.unlink()
    for flag in ("albert_hub_module_handle", "init_checkpoint"):
        with pytest.raises(LoadError, match="no model in the directory"):
            choose_model(**{flag: str(release)})


def test_named_and_default_checkpoints(golden):
    release, module = str(golden / "hub" / "albert_directory"), str(golden / "hub" / "module")
    best = f"{release}/model.ckpt-best"
    assert model_in(release, "model.ckpt-best", is_named=False) == best
    assert model_in(release, "model.ckpt-7", is_named=True) == f"{release}/model.ckpt-7"
    for other in (module, "base_v2", "https://tfhub.dev/google/albert_base/3"):
        assert model_in(other, "model.ckpt-best", is_named=False) == other
