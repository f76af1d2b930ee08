"""The public classes that take texts: loading, batches, and errors for invalid arguments."""

import copy
import pickle
import random
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import joblib
import keras
import numpy as np
import pyarrow
import pytest
import tensorflow as tf

import albert_tf
from albert_tf import (
    AlbertForClassification,
    AlbertForMultipleChoice,
    AlbertForPretraining,
    AlbertForQuestionAnswering,
    AlbertForTokenClassification,
    FillMask,
    MultipleChoice,
    QuestionAnswerer,
    TextClassifier,
    TextEncoder,
    TokenClassifier,
)
from albert_tf.checkpoints.stored_task import SQUAD_TASKS, StoredTask
from albert_tf.cli import fill_mask
from albert_tf.labels import Labels
from albert_tf.modeling.rounded import RoundedModel
from tests.choice_run import choices
from tests.programs import TIMEOUT
from tests.squad_run import questions
from tests.text_models import CONFIG, write_model
from tests.usual import usual

pytestmark = pytest.mark.usefixtures("eager")

LABELS = ("low", "middle", "high")
TEXTS = ["the cat " * (1 + n % 11) + "sat" * (n % 5) for n in range(20)]
CONTEXTS, QUESTIONS, _ = zip(*questions(9, 3, 1), strict=True)
CHOICES = choices(7, 2, 5)
LENGTHS = {"max_seq_length": 22, "doc_stride": 7, "max_query_length": 9}


@dataclass(frozen=True)
class Case:
    """A class, its model, the stored task, and valid arguments of a call."""

    kind: Any
    make_model: Callable[[], keras.Model]
    arguments: dict[str, list]
    settings: dict[str, Any]
    task: StoredTask | None = None
    call: dict[str, Any] = field(default_factory=dict)


CASES = {
    case.kind.__name__: case
    for case in (
        Case(
            TextClassifier,
            lambda: AlbertForClassification(CONFIG, 3),
            {"texts": TEXTS},
            {"labels": LABELS, "max_seq_length": 20, "pairs": False},
            StoredTask("custom", Labels(LABELS), False, max_seq_length=20),
        ),
        Case(
            TokenClassifier,
            lambda: AlbertForTokenClassification(CONFIG, 3),
            {"texts": TEXTS},
            {"labels": LABELS, "max_seq_length": 16},
            StoredTask("tokens", Labels(LABELS), False, max_seq_length=16),
        ),
        Case(
            QuestionAnswerer,
            lambda: AlbertForQuestionAnswering(CONFIG),
            {"questions": list(QUESTIONS), "contexts": list(CONTEXTS)},
            LENGTHS,
            StoredTask(
                SQUAD_TASKS[1],
                max_seq_length=22,
                settings={key: LENGTHS[key] for key in ("doc_stride", "max_query_length")},
            ),
        ),
        Case(
            MultipleChoice,
            lambda: AlbertForMultipleChoice(CONFIG),
            {"contexts": [row["context"] for row in CHOICES],
             "questions": [row["question"] for row in CHOICES],
             "options": [row["options"] for row in CHOICES]},
            {"max_seq_length": 22, "max_qa_length": 9},
            StoredTask("race", max_seq_length=22, settings={"max_qa_length": 9}),
        ),
        Case(
            FillMask,
            lambda: AlbertForPretraining(CONFIG),
            {"texts": [f"{text[:40]} [MASK]" + " [MASK]" * (len(text) % 2) for text in TEXTS]},
            {},
            call={"top_k": 2},
        ),
        Case(TextEncoder, lambda: AlbertForPretraining(CONFIG), {"texts": TEXTS}, {}),
    )
}  # fmt: skip


@pytest.fixture(scope="module", params=CASES)
def case(request):
    return CASES[request.param]


@pytest.fixture(scope="module")
def model(case):
    random.seed(3)
    return case.make_model()


@pytest.fixture(scope="module")
def directory(case, model, tokenizer, tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("trained"), model, tokenizer, case.task)


@pytest.fixture(scope="module")
def directories(tokenizer, tmp_path_factory):
    """Returns the directory of a model with a task, by the class that takes its texts."""
    folder = tmp_path_factory.mktemp("tasks")
    return {
        name: write_model(folder / name, case.make_model(), tokenizer, case.task)
        for name, case in CASES.items()
        if case.task
    }


