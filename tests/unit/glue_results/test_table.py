"""The table of all tasks and seeds: medians, spreads, what is missing, what was published."""

import io
import json
import math

import pytest
from matplotlib.image import imread

from albert_tf.glue_results.runs import GlueRun
from albert_tf.glue_results.table import summarize, write_results


def run(task, seed, problem="", **scores):
    return GlueRun(task, seed, f"results/{task}-seed{seed}", scores, problem)


RUNS = [
    run("mrpc", 1, eval_accuracy=0.80, f1=0.86, loss=9.0),
    run("mrpc", 2, eval_accuracy=0.90, f1=0.91),
    run("mrpc", 4, eval_accuracy=0.83, f1=math.nan),
    run("mnli", 7, eval_accuracy=0.8125),
    run("cola", 3, matthew_corr=-0.02),
    run("cola", 5, "has not finished"),
    run("ax", 7, "no eval_results.txt"),
]


def test_the_table_has_median_and_spread_in_the_order_of_glue(tmp_path):
    table = write_results(str(tmp_path), summarize(RUNS, {}), None, RUNS)
    assert table.splitlines() == [
        "| task | metric | median | min to max | seeds |",
        "| --- | --- | ---: | ---: | ---: |",
        "| CoLA | Matthews | -2.0 | -2.0 to -2.0 | 1 |",
        "| MRPC | accuracy | 83.0 | 80.0 to 90.0 | 3 |",
        "| MRPC | F1 | 88.5 | 86.0 to 91.0 | 2 |",
        "| MNLI-m | accuracy | 81.2 | 81.2 to 81.2 | 1 |",
        "",
        "In percent, on the development sets, at the best checkpoint of each run.",
        "Without a score: cola-seed5 (has not finished).",
    ]
    assert (tmp_path / "glue_results.md").read_text() == table


def test_published_scores_stand_beside_the_results(tmp_path):
    summaries = summarize(RUNS, {("mnli", "eval_accuracy"): 84.6})
    rows = write_results(str(tmp_path), summaries, "base_v2", RUNS).splitlines()
    assert rows[0].endswith("| published, base_v2 |")
    assert rows[2].endswith("| 1 | - |")
    assert rows[5].endswith("| 1 | 84.6 |")


def test_the_json_has_every_seed(tmp_path):
    write_results(str(tmp_path), summarize(RUNS, {("mrpc", "f1"): 91.5}), "base_v2", RUNS)
    content = json.loads((tmp_path / "glue_results.json").read_text())
    assert (content["model"], content["unit"]) == ("base_v2", "percent")
    f1 = content["scores"][2]
    assert (f1["task"], f1["metric"], f1["published"]) == ("mrpc", "f1", 91.5)
    assert f1["seeds"] == {"1": pytest.approx(86.0), "2": pytest.approx(91.0)}
    assert f1["median"] == pytest.approx(88.5)


def test_the_picture_grows_with_the_columns(tmp_path):
    widths = []
    for runs in (RUNS, RUNS[:3]):
        write_results(str(tmp_path), summarize(runs, {("mrpc", "f1"): 91.5}), "base_v2", runs)
        image = imread(io.BytesIO((tmp_path / "glue_results.png").read_bytes()))
        assert image[..., :3].min() < 0.5 < image[..., :3].max()
        widths.append(image.shape[1])
    assert widths[0] > widths[1]


def test_nothing_finished_yet_is_a_table_without_rows(tmp_path):
    runs = [run("rte", 1, "has not finished")]
    table = write_results(str(tmp_path), summarize(runs, {}), None, runs)
    assert "Without a score: rte-seed1 (has not finished)." in table
    assert json.loads((tmp_path / "glue_results.json").read_text())["scores"] == []
