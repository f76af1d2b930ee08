"""`fit`, `evaluate` and `save` of the classes that take texts, compared with the commands."""

import math
import pickle
from collections.abc import Mapping
from enum import Enum
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import keras
import numpy as np
import pandas
import pytest
import scipy.sparse

import albert_tf
from albert_tf.finetuning import fine_tuned
from tests.choice_run import ChoiceRun, choices
from tests.classifier_run import ClassifierRun
from tests.fine_tuning_run import FineTuningRun
from tests.squad_run import SquadRun, questions
from tests.token_run import TokenRun, tagged_sentences
from tests.usual import usual

pytestmark = pytest.mark.usefixtures("eager")

TEXTS = [
    "a moving film",
    "a waste of two hours",
    "warm and funny",
    "dull from start to end",
    "fine",
]
LABELS = ["yes", "no", "yes", "no", "yes"]
TOKENS, TAGS = ([[pair[i] for pair in row] for row in tagged_sentences(7, 0)] for i in (0, 1))
CONTEXTS, QUESTIONS, ANSWERS = map(list, zip(*questions(9, 3, 2), strict=True))
CHOICES = choices(7, 2, 5)
TRAINED = {"learning_rate": 1e-3, "seed": 7}


class Case(NamedTuple):
    """A class, its command, and examples as columns with their names in files."""

    kind: Any
    command: type[FineTuningRun]
    examples: dict[str, list]
    lengths: dict[str, int]
    names: tuple[str, ...] = ()  # of labels
    settings: Mapping[str, Any] = MappingProxyType({})  # of the command
    model: type[keras.Model] | None = None  # if the class itself cannot add a new head
    steps: int = 2  # of an epoch with batches of 4, according to the number of windows
    score: str = "eval_loss"

    def inputs(self, examples: dict[str, list]) -> dict[str, list]:
        """Returns the arguments of a prediction."""
        first, *others, _ = examples
        if self.names:
            return {"texts": examples[first]}
        return {f"{name.removesuffix('s')}s": examples[name] for name in (first, *others)}


CASES = {
    "texts": Case(
        albert_tf.TextClassifier,
        ClassifierRun,
        {"text_a": TEXTS, "label": LABELS},
        {"max_seq_length": 16},
        ("no", "yes"),
        {"task_name": "custom"},
    ),
    "words": Case(
        albert_tf.TokenClassifier,
        TokenRun,
        {"tokens": TOKENS, "labels": TAGS},
        {"max_seq_length": 16},
        ("O", "B-animal", "B-place", "I-animal", "I-place"),
    ),
    "questions": Case(
        albert_tf.QuestionAnswerer,
        SquadRun,
        {"question": QUESTIONS, "context": CONTEXTS, "answers": ANSWERS},
        {"max_seq_length": 22, "doc_stride": 7, "max_query_length": 9},
        settings={"squad_version": 2},
        model=albert_tf.AlbertForQuestionAnsweringWithBeamSearch,
        steps=3,
        score="best_f1",
    ),
    "choices": Case(
        albert_tf.MultipleChoice,
        ChoiceRun,
        {key: [row[key] for row in CHOICES] for key in ("question", "context", "options", "label")},
        {"max_seq_length": 22, "max_qa_length": 9},
        model=albert_tf.AlbertForMultipleChoice,
    ),
}


def write(path, examples):
    pandas.DataFrame(examples).to_json(path, orient="records", lines=True)
    return path


@pytest.fixture(scope="module", params=CASES)
def case(request):
    return CASES[request.param]


@pytest.fixture(scope="module")
def new(small_pretrained):
    """Returns a function that loads a class with a new head."""

    def load(case=CASES["texts"], **changes):
        if case.model is not None:
            return case.kind(case.model.load(small_pretrained), **case.lengths)
        return case.kind.load(small_pretrained, **{"labels": case.names, **case.lengths, **changes})

    return load


@pytest.fixture(scope="module")
def untrained(new):
    """Returns a function that returns the one model of a case, whose training is rejected."""
    return cache(lambda name: new(CASES[name]))


class Fit(NamedTuple):
    """A trained model, its scores on the validation data, and these data."""

    model: Any
    scores: dict[str, float]
    dev: dict[str, list]
    printed: list[str]


@pytest.fixture(scope="module")
def fitted(case, new):
    dev = {name: column[:3] for name, column in case.examples.items()}
    data = {"validation_data": [*dev.values()], "epochs": 2, "batch_size": 4}
    model, printed = new(case), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fine_tuned.tqdm, "write", printed.append)
        scores = model.fit(*case.examples.values(), **data, **TRAINED)
    return Fit(model, scores, dev, printed)