@pytest.fixture(scope="module")
def loaded(case, directory):
    return case.kind.load(directory)


def call(case, function, rows=slice(None)):
    columns = {name: column[rows] for name, column in case.arguments.items()}
    return function(**columns, **case.call)


def assert_equal(found, expected):
    """Compares predictions; floating-point numbers may differ by 1e-5."""
    if isinstance(expected, float | np.ndarray):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys()
        assert_equal([found[key] for key in expected], list(expected.values()))
    elif isinstance(expected, list | tuple):
        for one, other in zip(found, expected, strict=True):
            assert_equal(one, other)
    else:
        assert found == expected


def test_predictions_do_not_depend_on_loading_order_and_batches(
    case, model, directory, tokenizer, loaded
):
    expected = call(case, case.kind(model, tokenizer, **case.settings))
    assert_equal(call(case, loaded), expected)
    in_threes = case.kind(albert_tf.load(directory), batch_size=3)
    assert_equal(call(case, in_threes, slice(None, None, -1))[::-1], expected)
    for row in (0, 4):
        assert_equal(call(case, loaded, slice(row, row + 1))[0], expected[row])


def test_one_row_instead_of_lists_gives_one_prediction(case, loaded):
    row = {name: column[3] for name, column in case.arguments.items()}
    assert_equal(loaded(**row, **case.call), call(case, loaded, slice(3, 4))[0])


OTHER_LISTS = {
    "Arrow": pyarrow.array,
    "NumPy bytes": lambda texts: np.array([text.encode() for text in texts]),
    "TensorFlow": tf.constant,
}


@pytest.mark.parametrize("convert", OTHER_LISTS.values(), ids=OTHER_LISTS)
def test_texts_of_other_libraries(case, loaded, convert):
    columns = {name: column[:3] for name, column in case.arguments.items()}
    expected = loaded(**columns, **case.call)
    converted = {
        name: [convert(row) for row in column] if name == "options" else convert(column)
        for name, column in columns.items()
    }
    assert_equal(loaded(**converted, **case.call), expected)
    first = next(iter(columns))
    with pytest.raises(ValueError, match=rf"{first}\[1\] is not valid UTF-8"):
        loaded(**{**columns, first: [b"a", b"\xff", b"b"]}, **case.call)


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))]
)
def test_copies_predict_the_same(case, model, tokenizer, duplicate):
    original = case.kind(model, tokenizer, **case.settings)
    copied = duplicate(original)
    assert type(copied) is case.kind
    assert_equal(call(case, copied, slice(5)), call(case, original, slice(5)))


@pytest.mark.slow
def test_processes_of_joblib_predict_the_same(case, loaded):
    """joblib ends with the exit status of the processes."""
    jobs = (
        joblib.delayed(loaded)(**case.call, **{n: c[i : i + 2] for n, c in case.arguments.items()})
        for i in (0, 2)
    )
    found = joblib.Parallel(n_jobs=2)(jobs)
    assert_equal([row for part in found for row in part], call(case, loaded, slice(4)))


# Numbers of the predictions, which are compared.
NUMBERS = {
    TextClassifier: lambda prediction: list(prediction.probabilities.values()),
    TokenClassifier: lambda prediction: [word.probability for word in prediction.words],
    QuestionAnswerer: lambda prediction: [prediction.probability],
    MultipleChoice: lambda prediction: prediction.probabilities,
    FillMask: lambda prediction: [blank[0].probability for blank in prediction],
    TextEncoder: lambda prediction: list(prediction),
}


@pytest.fixture
def rounded_calls(monkeypatch):
    """Returns a list that gets an entry for each batch of a `RoundedModel`."""
    calls, compute = [], RoundedModel.__call__
    monkeypatch.setattr(
        RoundedModel, "__call__", lambda self, inputs: calls.append(1) or compute(self, inputs)
    )
    return calls


