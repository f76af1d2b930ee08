"""`--dry_run` of the commands that fine-tune: all is checked, nothing is written."""

import json
import re
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pytest

from albert_tf.checkpoints.original import original_names, write_checkpoint
from albert_tf.cli import run_classifier, run_race, run_squad
from albert_tf.data.text_examples import Labels, TextExample
from albert_tf.data.text_features import text_lengths, text_sequences
from albert_tf.fine_tuning import plan as fine_tuning_plan
from albert_tf.model_files.tokenizer import load_tokenizer
from albert_tf.model_files.trained_task import TrainedTask
from albert_tf.models import AlbertForClassification
from tests.choice_run import ChoiceRun
from tests.classifier_run import LABELS, ClassifierRun
from tests.dry_runs import blocks, run_here, tree
from tests.squad_run import SquadRun

KINDS = {
    "classifier": (run_classifier, ClassifierRun, {"do_eval": True, "do_predict": True}),
    "squad": (run_squad, SquadRun, {"do_predict": True}),
    "race": (run_race, ChoiceRun, {"do_eval": True, "do_predict": True}),
}


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def command(kind, tmp_path, golden):
    """The module of a command, a run of it, and the flags of all it does."""
    module, run, actions = KINDS[kind]
    return module, run(tmp_path, golden), {**actions, "do_train": True, "dry_run": True}


def test_the_plan_is_printed_and_nothing_is_written(command, tmp_path, capsys):
    module, run, actions = command
    before = tree(tmp_path)
    run_here(module, run.flags(**actions))
    assert tree(tmp_path) == before
    printed = capsys.readouterr().out
    plan = blocks(printed)
    assert "Starting from random weights" in plan["Start"]["weights"]
    assert plan["Checkpoints"]["to be written"] == "3, after steps 2, 4, 6"
    assert plan["Evaluation"]["when"] == "at each of the 3 checkpoints"
    assert "model.ckpt-best.*" in plan["Files"][f"in {run.output}"]
    assert printed.endswith("This was a dry run: nothing was written.\n")


@pytest.mark.parametrize("kind", ["classifier"], indirect=True)
def test_the_load_report_is_that_of_the_weights(command, capsys):
    module, run, actions = command
    run_here(module, run.flags(**actions, init_checkpoint=run.pretrained()))
    start = blocks(capsys.readouterr().out)["Start"]
    assert start["weights"].startswith(f"Starting from {run.folder}/pretrained.ckpt: ")
    assert "not in the checkpoint, freshly initialised: output_weights" in start.values()


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("classifier", {"export_dir": "file/export"}, "--export_dir .* cannot be written to"),
        ("classifier", {"output_dir": "file"}, "--output_dir .* cannot be written to"),
        (
            "classifier",
            {"output_dir": "in_use"},
            "--output_dir 'in_use' has a folder metrics",
        ),
        (
            "classifier",
            {"dev_file": "train.csv", "label_column": "grade"},
            "no column named 'grade'",
        ),
        ("classifier", {"max_seq_length": 25}, "--max_seq_length"),
        ("classifier", {"predict_file": "file", "predict_output_file": "."}, "is a folder"),
        ("classifier", {"predict_output_file": "a"}, "--predict_output_file=a .* not given"),
        (
            "classifier",
            {"predict_file": "file", "predict_output_file": "./file"},
            "--predict_output_file would overwrite --predict_file: file",
        ),
        (
            "classifier",
            {"export_dir": "in_use", "export_text_model": True},
            "--export_dir 'in_use/text' cannot be written to",
        ),
        ("squad", {"export_dir": "in_use"}, "--export_dir 'in_use/saved_model' cannot be written"),
        ("squad", {"export_dir": "tflite"}, "--export_dir: tflite/albert_model.tflite is a folder"),
        ("squad", {"n_best_size": 0}, "--n_best_size"),
        ("race", {"train_batch_size": 0}, "--train_batch_size"),
        ("race", {"test_choices": "file"}, "--test_choices"),
    ],
    indirect=["kind"],
)
def test_what_the_real_run_would_complain_of_is_an_error(
    command, changes, message, tmp_path, monkeypatch
):
    module, run, actions = command
    (tmp_path / "file").write_text("in the way\n")
    (tmp_path / "in_use").mkdir()
    for name in ("text", "saved_model"):
        (tmp_path / "in_use" / name).write_text("in the way\n")
    (tmp_path / "in_use" / "metrics.jsonl").mkdir()
    (tmp_path / "tflite" / "albert_model.tflite").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    before = tree(tmp_path)
    for is_dry in (True, False):
        with pytest.raises(ValueError, match=message):
            run_here(module, run.flags(**{**actions, **changes, "dry_run": is_dry}))
        assert tree(tmp_path) == before


def write_classifiers(run: ClassifierRun, *steps: int) -> None:
    """Writes random weights as checkpoints of a training, and what they were trained for."""
    run.output.mkdir()
    task = TrainedTask("custom", Labels(LABELS), False, {"text_a_column": "review"}, 24)
    task.write(str(run.output))
    weights = original_names(AlbertForClassification(run.config, num_labels=3))
    moments = {
        f"{name}/{slot}": np.zeros(weight.shape, np.float32)
        for name, weight in weights.items()
        for slot in ("adam_m", "adam_v")
    }
    for step in steps:
        write_checkpoint(f"{run.output}/model.ckpt-{step}", {**weights, **moments}, step)


