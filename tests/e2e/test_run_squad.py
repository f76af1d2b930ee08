"""The command `run_squad.py`: training, evaluation, prediction, and the files they write."""

import json
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.squad.words import whole_words
from tests.run_in_process import run_command
from tests.serving import serve_texts
from tests.squad_run import FILES, SquadRun, without_answers

# Flags that a trained model makes superfluous.
FROM_OUTPUT = dict.fromkeys(
    ("squad_version", "albert_config_file", "spm_model_file", "vocab_file", "train_file",
     "max_seq_length", "doc_stride", "max_query_length")
)  # fmt: skip
METRICS = {1: "f1", 2: "best_f1"}
RULE = "=" * 50 + "\n"


@pytest.fixture(
    scope="module", params=[pytest.param(1, marks=pytest.mark.slow), 2], ids=["v1", "v2"]
)
def trained(request, tmp_path_factory, golden):
    run = SquadRun(tmp_path_factory.mktemp("trained"), golden, version=request.param)
    run.printed = run.must_work(do_train=True, do_predict=True, export_dir=run.folder / "export")
    return run


@pytest.fixture
def copied(trained, tmp_path, golden):
    """Returns a run in a copy of the trained directory."""
    run = SquadRun(tmp_path, golden, version=trained.version)
    shutil.copytree(trained.output, run.output)
    return run


def blocks(path):
    """Returns the blocks of an eval_results.txt, and the text after them."""
    *parts, ending = path.read_text().split(RULE)
    return [dict(line.split(" = ") for line in part.splitlines()) for part in parts], ending


class TestTraining:
    def test_scores_every_checkpoint_and_keeps_the_best(self, trained):
        results, ending = blocks(trained.output / "eval_results.txt")
        assert [block["global_step"] for block in results] == ["2", "4", "6"]
        scores = [float(block[METRICS[trained.version]]) for block in results]
        best = max(zip(scores, (2, 4, 6), strict=True))[1]
        assert (trained.output / "best_trial.txt").read_text() == f"6:{best}:{max(scores)}"
        assert ending.endswith(f"best perf happened at step: {best}")
        stored = tf.train.load_checkpoint(str(trained.output / "model.ckpt-best"))
        assert stored.get_tensor("global_step") == best
        for step, block in zip((2, 4, 6), results, strict=True):
            recorded = trained.metrics("eval")[step]
            for name in ("f1", "exact_match", "exact", "total"):
                assert (name in block) == (name in recorded)
                if name in block:
                    assert float(block[name]) == pytest.approx(recorded[name], abs=1e-9), name

    def test_the_number_of_steps_counts_questions(self, trained):
        found = re.search(
            r"original: 6 steps, and each of (\d+) windows is trained on (\S+) times",
            trained.printed,
        )
        assert int(found[1]) > 15
        assert found[2] == f"{6 * 5 / int(found[1]):.2f}"

    def test_writes_a_complete_model(self, trained):
        names = {path.name for path in trained.output.iterdir()}
        assert names >= {"30k-clean.model", "albert_config.json", "run_config.json", *FILES}
        assert ("null_odds.json" in names) == (trained.version == 2)
        description = json.loads((trained.output / "labels.json").read_text())
        assert description["task_name"] == {1: "squad1.1", 2: "squad2.0"}[trained.version]
        assert description["settings"]["doc_stride"] == 11
        (exported,) = (trained.folder / "export" / "saved_model").iterdir()
        assert (exported / "saved_model.pb").exists()
        others = {path.name for path in (trained.folder / "export").iterdir()} - {"saved_model"}
        assert others == ({"albert_model.tflite"} if trained.version == 1 else set())

    def test_answers_are_parts_of_the_contexts(self, trained):
        content = json.loads((trained.folder / "dev.json").read_text())
        answers = trained.predictions()
        assert list(answers) == trained.ids()
        for paragraph in content["data"][0]["paragraphs"]:
            assert answers[paragraph["qas"][0]["id"]] in paragraph["context"]


