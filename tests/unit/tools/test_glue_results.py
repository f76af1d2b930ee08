"""What runs on GLUE leave behind: read, in a table, and as a submission."""

import json
import math
import os
import zipfile
from pathlib import Path

import pytest

from albert_tf.config import PRESETS
from albert_tf.data.text_examples import GLUE_TASKS
from albert_tf.tools.glue_results import (
    GlueRun,
    choose_files,
    published_scores,
    read_evaluations,
    read_runs,
    summarize,
    task_metrics,
    write_results,
    write_submission,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "data"


class TestRuns:
    @staticmethod
    def write(folder: Path, blocks: dict[int, dict[str, float]], best: str | None) -> None:
        folder.mkdir(parents=True)
        text = ""
        for step, scores in blocks.items():
            values = {**scores, "global_step": step, "best": 0.9}
            text += "".join(f"{key} = {value}\n" for key, value in values.items()) + "=" * 50 + "\n"
        (folder / "eval_results.txt").write_text(text)
        if best is not None:
            (folder / "best_trial.txt").write_text(best)

    def test_files_of_the_original_program_are_read(self):
        programs = GOLDEN / "programs"
        assert read_evaluations(str(programs / "classifier_mnli" / "eval_results.txt")) == {
            6: {"eval_accuracy": 0.33333334, "eval_loss": 1.7209111, "loss": 1.9180238}
        }
        # Arrays of many lines lie between the numbers.
        assert read_evaluations(str(programs / "classifier_sts-b" / "eval_results.txt")) == {
            7: {"MSE": 6.744874, "eval_loss": 6.744874, "loss": 7.2254753, "pearson": 0.04229198}
        }

    @pytest.mark.parametrize(("best", "score"), [("300:200:0.7", 0.7), (None, 0.6)])
    def test_the_best_checkpoint_counts_or_the_last_of_an_evaluation_alone(
        self, tmp_path, best, score
    ):
        blocks = {step: {"eval_accuracy": v} for step, v in ((100, 0.5), (300, 0.6), (200, 0.7))}
        self.write(tmp_path / "rte-seed3", blocks, best)
        (run,) = read_runs(str(tmp_path))
        assert (run.task, run.seed, run.problem) == ("rte", 3, "")
        assert run.scores == {"eval_accuracy": score}
        assert run.score == score

    def test_runs_come_by_task_and_seed_and_other_directories_are_left_alone(self, tmp_path):
        for name in ("wnli-seed10", "wnli-seed9", "cola-seed2", "cola-seed", "old-cola-seed1"):
            self.write(tmp_path / name, {1: {"matthew_corr": 0.1}}, "1:1:0.1")
        runs = read_runs(str(tmp_path))
        assert [(run.task, run.seed) for run in runs] == [("cola", 2), ("wnli", 9), ("wnli", 10)]

    def test_runs_without_scores_have_a_problem(self, tmp_path):
        (tmp_path / "cola-seed1").mkdir()
        self.write(tmp_path / "cola-seed2", {5: {"matthew_corr": math.nan}}, "5:-1:-inf")
        self.write(tmp_path / "cola-seed3", {5: {"matthew_corr": 0.2}}, "7:7:0.3")
        self.write(tmp_path / "cola-seed4", {5: {"matthew_corr": 0.2}}, "5:5:0.2")
        (tmp_path / "cola-seed4" / "run_glue.unfinished").write_text("--flags")
        runs = read_runs(str(tmp_path))
        assert len(runs) == 4
        assert all(r.problem and r.scores == {} and r.score == -math.inf for r in runs)

    @pytest.mark.parametrize(
        ("content", "named"),
        [
            (b"loss = 1.2.3\nglobal_step = 5\n", "loss"),
            (b"loss = 1_0\nglobal_step = 5\n", "loss"),
            (b"global_step = 5.0\n", "global_step"),
            (b"global_step = " + b"9" * 5000, "global_step"),
            (b"loss = 1.5\n\xff\nglobal_step = 5\n", "line 2"),
        ],
    )
    def test_damaged_files_are_named(self, tmp_path, content, named):
        self.write(tmp_path / "cola-seed1", {5: {"matthew_corr": 0.2}}, "5;5")
        with pytest.raises(ValueError, match=r"cola-seed1/best_trial\.txt.*'5;5'"):
            read_runs(str(tmp_path))
        (tmp_path / "cola-seed1" / "eval_results.txt").write_bytes(content)
        with pytest.raises(ValueError, match=rf"eval_results\.txt.*{named}") as raised:
            read_runs(str(tmp_path))
        assert len(str(raised.value)) < 400

    @pytest.mark.parametrize("name", ["nothing", "missing"])
    def test_a_directory_without_runs_is_refused(self, tmp_path, name):
        (tmp_path / "nothing").mkdir()
        with pytest.raises(ValueError, match="--results_dir"):
            read_runs(str(tmp_path / name))


def test_scores_are_those_the_benchmark_defines():
    assert task_metrics("cola") == ["matthew_corr"]
    assert task_metrics("mrpc") == task_metrics("qqp") == ["eval_accuracy", "f1"]
    assert task_metrics("sts-b") == ["pearson", "spearman"]
    others = ("mnli", "mismnli", "qnli", "rte", "sst-2", "wnli")
    assert all(task_metrics(task) == ["eval_accuracy"] for task in others)


class TestPublishedScores:
    def test_a_released_model_by_its_name_or_configuration(self, tmp_path):
        scores = {("mnli", "eval_accuracy"): 81.6, ("sst-2", "eval_accuracy"): 90.3}
        assert published_scores("base_v1") == ("base_v1", scores)
        PRESETS["base_v1"].to_json_file(str(tmp_path / "albert_config.json"))
        assert published_scores(str(tmp_path)) == ("base_v1", scores)

    def test_other_models_have_none(self, tmp_path):
        config = PRESETS["base_v2"].replace(num_hidden_layers=6)
        config.to_json_file(str(tmp_path / "albert_config.json"))
        for model in (tmp_path, "base_zh", GOLDEN / "hub" / "module"):
            assert published_scores(str(model)) == (None, {})
        with pytest.raises(ValueError, match="--model"):
            published_scores(str(tmp_path / "no-such"))


def run(task, seed, problem="", **scores):
    return GlueRun(task, seed, f"results/{task}-seed{seed}", scores, problem)


RUNS = [
    run("mrpc", 1, eval_accuracy=0.80, f1=0.86, loss=9.0),
    run("mrpc", 2, eval_accuracy=0.90, f1=0.91),
    run("mrpc", 4, eval_accuracy=0.83, f1=math.nan),
    run("mnli", 7, eval_accuracy=0.8125),
    run("cola", 3, matthew_corr=-0.02),
    run("cola", 5, "has not finished"),
    run("ax", 7, "has not finished"),
]


class TestTable:
    def test_it_has_median_and_spread_in_the_order_of_glue(self, tmp_path):
        table = write_results(str(tmp_path), summarize(RUNS, {}), None, RUNS)
        assert (tmp_path / "glue_results.md").read_text() == table
        assert table.splitlines()[:6] == [
            "| task | metric | median | min to max | seeds |",
            "| --- | --- | ---: | ---: | ---: |",
            "| CoLA | Matthews | -2.0 | -2.0 to -2.0 | 1 |",
            "| MRPC | accuracy | 83.0 | 80.0 to 90.0 | 3 |",
            "| MRPC | F1 | 88.5 | 86.0 to 91.0 | 2 |",
            "| MNLI-m | accuracy | 81.2 | 81.2 to 81.2 | 1 |",
        ]
        assert "cola-seed5" in table
        assert "ax-seed7" not in table

    def test_published_scores_and_every_seed_stand_beside_the_results(self, tmp_path):
        rows = summarize(RUNS, {("mrpc", "f1"): 91.5})
        table = write_results(str(tmp_path), rows, "base_v2", RUNS).splitlines()
        assert table[0].endswith("| published, base_v2 |")
        assert [line.rsplit("|", 2)[1].strip() for line in table[2:6]] == ["-", "-", "91.5", "-"]
        content = json.loads((tmp_path / "glue_results.json").read_text())
        assert (content["model"], content["unit"]) == ("base_v2", "percent")
        f1 = content["scores"][2]
        assert (f1["task"], f1["metric"], f1["published"]) == ("mrpc", "f1", 91.5)
        assert f1["seeds"] == {"1": pytest.approx(86.0), "2": pytest.approx(91.0)}
        assert (f1["median"], f1["min"], f1["max"]) == pytest.approx((88.5, 86.0, 91.0))
        assert (tmp_path / "glue_results.png").read_bytes().startswith(b"\x89PNG")


class TestSubmission:
    @staticmethod
    def make(folder, task, seed, score=None, predicts=True):
        path = folder / f"{task}-seed{seed}"
        path.mkdir()
        if predicts:
            text = f"index\tprediction\n0\t{task}{seed}\n"
            (path / GLUE_TASKS[task].submission_file).write_text(text)
        scores = {} if score is None else {GLUE_TASKS[task].best_metric: score}
        return GlueRun(task, seed, str(path), scores)

    def test_the_best_seed_that_predicts_is_chosen_and_one_model_for_the_sets_of_mnli(
        self, tmp_path
    ):
        scores = [("rte", 1, 0.5), ("rte", 2, 0.7), ("cola", 1, 0.2), ("cola", 2, 0.2)]
        scores += [("mnli", 1, 0.5), ("mnli", 2, 0.7), ("mismnli", 1, 0.9), ("mismnli", 2, 0.3)]
        runs = [self.make(tmp_path, *each) for each in [*scores, ("ax", 1)]]
        runs.append(self.make(tmp_path, "rte", 3, 0.9, predicts=False))
        assert choose_files(runs) == {
            "rte": str(tmp_path / "rte-seed2" / "RTE.tsv"),
            "cola": str(tmp_path / "cola-seed1" / "CoLA.tsv"),
            "mnli": str(tmp_path / "mnli-seed2" / "MNLI-m.tsv"),
            "mismnli": str(tmp_path / "mismnli-seed2" / "MNLI-mm.tsv"),
        }

    def test_the_zip_has_the_names_and_contents_and_is_the_same_every_time(self, tmp_path):
        files = choose_files([self.make(tmp_path, task, 1, 0.5) for task in GLUE_TASKS])
        write_submission(str(tmp_path / "1.zip"), files)
        with zipfile.ZipFile(tmp_path / "1.zip") as archive:
            assert set(archive.namelist()) == {task.submission_file for task in GLUE_TASKS.values()}
            assert archive.read("MNLI-mm.tsv") == b"index\tprediction\n0\tmismnli1\n"
        for path in files.values():
            os.utime(path, (10**9, 10**9))
        write_submission(str(tmp_path / "2.zip"), dict(reversed(files.items())))
        assert (tmp_path / "1.zip").read_bytes() == (tmp_path / "2.zip").read_bytes()

    def test_missing_tasks_are_an_error_unless_they_may_be(self, tmp_path):
        files = choose_files([self.make(tmp_path, "qqp", 1, 0.5)])
        with pytest.raises(ValueError, match=r"--submission.*cola.*ax.*--allow_missing"):
            write_submission(str(tmp_path / "out.zip"), files)
        with pytest.raises(ValueError, match="--submission"):
            write_submission(str(tmp_path / "out.zip"), {}, allow_missing=True)
        assert not (tmp_path / "out.zip").exists()
        write_submission(str(tmp_path / "out.zip"), files, allow_missing=True)
        assert zipfile.ZipFile(tmp_path / "out.zip").namelist() == ["QQP.tsv"]