def test_predictions_in_bfloat16_are_close_to_float32(case, directory, loaded, rounded_calls):
    half = case.kind.load(directory, precision="bfloat16")
    pairs = zip(call(case, half, slice(4)), call(case, loaded, slice(4)), strict=True)
    numbers = NUMBERS[case.kind]
    for found, expected in pairs:
        np.testing.assert_allclose(numbers(found), numbers(expected), rtol=0.02, atol=0.02)
    count = len(rounded_calls)
    assert count > 0
    call(case, loaded, slice(4))
    assert len(rounded_calls) == count  # not for float32
    with pytest.raises(ValueError, match=r"precision must be 'float32' or 'bfloat16'.*'half'"):
        case.kind.load(directory, precision="half")
    assert_uses_lora(case, half)


@pytest.mark.slow
def test_lora_that_is_enabled_after_a_prediction_is_used(case, directory):
    assert_uses_lora(case, case.kind.load(directory))


def assert_uses_lora(case, model):
    """Checks that predictions change with LoRA that is enabled after a prediction."""
    before = NUMBERS[case.kind](call(case, model, slice(1))[0])
    network = getattr(model, "model", None) or model._predictor.model
    network.enable_lora(2)
    zero = NUMBERS[case.kind](call(case, model, slice(1))[0])  # the new product is 0
    np.testing.assert_allclose(zero, before, atol=0.02)
    rng = np.random.default_rng(1)
    for variable in network.variables:
        if variable.name == "lora_b":
            variable.assign(rng.normal(size=variable.shape))
    after = NUMBERS[case.kind](call(case, model, slice(1))[0])
    assert np.abs(np.divide(after, zero) - 1).max() > 1e-3


def test_batches_in_bfloat16_that_are_computed_at_once(directories, monkeypatch):
    compute, both, calls = RoundedModel.__call__, threading.Barrier(2), []

    def first_two_meet(self, inputs):
        calls.append(1)
        if len(calls) <= 2:
            both.wait(TIMEOUT)  # fails if the second batch starts after the first has ended
        return compute(self, inputs)

    directory = directories["TextClassifier"]
    classifier = TextClassifier.load(directory, precision="bfloat16", batch_size=2)
    rng = np.random.default_rng(0)
    texts = [
        " ".join(rng.choice(["the", "cat", "sat", "mat"], rng.integers(1, 9))) for _ in range(60)
    ]
    with monkeypatch.context() as patch:
        patch.setattr(RoundedModel, "__call__", first_two_meet)
        together = [list(prediction.probabilities.values()) for prediction in classifier(texts)]
    alone = [list(classifier([text])[0].probabilities.values()) for text in texts]
    np.testing.assert_allclose(together, alone, atol=5e-4)
    assert np.ptp(together, axis=0).max() > 0.005


JOBS = {
    "TextClassifier": (
        albert_tf.run_classification,
        albert_tf.ClassificationSettings,
        {"task_name": "custom", "predict_file": "the cat sat\na mat\n"},
    ),
    "TokenClassifier": (
        albert_tf.run_token_classification,
        albert_tf.TokenClassificationSettings,
        {"predict_file": "the\ncat\n\na\nmat\n"},
    ),
    "QuestionAnswerer": (
        albert_tf.run_squad,
        albert_tf.SquadSettings,
        {"predict_json": '{"context": "the cat sat", "question": "who sat?"}\n'},
    ),
    "MultipleChoice": (
        albert_tf.run_multiple_choice,
        albert_tf.MultipleChoiceSettings,
        {
            "do_eval": False,
            "do_predict": True,
            "test_choices": '{"context": "the cat sat", "question": "who?", "options": ["a", "b"]}',
        },
    ),
}
FILES = {"predict_file": "texts.txt", "predict_json": "q.jsonl", "test_choices": "q.jsonl"}


@pytest.mark.parametrize("name", usual(JOBS, "TextClassifier", "QuestionAnswerer"))
def test_precision_of_commands_reaches_predictions(name, directories, rounded_calls, tmp_path):
    function, kind, values = JOBS[name]
    settings = dict(values)
    for key in FILES.keys() & values.keys():
        (tmp_path / FILES[key]).write_text(values[key])
        settings[key] = str(tmp_path / FILES[key])
    if not settings.get("do_predict"):
        settings["predict_output_file"] = str(tmp_path / "answers")
    shutil.copytree(directories[name], tmp_path / "out")
    settings |= {"output_dir": str(tmp_path / "out"), "do_train": False}
    function(kind(**settings))
    assert rounded_calls == []
    function(kind(**settings, precision="bfloat16"))
    assert len(rounded_calls) == 1


