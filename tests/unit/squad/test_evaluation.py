"""The files that evaluations of a question-answering model write, and in which order."""

import dataclasses
import json

import pytest

from albert_tf.checkpoints.stored_task import SQUAD_TASKS, THRESHOLD, StoredTask
from albert_tf.squad.run import SquadEvaluationResults, SquadJob
from albert_tf.squad.settings import SquadSettings
from albert_tf.tokenization.loading import tokenizer_from_files
from albert_tf.training.evaluation import BestCheckpoint
from albert_tf.training.training_directory import TrainingDirectory
from tests.fine_tuning_run import run_context
from tests.small_model import small_config

PARAGRAPHS = (
    ("The tower of Porto was built in 1874 by the sea.", [("a", "When?", "1874")]),
    ("A market opened in Riga.", [("b", "Where?", "Riga"), ("c", "Who?", None)]),
)


def new_job(version, golden, folder, paragraphs=PARAGRAPHS, known=None, **changes):
    """A job that answers questions about contexts, with a model of random weights."""
    found = []
    for context, questions in paragraphs:
        qas = []
        for qas_id, question, text in questions if version == 2 else questions[:1]:
            answers = [{"text": text, "answer_start": context.index(text)}] if text else []
            qas.append(
                {"id": qas_id, "question": question, "answers": answers, "is_impossible": not text}
            )
        found.append({"context": context, "qas": qas})
    path = folder / "questions.json"
    path.write_text(json.dumps({"version": "", "data": [{"title": "", "paragraphs": found}]}))
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
    config = small_config(vocab_size=1000, num_hidden_layers=2)
    tokenizer = tokenizer_from_files(spm_model_file=str(golden / "tokenizer" / "small_1000.model"))
    trained = None
    if known is not None:
        trained = StoredTask(SQUAD_TASKS[version], settings={THRESHOLD: known})
    return SquadJob(run_context(settings, config, tokenizer, SQUAD_TASKS[version], trained))


def use_new_model(job):
    job.use(job.make_task().build_model())


@pytest.fixture(scope="module", params=[1, 2], ids=["v1", "v2"])
def job(request, golden, tmp_path_factory):
    job = new_job(request.param, golden, tmp_path_factory.mktemp("job"))
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


def test_chinese_checkpoints_are_selected_by_characters(golden, tmp_path):
    context = "在北京 5 years"
    for answer, metric in (("5 years", "f1"), ("在北京", "char_f1")):  # half of the references, all
        paragraphs = [(context, [("a", "?", "北京")]), (context, [("b", "?", answer)])]
        squad = new_job(1, golden, tmp_path, paragraphs)
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
def test_threshold_without_references(version, given, known, expected, golden, tmp_path):
    job = new_job(version, golden, tmp_path, known=known, null_score_diff_threshold=given)
    assert job.threshold() == expected
