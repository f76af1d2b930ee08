"""Results of the comparisons: read from directories, brought into a table."""

import json

import pytest

from albert_tf.ablations.comparisons import Variant
from albert_tf.ablations.picture import draw_curves
from albert_tf.ablations.results import markdown_table, read_run, rows, run_name, write_results
from tests.small_model import small_config

BASE = small_config(num_hidden_groups=1)
MODELS = [Variant("base", "base"), Variant("sharing", "none", {"parameter_sharing": "none"})]


def leave(path, *, accuracy, order=None, step=20, speeds=(8.0, 2.0, 9.0)):
    """What a run leaves behind."""
    path.mkdir(parents=True)
    lines = ["loss = 3.5", "masked_lm_loss = 3.25", f"masked_lm_accuracy = {accuracy}"]
    lines += [f"sentence_order_accuracy = {order}"] if order else []
    lines.append(f"global_step = {step}")
    (path / "eval_results.txt").write_text("\n".join(lines) + "\n")
    records = [
        {"step": 5 * n, "phase": "train", "time": "", "examples_per_second": speed}
        for n, speed in enumerate(speeds)
    ]
    records += [
        {"step": step // 2, "phase": "eval", "time": "", "masked_lm_accuracy": accuracy / 2},
        {"step": step, "phase": "eval", "time": "", "masked_lm_accuracy": accuracy},
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))


@pytest.fixture
def runs(tmp_path):
    """Two seeds of the base and one of a model that shares nothing."""
    found = []
    for model, seed, accuracy in [(0, 4, 0.25), (0, 5, 0.125), (1, 4, 0.5)]:
        path = tmp_path / run_name(MODELS[model], seed)
        leave(path, accuracy=accuracy, order=0.75 if model == 0 else None)
        found.append(read_run(MODELS[model], seed, BASE, str(path), {}))
    return found


def test_a_run_is_its_last_evaluation_its_curve_and_its_median_speed(runs):
    run = runs[0]
    assert (run.seed, run.steps) == (4, 20)
    assert run.scores["masked_lm_accuracy"] == 0.25
    assert run.scores["examples_per_second"] == 8.0
    assert run.curve == {10: 0.125, 20: 0.25}
    assert runs[2].encoder_parameters > run.encoder_parameters


def test_the_head_of_sentence_pairs_is_counted_where_there_is_one(tmp_path):
    counts = {}
    for loss in ("sop", "none"):
        leave(tmp_path / loss, accuracy=0.5)
        variant = Variant("sentence_loss", loss, {}, loss)
        counts[loss] = read_run(variant, 1, BASE, str(tmp_path / loss), {}).parameters
    assert counts["sop"] - counts["none"] == 12 * 2 + 2


def test_an_evaluation_as_another_loss_adds_its_accuracy_alone(tmp_path):
    leave(tmp_path / "run", accuracy=0.25, order=0.75)
    folder = tmp_path / "run" / "as_nsp"
    folder.mkdir()
    text = "global_step = 20\nmasked_lm_accuracy = 0.9\nnext_sentence_accuracy = 0.625\n"
    (folder / "eval_results.txt").write_text(text)
    scores = read_run(MODELS[0], 1, BASE, str(tmp_path / "run"), {"nsp": str(folder)}).scores
    assert scores["next_sentence_accuracy"] == 0.625
    assert scores["masked_lm_accuracy"] == 0.25
    (folder / "eval_results.txt").write_text(text.replace("20", "10"))  # of an earlier checkpoint
    scores = read_run(MODELS[0], 1, BASE, str(tmp_path / "run"), {"nsp": str(folder)}).scores
    assert "next_sentence_accuracy" not in scores


def test_a_run_without_an_evaluation_is_none(tmp_path):
    assert read_run(MODELS[0], 1, BASE, str(tmp_path / "missing"), {}) is None


def test_the_table_gives_the_spread_of_seeds_and_leaves_out_empty_columns(runs):
    header, base, none = rows(runs)
    assert "next sentence" not in header
    base, none = dict(zip(header, base, strict=True)), dict(zip(header, none, strict=True))
    assert base["masked-LM accuracy"] == "18.8 (12.5 to 25.0)"
    assert base["seeds"] == "2"
    assert none["masked-LM accuracy"] == "50.0"
    assert none["masked-LM loss"] == "3.250"
    assert (base["sentence order"], none["sentence order"]) == ("75.0 (75.0 to 75.0)", "-")
    assert none["comparison"] == "what layers share"


def test_files_agree_with_each_other(runs, tmp_path):
    table = write_results(str(tmp_path / "out"), runs, draw_curves(runs))
    assert (tmp_path / "out" / "ablations.md").read_text() == table == markdown_table(runs)
    lines = (tmp_path / "out" / "ablations.tsv").read_text().splitlines()
    assert [line.split("\t") for line in lines] == rows(runs)
    content = json.loads((tmp_path / "out" / "ablations.json").read_text())
    assert [run["seed"] for run in content] == [4, 5, 4]
    assert content[2]["changes"] == {"parameter_sharing": "none"}
    assert content[2]["source"] == "table 4"
    assert (tmp_path / "out" / "ablations.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("chosen", [slice(2), slice(2, None)])  # the base alone, and without it
def test_a_picture_can_be_drawn_of_what_there_is(runs, chosen):
    assert draw_curves(runs[chosen]).startswith(b"\x89PNG")
