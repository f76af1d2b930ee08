"""Reading what runs on GLUE leave behind, finished or not."""

import math
from pathlib import Path

import pytest

from albert_tf.glue_results.runs import read_evaluations, read_runs, task_metrics

PROGRAMS = Path(__file__).parents[2] / "golden" / "data" / "programs"
RULE = "=" * 50 + "\n"


def write_run(folder: Path, blocks: dict[int, dict[str, float]], best: str | None) -> None:
    folder.mkdir(parents=True)
    text = ""
    for step, scores in blocks.items():
        lines = sorted(
            f"{key} = {value}\n" for key, value in {**scores, "global_step": step}.items()
        )
        text += "".join(lines) + "best = 0.9\n" + RULE
    (folder / "eval_results.txt").write_text(text)
    if best is not None:
        (folder / "best_trial.txt").write_text(best)


def test_files_of_the_original_program_are_read():
    assert read_evaluations(str(PROGRAMS / "classifier_mnli" / "eval_results.txt")) == {
        6: {"eval_accuracy": 0.33333334, "eval_loss": 1.7209111, "loss": 1.9180238}
    }
    # Arrays of many lines lie between the numbers.
    assert read_evaluations(str(PROGRAMS / "classifier_sts-b" / "eval_results.txt")) == {
        7: {"MSE": 6.744874, "eval_loss": 6.744874, "loss": 7.2254753, "pearson": 0.04229198}
    }


def test_the_best_checkpoint_counts_not_the_last(tmp_path):
    blocks = {100: {"eval_accuracy": 0.5}, 200: {"eval_accuracy": 0.7}, 300: {"eval_accuracy": 0.6}}
    write_run(tmp_path / "rte-seed3", blocks, "300:200:0.7")
    (run,) = read_runs(str(tmp_path))
    assert (run.task, run.seed, run.scores, run.problem) == ("rte", 3, {"eval_accuracy": 0.7}, "")
    assert run.score == 0.7


def test_an_evaluation_alone_counts_with_its_last_checkpoint(tmp_path):
    blocks = {20: {"eval_accuracy": 0.5}, 10: {"eval_accuracy": 0.7}}
    write_run(tmp_path / "mismnli-seed1", blocks, None)
    assert read_runs(str(tmp_path))[0].scores == {"eval_accuracy": 0.5}


def test_runs_come_by_task_and_seed_and_other_directories_are_left_alone(tmp_path):
    for name in (
        "wnli-seed10",
        "wnli-seed9",
        "cola-seed2",
        "cola-seed",
        "boolq-seed1",
        "old-cola-seed1",
    ):
        write_run(tmp_path / name, {1: {"matthew_corr": 0.1}}, "1:1:0.1")
    runs = read_runs(str(tmp_path))
    assert [(run.task, run.seed) for run in runs] == [("cola", 2), ("wnli", 9), ("wnli", 10)]


def test_runs_without_scores_say_why(tmp_path):
    (tmp_path / "cola-seed1").mkdir()
    write_run(tmp_path / "cola-seed2", {5: {"matthew_corr": math.nan}}, "5:-1:-inf")
    write_run(tmp_path / "cola-seed3", {5: {"matthew_corr": 0.2}}, "7:7:0.3")
    write_run(tmp_path / "cola-seed4", {5: {"matthew_corr": 0.2}}, "5:5:0.2")
    (tmp_path / "cola-seed4" / "run_glue.unfinished").write_text("--flags")
    runs = read_runs(str(tmp_path))
    assert [run.problem for run in runs] == [
        "no eval_results.txt",
        "no checkpoint has a score",
        "eval_results.txt has no results of step 7, the best one",
        "has not finished",
    ]
    assert all(run.scores == {} and run.score == -math.inf for run in runs)


def test_damaged_files_are_named(tmp_path):
    write_run(tmp_path / "cola-seed1", {5: {"matthew_corr": 0.2}}, "5;5")
    with pytest.raises(ValueError, match=r"cola-seed1/best_trial\.txt.*'5;5'"):
        read_runs(str(tmp_path))
    (tmp_path / "cola-seed1" / "best_trial.txt").write_bytes(b"5:5:0.2\xff")
    with pytest.raises(ValueError, match=r"cola-seed1/best_trial\.txt.*line 1"):
        read_runs(str(tmp_path))
    results = tmp_path / "cola-seed1" / "eval_results.txt"
    for content, key in [
        ("loss = 1.2.3\nglobal_step = 5\n", "loss"),
        ("loss = 1_0\nglobal_step = 5\n", "loss"),
        ("loss = \u0661\nglobal_step = 5\n", "loss"),
        ("global_step = 5_0\n", "global_step"),
        ("global_step = 5.0\n", "global_step"),
        (f"global_step = {'9' * 5000}\n", "global_step"),
    ]:
        results.write_text(content)
        with pytest.raises(ValueError, match=rf"eval_results\.txt: {key} ") as raised:
            read_runs(str(tmp_path))
        assert len(str(raised.value)) < 400
    results.write_bytes(b"loss = 1.5\n\xff\nglobal_step = 5\n")
    with pytest.raises(ValueError, match=r"eval_results\.txt.*line 2"):
        read_runs(str(tmp_path))


def test_line_ends_of_other_systems_are_read(tmp_path):
    path = tmp_path / "eval_results.txt"
    for end in ("\r\n", "\r", "\n"):
        path.write_bytes(f"loss = 1.5{end}global_step = 5{end}{'=' * 50}{end}".encode())
        assert read_evaluations(str(path)) == {5: {"loss": 1.5}}


@pytest.mark.parametrize("name", ["nothing", "missing"])
def test_a_directory_without_runs_is_refused(tmp_path, name):
    (tmp_path / "nothing").mkdir()
    with pytest.raises(ValueError, match=r"--results_dir.*rte-seed1"):
        read_runs(str(tmp_path / name))


def test_scores_are_those_the_benchmark_defines():
    assert task_metrics("cola") == ["matthew_corr"]
    assert task_metrics("mrpc") == task_metrics("qqp") == ["eval_accuracy", "f1"]
    assert task_metrics("sts-b") == ["pearson", "spearman"]
    others = ("mnli", "mismnli", "qnli", "rte", "sst-2", "wnli")
    assert all(task_metrics(task) == ["eval_accuracy"] for task in others)
