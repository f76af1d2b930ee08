"""Every flag of the original release's commands is there, with its type and default."""

import re
import xml.etree.ElementTree

import pytest

from tests.pretraining_run import PretrainingRun
from tests.programs import run_program

# Name: (type, default, choices) in the original release.
RUN_PRETRAINING = {
    "albert_config_file": ("string", None),
    "do_eval": ("bool", False),
    "do_train": ("bool", True),
    "eval_batch_size": ("int", 64),
    "gcp_project": ("string", None),
    "init_checkpoint": ("string", None),
    "init_from_group0": ("bool", False),
    "input_file": ("string", None),
    "iterations_per_loop": ("int", 1000),
    "keep_checkpoint_max": ("int", 5),
    "learning_rate": ("float", 0.00176),
    "masked_lm_budget": ("float", 0.0),
    "master": ("string", None),
    "max_eval_steps": ("int", 100),
    "max_predictions_per_seq": ("int", 20),
    "max_seq_length": ("int", 512),
    "num_tpu_cores": ("int", 8),
    "num_train_steps": ("int", 125000),
    "num_warmup_steps": ("int", 3125),
    "optimizer": ("string enum", "lamb"),
    "output_dir": ("string", None),
    "poly_power": ("float", 1.0),
    "save_checkpoints_steps": ("int", 5000),
    "start_warmup_step": ("int", 0),
    "tpu_name": ("string", None),
    "tpu_zone": ("string", None),
    "train_batch_size": ("int", 4096),
    "use_tpu": ("bool", False),
}
CREATE_PRETRAINING_DATA = {
    "do_lower_case": ("bool", True),
    "do_permutation": ("bool", False),
    "do_whole_word_mask": ("bool", True),
    "dupe_factor": ("int", 40),
    "favor_shorter_ngram": ("bool", True),
    "input_file": ("string", None),
    "input_file_mode": ("string", "r"),
    "masked_lm_prob": ("float", 0.15),
    "max_predictions_per_seq": ("int", 20),
    "max_seq_length": ("int", 512),
    "ngram": ("int", 3),
    "output_file": ("string", None),
    "random_next_sentence": ("bool", False),
    "random_seed": ("int", 12345),
    "short_seq_prob": ("float", 0.1),
    "spm_model_file": ("string", None),
    "vocab_file": ("string", None),
}
RUN_CLASSIFIER = {
    "albert_config_file": ("string", None),
    "albert_hub_module_handle": ("string", None),
    "cached_dir": ("string", None),
    "data_dir": ("string", None),
    "do_eval": ("bool", False),
    "do_lower_case": ("bool", True),
    "do_predict": ("bool", False),
    "do_train": ("bool", False),
    "eval_batch_size": ("int", 8),
    "export_dir": ("string", None),
    "gcp_project": ("string", None),
    "init_checkpoint": ("string", None),
    "iterations_per_loop": ("int", 1000),
    "keep_checkpoint_max": ("int", 5),
    "learning_rate": ("float", 5e-05),
    "master": ("string", None),
    "max_seq_length": ("int", 512),
    "num_tpu_cores": ("int", 8),
    "optimizer": ("string enum", "adamw"),
    "output_dir": ("string", None),
    "predict_batch_size": ("int", 8),
    "save_checkpoints_steps": ("int", 1000),
    "spm_model_file": ("string", None),
    "task_name": ("string", None),
    "tpu_name": ("string", None),
    "tpu_zone": ("string", None),
    "train_batch_size": ("int", 32),
    "train_step": ("int", 1000),
    "use_tpu": ("bool", False),
    "vocab_file": ("string", None),
    "warmup_step": ("int", 0),
}  # and threshold_to_export, whose default is not a number
RUN_SQUAD = {  # those of run_squad_v1 and of run_squad_v2
    "albert_config_file": ("string", None),
    "albert_hub_module_handle": ("string", None),
    "do_lower_case": ("bool", True),
    "do_predict": ("bool", False),
    "do_train": ("bool", False),
    "doc_stride": ("int", 128),
    "dropout_prob": ("float", 0.1),
    "end_n_top": ("int", 5),
    "export_dir": ("string", None),
    "gcp_project": ("string", None),
    "init_checkpoint": ("string", None),
    "iterations_per_loop": ("int", 1000),
    "learning_rate": ("float", 5e-05),
    "master": ("string", None),
    "max_answer_length": ("int", 30),
    "max_query_length": ("int", 64),
    "max_seq_length": ("int", 384),
    "n_best_size": ("int", 20),
    "num_tpu_cores": ("int", 8),
    "num_train_epochs": ("float", 3.0),
    "output_dir": ("string", None),
    "predict_batch_size": ("int", 8),
    "predict_feature_file": ("string", None),
    "predict_feature_left_file": ("string", None),
    "predict_file": ("string", None),
    "save_checkpoints_steps": ("int", 1000),
    "spm_model_file": ("string", None),
    "start_n_top": ("int", 5),
    "tpu_name": ("string", None),
    "tpu_zone": ("string", None),
    "train_batch_size": ("int", 32),
    "train_feature_file": ("string", None),
    "train_file": ("string", None),
    "use_einsum": ("bool", True),
    "use_tpu": ("bool", False),
    "vocab_file": ("string", None),
    "warmup_proportion": ("float", 0.1),
}
RUN_RACE = {
    "albert_config_file": ("string", None),
    "albert_hub_module_handle": ("string", None),
    "data_dir": ("string", None),
    "do_eval": ("bool", True),
    "do_lower_case": ("bool", True),
    "do_predict": ("bool", False),
    "do_train": ("bool", True),
    "dropout_prob": ("float", 0.1),
    "eval_batch_size": ("int", 8),
    "eval_file": ("string", None),
    "gcp_project": ("string", None),
    "high_only": ("bool", False),
    "init_checkpoint": ("string", None),
    "iterations_per_loop": ("int", 1000),
    "learning_rate": ("float", 1e-05),
    "master": ("string", None),
    "max_qa_length": ("int", 128),
    "max_seq_length": ("int", 512),
    "middle_only": ("bool", False),
    "num_keep_checkpoint": ("int", 5),
    "num_tpu_cores": ("int", 8),
    "output_dir": ("string", None),
    "predict_batch_size": ("int", 8),
    "predict_file": ("string", None),
    "save_checkpoints_steps": ("int", 100),
    "spm_model_file": ("string", None),
    "task_name": ("string", "race"),
    "tpu_name": ("string", None),
    "tpu_zone": ("string", None),
    "train_batch_size": ("int", 32),
    "train_file": ("string", None),
    "train_step": ("int", 12000),
    "use_tpu": ("bool", False),
    "vocab_file": ("string", None),
    "warmup_step": ("int", 1000),
}
EXPORT_CHECKPOINTS = {
    "albert_directory": ("string", None),
    "checkpoint_name": ("string", "model.ckpt-best"),
    "do_lower_case": ("bool", True),
    "export_path": ("string", None),
}
EXPORT_TO_TFHUB = {**EXPORT_CHECKPOINTS, "use_einsum": ("bool", True)}
PARSERS = {
    "bool": {"true": True, "false": False}.get,
    "int": int,
    "float": float,
    "string": lambda text: text or None,
    "string enum": str,
}


