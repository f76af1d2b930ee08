"""What `run_classifier.py` says of input that cannot work; nothing is written before."""

import json
import shutil

import pytest

from tests.classifier_run import ClassifierRun, write_csv


@pytest.fixture(scope="module")
def run(tmp_path_factory, golden):
    run = ClassifierRun(tmp_path_factory.mktemp("bad_input"), golden)
    write_csv(run.folder / "unknown.csv", [*run.rows["dev"][:3], ("horrible", "a cat")])
    (run.folder / "no_label.csv").write_text("name,review\nx,a cat\ny,a mat\n")
    (run.folder / "one_label.csv").write_text("label,review\nx,a cat\nx,a mat\n")
    (run.folder / "big.json").write_text(json.dumps({**run.config.to_dict(), "vocab_size": 1001}))
    run.config.replace(hidden_size=15).to_json_file(str(run.folder / "wide.json"))
    run.pretrained()
    return run


@pytest.fixture(autouse=True)
def _fresh_output(run):
    shutil.rmtree(run.output, ignore_errors=True)


GLUE = {"task_name": "mrpc", "data_dir": "{golden}/glue/data", "max_seq_length": 16}
CASES = {
    "nothing to do": ({"do_train": False}, "Nothing to do: give --do_train"),
    "no task": ({"task_name": None}, "--task_name is needed"),
    "no such task": ({"task_name": "mrcp"}, "--task_name must be one of cola, mnli"),
    "no data": ({"task_name": "mrpc"}, "--task_name=mrpc needs --data_dir"),
    "data elsewhere": (
        {**GLUE, "data_dir": "/nowhere"},
        "--data_dir: there is no file '/nowhere/MRPC/train.tsv'",
    ),
    "no development set": ({"do_eval": True, "dev_file": None}, "needs --dev_file"),
    "a label that training does not know": (
        {"do_eval": True, "dev_file": "{folder}/unknown.csv"},
        "unknown.csv has the unknown label 'horrible'",
    ),
    "no column of labels": (
        {"train_file": "{folder}/no_label.csv"},
        "no_label.csv has no column named 'label'",
    ),
    "a single label": ({"train_file": "{folder}/one_label.csv"}, "there is nothing to learn"),
    "labels that are no numbers": ({"regression": True}, "unknown label 'bad'. Allowed: a finite"),
    "longer than the position table": (
        {"max_seq_length": 25},
        "--max_seq_length must be in 1..24",
    ),
    "too short for a token": ({"max_seq_length": 2}, "--max_seq_length must be at least 3"),
    "no such checkpoint to predict with": (
        {"do_predict": True, "checkpoint": "/nowhere/model.ckpt"},
        "With --do_train, --checkpoint must be one of all, best, newest or a checkpoint in",
    ),
    "another vocabulary": (
        {"albert_config_file": "{folder}/big.json"},
        "small_1000.model has 1000 entries",
    ),
    "an empty checkpoint": ({"init_checkpoint": ""}, "--init_checkpoint is given but empty"),
    "no such checkpoint": (
        {"init_checkpoint": "/nowhere/model.ckpt"},
        "There is no checkpoint '/nowhere/model.ckpt' (--init_checkpoint)",
    ),
    "a checkpoint of another size": (
        {
            "init_checkpoint": "{folder}/pretrained.ckpt",
            "albert_config_file": "{folder}/wide.json",
        },
        "pretrained.ckpt does not fill the encoder",
    ),
    "nothing to evaluate": (
        {**GLUE, "do_train": False, "do_eval": True},
        "has no checkpoint for --checkpoint=all. Train first, or give --init_checkpoint",
    ),
    "nothing to predict with": (
        {**GLUE, "do_train": False, "do_predict": True},
        "has no checkpoint for --checkpoint=best. Train first",
    ),
    "a checkpoint without a head": (
        {**GLUE, "do_train": False, "do_eval": True, "init_checkpoint": "{folder}/pretrained.ckpt"},
        "does not hold the whole model",
    ),
    "no classes without a training": (
        {"do_train": False, "do_predict": True, "train_file": None},
        "The classes are not known: give --train_file",
    ),
    "no recipe": ({"recipe": "auto"}, "There is no published recipe for the task 'custom'"),
    "no rate": ({"encoder_dropout_prob": 1.0}, "--encoder_dropout_prob must be a rate in [0, 1)"),
    "a rate above 1": (
        {"classifier_dropout_prob": 1.5},
        "--classifier_dropout_prob must be a rate in [0, 1). Received: 1.5",
    ),
    "no steps": ({"train_step": 0}, "--train_step must be"),
    "no texts to predict": (
        {"predict_file": "/nowhere.txt"},
        "--predict_file '/nowhere.txt' does not exist",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_is_refused(run, case):
    changes, message = CASES[case]
    places = {"folder": run.folder, "golden": run.golden}
    changes = {
        name: value.format(**places) if isinstance(value, str) else value
        for name, value in changes.items()
    }
    result = run(**{"do_train": True, **changes})
    assert result.code == 1, result.output
    assert message in result.output
    assert "Traceback" not in result.output
    assert not run.output.exists()


def test_an_output_directory_of_another_task_is_left_alone(run):
    run.output.mkdir()
    description = {"task_name": "rte", "labels": ["entailment", "not_entailment"], "pairs": True}
    (run.output / "labels.json").write_text(json.dumps(description))
    result = run(do_train=True)
    assert result.code == 1, result.output
    assert "labels.json in it says 'rte', this command 'custom'" in result.output
    assert [path.name for path in run.output.iterdir()] == ["labels.json"]


@pytest.mark.parametrize("name", ["model.ckpt-best", "model.ckpt-3"])
def test_an_output_directory_of_a_pretraining_is_left_alone(run, name):
    run.output.mkdir()
    run.config.to_json_file(str(run.output / "albert_config.json"))
    for path in run.folder.glob("pretrained.ckpt.*"):
        shutil.copy(path, run.output / path.name.replace("pretrained.ckpt", name))
    before = {path.name: path.read_bytes() for path in run.output.iterdir()}
    result = run(do_train=True)
    assert result.code == 1, result.output
    assert f"{name} in it has no head for these labels" in result.output
    assert {path.name: path.read_bytes() for path in run.output.iterdir()} == before
