"""Invalid flags and files are rejected before anything is written.

The commands run in this process, except where the test is about how a program ends.
"""

import functools
import json
import re
import shutil
from pathlib import Path

import pytest

from albert_tf.checkpoints.formats.original import write_checkpoint
from albert_tf.cli import (
    convert_checkpoint,
    create_pretraining_data,
    export_checkpoints,
    export_litert,
    export_onnx,
    export_to_tfhub,
    prepare_text,
    run_ablations,
    run_classifier,
    run_pretraining,
    run_race,
    run_squad,
    run_token_classifier,
    train_sentencepiece,
)
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.original_names import original_names
from tests.choice_run import ChoiceRun, choices, write_choices
from tests.classifier_run import ClassifierRun, write_csv
from tests.pretraining_run import PretrainingRun, read_checkpoint
from tests.run_in_process import run_here, tree
from tests.small_model import small_config
from tests.small_records import damage_record, pretraining_columns, write_records
from tests.squad_run import SquadRun, questions, without_answers, write_squad
from tests.token_run import TokenRun

NO_TRAINING = {"do_train": False, "do_eval": False}
MRPC = {"task_name": "mrpc", "data_dir": "{golden}/glue/data", "max_seq_length": 16}
MINI = {"albert_config_file": None, "spm_model_file": None, "init_checkpoint": "mini"}
EVALUATION = {"do_train": False, "do_eval": True}
ONLY_REAL = {"dry_run": False}  # a dry run would wait, or would not read the whole file
SECOND = {"squad_version": 2}
ANSWERS = {"predict_file": "{folder}/file"}
TRAINING = {"do_train": True}
PRETRAINED = [
    ({"output_dir": f"{{folder}}/{name}"}, f"{name}: the head was trained for other")
    for name in ("model.ckpt-best", "model.ckpt-3")
]