@pytest.mark.parametrize("kind", ["classifier"], indirect=True)
def test_a_run_that_goes_on_says_where_in_its_input(command, tmp_path, capsys):
    module, run, actions = command
    write_classifiers(run, 4)
    before = tree(tmp_path)
    run_here(module, run.flags(**actions))
    assert tree(tmp_path) == before
    plan = blocks(capsys.readouterr().out)
    assert plan["Start"]["weights"].startswith(f"Resuming from {run.output}/model.ckpt-4 at step 4")
    assert plan["Start"]["input"] == "from the beginning, in another order"
    assert plan["Training"]["steps"] == "2: from step 4 to 6"
    assert plan["Evaluation"]["before"] == "step 4, which was saved and not evaluated"


@pytest.mark.parametrize("kind", ["classifier"], indirect=True)
def test_every_checkpoint_to_evaluate_is_read(command, tmp_path, capsys):
    """The real run finds out that the second is damaged when it has evaluated the first."""
    module, run, _ = command
    write_classifiers(run, 2, 4)
    flags = run.flags(do_eval=True, do_predict=True, dry_run=True)
    before = tree(tmp_path)
    run_here(module, flags)
    assert tree(tmp_path) == before
    plan = blocks(capsys.readouterr().out)
    assert plan["Evaluation"]["checkpoint 2"] == f"{run.output}/model.ckpt-4"
    assert plan["Applying"]["checkpoint"] == "the best"
    data = run.output / "model.ckpt-4.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"model\.ckpt-4.* is damaged"):
        run_here(module, flags)


def stands_for(pattern: str, name: str) -> bool:
    """Whether a name in a plan means a file, or folder, that was written."""
    return fnmatch(name, pattern.replace("<step>", "[0-9]*").rstrip("/"))


def check_files(plan: dict[str, dict[str, str]], folder: Path) -> set[str]:
    """Compares the names in a folder with those a plan has for it, and returns them."""
    names = {path.name for path in folder.iterdir()}
    planned = plan["Files"][f"in {folder}"].split(", ")
    assert {n for n in names if not any(stands_for(p, n) for p in planned)} == set()
    assert {p for p in planned if not any(stands_for(p, n) for n in names)} == set()
    return names


@pytest.mark.slow
def test_the_run_does_what_its_plan_says(command, tmp_path, capsys):
    """Steps, examples and checkpoints, and every file; then there is nothing left to do."""
    module, run, actions = command
    run_here(module, run.flags(**actions))
    plan = blocks(capsys.readouterr().out)
    printed = run.must_work(**{**actions, "dry_run": False})
    names = check_files(plan, run.output)
    steps = sorted(int(name[11:-6]) for name in names if re.match(r"model.ckpt-\d+\.index", name))
    assert plan["Checkpoints"]["to be written"].endswith(", ".join(map(str, steps)))
    assert max(run.metrics("train")) == 6
    config = json.loads((run.output / "run_config.json").read_text())["config"]
    assert plan["Training"]["examples to train on"] == str(config["input"]["examples"])
    if module is run_classifier:
        cut = [plan[f"Data: {split}"]["cut at 24 tokens"] for split in ("train", "dev", "test")]
        logged = re.findall(r"truncated=(\d+) of=(\d+)", printed)
        assert [f"{a} of {b}" for a, b in logged] == [text.split(" (")[0] for text in cut]
    run_here(module, run.flags(**actions))
    plan = blocks(capsys.readouterr().out)
    assert plan["Start"]["weights"].startswith(f"Resuming from {run.output}/model.ckpt-6 at step 6")
    assert plan["Checkpoints"]["to be written"] == "none"
    assert "nothing to train" in plan["Warnings"]["steps"]
    assert "before" not in plan["Evaluation"]
    further = {"num_train_epochs": 3.0} if module is run_squad else {"train_step": 9}
    run_here(module, run.flags(**actions, **further))
    plan = blocks(capsys.readouterr().out)
    assert plan["Start"]["input"] == "where the run stopped"
    assert plan["Training"]["steps"] == "3: from step 6 to 9"
    applied = {
        **{**actions, "do_train": False, "dry_run": False},
        "output_dir": tmp_path / "second",
        "checkpoint": run.output / "model.ckpt-best",
        "export_dir": tmp_path / "export",
        "export_text_model": True,
    }
    run_here(module, run.flags(**{**applied, "dry_run": True}))
    assert not (tmp_path / "second").exists()
    plan = blocks(capsys.readouterr().out)
    run.must_work(**applied)
    check_files(plan, tmp_path / "second")
    exported = [path.parent for path in (tmp_path / "export").rglob("saved_model.pb")]
    planned = plan["Files"]["--export_dir"].split(", ")
    assert sorted(str(path.parent / "<seconds>") + "/" for path in exported) == sorted(planned)


@pytest.mark.parametrize(("most", "counted"), [(10, "a sample of 4 rows"), (17, "all rows")])
def test_of_many_texts_a_sample_is_tokenized(most, counted, golden, monkeypatch):
    monkeypatch.setattr(fine_tuning_plan, "_MOST_TOKENIZED", most)
    monkeypatch.setattr(fine_tuning_plan, "_SAMPLE", 4)
    tokenizer = load_tokenizer(str(golden / "tokenizer" / "small_1000.model"))
    rows = [TextExample(str(n), " ".join(["the"] * n), label="a") for n in range(17)]
    block = fine_tuning_plan.text_block("f", rows, Labels(("a", "b")), tokenizer, 12)
    assert block["examples"] == 17
    assert block["tokens counted in"] == counted
    longest = len(tokenizer.encode(rows[-1].text_a)) + 2
    assert block["tokens"].endswith(f"longest {longest}")
    lengths = text_lengths(rows, tokenizer)
    cut = int((lengths > 12).sum())
    assert (block["cut at 12 tokens"] == f"{cut} of 17 ({cut / 17:.1%})") == (most == 17)
    kept = text_sequences(rows, tokenizer, 12).lengths
    assert (kept == np.minimum(lengths, 12)).all()
