"""Input that cannot work: the commands name it, with the flag, before they write anything.

The commands run in this process; the first test holds what their programs do with such an error.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from albert_tf.checkpoints.original.files import write_checkpoint
from albert_tf.cli import (
    create_pretraining_data,
    run_classifier,
    run_pretraining,
    run_race,
    run_squad,
)
from tests.choice_run import ChoiceRun, choices, write_choices
from tests.classifier_run import ClassifierRun, write_csv
from tests.dry_runs import run_here, tree
from tests.pretraining_run import PretrainingRun, read_checkpoint
from tests.small_records import damage_record, pretraining_columns, write_records
from tests.squad_run import SquadRun, questions, without_answers, write_squad

MIRRORED = {"distribution_strategy": "mirrored"}  # the tests have two devices
NO_TRAINING = {"do_train": False, "do_eval": False}
MRPC = {"task_name": "mrpc", "data_dir": "{golden}/glue/data", "max_seq_length": 16}
MINI = {"albert_config_file": None, "spm_model_file": None, "init_checkpoint": "mini"}
EVALUATION = {"do_train": False, "do_eval": True}
SECOND = {"squad_version": 2}

# Of each command: changes of flags that work, and what the error names.
PRETRAINING = [
    (NO_TRAINING, "--do_train, --do_eval"),
    ({"use_tpu": True}, "--tpu_name=local"),
    ({"masked_lm_budget": 0.15, "masked_lm_prob": 0.2}, "--masked_lm_prob=0.2"),
    ({"masked_lm_budget": 0.15}, "train-0.tfrecord: its records were masked"),
    ({"input_file": "/nowhere/*.tfrecord"}, "'/nowhere/*.tfrecord'"),
    ({"eval_input_file": "/nowhere", "do_eval": True}, "--eval_input_file"),
    ({**MIRRORED, "train_batch_size": 5}, "--train_batch_size=5"),
    ({**MIRRORED, "eval_batch_size": 3, "do_eval": True}, "--eval_batch_size=3"),
    ({"max_seq_length": 12}, "train-0.tfrecord, record 1: feature 'input_ids' holds 11 values"),
    ({"max_seq_length": 12}, "--max_seq_length"),
    ({"max_predictions_per_seq": 4}, "--max_predictions_per_seq"),
    ({"max_seq_length": 17}, "--max_seq_length must be in 1..16"),
    ({"init_checkpoint": "/nowhere/model.ckpt"}, "--init_checkpoint"),
    ({"vocab_file": "/nowhere"}, "--vocab_file=/nowhere"),
    ({"vocab_file": "{folder}/more.txt"}, "more.txt has 32 entries"),
    ({"albert_config_file": "/nowhere"}, "'/nowhere'"),
    (EVALUATION, "--eval_checkpoint=newest"),
    ({**EVALUATION, "eval_checkpoint": "all", "watch_secs": 0.5}, "--eval_checkpoint=all"),
    ({"input_file": "{folder}/large"}, "large, record 1: feature 'masked_lm_ids' holds 40"),
    ({"input_file": "{folder}/model/albert_config.json"}, "albert_config.json, record 1"),
    ({"init_checkpoint": "{folder}/wide/model.ckpt-3"}, "does not fill the encoder"),
    (
        {**EVALUATION, "init_checkpoint": "{folder}/encoder.ckpt"},
        "the whole model",
    ),
    (
        {**EVALUATION, "init_checkpoint": "{folder}/whole/model.ckpt-3",
         "eval_input_file": "{folder}/bad"},
        "bad, record 7",
    ),
    ({"output_dir": "{folder}/eval.tfrecord/output"}, "--output_dir"),
    ({"output_dir": "{folder}/whole"}, "model.ckpt-3"),
    ({"output_dir": "{folder}/wide"}, "--output_dir belongs to another model"),
]  # fmt: skip
CLASSIFIER = [
    ({"do_train": False}, "--do_train"),
    ({"task_name": None}, "--task_name"),
    ({"task_name": "mrpc"}, "--data_dir"),
    ({**MRPC, "data_dir": "/nowhere"}, "'/nowhere/MRPC/train.tsv'"),
    ({"do_eval": True, "dev_file": None}, "--dev_file"),
    ({"do_eval": True, "dev_file": "{folder}/unknown.csv"}, "label 'horrible'"),
    ({"train_file": "{folder}/no_label.csv"}, "no_label.csv has no column named 'label'"),
    ({"train_file": "{folder}/one_label.csv"}, "one_label.csv"),
    ({"regression": True}, "label 'bad'"),
    ({"do_predict": True, "checkpoint": "/nowhere/model.ckpt"}, "--checkpoint"),
    ({"albert_config_file": "{folder}/big.json"}, "small_1000.model has 1000 entries"),
    ({"init_checkpoint": ""}, "--init_checkpoint"),
    (
        {"init_checkpoint": "{folder}/pretrained.ckpt", "albert_config_file": "{folder}/wide.json"},
        "pretrained.ckpt does not fill the encoder",
    ),
    ({**MRPC, **EVALUATION}, "--checkpoint=all"),
    ({**MRPC, "do_train": False, "do_predict": True}, "--checkpoint=best"),
    (
        {**MRPC, **EVALUATION, "init_checkpoint": "{folder}/pretrained.ckpt"},
        "the whole model",
    ),
    ({"do_train": False, "do_predict": True, "train_file": None}, "--train_file"),
    ({"recipe": "auto"}, "'custom'"),
    ({"encoder_dropout_prob": 1.0}, "--encoder_dropout_prob"),
    ({"classifier_dropout_prob": 1.5}, "--classifier_dropout_prob"),
    ({"predict_file": "/nowhere.txt"}, "--predict_file '/nowhere.txt'"),
    ({**MINI, "albert_config_file": "{folder}/albert_config.json"}, "pretrained/mini"),
    ({**MINI, "spm_model_file": "{golden}/tokenizer/small_1000.model"}, "pretrained/mini"),
    ({**MINI, "init_checkpoint": None, "albert_hub_module_handle": "minni"}, "'mini'"),
]
RACE = [
    (NO_TRAINING, "--do_train"),
    ({"export_text_model": True}, "--export_dir"),
    ({"task_name": "swag"}, "--task_name"),
    ({"data_dir": None}, "--data_dir, or --train_choices"),
    ({"data_dir": None, "train_choices": "{folder}/train.jsonl"}, "--dev_choices"),
    ({"data_dir": "/nowhere"}, "--data_dir"),
    ({"high_only": True, "middle_only": True}, "--high_only"),
    ({"train_choices": "{folder}/few.jsonl"}, "--train_choices: line 2 of {folder}/few.jsonl"),
    ({"train_choices": "{folder}/label.jsonl"}, "line 2 of {folder}/label.jsonl: label"),
    ({"max_qa_length": 0}, "--max_qa_length"),
    ({"max_seq_length": 41}, "--max_seq_length must be in 1..40"),
    ({"dropout_prob": 1.0}, "--dropout_prob"),
    ({**NO_TRAINING, "do_predict": True}, "--checkpoint=best"),
]
SQUAD = [
    ({"do_train": False}, "--do_train"),
    ({"squad_version": None}, "--squad_version"),
    ({"train_file": None}, "--train_file"),
    ({"do_predict": True, "predict_file": None}, "--predict_file"),
    ({"train_file": "/nowhere.json"}, "--train_file"),
    ({"train_file": "{folder}/empty.json"}, "empty.json"),
    ({"train_file": "{folder}/outside.json"}, "outside.json"),
    ({"train_file": "{folder}/twice.json"}, "has the id 'q0'"),
    ({"max_query_length": 45}, "--max_query_length"),
    ({"max_seq_length": 49}, "--max_seq_length must be in 1..48"),
    ({"num_train_epochs": 0.1}, "--num_train_epochs"),
    ({"num_train_epochs": 0.0}, "--num_train_epochs"),
    ({"warmup_proportion": 1.5}, "--warmup_proportion"),
    ({"dropout_prob": 1.0}, "--dropout_prob"),
    ({**SECOND, "start_n_top": 0}, "--start_n_top"),
    ({**SECOND, "end_n_top": 49}, "--end_n_top=49"),
    ({**SECOND, "do_predict": True, "null_score_diff_threshold": "nan"}, "Received: nan"),
    (
        {"do_train": False, "do_predict": True, "checkpoint": "all",
         "predict_file": "{folder}/asked.json"},
        "--checkpoint=all",
    ),
]  # fmt: skip
RECORDS = [
    ({"sentence_loss": "none", "random_next_sentence": True}, "--sentence_loss=none"),
    ({"sentence_loss": "nsp", "random_next_sentence": False}, "--sentence_loss=nsp"),
    ({"sentence_pairs": "adjacent", "random_next_sentence": True}, "--sentence_pairs=adjacent"),
    ({"input_file": "no-such-*"}, "'no-such-*'"),
    ({"max_seq_length": 4}, "--max_seq_length"),
    ({"vocab_file": ""}, "--spm_model_file"),
    ({"vocab_file": "{folder}/corpus.txt"}, "[CLS]"),
    ({"output_file": "records@0"}, "--output_file=records@0"),
    ({"runner": "DirectRunner", "num_workers": 2}, "--num_workers=2"),
    ({"beam_options": ["--region=here"]}, "--region=here"),
    ({"runner": "DirectRunner", "beam_options": ["--regon=here"]}, "--regon"),
    ({"runner": "DirectRunner", "beam_options": ["region=here"]}, "region=here"),
]
COMMANDS = {
    "pretraining": (run_pretraining, PRETRAINING),
    "classifier": (run_classifier, CLASSIFIER),
    "race": (run_race, RACE),
    "squad": (run_squad, SQUAD),
    "records": (create_pretraining_data, RECORDS),
}


class RecordsRun:
    """A corpus, and flags that make records of it."""

    def __init__(self, folder: Path, golden: Path) -> None:
        self.folder = folder
        self.output = folder / "new"
        shutil.copy(golden / "pretraining_data" / "corpus.txt", folder)
        self._vocabulary = golden / "tokenizer" / "vocab.txt"

    def flags(self, **changes):
        return {
            "input_file": self.folder / "corpus.txt",
            "output_file": self.output / "records",
            "vocab_file": self._vocabulary,
            **changes,
        }


def pretraining_run(folder, golden):
    run = PretrainingRun(folder)
    columns = pretraining_columns(10, seed=3)
    damage_record(write_records(folder / "bad", columns), 7)
    columns["masked_lm_ids"][0, 0] = 40
    write_records(folder / "large", columns)
    vocabulary = (folder / "model" / "vocab.txt").read_text()
    (folder / "more.txt").write_text(vocabulary + "more\n")
    for name, changes in (("whole", {}), ("wide", {"hidden_size": 15})):
        (folder / name).mkdir()
        whole = run.fresh_checkpoint(folder / name, **changes)
        run.config.replace(**changes).to_json_file(str(folder / name / "albert_config.json"))
        if name == "whole":
            tensors = read_checkpoint(whole)
    encoder = {name: value for name, value in tensors.items() if name.startswith("bert/")}
    write_checkpoint(str(folder / "encoder.ckpt"), encoder, global_step=3)
    return run


def classifier_run(folder, golden):
    run = ClassifierRun(folder, golden)
    write_csv(folder / "unknown.csv", [*run.rows["dev"][:3], ("horrible", "a cat")])
    (folder / "no_label.csv").write_text("name,review\nx,a cat\ny,a mat\n")
    (folder / "one_label.csv").write_text("label,review\nx,a cat\nx,a mat\n")
    (folder / "big.json").write_text(json.dumps({**run.config.to_dict(), "vocab_size": 1001}))
    run.config.replace(hidden_size=15).to_json_file(str(folder / "wide.json"))
    run.pretrained()
    return run


def race_run(folder, golden):
    run = ChoiceRun(folder, golden)
    rows = choices(3, 1, 4)
    write_choices(folder / "few.jsonl", [rows[0], {**rows[1], "options": ["one"]}])
    write_choices(folder / "label.jsonl", [rows[0], {**rows[1], "label": 4}])
    return run


def squad_run(folder, golden):
    run = SquadRun(folder, golden)
    rows = questions(4, 3, 1)
    outside = {"answers": [{"text": "nowhere", "answer_start": 999}]}
    write_squad(folder / "outside.json", rows, **outside)
    write_squad(folder / "twice.json", rows, id="q0")
    (folder / "empty.json").write_text('{"data": []}')
    without_answers(folder / "asked.json", folder / "dev.json")
    run.pretrained()
    return run


RUNS = {
    "pretraining": pretraining_run,
    "classifier": classifier_run,
    "race": race_run,
    "squad": squad_run,
    "records": RecordsRun,
}


@pytest.fixture(scope="module")
def run_of(tmp_path_factory, golden):
    """The run of a command, made once."""
    made = {}

    def run(name):
        if name not in made:
            made[name] = RUNS[name](tmp_path_factory.mktemp(name), golden)
        return made[name]

    return run


def error_of(module, flags, folder):
    """What the command says of these flags, which must leave the folder as it is."""
    options = [flags.pop("beam_options", [])] if module is create_pretraining_data else []
    before = contents(folder)
    with pytest.raises((ValueError, OSError)) as raised:
        run_here(module, flags, *options)
    assert contents(folder) == before
    return str(raised.value)


def contents(folder):
    """What lies below a folder; the lock of a directory comes and goes."""
    return {path: content for path, (_, content) in tree(folder).items()}


@pytest.mark.parametrize(
    ("name", "changes", "named"),
    [(name, *case) for name, (_, cases) in COMMANDS.items() for case in cases],
)
def test_what_cannot_work_is_named_and_nothing_is_written(run_of, golden, name, changes, named):
    run = run_of(name)
    places = {"folder": run.folder, "golden": golden}
    changes = {
        flag: value.format(**places) if isinstance(value, str) else value
        for flag, value in changes.items()
    }
    flags = run.flags(**{**({} if name in ("race", "records") else {"do_train": True}), **changes})
    assert named.format(**places) in error_of(COMMANDS[name][0], flags, run.folder)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"lerning_rate": 0.1}, "learning_rate"),
        ({"num_train_steps": 0}, "--num_train_steps"),
        ({"input_file": "/nowhere"}, "'/nowhere'"),
    ],
)
def test_a_program_ends_with_a_message_and_status_1(run_of, flags, named):
    run = run_of("pretraining")
    result = run(**flags)
    assert result.code == 1
    assert named in result.output
    assert "error: " in result.output
    assert "Traceback" not in result.output
    assert not run.output.exists()


@pytest.mark.parametrize(
    ("name", "there"), [("classifier", "rte"), ("race", "squad1.1"), ("squad", "squad2.0")]
)
def test_the_directory_of_another_task_is_left_alone(run_of, tmp_path, name, there):
    settings = {"labels": ["no", "yes"], "pairs": True} if there == "rte" else {"settings": {}}
    (tmp_path / "labels.json").write_text(json.dumps({"task_name": there, **settings}))
    flags = run_of(name).flags(do_train=True, output_dir=tmp_path)
    assert f"labels.json in it says '{there}'" in error_of(COMMANDS[name][0], flags, tmp_path)


def test_a_model_of_another_task_does_not_tell_the_version_of_squad(run_of, tmp_path):
    (tmp_path / "labels.json").write_text('{"task_name": "race", "settings": {}}')
    flags = {"do_predict": True, "squad_version": None, "output_dir": tmp_path}
    message = error_of(run_squad, run_of("squad").flags(**flags), tmp_path)
    assert "--squad_version" in message
    assert "'race'" in message


@pytest.mark.parametrize("name", ["classifier", "squad"])
@pytest.mark.parametrize("checkpoint", ["model.ckpt-best", "model.ckpt-3"])
def test_the_directory_of_a_pretrained_model_is_left_alone(run_of, tmp_path, name, checkpoint):
    run = run_of(name)
    run.config.to_json_file(str(tmp_path / "albert_config.json"))
    for path in run.folder.glob("pretrained.ckpt.*"):
        shutil.copy(path, tmp_path / path.name.replace("pretrained.ckpt", checkpoint))
    flags = run.flags(do_train=True, output_dir=tmp_path)
    assert f"{checkpoint} in it has no head" in error_of(COMMANDS[name][0], flags, tmp_path)


def test_a_bad_record_later_in_the_file_is_named_when_it_is_read(run_of, tmp_path):
    columns = pretraining_columns(10, seed=3)
    columns["input_ids"][6, 2] = 31
    file = write_records(tmp_path / "large", columns)
    result = run_of("pretraining")(input_file=file, output_dir=tmp_path / "output")
    assert result.code == 1
    assert f"{file}, record 7: feature 'input_ids' holds 31" in result.output
    assert "Traceback" not in result.output


@pytest.mark.slow
def test_weights_that_overflow_end_a_training(run_of, tmp_path):
    """The loss with the weights of the first checkpoint is not a number."""
    result = run_of("pretraining")(
        optimizer="adamw",
        learning_rate=1e36,
        num_warmup_steps=0,
        save_checkpoints_steps=1,
        log_steps=100,
        output_dir=tmp_path,
    )
    assert result.code == 1
    assert "Step 2: loss=nan" in result.output
    assert str(tmp_path / "model.ckpt-1") in result.output
    assert "Traceback" not in result.output
    tensors = read_checkpoint(tmp_path / "model.ckpt-1")
    assert all(np.isfinite(value).all() for value in tensors.values())
    assert (tmp_path / "checkpoint").read_text().count("model.ckpt-1") == 2