# For each command: changes of valid flags, and what the error must name.
PRETRAINING = [
    (NO_TRAINING, "--do_eval"),
    ({"use_tpu": True}, "--tpu_name=local"),
    ({"masked_lm_budget": 0.15, "masked_lm_prob": 0.2}, "--masked_lm_prob"),
    ({"input_file": "/nowhere/*.tfrecord"}, "'/nowhere/*.tfrecord'"),
    ({"eval_input_file": "/nowhere", "do_eval": True}, "--eval_input_file"),
    ({"max_seq_length": 12}, "train-0.tfrecord, record 1"),
    ({"max_predictions_per_seq": 4}, "--max_predictions_per_seq"),
    ({"init_checkpoint": "/nowhere/model.ckpt"}, "--init_checkpoint"),
    ({"vocab_file": "/nowhere"}, "--vocab_file: [Errno 2]"),
    ({"vocab_file": "{folder}/more.txt"}, "more.txt"),
    ({"albert_config_file": "/nowhere"}, "'/nowhere'"),
    ({"albert_config_file": None}, "--albert_config_file"),
    (EVALUATION, "--eval_checkpoint=newest"),
    ({**EVALUATION, **ONLY_REAL, "eval_checkpoint": "all", "watch_secs": 0.5}, "--eval_checkpoint"),
    ({"init_checkpoint": "{folder}/wide/model.ckpt-3"}, "model.ckpt-3"),
    (
        {**EVALUATION, "init_checkpoint": "{folder}/encoder.ckpt"},
        "encoder.ckpt has no head for this task, which --do_train=False",
    ),
    (
        {**EVALUATION, **ONLY_REAL, "init_checkpoint": "{folder}/whole/model.ckpt-3",
         "eval_input_file": "{folder}/bad"},
        "bad, record 7",
    ),
    ({"output_dir": "{folder}/eval.tfrecord/output"}, "--output_dir"),
    ({"output_dir": "{folder}/whole"}, "model.ckpt-3"),
    ({"train_batch_size": 7, "gradient_accumulation_steps": 2}, "--train_batch_size"),
    ({"input_file": "{folder}/damaged"}, "damaged, record 1"),
]  # fmt: skip
CLASSIFIER = [
    ({"do_train": False}, "--do_train"),
    ({"task_name": "mrpc"}, "--data_dir"),
    ({**MRPC, "data_dir": "/nowhere"}, "'/nowhere/MRPC/train.tsv'"),
    ({"do_eval": True, "dev_file": "{folder}/unknown.csv"}, "'horrible'"),
    ({"train_file": "{folder}/no_label.csv"}, "no_label.csv"),
    ({"train_file": "{folder}/one_label.csv"}, "one_label.csv"),
    ({"albert_config_file": "{folder}/small.json"}, "small_1000.model"),
    (
        {"init_checkpoint": "{folder}/pretrained.ckpt", "albert_config_file": "{folder}/wide.json"},
        "pretrained.ckpt",
    ),
    ({**MRPC, **EVALUATION}, "--checkpoint=all"),
    ({**MRPC, "do_train": False, "do_predict": True}, "--checkpoint=best"),
    (
        {**MRPC, **EVALUATION, "init_checkpoint": "{folder}/pretrained.ckpt"},
        "pretrained.ckpt has no head for this task, which --do_train=False",
    ),
    ({"do_train": False, "do_predict": True, "train_file": None}, "--train_file"),
    ({"recipe": "auto"}, "'custom'"),
    ({"predict_file": "/nowhere.txt"}, "--predict_file"),
    ({**MINI, "albert_config_file": "{folder}/albert_config.json"}, "pretrained/mini"),
    ({**MINI, "init_checkpoint": None, "albert_hub_module_handle": "minni"}, "'mini'"),
    ({"export_dir": "{folder}/file/export"}, "--export_dir"),
    ({"output_dir": "{folder}/file"}, "--output_dir"),
    ({**ANSWERS, "predict_output_file": "{folder}"}, "--predict_output_file"),
    ({**ANSWERS, "predict_output_file": "{folder}/./file"}, "--predict_output_file"),
    ({"export_dir": "{folder}/in_use", "export_text_model": True}, "--export_dir"),
    ({"output_dir": "{folder}/of_rte"}, "task is rte in {folder}/of_rte, but "),
    *PRETRAINED,
]
RACE = [
    (NO_TRAINING, "--do_train"),
    ({"export_text_model": True}, "--export_dir"),
    ({"data_dir": None}, "--train_choices"),
    ({"data_dir": None, "train_choices": "{folder}/train.jsonl"}, "--dev_choices"),
    ({"data_dir": "/nowhere"}, "--data_dir"),
    ({"train_choices": "{folder}/few.jsonl"}, "line 2 of {folder}/few.jsonl"),
    ({"max_seq_length": 41}, "--max_seq_length"),
    ({"do_predict": True, "test_choices": "{folder}/file"}, "--test_choices"),
    ({**TRAINING, "output_dir": "{folder}/of_squad1.1"}, "task is squad1.1 in {folder}/of_squad"),
]
SQUAD = [
    ({"do_train": False}, "--do_train"),
    ({"squad_version": None}, "--squad_version"),
    ({"train_file": "/nowhere.json"}, "--train_file"),
    ({"train_file": "{folder}/outside.json"}, "outside.json"),
    ({"do_predict": True, "predict_file": "{folder}/twice.json"}, "'q0'"),
    ({"max_query_length": 45}, "--max_query_length"),
    ({"max_seq_length": 49}, "--max_seq_length"),
    ({"num_train_epochs": 0.1}, "--num_train_epochs"),
    ({**SECOND, "do_predict": True, "null_score_diff_threshold": "nan"}, "--null_score_diff"),
    (
        {"do_train": False, "do_predict": True, "checkpoint": "all",
         "predict_file": "{folder}/asked.json"},
        "--checkpoint=all",
    ),
    ({"do_predict": True, "export_dir": "{folder}/in_use"}, "--export_dir"),
    ({"do_predict": True, "export_dir": "{folder}/tflite"}, "--export_dir"),
    ({"output_dir": "{folder}/of_squad2.0"}, "task is squad2.0 in {folder}/of_squad2.0, but "),
    *PRETRAINED,
]  # fmt: skip
RECORDS = [
    ({"sentence_loss": "none", "random_next_sentence": True}, "--sentence_loss=none"),
    ({"input_file": "no-such-*"}, "'no-such-*'"),
    ({"max_seq_length": 4}, "--max_seq_length"),
    ({"vocab_file": ""}, "--spm_model_file"),
    ({"vocab_file": "{folder}/corpus.txt"}, "[CLS]"),
    ({"output_file": "records@0"}, "--output_file: "),
    ({"runner": "DirectRunner", "num_workers": 2}, "--num_workers"),
    ({"output_file": "{folder}/corpus.txt/records"}, "--output_file"),
    ({"input_file": "{folder}/binary"}, "binary"),
    ({"runner": "DirectRunner", "arguments": ["--no_such_option=1"]}, "--no_such_option"),
]
TOKENS = [
    ({**NO_TRAINING, "do_predict": False}, "--do_train"),
    ({"train_file": None}, "--train_file"),
    ({"do_train": False, "do_eval": True, "train_file": None}, "--train_file"),
    ({"token_column": 2}, "--token_column"),
    ({"train_file": "-"}, "--train_file"),
    ({"dev_file": "{folder}/city"}, "city:1"),
    ({"dev_file": "{folder}/schemes"}, "--dev_file"),
    ({"predict_file": "{folder}/missing"}, "--predict_file"),
    ({"predict_file": "{folder}/binary"}, "line 1"),
]
VOCABULARY = [
    ({"input_file": "{folder}/blank"}, "blank"),
    ({"input_file": "{folder}/words", "model_prefix": "{folder}/words/vocab"}, "--model_prefix"),
    ({"input_file": "{folder}/utf-16"}, "utf-16"),
]
RAW_TEXT = [
    ({"input_file": "{folder}/utf-16"}, "utf-16 is not UTF-8"),
    ({"input_file": "{folder}/json", "text_key": "content"}, "--text_key"),
    ({"language": "german"}, "--language must be the ISO 639 code"),
    ({"output_file": "{folder}/words/a@2.txt"}, "--output_file"),
]
ABLATIONS = [
    ({"arguments": ["--seed=4"]}, "--seed"),
    ({"depths": "0"}, "depth-0"),
    ({"none_eval_input_file": "no", "none_input_file": "no"}, "--none_input_file"),
]
CONVERSION = [
    ({"output_dir": "{folder}/file/out"}, "--output_dir"),
    ({"model": "{folder}/whole_attention"}, "parameter_sharing"),
]
HUB = [
    ({"preprocessor_path": "{folder}/new/encoder/in"}, "--preprocessor_path"),
    ({"export_path": "{folder}/file/out"}, "--export_path"),
]
WEIGHTS = [({"export_path": "{folder}/file/model.ckpt"}, "--export_path")]
LITERT = [
    ({"output_file": "{folder}/file/a.tflite"}, "--output_file"),
    ({"max_seq_length": 100_000}, "--max_seq_length"),
]
ONNX = [({"output_file": "{folder}/file/a.onnx"}, "--output_file")]


