"""Results of GLUE runs: reading, table, submission."""

import json
import math
import zipfile
from pathlib import Path

import pytest

from albert_tf.glue import GLUE_TASKS
from albert_tf.tools.commands import read_evaluations
from albert_tf.tools.glue_results import read_runs, write_results, write_submission

GOLDEN = Path(__file__).parents[2] / "golden" / "data"


def test_results_of_the_original_program_are_read():
    found = read_evaluations(str(GOLDEN / "programs" / "classifier_mnli"))
    assert found == {6: {"eval_accuracy": 0.33333334, "eval_loss": 1.7209111, "loss": 1.9180238}}
    (scores,) = read_evaluations(str(GOLDEN / "programs" / "classifier_sts-b")).values()
    assert scores["pearson"] == 0.04229198  # follows arrays of many lines


def write_run(path, scores, best=None):
    """Writes the directory of a run with the scores of each step."""
    path.mkdir(parents=True)
    for step, values in scores.items():
        block = {**values, "global_step": step, "best": 0.9}
        with open(path / "eval_results.txt", "a") as file:
            file.writelines([*(f"{k} = {v}\n" for k, v in block.items()), "=" * 50 + "\n"])
    if best:
        (path / "best_trial.txt").write_text(best)


def test_a_run_has_the_scores_of_its_best_checkpoint(tmp_path):
    steps = {step: {"eval_accuracy": v} for step, v in ((100, 0.5), (300, 0.6), (200, 0.7))}
    write_run(tmp_path / "rte-seed3", steps, "300:200:0.7")
    write_run(tmp_path / "mismnli-seed10", steps)  # evaluated only: the last step counts
    write_run(tmp_path / "wnli-seed1", steps, "400:400:0.8")
    write_run(tmp_path / "wnli-seed2", {5: {"eval_accuracy": math.nan}}, "5:5:-1")
    write_run(tmp_path / "wnli-seed4", steps, "300:200:0.7")
    (tmp_path / "wnli-seed4" / "run_glue.unfinished").touch()
    for name in ("cola-seed", "old-cola-seed1"):
        write_run(tmp_path / name, steps)
    assert read_runs(str(tmp_path)) == {
        "rte": {3: {"eval_accuracy": 0.7}},
        "mismnli": {10: {"eval_accuracy": 0.6}},
        "wnli": {1: {}, 2: {}, 4: {}},
    }


def test_directories_without_runs_and_damaged_files_are_rejected(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ValueError, match="`results_dir`"):
            read_runs(str(folder))
    write_run(tmp_path / "cola-seed1", {5: {"matthew_corr": 0.2}}, "5;5")
    with pytest.raises(ValueError, match=r"cola-seed1/best_trial\.txt"):
        read_runs(str(tmp_path))


RUNS = {
    "mrpc": {
        4: {"eval_accuracy": 0.83},
        1: {"eval_accuracy": 0.80, "f1": 0.86, "loss": 9.0},
        2: {"eval_accuracy": 0.90, "f1": 0.91},
    },
    "mnli": {7: {"eval_accuracy": 0.8125}},
    "cola": {3: {"matthew_corr": -0.02}, 5: {}},
    "ax": {7: {}},
}


def test_the_table_has_median_spread_and_published_scores(tmp_path):
    table = write_results(str(tmp_path), RUNS, "base_v1")
    assert (tmp_path / "glue_results.md").read_text() == table
    assert table.splitlines()[:6] == [
        "| task | metric | median | min to max | seeds | published, base_v1 |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
        "| CoLA | Matthews | -2.0 | -2.0 to -2.0 | 1 | - |",
        "| MRPC | accuracy | 83.0 | 80.0 to 90.0 | 3 | - |",
        "| MRPC | F1 | 88.5 | 86.0 to 91.0 | 2 | - |",
        "| MNLI-m | accuracy | 81.2 | 81.2 to 81.2 | 1 | 81.6 |",
    ]
    assert "cola-seed5" in table
    assert "ax-seed7" not in table  # has no labels
    content = json.loads((tmp_path / "glue_results.json").read_text())
    assert content["scores"][2]["seeds"] == {"1": pytest.approx(86.0), "2": pytest.approx(91.0)}
    assert (tmp_path / "glue_results.png").read_bytes().startswith(b"\x89PNG")
    for model in (None, "base_zh", str(GOLDEN / "hub" / "module")):
        assert "published" not in write_results(str(tmp_path), RUNS, model)
    with pytest.raises(ValueError, match="no-such"):
        write_results(str(tmp_path), RUNS, "no-such")