SCRIPTS = pytest.mark.parametrize(
    ("script", "original"),
    [
        ("run_pretraining.py", RUN_PRETRAINING),
        ("create_pretraining_data.py", CREATE_PRETRAINING_DATA),
        ("run_classifier.py", RUN_CLASSIFIER),
        ("run_squad.py", RUN_SQUAD),
        ("albert_tf/cli/run_squad_v1.py", RUN_SQUAD),
        ("albert_tf/cli/run_squad_v2.py", RUN_SQUAD),
        ("run_race.py", RUN_RACE),
        ("export_checkpoints.py", EXPORT_CHECKPOINTS),
        ("export_to_tfhub.py", EXPORT_TO_TFHUB),
    ],
)


@SCRIPTS
def test_types_and_defaults_are_those_of_the_original(tmp_path, script, original):
    printed = run_program(script, tmp_path, {"helpxml": True}).output
    described = xml.etree.ElementTree.fromstring(printed[printed.index("<?xml") :])
    flags = {flag.findtext("name"): flag for flag in described.iter("flag")}
    assert not original.keys() - flags.keys()
    for name, (kind, default) in original.items():
        assert flags[name].findtext("type") == kind, name
        assert PARSERS[kind](flags[name].findtext("default")) == default, name
        assert flags[name].findtext("meaning"), name
    if "optimizer" in original:
        choices = [choice.text for choice in flags["optimizer"].iter("enum_value")]
        assert choices == ["adamw", "lamb"]


@SCRIPTS
def test_help_lists_all_of_them(tmp_path, script, original):
    printed = run_program(script, tmp_path, {"help": True}).output
    listed = re.findall(r"^  --(?:\[no\])?(\w+)", printed, re.MULTILINE)
    assert set(original) <= set(listed)
    assert ("precision" in listed) == ("run_" in script)
    assert "verbosity" not in listed  # other modules' flags are left to --helpfull


def test_flags_that_change_nothing_say_so_and_a_long_warm_up_warns(tmp_path):
    run = PretrainingRun(tmp_path)
    printed = run.must_work(
        num_train_steps=2,
        num_warmup_steps=3125,
        master="grpc://somewhere",
        iterations_per_loop=7,
        tpu_name="tpu",
        learning_rate=0.5,
    )
    for name in ("master: No effect", "iterations_per_loop: No effect", "tpu_name changes nothing"):
        assert f"--{name}" in printed
    assert "--num_tpu_cores" not in printed
    assert "The warm-up ends at step 3125, and training at step 2" in printed
    assert "never reaches --learning_rate=0.5" in printed
    assert run.metrics()[2]["learning_rate"] == pytest.approx(0.5 / 3125, rel=1e-6)