class Files:
    """A directory of files, and valid flags of a command that uses them."""

    def __init__(self, folder: Path, golden: Path, **flags) -> None:
        self.folder = folder
        (folder / "file").write_text("in the way\n")
        places = {"folder": folder, "golden": golden}
        self._flags = {
            name: value.format(**places) if isinstance(value, str) else value
            for name, value in flags.items()
        }

    def flags(self, **changes):
        return {**self._flags, **changes}


def pretraining_run(folder, golden):
    run = PretrainingRun(folder)
    columns = pretraining_columns(10, seed=3)
    damage_record(write_records(folder / "bad", columns), 7)
    damage_record(write_records(folder / "damaged", columns), 1)
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
    (folder / "small.json").write_text(json.dumps({**run.config.to_dict(), "vocab_size": 999}))
    run.config.replace(hidden_size=15).to_json_file(str(folder / "wide.json"))
    run.pretrained()
    block_exports(folder)
    write_used(run, "rte", labels=["no", "yes"], pairs=True)
    return run


def block_exports(folder):
    (folder / "file").write_text("in the way\n")
    (folder / "in_use").mkdir()
    for name in ("text", "saved_model"):
        (folder / "in_use" / name).write_text("in the way\n")
    (folder / "tflite" / "albert_model.tflite").mkdir(parents=True)


