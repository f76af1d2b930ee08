"""Recipes and the detection of released models. tests/docs/test_published_settings.py: numbers."""

import numpy as np
import pytest

from albert_tf.checkpoints import huggingface
from albert_tf.checkpoints.stored_model import StoredModel
from albert_tf.config import PRESETS, AlbertConfig
from albert_tf.finetuning.recipes import (
    recipe_for,
    recipe_names,
    released_name,
    size_of,
    version_of,
    with_dropout,
)
from albert_tf.glue import GLUE_TASKS


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
