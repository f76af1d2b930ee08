"""`fit`, `evaluate` and `save` of the classes that take texts, compared with the commands."""

import math
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

import keras
import numpy as np
import pandas
import pytest

import albert_tf
from tests.token_run import tagged_sentences, write_conll
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
SENTENCES = tagged_sentences(13, 0)


def write_texts(path, texts, labels):
    table = pandas.DataFrame({"text_a": texts, "label": labels})
    table.to_json(path, orient="records", lines=True)
    return path


def write_sentences(path, sentences, labels):
    return write_conll(
        path, [zip(*row, strict=True) for row in zip(sentences, labels, strict=True)]
    )


class Case(NamedTuple):
    """A class, its command, the names of its labels, examples, and how to write them."""

    kind: Any
    run: Callable[..., albert_tf.JobResult]
    settings: type
    names: list[str]
    examples: tuple[list, list]
    write: Callable
    file: str
    steps: int  # of an epoch with batches of 4


CASES = {
    "texts": Case(
        albert_tf.TextClassifier,
        albert_tf.run_classification,
        albert_tf.ClassificationSettings,
        ["no", "yes"],
        (TEXTS, LABELS),
        write_texts,
        "data.jsonl",
        steps=2,
    ),
    "words": Case(
        albert_tf.TokenClassifier,
        albert_tf.run_token_classification,
        albert_tf.TokenClassificationSettings,
        ["O", "B-animal", "B-place", "I-animal", "I-place"],
        tuple([[pair[i] for pair in row] for row in SENTENCES] for i in (0, 1)),
        write_sentences,
        "data.conll",
        steps=4,
    ),
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


@pytest.fixture
def new(small_pretrained):
    """Returns a function that loads a class with a new head."""

    def load(case=CASES["texts"], **changes):
        settings = {"labels": case.names, "max_seq_length": 16, **changes}
        return case.kind.load(small_pretrained, **settings)

    return load


def test_the_same_data_and_settings_give_the_weights_of_the_command(
    case, new, tmp_path, small_pretrained, capsys
):
    settings = {"learning_rate": 1e-3, "seed": 7}
    some = [column[:3] for column in case.examples]
    classifier = new(case)
    scores = classifier.fit(
        *case.examples, validation_data=some, epochs=2, batch_size=4, **settings
    )
    lines = [line.split("   ") for line in capsys.readouterr().out.splitlines()]
    epochs = (
        ["1", "2"] if case.kind is albert_tf.TextClassifier else ["0.4", "0.8", "1.2", "1.6", "2"]
    )
    assert [(train[0], dev[0]) for train, dev in zip(lines[::2], lines[1::2], strict=True)] == [
        (f"epoch {n}/2", f"validation {n}/2") for n in epochs
    ]
    assert lines[1][1].startswith("loss ")
    result = case.run(
        case.settings(
            train_file=case.write(tmp_path / f"train-{case.file}", *case.examples),
            dev_file=case.write(tmp_path / f"dev-{case.file}", *some),
            albert_hub_module_handle=small_pretrained,
            output_dir=tmp_path / "run",
            do_train=True,
            do_eval=True,
            max_seq_length=16,
            train_batch_size=4,
            num_train_epochs=2,
            save_checkpoints_steps=case.steps,
            **{"task_name": "custom"} if case.kind is albert_tf.TextClassifier else {},
            **settings,
        )
    )
    assert scores == result.scores
    other = case.kind.load(tmp_path / "run")
    for ours, theirs in zip(classifier.model.weights, other.model.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert classifier(case.examples[0]) == other(case.examples[0])


def test_constant_predictions_on_training_texts_are_reported(new, caplog):
    texts, labels = TEXTS * 90, LABELS * 90
    new().fit(texts, labels, train_step=1, batch_size=7, learning_rate=1e-9, seed=5)
    assert caplog.text.count("100% of 150 predictions are") == 1


@pytest.mark.usefixtures("traced")
def test_trained_models_are_saved_and_training_continues(case, new, tmp_path, capfd):
    texts, labels = case.examples
    columns = pandas.DataFrame({"texts": texts, "labels": labels})
    classifier = new(case)
    before = classifier.evaluate(columns["texts"], columns["labels"])["eval_loss"]
    settings = {"epochs": 30, "batch_size": 5, "learning_rate": 0.01, "verbose": False}
    found = classifier.fit(columns["texts"], columns["labels"], **settings)
    assert found["loss"] < before
    assert capfd.readouterr().out == ""
    scores = classifier.evaluate(texts, labels)
    assert scores["eval_loss"] < 0.7 * before
    classifier.save(tmp_path / "kept")
    loaded = case.kind.load(tmp_path / "kept")
    assert loaded(texts) == classifier(texts)
    assert loaded.evaluate(texts, labels) == scores
    loaded.fit(texts, labels, epochs=1, batch_size=5, learning_rate=1e-7)
    again = loaded.evaluate(texts, labels)["eval_loss"]
    assert again == pytest.approx(scores["eval_loss"], rel=0.02)
    dev_file = case.write(tmp_path / case.file, texts, labels)
    command = case.settings(output_dir=tmp_path / "kept", dev_file=dev_file, do_eval=True)
    assert case.run(command).scores == pytest.approx(scores, rel=1e-6)


def test_a_stored_head_is_kept_renamed_or_replaced(case, new, tmp_path):
    new(case).save(tmp_path / "model")

    def load(labels, **settings):
        return case.kind.load(tmp_path / "model", labels=labels, **settings)

    def weights(labels, **settings):
        return np.array(load(labels, **settings).model.classifier.output_weights)

    kept, others = weights(case.names), [f"X-{name}" for name in case.names]
    np.testing.assert_array_equal(weights(others, rename_labels=True), kept)
    assert np.all(weights(others, new_head=True) != kept)
    assert load(others, rename_labels=True).model.labels == tuple(others)
    for labels in (case.names[::-1], others, [*case.names, "more"]):
        with pytest.raises(ValueError, match="rename_labels"):
            load(labels)
    with pytest.raises(ValueError, match=f"num_labels is {len(kept)} in"):
        load([*case.names, "more"], rename_labels=True)


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


@pytest.mark.parametrize(
    "kind",
    usual(
        [np.array, pandas.Series, pandas.Index, tuple, iter, "enum"], pandas.Series, iter, "enum"
    ),
)
def test_labels_of_any_list_type(case, new, tmp_path, kind):
    members = Answer if case.kind is albert_tf.TextClassifier else Tag
    given = [members, list(members)] if kind == "enum" else [kind(case.names), kind(case.names)]
    expected = tuple(case.names)
    loaded = new(case, labels=given[0])
    loaded.save(tmp_path / "model")
    assert loaded.model.labels == expected
    assert [type(name) for name in loaded.model.labels] == [str] * len(expected)
    if kind is not iter:
        again = case.kind.load(tmp_path / "model", labels=given[1])
        assert again.model.trained_task.labels.names == expected
        model = type(loaded.model).load(str(tmp_path / "model"), labels=given[1])
        assert case.kind(model, labels=given[1])(case.examples[0][:1])
        others = np.array([f"X-{name}" for name in case.names])
        renamed = case.kind.load(tmp_path / "model", labels=others, rename_labels=True)
        assert renamed.model.labels == tuple(others)
        with pytest.raises(ValueError, match="rename_labels=True"):
            case.kind.load(tmp_path / "model", labels=others)


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


@pytest.mark.parametrize(
    ("name", "texts", "labels", "error", "named"),
    [
        ("texts", TEXTS, ["yes", "no"], ValueError, "labels"),
        ("texts", TEXTS, ["yes", "no", "yes", "maybe", "no"], ValueError, r"labels\[3\].*'maybe'"),
        ("texts", TEXTS, [1, 0, 1, 0, 1], ValueError, r"labels\[0\].*1"),
        ("words", [["a", "b"]], [["O"]], ValueError, r"labels\[0\]"),
        ("words", [["a"]], [["O"], ["O"]], ValueError, "labels"),
        ("words", [["a"]], [["X"]], ValueError, r"labels\[0\].* one of .*'X'"),
        ("words", ["a text"], [["O"]], TypeError, r"sentences\[0\]"),
        ("words", [["a"]], [[1]], TypeError, r"labels\[0\]"),
    ],
)
def test_invalid_data_are_rejected(new, name, texts, labels, error, named):
    with pytest.raises(error, match=named):
        new(CASES[name]).fit(texts, labels)


@pytest.mark.parametrize(
    ("epochs", "error"), [(0, ValueError), (math.inf, ValueError), ("2", TypeError)]
)
def test_invalid_epochs_are_rejected(new, epochs, error):
    with pytest.raises(error, match=r"^`epochs` must be"):
        new().fit(TEXTS, LABELS, epochs=epochs)


def test_validation_data_must_have_second_texts_if_the_training_data_have(new):
    classifier = new()
    for validation_data in ((TEXTS, LABELS), (TEXTS, LABELS, TEXTS[:2])):
        with pytest.raises(ValueError, match=r"validation_data|text_pairs"):
            classifier.fit(TEXTS, LABELS, TEXTS, validation_data=validation_data)