def write_used(run, task, **settings):
    """Writes output directories of another task and of pretrained models."""
    used = run.folder / f"of_{task}"
    used.mkdir()
    (used / "labels.json").write_text(json.dumps({"task_name": task, "settings": {}, **settings}))
    for path in run.folder.glob("pretrained.ckpt.*"):
        for name in ("model.ckpt-best", "model.ckpt-3"):
            (run.folder / name).mkdir(exist_ok=True)
            run.config.to_json_file(str(run.folder / name / "albert_config.json"))
            shutil.copy(path, run.folder / name / path.name.replace("pretrained.ckpt", name))


def race_run(folder, golden):
    run = ChoiceRun(folder, golden)
    rows = choices(3, 1, 4)
    write_choices(folder / "few.jsonl", [rows[0], {**rows[1], "options": ["one"]}])
    (folder / "file").write_text("in the way\n")
    write_used(run, "squad1.1")
    return run


def squad_run(folder, golden):
    run = SquadRun(folder, golden)
    rows = questions(4, 3, 1)
    outside = {"answers": [{"text": "nowhere", "answer_start": 999}]}
    write_squad(folder / "outside.json", rows, **outside)
    write_squad(folder / "twice.json", rows, id="q0")
    without_answers(folder / "asked.json", folder / "dev.json")
    run.pretrained()
    block_exports(folder)
    write_used(run, "squad2.0")
    return run


def token_run(folder, golden):
    run = TokenRun(folder, golden)
    for name, text in {
        "city": "cat B-city\n",
        "schemes": "cat I-animal\n\non O\n",
        "binary": "caf\udce9\n",
    }.items():
        (folder / name).write_text(text, errors="surrogateescape")
    return run


def ablation_run(folder, golden):
    PretrainingRun(folder)
    records = {"input_file": "{folder}/train-*.tfrecord", "num_train_steps": 6}
    records |= {"eval_input_file": "{folder}/eval.tfrecord", "output_dir": "{folder}/new"}
    return Files(folder, golden, albert_config_file="{folder}/model/albert_config.json", **records)


def conversion_run(folder, golden):
    """The model cannot be represented in other formats."""
    config = small_config(parameter_sharing="attention", num_hidden_groups=1, inner_group_num=1)
    (folder / "whole_attention").mkdir()
    prefix = str(folder / "whole_attention" / "model.ckpt")
    write_checkpoint(prefix, original_names(AlbertForPretraining(config)), 0)
    config.to_json_file(str(folder / "whole_attention" / "albert_config.json"))
    target = {"format": "huggingface", "output_dir": "{folder}/new/out"}
    return Files(folder, golden, model=RELEASED, **target)


def files_run(contents, **flags):
    """Returns a function that writes files by name, and returns them with valid flags."""

    def write(folder, golden):
        for name, content in contents.items():
            (folder / name).write_bytes(content)
        return Files(folder, golden, **flags)

    return write


TEXTS = {"words": b"some words\n", "utf-16": "W\u00f6rter\n".encode("utf-16")}
records_run = files_run(
    {"corpus.txt": b"the road\nwas long\n", "binary": b"words\n\xff\n"},
    input_file="{folder}/corpus.txt",
    output_file="{folder}/new/records",
    vocab_file="{golden}/tokenizer/vocab.txt",
)
vocabulary_run = files_run({**TEXTS, "blank": b"\n \n"}, model_prefix="{folder}/new/vocab")
raw_text_run = files_run(
    {**TEXTS, "json": b'{"text": "some words"}\n'},
    input_file="{folder}/words",
    output_file="{folder}/new/text@2.txt",
    language="de",
)
RELEASED = "{golden}/hub/albert_directory"
hub_run = files_run(
    {},
    albert_directory=RELEASED,
    export_path="{folder}/new/encoder",
    preprocessor_path="{folder}/new/preprocessor",
)
weights_run = files_run({}, albert_directory=RELEASED, export_path="{folder}/new/model.ckpt")
litert_run = files_run({}, model=RELEASED, output_file="{folder}/new/a.tflite", quantization="int8")
onnx_run = files_run({}, model=RELEASED, output_file="{folder}/new/a.onnx", quantization="int8")

