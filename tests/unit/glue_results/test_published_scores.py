"""What was published of the model that runs started from."""

from pathlib import Path

import pytest

from albert_tf.config import PRESETS
from albert_tf.glue_results.published_scores import published_scores


def test_a_released_model_by_its_name():
    assert published_scores("base_v1") == (
        "base_v1",
        {("mnli", "eval_accuracy"): 81.6, ("sst-2", "eval_accuracy"): 90.3},
    )


def test_a_directory_with_the_configuration_of_one(tmp_path):
    PRESETS["large_v1"].to_json_file(str(tmp_path / "albert_config.json"))
    name, scores = published_scores(str(tmp_path))
    assert name == "large_v1"
    assert scores["mnli", "eval_accuracy"] == 83.5


def test_a_model_of_ones_own_and_a_chinese_one_have_none(tmp_path):
    config = PRESETS["base_v2"].replace(num_hidden_layers=6)
    config.to_json_file(str(tmp_path / "albert_config.json"))
    assert published_scores(str(tmp_path)) == (None, {})
    assert published_scores("base_zh") == (None, {})


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"--model must be .*base_v2.*no-such"):
        published_scores(str(tmp_path / "no-such"))


def test_a_hub_module_counts_by_its_configuration():
    module = Path(__file__).parents[2] / "golden" / "data" / "hub" / "module"
    assert published_scores(str(module)) == (None, {})