def test_fill_mask_command_predicts_in_bfloat16(rounded_calls, capsys):
    values = {"model_dir": "mini", "text": ["The [MASK] sat."], "precision": "bfloat16"}
    fill_mask.run(fill_mask.FillMaskSettings(**values))
    assert len(rounded_calls) == 1
    text, candidates, filled = capsys.readouterr().out.splitlines()
    assert text == "The [MASK] sat."
    best, *_, share = candidates.split("%")[0].split()
    assert filled == f"  The {best} sat."
    assert 0 < float(share) < 100


def test_unknown_pieces_are_reported_once(case, directory, caplog):
    def foreign(value):
        return [foreign(v) for v in value] if isinstance(value, list) else f"{value} 서울 도시"

    model = case.kind.load(directory)
    call(case, model, slice(3))
    assert "unknown" not in caplog.text
    for _ in range(2):
        model(**{name: foreign(values[:2]) for name, values in case.arguments.items()}, **case.call)
    (warning,) = [message for message in caplog.messages if "unknown" in message]
    assert "most often '도', '서', '시', '울'" in warning


def test_invalid_texts_are_rejected(case, loaded):
    row = {key: column[:1] for key, column in case.arguments.items()}
    for name, values in case.arguments.items():
        invalid = [(5, TypeError), ({"a"}, TypeError), ([None], TypeError), ([], ValueError)]
        if len(row) > 1:
            invalid += [("a", TypeError), (values[:2], ValueError)]
        for value, error in invalid:
            # The error names the argument whose number of rows differs from the first argument.
            names = "|".join(row) if error is ValueError else name
            with pytest.raises(error, match=names):
                loaded(**{**row, name: value}, **case.call)


def test_invalid_models_and_settings_are_rejected(case, model, directory, tokenizer, tmp_path):
    shutil.copytree(directory, tmp_path / "model")
    for path in (tmp_path / "model").glob("30k-clean*"):
        path.unlink()
    for where, error, match in [
        (None, TypeError, "path"),
        ("", ValueError, "path"),
        (tmp_path / "nowhere", ValueError, "nowhere"),
        (tmp_path / "model", ValueError, "path must contain a tokenizer"),
    ]:
        with pytest.raises(error, match=match):
            case.kind.load(where)
    with pytest.raises(TypeError, match="model must be"):
        case.kind("mini", tokenizer, **case.settings)
    with pytest.raises(TypeError, match="tokenizer must be"):
        case.kind(model, "mini", **case.settings)
    names = ("batch_size",) if case.kind is FillMask else ("batch_size", "max_seq_length")
    for name in names:
        with pytest.raises(ValueError, match=f"{name}`? must be"):
            case.kind.load(directory, **{name: 0})


@pytest.mark.parametrize("name", sorted(CASES.keys() - {"TextEncoder"}))
def test_models_of_another_task_are_rejected(name, directories):
    for other in directories.keys() - {name}:
        with pytest.raises(ValueError, match=r"path|all weights"):
            CASES[name].kind.load(directories[other])


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (albert_tf.TextEncoder, {}),
        (albert_tf.TextClassifier, {"labels": ["no", "yes"]}),
        (albert_tf.FillMask, {}),
    ],
)
def test_long_texts_are_truncated_with_one_warning(kind, settings, small_pretrained, caplog):
    model = kind.load(small_pretrained, **settings)
    caplog.clear()
    model(["A [MASK] " + "word " * 3000, "A [MASK]."])
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [r.getMessage()[:18] for r in warnings] == ["50.0% of 2 texts h"]


def test_truncated_masks_are_rejected():
    with pytest.raises(ValueError, match=r"texts\[1\].*510 tokens"):
        albert_tf.FillMask.load("mini")(["[MASK]", "word " * 3000 + "[MASK]"])


def test_filling_masks_needs_a_masked_lm_head(tmp_path):
    albert_tf.TextClassifier.load("mini", labels=["no", "yes"]).save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"path must be a model with a masked-LM head.*2 classes"):
        albert_tf.FillMask.load(tmp_path / "model")