ALL_ACTIONS = {"do_train": True, "do_eval": True, "do_predict": True}
# The module, the run, flags of all cases, and the cases.
COMMANDS = {
    "pretraining": (run_pretraining, pretraining_run, TRAINING, PRETRAINING),
    "classifier": (run_classifier, classifier_run, TRAINING, CLASSIFIER),
    "tokens": (run_token_classifier, token_run, ALL_ACTIONS, TOKENS),
    "race": (run_race, race_run, {}, RACE),
    "squad": (run_squad, squad_run, TRAINING, SQUAD),
    "records": (create_pretraining_data, records_run, {}, RECORDS),
    "vocabulary": (train_sentencepiece, vocabulary_run, {}, VOCABULARY),
    "text": (prepare_text, raw_text_run, {}, RAW_TEXT),
    "ablations": (run_ablations, ablation_run, {}, ABLATIONS),
    "conversion": (convert_checkpoint, conversion_run, {}, CONVERSION),
    "hub": (export_to_tfhub, hub_run, {}, HUB),
    "weights": (export_checkpoints, weights_run, {}, WEIGHTS),
    "litert": (export_litert, litert_run, {}, LITERT),
    "onnx": (export_onnx, onnx_run, {}, ONNX),
}


@pytest.fixture(scope="module")
def run_of(tmp_path_factory, golden):
    """Returns the files of a command, which are created once."""
    return functools.cache(lambda name: COMMANDS[name][1](tmp_path_factory.mktemp(name), golden))


@pytest.fixture(autouse=True)
def caches(tmp_path, monkeypatch):
    monkeypatch.setenv("ALBERT_TF_HOME", str(tmp_path / "cache"))


def error_of(name, flags, folder):
    """Returns the error of a command, in a dry run and a real run. The folder must not change."""
    module = COMMANDS[name][0]
    takes_arguments = module in (create_pretraining_data, run_ablations)
    arguments = [flags.pop("arguments", [])] if takes_arguments else []
    before, errors = contents(folder), []
    for is_dry in {flags.pop("dry_run", True), False}:
        with pytest.raises((ValueError, OSError)) as raised:
            run_here(module, {**flags, "dry_run": is_dry}, *arguments)
        assert contents(folder) == before
        errors.append(str(raised.value))
    (error,) = set(errors)
    return error


def contents(folder):
    """Returns the files in a folder. Locks change modification times, so these are not compared."""
    return {path: content for path, (_, content) in tree(folder).items()}


@pytest.mark.parametrize(
    ("name", "changes", "named"),
    [(name, *case) for name, (*_, cases) in COMMANDS.items() for case in cases],
)
def test_invalid_flags_are_rejected_before_writing(run_of, golden, name, changes, named):
    run = run_of(name)
    places = {"folder": run.folder, "golden": golden}
    changes = {
        flag: value.format(**places) if isinstance(value, str) else value
        for flag, value in changes.items()
    }
    flags = run.flags(**{**COMMANDS[name][2], **changes})
    assert named.format(**places) in error_of(name, flags, run.folder)


def test_squad_version_is_not_read_from_a_model_of_another_task(run_of, tmp_path):
    (tmp_path / "labels.json").write_text('{"task_name": "race", "settings": {}}')
    flags = {"do_predict": True, "squad_version": None, "output_dir": tmp_path}
    message = error_of("squad", run_of("squad").flags(**flags), tmp_path)
    assert "--squad_version" in message
    assert "'race'" in message


@pytest.mark.usefixtures("eager")
def test_a_damaged_record_later_in_the_file_is_reported(run_of, tmp_path):
    columns = pretraining_columns(10, seed=3)
    columns["input_ids"][6, 2] = 31
    file = write_records(tmp_path / "large", columns)
    flags = run_of("pretraining").flags(input_file=file, output_dir=tmp_path / "output")
    with pytest.raises(ValueError, match=re.escape(f"--input_file: {file}, record 7: ")):
        run_here(run_pretraining, flags)
