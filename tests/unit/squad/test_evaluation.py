"""The files that evaluations of a question-answering model write, and in which order."""

import dataclasses
import math

import pytest

from albert_tf.checkpoints.stored_task import SQUAD_TASKS, THRESHOLD, StoredTask
from albert_tf.squad.run import SquadEvaluationResults, SquadJob
from albert_tf.squad.settings import SquadSettings
from albert_tf.training.evaluation import BestCheckpoint
from albert_tf.training.training_directory import TrainingDirectory
from tests.fine_tuning_run import run_context
from tests.squad_run import write_squad
from tests.text_models import CONFIG

RULE = "=" * 50
# Contexts, questions and answers.
ROWS = [
    ("The tower of Porto was built in 1874 by the sea.", "When?", "1874"),
    ("A market opened in Riga.", "Where?", "Riga"),
    ("A market opened in Riga.", "Who?", None),
]


def new_job(version, tokenizer, folder, rows=ROWS, known=None, entry=(), **changes):
    """A job that answers questions about contexts. Version 1 has only questions with answers."""
    rows = [row for row in rows if row[2] or version == 2]
    path = write_squad(folder / "questions.json", rows, **dict(entry))
    settings = SquadSettings(
        output_dir=str(folder),
        do_predict=True,
        predict_file=str(path),
        max_seq_length=16,
        doc_stride=4,
        max_query_length=5,
        n_best_size=3,
        predict_batch_size=4,
        **changes,
    )
    trained = None
    if known is not None:
        trained = StoredTask(SQUAD_TASKS[version], settings={THRESHOLD: known})
    return SquadJob(run_context(settings, CONFIG, tokenizer, SQUAD_TASKS[version], trained))


def use_new_model(job):
    job.use(job.make_task().build_model())


@pytest.fixture(scope="module", params=[1, 2], ids=["v1", "v2"])
def job(request, tokenizer, tmp_path_factory):
    job = new_job(request.param, tokenizer, tmp_path_factory.mktemp("job"))
    use_new_model(job)
    return job


@pytest.fixture
def run(job, tmp_path):
    """Returns the job in its initial state, which writes into a folder of the test."""
    before = dict(vars(job))
    job.settings = dataclasses.replace(job.settings, output_dir=str(tmp_path))
    weights = job.model.get_weights()
    yield job
    job.model.set_weights(weights)
    vars(job).update(before)


def record(run, scores):
    """Evaluates at steps 5, 10, ... and records the given scores."""
    best = BestCheckpoint(TrainingDirectory(run.settings.output_dir), run.best_metric)
    run.results = SquadEvaluationResults(run.settings.output_dir)
    for number, score in enumerate(scores, start=1):
        results = {**run.evaluate(), run.best_metric: score}
        run.record(5 * number, results, best, keeps_best=True)
    return best


def test_the_best_answers_are_kept(run, tmp_path):
    best = record(run, [10.0, 30.0])
    before = (tmp_path / "nbest_predictions.json").read_bytes()
    variable = run.model.encoder.trainable_variables[0]
    variable.assign(variable + 1.0)
    record(run, [20.0])  # a resumed run reads the best score
    assert (tmp_path / "nbest_predictions.json").read_bytes() == before
    assert (tmp_path / "best_trial.txt").read_text() == "5:10:30.0"
    assert best.step == 10
    kept = StoredTask.read(str(tmp_path))
    assert (kept is not None and THRESHOLD in kept.settings) == (run.version == 2)


def test_chinese_checkpoints_are_selected_by_characters(tokenizer, tmp_path):
    context = "在北京 5 years"
    for answer, metric in (("5 years", "f1"), ("在北京", "char_f1")):  # half of the references, all
        rows = [(context, "?", "北京"), (context, "?", answer)]
        squad = new_job(1, tokenizer, tmp_path, rows)
        assert squad.best_metric == metric
    use_new_model(squad)
    best = record(squad, [50.0, 70.0, 60.0])
    assert best.step == 10
    assert (tmp_path / "best_trial.txt").read_text() == "15:10:70.0:char_f1"
    lines = (tmp_path / "eval_results.txt").read_text().splitlines()
    assert [line for line in lines if line.startswith("best ")] == [
        "best char_f1 = 50.0",
        "best char_f1 = 70.0",
        "best char_f1 = 70.0",
        "best perf happened at step: 10",
    ]


def test_written_answers_are_not_computed_again(run, tmp_path, monkeypatch):
    record(run, [10.0, 5.0])
    evaluated = (tmp_path / "eval_results.txt").read_bytes()

    def fail(*_):
        raise AssertionError("computed again")

    with monkeypatch.context() as patch:
        patch.setattr(run, "answers", fail)
        run.apply(5)
        with pytest.raises(AssertionError, match="computed again"):
            run.apply(10)
    run.evaluates = True  # as with --checkpoint=all
    run.apply(10)
    assert (tmp_path / "eval_results.txt").read_bytes() == evaluated
    run.evaluates = False
    run.apply(15)
    assert (tmp_path / "eval_results.txt").read_bytes() != evaluated


def test_an_interrupted_run_evaluates_the_checkpoint_again(run, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(TrainingDirectory, "save_best", fail)
        with pytest.raises(OSError, match="no space left"):
            record(run, [10.0])
    best = BestCheckpoint(TrainingDirectory(str(tmp_path)), run.best_metric)
    assert (best.last_step, best.step) == (-1, -1)


@pytest.mark.parametrize(
    ("version", "given", "known", "expected"),
    [(1, 3.0, 2.0, None), (2, 3.0, 2.0, 3.0), (2, None, 2.0, 2.0), (2, None, None, 0.0)],
)
def test_threshold_without_references(version, given, known, expected, tokenizer, tmp_path):
    job = new_job(version, tokenizer, tmp_path, known=known, null_score_diff_threshold=given)
    assert job.threshold() == expected


def test_a_file_without_references_is_not_scored(tokenizer, tmp_path, caplog):
    rows = [(context, question, None) for context, question, _ in ROWS]
    changes = {"is_impossible": False, "gold": "Riga"}
    job = new_job(2, tokenizer, tmp_path, rows[-1:], entry=changes)
    assert not job.has_references
    assert "contains no answers; its questions have 'id', 'question'" in caplog.text
    assert "'gold', 'context'. The predictions are not scored" in caplog.text


def test_one_block_per_checkpoint_and_the_best_at_the_end(tmp_path):
    results = SquadEvaluationResults(str(tmp_path))
    first = {"f1": 100 / 3, "exact_match": 20.0}
    results.append_with_best(5, first, "f1")
    second = {"f1": 30.25, "exact_match": 20.5}
    results.append_with_best(10, second, "f1", (5, 100 / 3))
    best = "exact_match = 20.0\nf1 = 33.333333333333336\n"
    assert (tmp_path / "eval_results.txt").read_text() == (
        f"{best}global_step = 5\nbest f1 = 33.333333333333336\n{RULE}\n"
        "exact_match = 20.5\nf1 = 30.25\nglobal_step = 10\n"
        f"best f1 = 33.333333333333336\n{RULE}\n"
        f"{best}best perf happened at step: 5"
    )


def test_without_a_best_checkpoint(tmp_path):
    results = SquadEvaluationResults(str(tmp_path))
    results.append_with_best(7, {"f1": math.nan}, "f1")
    assert (tmp_path / "eval_results.txt").read_text() == (
        f"f1 = nan\nglobal_step = 7\nbest f1 = -1\n{RULE}\nf1 = nan\nbest perf happened at step: 7"
    )