def test_the_same_data_and_settings_give_the_weights_of_the_command(
    case, fitted, tmp_path, small_pretrained
):
    command, (train, dev) = case.command, case.command.files
    settings = command.settings(
        **{train: write(tmp_path / "train.jsonl", case.examples)},
        **{dev: write(tmp_path / "dev.jsonl", fitted.dev)},
        **{"num_train_epochs": 2, "train_batch_size": 4, "save_checkpoints_steps": case.steps},
        **{"albert_hub_module_handle": small_pretrained, "output_dir": tmp_path / "run"},
        **{**dict.fromkeys(command.actions, True), **case.settings, **case.lengths, **TRAINED},
    )
    assert command.function(settings).scores == fitted.scores
    other = case.kind.load(tmp_path / "run")
    for ours, theirs in zip(fitted.model.model.weights, other.model.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    inputs = case.inputs(case.examples)
    assert fitted.model(**inputs) == other(**inputs)


def test_a_line_is_printed_after_every_epoch(case, fitted):
    starts = [line.split("   ")[:2] for line in fitted.printed]
    assert {start.split(" ")[1] for start, _ in starts[-2:]} == {"2/2"}  # as given
    assert {(start.split(" ")[0], second[:5]) for start, second in starts} == {
        ("epoch", "loss "),
        ("validation", "loss " if case.score == "eval_loss" else "best "),
    }


def test_trained_models_are_saved_and_training_continues(case, fitted, tmp_path, capfd):
    columns = [pandas.Series(column) for column in fitted.dev.values()]
    scores = fitted.model.evaluate(*columns)
    assert scores == pytest.approx(fitted.scores, rel=1e-6)
    fitted.model.save(tmp_path / "kept")
    loaded = case.kind.load(tmp_path / "kept")
    inputs = case.inputs(fitted.dev)
    assert loaded(**inputs) == fitted.model(**inputs)
    settings = {"output_dir": tmp_path / "kept", "do_train": False, case.command.actions[1]: True}
    settings[case.command.files[1]] = write(tmp_path / "dev.jsonl", fitted.dev)
    result = case.command.function(case.command.settings(**case.settings, **settings))
    assert result.scores == pytest.approx(scores, rel=1e-6)
    capfd.readouterr()
    settings = {"epochs": 1, "batch_size": 3, "learning_rate": 1e-7, "verbose": False}
    assert "loss" in loaded.fit(*columns, **settings)
    assert capfd.readouterr().out == ""
    again = loaded.evaluate(*columns)
    assert again[case.score] == pytest.approx(scores[case.score], rel=0.02)


def weights_of(model):
    return [np.array(weight) for weight in model.model.weights]


def assert_same_weights(model, expected):
    for found, wanted in zip(weights_of(model), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_every_fit_starts_from_the_loaded_weights(case, fitted):
    expected = weights_of(fitted.model)
    data = {"validation_data": [*fitted.dev.values()], "epochs": 2, "batch_size": 4}
    assert fitted.model.fit(*case.examples.values(), **data, **TRAINED) == fitted.scores
    assert_same_weights(fitted.model, expected)


def test_copies_start_again_and_a_warm_start_continues(new):
    settings = {**TRAINED, "epochs": 1, "batch_size": 4}
    model = new()
    model.fit(TEXTS, LABELS, **settings)
    expected = weights_of(model)
    copied = pickle.loads(pickle.dumps(model))
    copied.fit(TEXTS[::-1], LABELS[::-1], **settings | {"seed": 3})
    assert not np.array_equal(weights_of(copied)[0], expected[0])
    copied.fit(TEXTS, LABELS, **settings)
    assert_same_weights(copied, expected)
    copied.fit(TEXTS, LABELS, **settings, warm_start=True)
    assert not np.array_equal(weights_of(copied)[0], expected[0])
    with pytest.raises(TypeError, match="warm_start"):
        model.fit(TEXTS, LABELS, warm_start="yes")


def test_a_regression_starts_again_with_another_scale(new):
    number = new(labels=[])
    number.fit(TEXTS, np.arange(5.0) * 100, epochs=1, **TRAINED)
    expected = weights_of(number)
    number.fit(TEXTS, np.arange(5.0), epochs=1, **TRAINED)
    number.fit(TEXTS, np.arange(5.0) * 100, epochs=1, **TRAINED)
    assert_same_weights(number, expected)


def test_weights_are_read_again_or_kept(new, tmp_path):
    """Only weights that are in no file are kept in memory."""
    new().save(tmp_path / "model")
    classifier = albert_tf.TextClassifier.load(tmp_path / "model")
    classifier.fit(TEXTS, LABELS, epochs=1, **TRAINED)
    assert len(pickle.dumps(classifier)) < 1.5 * len(pickle.dumps(classifier.model))
    expected = weights_of(classifier)
    with pytest.raises(ValueError, match=r"already exists.*overwrite=True"):
        classifier.save(tmp_path / "model")
    classifier.save(tmp_path / "model", overwrite=True)
    with pytest.raises(ValueError, match=r"changed.*warm_start=True"):
        classifier.fit(TEXTS, LABELS, epochs=1, **TRAINED)
    assert_same_weights(classifier, expected)

    in_memory = albert_tf.TextClassifier(pickle.loads(pickle.dumps(classifier.model)))
    in_memory.fit(TEXTS, LABELS, epochs=1, **TRAINED)
    expected = weights_of(in_memory)
    in_memory.fit(TEXTS, LABELS, epochs=1, **TRAINED)
    assert_same_weights(in_memory, expected)


def test_weights_that_changed_after_loading(new, tmp_path, caplog):
    new().save(tmp_path / "model")
    classifier = albert_tf.TextClassifier.load(tmp_path / "model")
    classifier.fit(TEXTS, LABELS, epochs=1, **TRAINED)
    expected = weights_of(classifier)
    for is_warm in (False, True):
        changed = albert_tf.TextClassifier.load(tmp_path / "model")
        changed.model.classifier.output_bias.assign([100.0, -100.0])
        caplog.clear()
        changed.fit(TEXTS, LABELS, epochs=1, **TRAINED, warm_start=is_warm)
        assert ("have changed in the model" in caplog.text) != is_warm
        if is_warm:
            assert np.array(changed.model.classifier.output_bias)[0] > 99
        else:
            assert_same_weights(changed, expected)


def test_a_new_head_that_keras_has_trained_is_kept_by_a_warm_start(new):
    classifier = new()
    classifier.model.classifier.output_bias.assign([100.0, -100.0])
    classifier.fit(TEXTS, LABELS, epochs=1, **TRAINED, warm_start=True)
    assert np.array(classifier.model.classifier.output_bias)[0] > 99


class Answer(Enum):
    """Labels whose names are not their values."""

    NEGATIVE = "no"
    POSITIVE = "yes"


class Tag(str, Enum):  # noqa: UP042
    """Labels that are texts."""

    O = "O"  # noqa: E741
    ANIMAL = "B-animal"
    PLACE = "B-place"
    IN_ANIMAL = "I-animal"
    IN_PLACE = "I-place"


@pytest.fixture(params=["texts", "words"])
def labelled(request):
    return CASES[request.param]


def test_constant_predictions_on_training_texts_are_reported(new, caplog):
    texts, labels = TEXTS * 90, LABELS * 90
    new().fit(texts, labels, train_step=1, batch_size=7, learning_rate=1e-9, seed=5)
    assert caplog.text.count("100% of 150 predictions are") == 1


def test_a_stored_head_is_kept_renamed_or_replaced(labelled, new, tmp_path):
    new(labelled).save(tmp_path / "model")
    names = labelled.names

    def load(labels, **settings):
        return labelled.kind.load(tmp_path / "model", labels=labels, **settings)

    def weights(labels, **settings):
        return np.array(load(labels, **settings).model.classifier.output_weights)

    kept, others = weights(names), [f"X-{name}" for name in names]
    np.testing.assert_array_equal(weights(others, rename_labels=True), kept)
    assert np.all(weights(others, new_head=True) != kept)
    assert load(others, rename_labels=True).model.labels == tuple(others)
    for labels in (names[::-1], others, [*names, "more"]):
        with pytest.raises(ValueError, match="rename_labels"):
            load(labels)
    with pytest.raises(ValueError, match=f"num_labels is {len(kept)} in"):
        load([*names, "more"], rename_labels=True)


@pytest.mark.parametrize(
    "kind",
    usual(
        [np.array, pandas.Series, pandas.Index, tuple, iter, "enum"], pandas.Series, iter, "enum"
    ),
)
def test_labels_of_any_list_type(labelled, new, tmp_path, kind):
    first = next(iter(labelled.examples))
    members = Answer if labelled.kind is albert_tf.TextClassifier else Tag
    given = (
        [members, list(members)] if kind == "enum" else [kind(labelled.names), kind(labelled.names)]
    )
    expected = labelled.names
    loaded = new(labelled, labels=given[0])
    loaded.save(tmp_path / "model")
    assert loaded.model.labels == expected
    assert [type(name) for name in loaded.model.labels] == [str] * len(expected)
    if kind is not iter:
        again = labelled.kind.load(tmp_path / "model", labels=given[1])
        assert again.model.trained_task.labels.names == expected
        model = type(loaded.model).load(str(tmp_path / "model"), labels=given[1])
        assert labelled.kind(model, labels=given[1])(labelled.examples[first][:1])
        others = np.array([f"X-{name}" for name in labelled.names])
        renamed = labelled.kind.load(tmp_path / "model", labels=others, rename_labels=True)
        assert renamed.model.labels == tuple(others)
        with pytest.raises(ValueError, match="rename_labels=True"):
            labelled.kind.load(tmp_path / "model", labels=others)


def test_empty_labels_of_any_type_are_a_regression(new):
    for labels in (np.array([]), pandas.Series([], dtype=object), ()):
        assert new(labels=labels).model.num_labels == 1
    for labels in ("", {}, "yes"):
        with pytest.raises(TypeError, match="labels must be a list of texts"):
            new(labels=labels)


def test_examples_with_members_of_an_enumeration(new):
    labels = [Answer.POSITIVE, Answer.NEGATIVE, "yes", "no", Answer.POSITIVE]
    classifier = new(labels=Answer)
    assert classifier.evaluate(TEXTS, labels) == classifier.evaluate(TEXTS, LABELS)


def test_class_weights_by_name(new, monkeypatch):
    """Keras would ignore names."""
    classifier, given = new(labels=Answer), []
    monkeypatch.setattr(keras.Model, "fit", lambda *_, class_weight: given.append(class_weight))
    for weights in ({0: 4.0, 1: 1.0}, {"no": 4.0, "yes": 1.0}, {Answer.NEGATIVE: 4.0}, None):
        classifier.model.fit(TEXTS, class_weight=weights)
    assert given == [{0: 4.0, 1: 1.0}, {0: 4.0, 1: 1.0}, {0: 4.0}, None]
    with pytest.raises(ValueError, match=r"class_weight must map ids, or the names 'no', 'yes'"):
        classifier.model.fit(TEXTS, class_weight={"maybe": 1.0})
    for weights, error in (({"maybe": 1.0}, ValueError), ({"no": "4"}, TypeError)):
        with pytest.raises(error, match="class_weights"):
            classifier.fit(TEXTS, LABELS, epochs=1, class_weights=weights)


def test_models_with_lora_are_trained_by_keras(new):
    """The commands have no LoRA matrices; they would train all weights."""
    classifier = new(labels=Answer)
    classifier.model.enable_lora(2)
    with pytest.raises(ValueError, match="LoRA"):
        classifier.fit(TEXTS, LABELS, epochs=1)


def test_numeric_class_names(new):
    scores = new(labels=["0", "1"]).evaluate(np.array(TEXTS), np.array([1, 0, 1, 0, 1]))
    assert scores.keys() >= {"eval_accuracy", "loss"}


@pytest.mark.parametrize("labels", [[0, 1], [False, True], np.array([3, 5])])
def test_labels_that_are_numbers(labelled, new, labels):
    first, *_ = labelled.examples.values()
    column = [labels[i] for i in (0, 1)]
    if labelled.kind is albert_tf.TokenClassifier:
        column = [[labels[i % 2] for i, _ in enumerate(words)] for words in first[:2]]
    model = new(labelled, labels=labels)
    assert model.model.labels == tuple(map(str, labels))
    scores = model.evaluate(first[:2], column)
    assert scores == model.evaluate(first[:2], np.array(column, object))
    assert scores["eval_loss"] > 0


def test_the_error_without_labels_says_how_to_pass_them(labelled, small_pretrained):
    with pytest.raises(ValueError, match=r"labels=\["):
        labelled.kind.load(small_pretrained)


def test_regression_of_pairs(new):
    number, others = new(labels=[]), TEXTS[::-1]
    validation_data = (TEXTS, np.arange(5.0), others)
    scores = number.fit(TEXTS, [1, 2.5, 3, 4, 5], others, validation_data=validation_data, epochs=1)
    assert scores.keys() >= {"pearson", "spearman"}
    assert number.pairs is True
    for value in (None, "x", float("nan"), [1.0]):
        with pytest.raises(ValueError, match=r"labels\[1\] must be a finite number"):
            number.fit(TEXTS[:2], [1.5, value])


def test_multi_label(new):
    several = new(labels=["a", "b", "c"], multi_label=True)
    several.fit(TEXTS, [["a"], [], ["b", "c"], ["a", "b"], ["c"]], epochs=1)
    assert several.evaluate(TEXTS[:2], [["a"], []]).keys() >= {"f1_micro", "f1_macro"}
    with pytest.raises(ValueError, match=r"labels\[1\].*'d'"):
        several.evaluate(TEXTS[:2], [["a"], ["d"]])
    indicators = np.array([[1, 0, 1], [0, 1, 0], [0, 0, 0]])
    expected = several.evaluate(TEXTS[:3], [["a", "c"], ["b"], []])
    for labels in (
        indicators,
        indicators.astype(bool),
        list(indicators),
        scipy.sparse.csr_matrix(indicators),
        pandas.DataFrame(indicators[:, [2, 0, 1]], columns=["c", "a", "b"]),
        [{"a": 1.0, "b": 0.0, "c": True}, {"b": 1}, {}],
        ["a|c", "b", ""],
    ):
        assert several.evaluate(TEXTS[:3], labels) == expected
    for label, error in (
        (1, TypeError),
        (None, TypeError),
        ({"a": 0.5}, ValueError),
        ({"d": 0}, ValueError),
        (np.array([1, 0]), ValueError),
        (np.array([1, 0, 2]), ValueError),
    ):
        with pytest.raises(error, match=r"labels\[0\]"):
            several.evaluate(TEXTS[:1], [label])


@pytest.mark.parametrize(
    ("name", "columns", "error", "named"),
    [
        ("texts", (TEXTS, ["yes", "no"]), ValueError, "labels"),
        (
            "texts",
            (TEXTS, ["yes", "no", "yes", "maybe", "no"]),
            ValueError,
            r"labels\[3\].*'maybe'",
        ),
        ("texts", (TEXTS, [1, 0, 1, 0, 1]), ValueError, r"labels\[0\].*1"),
        ("words", ([["a", "b"]], [["O"]]), ValueError, r"labels\[0\]"),
        ("words", ([["a"]], [["O"], ["O"]]), ValueError, "labels"),
        ("words", ([["a"]], [["X"]]), ValueError, r"labels\[0\].* one of .*'X'"),
        ("words", (["a text"], [["O"]]), TypeError, r"sentences\[0\]"),
        ("words", ([["a"]], [[1.5]]), TypeError, r"labels\[0\]"),
        ("words", ([["a"]], [[1]]), ValueError, r"labels\[0\].*'1'"),
        ("questions", (["a?"], ["b"], ["c"]), ValueError, "'c' does not occur in the context"),
        ("questions", (["a?"], ["b"], [{"start": 3}]), ValueError, "the training data: question 1"),
        ("questions", (["a?"], ["b"], []), ValueError, "answers"),
        (
            "choices",
            (["a?"], ["b"], [["c", "d"]], [2]),
            ValueError,
            r"labels\[0\] must be less than 2",
        ),
        ("choices", (["a?"], ["b"], [["c", "d"]], ["A"]), TypeError, r"labels\[0\]"),
        ("choices", (["a?"], ["b"], [["c"]], [0]), ValueError, r"options\[0\] must have 2 to 26"),
    ],
)
def test_invalid_data_are_rejected(untrained, name, columns, error, named):
    with pytest.raises(error, match=named):
        untrained(name).fit(*columns)


@pytest.mark.parametrize(
    ("epochs", "error"), [(0, ValueError), (math.inf, ValueError), ("2", TypeError)]
)
def test_invalid_epochs_are_rejected(untrained, epochs, error):
    with pytest.raises(error, match=r"^`epochs` must be"):
        untrained("texts").fit(TEXTS, LABELS, epochs=epochs)


def test_files_are_no_settings_of_fit(new):
    for name in ("train_file", "dev_file", "do_eval"):
        with pytest.raises(TypeError, match=f"no setting `{name}`"):
            new().fit(TEXTS, LABELS, epochs=1, **{name: "a.csv"})


def test_validation_data_have_the_columns_of_the_training_data(new):
    with pytest.raises(TypeError, match=r"validation_data must be \(texts, labels.*\).*: 1 values"):
        new().fit(TEXTS, LABELS, validation_data=(TEXTS,))


def test_early_stopping_needs_validation_data(new):
    with pytest.raises(ValueError, match=r"Add `validation_data`"):
        new().fit(TEXTS, LABELS, early_stopping=2)


def test_validation_data_must_have_second_texts_if_the_training_data_have(untrained):
    classifier = untrained("texts")
    for validation_data in ((TEXTS, LABELS), (TEXTS, LABELS, TEXTS[:2])):
        with pytest.raises(ValueError, match=r"validation_data|text_pairs"):
            classifier.fit(TEXTS, LABELS, TEXTS, validation_data=validation_data)