class TestWithoutTraining:
    @pytest.mark.usefixtures("eager")
    def test_predicts_with_a_checkpoint_of_another_directory(self, copied):
        """Answers do not depend on batches and padding."""
        expected = json.loads((copied.output / FILES[1]).read_text())
        checkpoint = copied.output / "model.ckpt-best"
        copied.output = copied.folder / "elsewhere"
        run_command(
            copied,
            **FROM_OUTPUT,
            do_predict=True,
            checkpoint=checkpoint,
            predict_batch_size=3,
            padding="buckets",
        )
        assert list(copied.predictions()) == copied.ids()
        assert not (copied.output / "best_trial.txt").exists()
        stored = json.loads((copied.output / "labels.json").read_text())
        assert stored["settings"]["doc_stride"] == 11
        written = json.loads((copied.output / FILES[1]).read_text())
        for qas_id, entries in expected.items():
            ours, theirs = (
                [entry["start_log_prob"] for entry in found] for found in (written[qas_id], entries)
            )
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)
        results, ending = blocks(copied.output / "eval_results.txt")
        assert len(results) == 1
        assert ending.endswith(f"step: {results[0]['global_step']}")

    @pytest.mark.usefixtures("traced", "optimized_graphs")
    def test_questions_without_answers_are_answered(self, copied):
        (copied.output / "eval_results.txt").unlink()
        expected = copied.predictions()
        path = without_answers(copied.folder / "asked.json", copied.folder / "dev.json")
        printed = copied.must_work(
            **FROM_OUTPUT,
            do_predict=True,
            predict_file=path,
            predict_json=path,
            predict_output_file=copied.folder / "answers.jsonl",
        )
        assert copied.predictions() == expected  # the threshold is the one evaluation chose
        lines = (copied.folder / "answers.jsonl").read_text().splitlines()
        paragraphs = json.loads(path.read_text())["data"][0]["paragraphs"]
        for row, paragraph in zip(map(json.loads, lines), paragraphs, strict=True):
            original, answer = expected[row["id"]], row["answer"]
            assert original in answer
            assert bool(original) == bool(answer)
            if answer:
                span = row["start"], row["end"]
                assert whole_words(paragraph["context"], *span) == span
        answerer = albert_tf.QuestionAnswerer.load(
            copied.output, batch_size=4, n_best_size=7, max_answer_length=5
        )
        questions = [paragraph["qas"][0]["question"] for paragraph in paragraphs]
        found = answerer(questions, contexts=[p["context"] for p in paragraphs])
        objects = [a.to_json(name) for name, a in zip(copied.ids(), found, strict=True)]
        assert [json.loads(line) for line in lines] == objects  # all digits of floats are equal
        assert not (copied.output / "eval_results.txt").exists()
        assert "RANDOM WEIGHTS" not in printed

    @pytest.mark.slow
    def test_the_exported_text_model_gives_the_same_answers(self, copied):
        export = copied.folder / "export"
        dev, written = copied.folder / "dev.json", copied.folder / "answers.jsonl"
        copied.must_work(
            **FROM_OUTPUT,
            export_dir=export,
            export_text_model=True,
            predict_json=dev,
            predict_output_file=written,
        )
        (path,) = (export / "text").iterdir()
        content = json.loads(dev.read_text())
        paragraphs = content["data"][0]["paragraphs"]
        texts = {
            "contexts": [paragraph["context"] for paragraph in paragraphs],
            "questions": [paragraph["qas"][0]["question"] for paragraph in paragraphs],
        }
        (answer,) = serve_texts(copied.folder, [(str(path), texts)])
        expected = [*map(json.loads, written.read_text().splitlines())]
        assert [text.decode() for text in answer["answers"]] == [row["answer"] for row in expected]
        for row, entry in zip(answer["n_best_probabilities"], expected, strict=True):
            own = [candidate["probability"] for candidate in entry["n_best"]]
            np.testing.assert_allclose(row[: len(own)], own, rtol=0, atol=1e-5)
        if copied.version == 2:
            odds = json.loads((copied.output / "null_odds.json").read_text())
            np.testing.assert_allclose(answer["null_odds"], list(odds.values()), rtol=0, atol=1e-5)

    @pytest.mark.slow
    def test_all_checkpoints_are_scored_on_request(self, copied):
        best = (copied.output / "best_trial.txt").read_text()
        (copied.output / "best_trial.txt").unlink()
        expected = blocks(copied.output / "eval_results.txt")
        copied.must_work(**FROM_OUTPUT, do_predict=True, checkpoint="all")
        assert (copied.output / "best_trial.txt").read_text() == best
        assert blocks(copied.output / "eval_results.txt") == expected


@pytest.mark.slow
def test_a_null_threshold_leaves_questions_unanswered(tmp_path, golden):
    run = SquadRun(tmp_path, golden, version=2)
    run.must_work(do_train=True, do_predict=True, null_score_diff_threshold=-1e9)
    assert set(run.predictions().values()) == {""}
    settings = json.loads((run.output / "labels.json").read_text())["settings"]
    assert settings["null_score_diff_threshold"] > -1e9  # the best one, not the value of the flag
    asked = without_answers(tmp_path / "asked.json", tmp_path / "dev.json")
    flags = {**FROM_OUTPUT, "do_predict": True, "predict_file": asked}
    run.must_work(**flags, null_score_diff_threshold=1e9)
    nbest = json.loads((run.output / FILES[1]).read_text())
    assert run.predictions() == {qas_id: entries[0]["text"] for qas_id, entries in nbest.items()}
    assert any(run.predictions().values())
    (run.output / "labels.json").write_text('{"task_name": "squad2.0", "settings": {}}')
    flags = {**flags, "predict_file": None, "do_predict": False, "predict_json": asked}
    printed = run.must_work(
        **{**flags, "doc_stride": 11, "max_query_length": 13, "max_seq_length": 48}
    )
    assert "--null_score_diff_threshold=0" in printed
