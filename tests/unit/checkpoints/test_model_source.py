"""Which model a command means: every way to name one, and everything that does not fit."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from albert_tf.checkpoints.model_directory import ModelDirectory
from albert_tf.checkpoints.model_source import ModelSettings, model_in, stored_model
from albert_tf.checkpoints.names import bundled_directory
from albert_tf.checkpoints.original import write_checkpoint
from albert_tf.checkpoints.report import LoadError
from albert_tf.config import AlbertConfig
from tests.small_model import resolve


@pytest.fixture
def bare(release):
    """A release directory without a tokenizer."""
    for name in ("30k-clean.model", "30k-clean.vocab"):
        (release / name).unlink()
    return release


@pytest.fixture
def other_tokenizer(golden, tmp_path):
    """A SentencePiece model with as many tokens, of which two have changed places."""
    lines = (golden / "hub" / "albert_directory" / "30k-clean.vocab").read_text().split("\n")
    tokens = [line.split("\t")[0].replace("▁", "##") for line in lines if line]
    tokens[500], tokens[501] = tokens[501], tokens[500]
    path = tmp_path / "other.txt"
    path.write_text("\n".join(tokens))
    return path


def config_at(path, source, **changes):
    """Writes a changed copy of a configuration to a folder of its own."""
    path.parent.mkdir()
    config = AlbertConfig.from_json_file(str(source / "albert_config.json"))
    config.replace(**changes).to_json_file(str(path))
    return str(path)


def test_single_files_name_a_model(release, tmp_path, warnings):
    config = config_at(tmp_path / "config" / "mine.json", release)
    for name in ("albert_config.json", "30k-clean.model", "30k-clean.vocab"):
        shutil.move(release / name, tmp_path / name)
    source = resolve(
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


def test_a_checkpoint_brings_what_lies_beside_it(release, warnings):
    source = resolve(init_checkpoint=f"{release}/model.ckpt-best")
    assert source.config_file == str(release / "albert_config.json")
    assert source.checkpoint == str(release / "model.ckpt-best")
    assert source.tokenizer.files[0] == str(release / "30k-clean.model")
    assert warnings == []


def test_the_tokenizer_may_lie_beside_the_configuration(release, tmp_path):
    (tmp_path / "weights").mkdir()
    for path in release.glob("model.ckpt-best*"):
        shutil.move(path, tmp_path / "weights")
    source = resolve(
        albert_config_file=str(release / "albert_config.json"),
        init_checkpoint=str(tmp_path / "weights"),
    )
    assert source.tokenizer.files[0] == str(release / "30k-clean.model")


def test_a_configuration_of_transformers_is_read(tmp_path):
    mini = Path(bundled_directory("mini"))
    config = resolve(albert_config_file=str(mini / "config.json")).config
    assert config == stored_model(str(mini)).config
    exact = json.loads((mini / "config.json").read_text()) | {"hidden_act": "gelu"}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(exact))
    with pytest.raises(LoadError, match=f"{path}.*exact GELU"):
        resolve(albert_config_file=str(path))


def test_the_vocabulary_of_the_released_chinese_models_is_found(bare, other_tokenizer):
    shutil.move(other_tokenizer, bare / "vocab_chinese.txt")
    source = resolve(albert_hub_module_handle=str(bare))
    assert source.tokenizer.files == [str(bare / "vocab_chinese.txt")]


def test_the_command_line_of_the_originals_script_works(hub, warnings):
    """Its run_glue.sh passes an empty checkpoint beside the module, and files that may not be."""
    source = resolve(
        albert_hub_module_handle=str(hub / "module"),
        init_checkpoint="",
        vocab_file="/absent/vocab.txt",
        spm_model_file="/absent/30k-clean.model",
        do_lower_case=True,
    )
    assert source.checkpoint.endswith("module/variables/variables")
    assert source.tokenizer.files[0].endswith("module/assets/30k-clean.model")
    assert len(warnings) == 2
    assert "there is no file /absent/vocab.txt" in warnings[1]


def test_a_missing_vocabulary_beside_a_sentencepiece_model_is_only_said(release, warnings):
    model = str(release / "30k-clean.model")
    source = resolve(
        init_checkpoint=str(release), spm_model_file=model, vocab_file="/absent/vocab.txt"
    )
    assert source.tokenizer.files[0] == model
    assert warnings == [f"there is no file /absent/vocab.txt; {model} is used"]


@pytest.mark.parametrize("flag", ["spm_model_file", "vocab_file"])
def test_a_missing_tokenizer_that_nothing_replaces_is_an_error(release, flag):
    with pytest.raises(FileNotFoundError, match="'/absent/tokens'"):
        resolve(init_checkpoint=str(release), **{flag: "/absent/tokens"})


def test_from_tf_hub_means_the_modules_tokenizer(hub, other_tokenizer):
    source = resolve(
        albert_hub_module_handle=str(hub / "module"),
        spm_model_file="from_tf_hub",
        vocab_file=str(other_tokenizer),
    )
    assert source.tokenizer.files[0].endswith("module/assets/30k-clean.model")


def test_a_tokenizer_that_is_needed_and_nowhere_is_an_error(bare):
    with pytest.raises(ValueError, match="from_tf_hub needs an `albert_hub_module_handle`"):
        resolve(init_checkpoint=str(bare), spm_model_file="from_tf_hub")
    with pytest.raises(ValueError, match="`spm_model_file` or `vocab_file`"):
        _ = resolve(init_checkpoint=str(bare)).required_tokenizer


def test_the_checkpoint_goes_before_the_module(hub, release):
    source = resolve(albert_hub_module_handle=str(hub / "module"), init_checkpoint=str(release))
    assert source.checkpoint == str(release / "model.ckpt-best")
    assert source.config_file == str(hub / "module" / "assets" / "albert_config.json")


def test_nothing_named_lists_the_ways(tmp_path):
    with pytest.raises(ValueError, match="No model is named") as error:
        resolve(albert_hub_module_handle="", output_dir=str(tmp_path / "fresh"))
    ways = {field.name for field in dataclasses.fields(ModelSettings)}
    for flag in ways - {"eval_checkpoint", "do_lower_case"}:
        assert f"`{flag}`" in str(error.value)


def test_an_empty_checkpoint_is_no_way_to_random_weights(hub):
    with pytest.raises(ValueError, match="`init_checkpoint` is empty"):
        resolve(
            albert_config_file=str(hub / "albert_directory" / "albert_config.json"),
            albert_hub_module_handle="",
            init_checkpoint="",
        )


@pytest.mark.parametrize("checkpoint", ["model.ckpt-13", "model.ckpt-best"])
def test_a_run_is_named_by_its_output_directory(release, tmp_path, warnings, checkpoint):
    trained = resolve(init_checkpoint=str(release), do_lower_case=False)
    run = str(tmp_path / "run")
    ModelDirectory(run, trained.config, trained.config_file, trained.tokenizer).write()
    write_checkpoint(f"{run}/{checkpoint}", {"x": np.zeros(3)}, 13)
    again = resolve(output_dir=run)
    assert again.checkpoint is None
    assert again.config == trained.config
    assert again.tokenizer.tokens == trained.tokenizer.tokens
    assert again.tokenizer.do_lower_case is False
    assert warnings == []
    assert resolve(init_checkpoint=run).tokenizer.do_lower_case is False
    assert resolve(albert_hub_module_handle=run).checkpoint == f"{run}/{checkpoint}"


@pytest.mark.parametrize("lower_case", [False, True])
def test_a_run_remembers_the_flag_against_its_module(hub, tmp_path, warnings, lower_case):
    """Evaluating with the module named again, but not the flag, cleans text as training did."""
    module = str(hub / ("module" if not lower_case else "module_cased_matmul"))
    trained = resolve(albert_hub_module_handle=module, do_lower_case=lower_case)
    assert trained.tokenizer.do_lower_case is lower_case
    assert len(warnings) == 1
    assert module in warnings[0]
    assert f"do_lower_case={not lower_case}" in warnings[0]
    run = str(tmp_path / "run")
    ModelDirectory(run, trained.config, trained.config_file, trained.tokenizer).write()
    again = resolve(albert_hub_module_handle=module, output_dir=run)
    assert again.tokenizer.do_lower_case is lower_case


def test_a_configuration_that_is_not_the_modules_is_refused(hub, release, tmp_path):
    config = config_at(tmp_path / "config" / "albert_config.json", release, num_attention_heads=3)
    message = r"num_attention_heads is 4 there, 3 now"
    with pytest.raises(ValueError, match=message):
        resolve(
            albert_config_file=config,
            albert_hub_module_handle=str(hub / "module"),
            spm_model_file="from_tf_hub",
        )


def test_a_configuration_that_is_not_the_checkpoints_is_said_aloud(release, tmp_path, warnings):
    config = config_at(tmp_path / "config" / "mine.json", release, hidden_act="relu")
    source = resolve(albert_config_file=config, init_checkpoint=str(release))
    assert source.config.hidden_act == "relu"
    assert len(warnings) == 1
    assert "hidden_act is 'gelu' there, 'relu' now" in warnings[0]


def test_another_vocabulary_than_the_modules_is_refused(hub, other_tokenizer):
    with pytest.raises(ValueError, match=r"vocabulary.*module"):
        resolve(albert_hub_module_handle=str(hub / "module"), vocab_file=str(other_tokenizer))


def test_another_vocabulary_than_the_checkpoints_is_said_aloud(release, other_tokenizer, warnings):
    source = resolve(init_checkpoint=str(release), vocab_file=str(other_tokenizer))
    assert source.tokenizer.files == [str(other_tokenizer)]
    assert len(warnings) == 1
    assert "`spm_model_file` and `vocab_file`" in warnings[0]


def test_a_vocabulary_of_another_size_is_rejected(release, tmp_path):
    config = config_at(tmp_path / "config" / "mine.json", release, vocab_size=999)
    message = "1000 entries, but .*mine.json sets vocab_size 999"
    with pytest.raises(ValueError, match=message):
        resolve(albert_config_file=config, spm_model_file=str(release / "30k-clean.model"))


def test_a_missing_model_is_rejected(release):
    message = "directory.*`init_checkpoint`"
    for path in ("/absent/module", str(release / "model.ckpt-best")):
        with pytest.raises(ValueError, match=message):
            resolve(albert_hub_module_handle=path)
    for path in release.glob("model.ckpt*"):
        path.unlink()
    for flag in ("albert_hub_module_handle", "init_checkpoint"):
        with pytest.raises(LoadError, match="no model in the directory"):
            resolve(**{flag: str(release)})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, None),
        ({"num_hidden_layers": 6, "hidden_dropout_prob": 0.3}, None),
        ({"num_attention_heads": 16}, r"num_attention_heads 16 instead of 32"),
        ({"hidden_act": "relu"}, r"hidden_act 'relu' instead of 'gelu'"),
    ],
)
def test_heads_and_activation_of_a_released_size(tmp_path, warnings, changes, message):
    """The only check there can be: no shape depends on them."""
    config = AlbertConfig.from_preset("xlarge_v2").replace(**changes)
    config.to_json_file(str(tmp_path / "albert_config.json"))
    resolve(albert_config_file=str(tmp_path / "albert_config.json"))
    assert len(warnings) == bool(message)
    if message:
        assert message in warnings[0]
        assert "xlarge" in warnings[0]


@pytest.mark.parametrize(("sharing", "is_said"), [("all", True), ("none", False)])
def test_layers_of_a_released_size_leave_a_trace_only_where_they_do_not_share(
    tmp_path, warnings, sharing, is_said
):
    """A configuration that is to be trained from nothing may have any number, see above."""
    config = AlbertConfig.from_preset("xlarge_v2").replace(
        num_hidden_layers=6, parameter_sharing=sharing
    )
    config.to_json_file(str(tmp_path / "albert_config.json"))
    write_checkpoint(str(tmp_path / "model.ckpt-best"), {"a": [1.0]}, 0)
    resolve(init_checkpoint=str(tmp_path / "model.ckpt-best"))
    assert any("num_hidden_layers 6 instead of 24" in text for text in warnings) is is_said


def test_the_named_checkpoint_counts_and_the_default_one_need_not_be_there(golden):
    release, module = str(golden / "hub" / "albert_directory"), str(golden / "hub" / "module")
    best = f"{release}/model.ckpt-best"
    assert model_in(release, "model.ckpt-best", is_named=False) == best
    assert model_in(release, "model.ckpt-7", is_named=True) == f"{release}/model.ckpt-7"
    for other in (module, "base_v2", "https://tfhub.dev/google/albert_base/3"):
        assert model_in(other, "model.ckpt-best", is_named=False) == other
