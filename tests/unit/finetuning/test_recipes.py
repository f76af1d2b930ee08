"""Published settings, compared with a copy of the table in the paper, and their models."""

import dataclasses

import numpy as np
import pytest

from albert_tf.checkpoints import huggingface
from albert_tf.checkpoints.model_contents import ModelContents
from albert_tf.config import PRESETS, AlbertConfig
from albert_tf.data.text_examples import GLUE_TASKS
from albert_tf.finetuning.recipes import (
    SIZES,
    Recipe,
    recipe_for,
    recipe_names,
    released_name,
    size_of,
    version_of,
    with_dropout,
)
from albert_tf.modeling.parameter_sharing import ENCODER_PREFIX

# task: LR, batch, dropout of the encoder, dropout of the classifier, steps, warm-up, length
TABLE_14 = {
    "cola": (1e-5, 16, 0, 0.1, 5336, 320, 512),
    "sts-b": (2e-5, 16, 0, 0.1, 3598, 214, 512),
    "sst-2": (1e-5, 32, 0, 0.1, 20935, 1256, 512),
    "mnli": (3e-5, 128, 0, 0.1, 10000, 1000, 512),
    "qnli": (1e-5, 32, 0, 0.1, 33112, 1986, 512),
    "qqp": (5e-5, 128, 0.1, 0.1, 14000, 1000, 512),
    "rte": (3e-5, 32, 0.1, 0.1, 800, 200, 512),
    "mrpc": (2e-5, 32, 0, 0.1, 800, 200, 512),
    "wnli": (2e-5, 16, 0.1, 0.1, 2000, 250, 512),
    "squad1.1": (5e-5, 48, 0, 0.1, 3649, 365, 384),
    "squad2.0": (3e-5, 48, 0, 0.1, 8144, 814, 512),
    "race": (2e-5, 32, 0.1, 0.1, 12000, 1000, 512),
}


def settings(recipe: Recipe) -> tuple:
    return (
        recipe.learning_rate,
        recipe.train_batch_size,
        recipe.encoder_dropout_prob,
        recipe.classifier_dropout_prob,
        recipe.train_step,
        recipe.warmup_step,
        recipe.max_seq_length,
    )


def without_scores(recipe: Recipe) -> Recipe:
    return dataclasses.replace(recipe, published={})


@pytest.mark.parametrize("task", TABLE_14)
def test_settings_equal_the_paper_and_v2_differs_only_for_race(task):
    for size in (None, *SIZES):
        v1, v2 = recipe_for(task, size, "v1"), recipe_for(task, size)
        assert settings(v1) == TABLE_14[task]
        assert v1.optimizer == "adamw"
        if task == "race":
            assert settings(v2) == (1e-5, 32, 0, 0.1, 12000, 1000, 512)
            assert v2.versions == ("v2",)
        else:
            assert without_scores(v2) == without_scores(v1)


def test_steps_between_checkpoints_and_initial_models_equal_the_original():
    steps = {task: recipe_for(task).save_checkpoints_steps for task in TABLE_14}
    rare = {"qnli": 200, "squad1.1": 5000, "squad2.0": 5000}
    assert {task: number for task, number in steps.items() if number != 100} == rare
    first = {task: recipe_for(task).init_from for task in recipe_names()}
    assert {t: f for t, f in first.items() if f} == dict.fromkeys(("rte", "sts-b", "mrpc"), "mnli")


def test_all_glue_tasks_have_a_recipe():
    assert set(GLUE_TASKS) <= set(recipe_names())
    assert recipe_for("SST-2") == recipe_for("sst-2")
    for task in ("mismnli", "ax"):  # other sets of MNLI, without published scores
        assert recipe_for(task, "base") == without_scores(recipe_for("mnli", "base"))


def test_published_scores():
    assert recipe_for("mnli", "base", "v2").published == {"eval_accuracy": 84.6}
    assert recipe_for("mnli", "base", "v1").published == {"eval_accuracy": 81.6}
    assert recipe_for("sst-2", "large").published == {"eval_accuracy": 94.9}
    assert recipe_for("squad2.0", "xlarge").published == {"f1": 87.9, "exact": 84.1}
    assert recipe_for("squad1.1", "xlarge").published == {"f1": 92.9, "exact_match": 86.4}
    assert recipe_for("race", "xxlarge", "v1").published == {"eval_accuracy": 86.5}
    assert recipe_for("cola", "xxlarge", "v1").published == {"matthew_corr": 71.4}
    assert recipe_for("sts-b", "xxlarge", "v1").published == {"pearson": 93.0}
    assert recipe_for("cola", "xxlarge", "v2").published == {}
    assert recipe_for("mnli").published == {}


def test_unknown_tasks_sizes_and_versions_are_rejected():
    with pytest.raises(ValueError, match=r"'boolq'.*mnli.*race.*squad2\.0.*wnli"):
        recipe_for("boolq")
    with pytest.raises(ValueError, match=r"base, large.*size='huge'"):
        recipe_for("mnli", "huge")
    with pytest.raises(ValueError, match="version='v3'"):
        recipe_for("mnli", "base", "v3")


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
    """The recipes of QQP, RTE and WNLI have dropout, those of the other GLUE tasks have none."""
    with_dropout(PRESETS[name], rate).to_json_file(str(tmp_path / "albert_config.json"))
    again = AlbertConfig.from_json_file(str(tmp_path / "albert_config.json"))
    assert again.hidden_dropout_prob == rate
    contents = ModelContents(
        again,
        {f"{ENCODER_PREFIX}encoder/embedding_hidden_mapping_in/kernel": np.zeros((1, 1), "f")},
    )
    (tmp_path / "there").mkdir()
    huggingface.write(str(tmp_path / "there"), contents)
    there = huggingface.read(str(tmp_path / "there")).config
    for config in (again, there):
        assert released_name(config) == name
        assert recipe_for("race", size_of(config), version_of(config)).versions == (name[-2:],)