@pytest.mark.parametrize(
    ("scores", "is_constant"),
    [
        ([{"eval_accuracy": 0.68, "f1": 0.81}] * 2, True),
        ([{"eval_accuracy": 0.68, "f1": 0.81}, {"eval_accuracy": 0.68, "f1": 0.8}], False),
        ([{"eval_accuracy": 0.68}], False),
    ],
)
def test_constant_answers_are_noted(scores, is_constant, tmp_path):
    runs = {"mrpc": dict(enumerate(scores)), "cola": {1: {"matthew_corr": 0.2}}}
    table = write_results(str(tmp_path), runs, "mini")
    assert ("\nmrpc: all seeds have the same scores" in table) == is_constant
    assert "cola: all" not in table
    assert "\nModel: mini.\n" in table
    assert json.loads((tmp_path / "glue_results.json").read_text())["model"] == "mini"
    runs = {"cola": {1: {"matthew_corr": 0.0}}}
    assert "cola: all seeds have the same scores" in write_results(str(tmp_path), runs)


def write_predictions(folder, *runs):
    for task, seed in runs:
        path = folder / f"{task}-seed{seed}"
        path.mkdir()
        (path / GLUE_TASKS[task].submission_file).write_text(f"index\tprediction\n0\t{task}{seed}")


def test_the_best_seed_with_predictions_is_submitted(tmp_path):
    scores = {
        "rte": {1: 0.5, 2: 0.7, 3: 0.9},
        "mnli": {1: 0.5, 2: 0.7},
        "mismnli": {1: 0.9, 2: 0.3},
    }
    runs = {t: {n: {"eval_accuracy": v} for n, v in s.items()} for t, s in scores.items()}
    runs |= {"cola": {1: {"matthew_corr": 0.2}, 2: {"matthew_corr": 0.2}}, "ax": {1: {}}}
    present = [(task, seed) for task in runs for seed in runs[task] if (task, seed) != ("rte", 3)]
    write_predictions(tmp_path, *present)
    path, expected = str(tmp_path / "some.zip"), ("cola-seed1", "mismnli-seed2", "mnli-seed2")
    found = write_submission(path, str(tmp_path), runs, allow_missing=True)
    assert tuple(Path(file).parent.name for file in found) == (*expected, "rte-seed2")
    with zipfile.ZipFile(path) as archive:
        assert archive.read("MNLI-mm.tsv").endswith(b"mismnli2")


def test_a_submission_requires_all_tasks(tmp_path):
    write_predictions(tmp_path, *((task, 1) for task in GLUE_TASKS))
    runs = {task: {1: {}} for task in GLUE_TASKS}
    write_submission(str(tmp_path / "all.zip"), str(tmp_path), runs)
    with zipfile.ZipFile(tmp_path / "all.zip") as archive:
        assert set(archive.namelist()) == {task.submission_file for task in GLUE_TASKS.values()}
    for some, is_allowed in (({"qqp": {1: {}}}, False), ({}, True)):
        path = str(tmp_path / "some.zip")
        with pytest.raises(ValueError, match=r"some\.zip.*cola"):
            write_submission(path, str(tmp_path), some, allow_missing=is_allowed)
    assert not (tmp_path / "some.zip").exists()
