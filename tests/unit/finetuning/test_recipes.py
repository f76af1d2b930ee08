"""Recipes and the detection of released models. tests/docs/test_published_settings.py: numbers."""

import dataclasses
from unittest.mock import Mock

import numpy as np
import pytest

from albert_tf import AlbertForClassification, TextClassifier
from albert_tf.checkpoints.formats import huggingface
from albert_tf.checkpoints.stored_model import StoredModel
from albert_tf.config import PRESETS, AlbertConfig
from albert_tf.finetuning import fine_tuned
from albert_tf.finetuning.recipes import (
    mini_steps,
    recipe_for,
    recipe_names,
    released_name,
    size_of,
    version_of,
    with_dropout,
)
from albert_tf.glue import GLUE_TASKS
from tests.classifier_run import ClassifierRun
from tests.run_in_process import logged_plan
from tests.squad_run import SquadRun
from tests.token_run import TokenRun
from tests.usual import usual


def test_steps_between_checkpoints_and_initial_models_equal_the_original():
    steps = {task: recipe_for(task).save_checkpoints_steps for task in recipe_names()}
    rare = {"qnli": 200, "squad1.1": 5000, "squad2.0": 5000}
    assert {task: number for task, number in steps.items() if number != 100} == rare
    first = {task: recipe_for(task).init_from for task in recipe_names()}
    assert {t: f for t, f in first.items() if f} == dict.fromkeys(("rte", "sts-b", "mrpc"), "mnli")


def test_all_glue_tasks_have_a_recipe():
    assert set(GLUE_TASKS) <= set(recipe_names())
    assert recipe_for("SST-2") == recipe_for("sst-2")
    for task in ("mismnli", "ax"):  # other sets of MNLI, without published scores
        assert recipe_for(task, "base") == recipe_for("mnli")


def test_unknown_tasks_sizes_and_versions_are_rejected():
    with pytest.raises(ValueError, match=r"'boolq'.*mnli.*race.*squad2\.0.*wnli"):
        recipe_for("boolq")
    with pytest.raises(ValueError, match=r"size must be .*'huge' and 'v3'"):
        recipe_for("mnli", "huge", "v3")


@pytest.mark.parametrize("name", PRESETS)
def test_released_models_are_detected_by_their_configuration(name):
    size, version = name.split("_")
    assert size_of(PRESETS[name]) == size
    assert version_of(PRESETS[name]) == ("v1" if version == "v1" and size != "xxlarge" else "v2")
    assert released_name(PRESETS[name]) == ("xxlarge_v2" if name == "xxlarge_v1" else name)


def test_another_model_has_no_size():
    config = PRESETS["base_v2"]
    assert size_of(config.replace(num_hidden_layers=6)) is None
    assert size_of(config.replace(num_attention_heads=16)) == "base"
    assert released_name(config.replace(vocab_size=29999)) is None
    assert released_name(AlbertConfig(vocab_size=30000, hidden_size=128)) is None
    assert version_of(config.replace(attention_probs_dropout_prob=0.1)) == "v1"


@pytest.mark.parametrize(("name", "rate"), [("base_v2", 0.1), ("base_v1", 0.0)])
def test_fine_tuning_with_another_dropout_does_not_change_the_version(name, rate, tmp_path):
    """The recipes of QQP, RTE and WNLI set another dropout rate than the other recipes of GLUE."""
    with_dropout(PRESETS[name], rate).to_json_file(str(tmp_path / "albert_config.json"))
    again = AlbertConfig.from_json_file(str(tmp_path / "albert_config.json"))
    assert again.hidden_dropout_prob == rate
    names = ("bert/embeddings/word_embeddings", "bert/encoder/embedding_hidden_mapping_in/kernel")
    contents = StoredModel.in_memory(again, {name: np.zeros((1, 2), "f") for name in names})
    (tmp_path / "converted").mkdir()
    huggingface.write(str(tmp_path / "converted"), contents)
    converted = huggingface.read(str(tmp_path / "converted")).config
    for config in (again, converted):
        assert released_name(config) == name
        assert recipe_for("race", size_of(config), version_of(config)).versions == (name[-2:],)


@pytest.mark.parametrize(("task", "epochs"), [("tokens", 6), ("custom", 3), ("squad2.0", 3)])
def test_mini_is_trained_for_some_epochs_and_at_least_96_steps(task, epochs):
    assert mini_steps(task, 1001, 20) == epochs * 51
    assert mini_steps(task, 95, 20) == 96


@pytest.mark.parametrize("kind", usual([ClassifierRun, TokenRun, SquadRun], TokenRun))
def test_the_number_of_examples_determines_the_steps_of_mini(kind, golden, tmp_path, caplog):
    caplog.set_level("DEBUG", logger="absl")
    layers = {"num_hidden_layers": 4, "num_attention_heads": 6, "intermediate_size": 1536}
    small = kind(tmp_path, golden, hidden_size=384, **layers)
    free = dict.fromkeys(("learning_rate", "train_step", "warmup_step", "num_train_epochs"))

    def planned(**changes):
        flags = small.flags(**{"do_train": True, "dry_run": True, **changes})
        names = {field.name for field in dataclasses.fields(kind.settings)}
        caplog.clear()
        kind.function(kind.settings(**{name: flags[name] for name in flags.keys() & names}))
        plan = logged_plan(caplog.text)
        return plan["steps"], plan["examples"], "`learning_rate`=0.0001" in caplog.text

    steps, examples, is_set = planned(**free, train_batch_size=32)
    assert (steps, is_set) == (96, True)
    assert planned(**{**free, "learning_rate": 1e-3}, train_batch_size=32) == (96, examples, False)
    many = planned(**free, recipe="auto", train_batch_size=1)
    assert many == (max(96, (6 if kind is TokenRun else 3) * examples), examples, True)
    assert planned(**free, train_batch_size=1) == many
    given = {"num_train_epochs": 1.5} if kind is SquadRun else {"train_step": 7}
    assert planned(**{**free, **given})[0] < 10
    usual = planned(**free, recipe="none", train_batch_size=5)
    assert usual[0] != steps
    assert not usual[2]
    assert kind is SquadRun or usual[0] == 1000  # the default of `train_step`
    small.config.replace(num_hidden_layers=3).to_json_file(str(small.config_file))
    assert planned(**free, train_batch_size=5) == usual  # another shape


@pytest.mark.parametrize(("layers", "epochs"), [(4, None), (2, 3.0)])
def test_fit_uses_the_recipe_of_mini(layers, epochs, tokenizer, monkeypatch):
    sizes = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}
    config = AlbertConfig(vocab_size=1000, num_hidden_layers=layers, **sizes)
    model = AlbertForClassification(config, labels=["no", "yes"])
    classifier = TextClassifier(model, tokenizer, max_seq_length=16)

    def settings(**given):
        monkeypatch.setattr(fine_tuned, "run", Mock(side_effect=EOFError))
        with pytest.raises(EOFError):
            classifier.fit(["a film", "a waste"], ["yes", "no"], **given)
        return fine_tuned.run.call_args[0][1]

    found = settings()
    assert (found.recipe, found.num_train_epochs, found.learning_rate) == (None, epochs, None)
    assert found.save_checkpoints_steps == 100
    assert settings(validation_data=(["dull"], ["no"])).save_checkpoints_steps == 1
    assert settings(epochs=2).num_train_epochs == 2
    assert settings(train_step=5).num_train_epochs is None
    assert settings(recipe="none").num_train_epochs == 3
