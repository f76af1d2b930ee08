"""All flags of the original release exist with the same types and defaults."""

import importlib
import re

import pytest

from albert_tf.cli.app import help_text
from tests.command_flags import flags_of
from tests.pretraining_run import PretrainingRun

# Defaults of the original release, which also determine the types. None is a string.
DEVICES = {
    **dict.fromkeys(("gcp_project", "master", "tpu_name", "tpu_zone")),
    "iterations_per_loop": 1000,
    "num_tpu_cores": 8,
    "use_tpu": False,
}
FINE_TUNING = {
    **DEVICES,
    **dict.fromkeys(("albert_config_file", "albert_hub_module_handle", "init_checkpoint")),
    **dict.fromkeys(("output_dir", "spm_model_file", "vocab_file")),
    "do_lower_case": True,
    "do_predict": False,
    "predict_batch_size": 8,
    "train_batch_size": 32,
}
RUN_PRETRAINING = {
    **DEVICES,
    **dict.fromkeys(("albert_config_file", "init_checkpoint", "input_file", "output_dir")),
    "do_eval": False,
    "do_train": True,
    "eval_batch_size": 64,
    "init_from_group0": False,
    "keep_checkpoint_max": 5,
    "learning_rate": 0.00176,
    "masked_lm_budget": 0.0,
    "max_eval_steps": 100,
    "max_predictions_per_seq": 20,
    "max_seq_length": 512,
    "num_train_steps": 125000,
    "num_warmup_steps": 3125,
    "optimizer": "lamb",
    "poly_power": 1.0,
    "save_checkpoints_steps": 5000,
    "start_warmup_step": 0,
    "train_batch_size": 4096,
}
CREATE_PRETRAINING_DATA = {
    **dict.fromkeys(("input_file", "output_file", "spm_model_file", "vocab_file")),
    "do_lower_case": True,
    "do_permutation": False,
    "do_whole_word_mask": True,
    "dupe_factor": 40,
    "favor_shorter_ngram": True,
    "input_file_mode": "r",
    "masked_lm_prob": 0.15,
    "max_predictions_per_seq": 20,
    "max_seq_length": 512,
    "ngram": 3,
    "random_next_sentence": False,
    "random_seed": 12345,
    "short_seq_prob": 0.1,
}
RUN_CLASSIFIER = {
    **FINE_TUNING,
    **dict.fromkeys(("cached_dir", "data_dir", "export_dir", "task_name")),
    "do_eval": False,
    "do_train": False,
    "eval_batch_size": 8,
    "keep_checkpoint_max": 5,
    "learning_rate": 5e-05,
    "max_seq_length": 512,
    "optimizer": "adamw",
    "save_checkpoints_steps": 1000,
    "train_step": 1000,
    "warmup_step": 0,
}  # and threshold_to_export, whose default is NaN
RUN_SQUAD = {  # of run_squad_v1 and run_squad_v2
    **FINE_TUNING,
    **dict.fromkeys(("export_dir", "predict_feature_file", "predict_feature_left_file")),
    **dict.fromkeys(("predict_file", "train_feature_file", "train_file")),
    "do_train": False,
    "doc_stride": 128,
    "dropout_prob": 0.1,
    "end_n_top": 5,
    "learning_rate": 5e-05,
    "max_answer_length": 30,
    "max_query_length": 64,
    "max_seq_length": 384,
    "n_best_size": 20,
    "num_train_epochs": 3.0,
    "save_checkpoints_steps": 1000,
    "start_n_top": 5,
    "use_einsum": True,
    "warmup_proportion": 0.1,
}
RUN_RACE = {
    **FINE_TUNING,
    **dict.fromkeys(("data_dir", "eval_file", "predict_file", "train_file")),
    "do_eval": True,
    "do_train": True,
    "dropout_prob": 0.1,
    "eval_batch_size": 8,
    "high_only": False,
    "learning_rate": 1e-05,
    "max_qa_length": 128,
    "max_seq_length": 512,
    "middle_only": False,
    "num_keep_checkpoint": 5,
    "save_checkpoints_steps": 100,
    "task_name": "race",
    "train_step": 12000,
    "warmup_step": 1000,
}
EXPORT_CHECKPOINTS = {
    "albert_directory": None,
    "checkpoint_name": "model.ckpt-best",
    "do_lower_case": True,
    "export_path": None,
}
TYPES = {type(None): "string", str: "string", bool: "bool", int: "int", float: "float"}


@pytest.mark.parametrize(
    ("name", "original"),
    [
        ("run_pretraining", RUN_PRETRAINING),
        ("create_pretraining_data", CREATE_PRETRAINING_DATA),
        ("run_classifier", RUN_CLASSIFIER),
        ("run_squad", RUN_SQUAD),
        ("run_squad_v1", RUN_SQUAD),
        ("run_squad_v2", RUN_SQUAD),
        ("run_race", RUN_RACE),
        ("export_checkpoints", EXPORT_CHECKPOINTS),
        ("export_to_tfhub", {**EXPORT_CHECKPOINTS, "use_einsum": True}),
    ],
)
def test_types_and_defaults_equal_the_original(name, original):
    with flags_of(name) as values:
        text = help_text(importlib.import_module(f"albert_tf.cli.{name}").__doc__)
        for flag, default in original.items():
            kind = "string enum" if flag == "optimizer" else TYPES[type(default)]
            assert values[flag].flag_type() == kind, flag
            assert values[flag].default == default, flag
            assert values[flag].help, flag
        if "optimizer" in original:
            assert values["optimizer"].parser.enum_values == ["adamw", "lamb"]
    listed = re.findall(r"^  --(?:\[no\])?(\w+)", text, re.MULTILINE)
    assert set(original) <= set(listed)
    assert ("precision" in listed) == name.startswith("run_")
    assert "verbosity" not in listed  # flags of other modules are only in --helpfull


@pytest.mark.slow
def test_flags_without_effect_and_a_long_warm_up_are_logged(tmp_path):
    run = PretrainingRun(tmp_path)
    printed = run.must_work(
        num_train_steps=2, num_warmup_steps=3125, master="grpc://somewhere", tpu_name="tpu"
    )
    assert "--master: No effect" in printed
    assert "--tpu_name has no effect without --use_tpu" in printed
    assert "--num_tpu_cores" not in printed
    assert "The warm-up ends at step 3125, and training at step 2" in printed
