"""`TextClassifier.fit`, `evaluate` and `save`, compared with `run_classifier`."""

import numpy as np
import pandas
import pytest

import albert_tf

TEXTS = [
    "a moving film",
    "a waste of two hours",
    "warm and funny",
    "dull from start to end",
    "fine",
]
LABELS = ["yes", "no", "yes", "no", "yes"]
TABLE = pandas.DataFrame({"text_a": TEXTS, "label": LABELS})
SETTINGS = {"learning_rate": 1e-3, "seed": 7}


@pytest.fixture
def new_classifier(small_pretrained):
    """Returns a function that loads a classifier with a new head."""
    settings = {"labels": ["no", "yes"], "max_seq_length": 16}
    return lambda **changes: albert_tf.TextClassifier.load(
        small_pretrained, **{**settings, **changes}
    )


def write_rows(path, table):
    table.to_json(path, orient="records", lines=True)
    return path


def test_the_same_data_and_settings_give_the_weights_of_the_command(
    tmp_path, new_classifier, small_pretrained
):
    classifier = new_classifier()
    scores = classifier.fit(
        np.array(TEXTS),
        np.array(LABELS),
        validation_data=(TEXTS[:3], LABELS[:3]),
        epochs=2,
        batch_size=2,
        **SETTINGS,
    )
    result = albert_tf.run_classification(
        albert_tf.ClassificationSettings(
            task_name="custom",
            train_file=write_rows(tmp_path / "train.jsonl", TABLE),
            dev_file=write_rows(tmp_path / "dev.jsonl", TABLE[:3]),
            albert_hub_module_handle=small_pretrained,
            output_dir=tmp_path / "run",
            do_train=True,
            do_eval=True,
            max_seq_length=16,
            train_batch_size=2,
            num_train_epochs=2,
            save_checkpoints_steps=3,
            **SETTINGS,
        )
    )
    assert scores == result.scores
    other = albert_tf.TextClassifier.load(tmp_path / "run")
    for ours, theirs in zip(classifier.model.weights, other.model.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert classifier(TEXTS) == other(TEXTS)


def test_trained_models_are_saved_and_training_continues(tmp_path, new_classifier):
    columns = TABLE["text_a"], TABLE["label"]
    classifier = new_classifier()
    before = classifier.evaluate(*columns)["loss"]
    classifier.fit(*columns, epochs=30, batch_size=5, learning_rate=0.01)
    scores = classifier.evaluate(TEXTS, LABELS)
    assert scores["loss"] < 0.7 * before
    classifier.save(tmp_path / "kept")
    loaded = albert_tf.TextClassifier.load(tmp_path / "kept")
    assert loaded(TEXTS) == classifier(TEXTS)
    assert loaded.evaluate(TEXTS, LABELS) == scores
    loaded.fit(TEXTS, LABELS, epochs=1, batch_size=5, learning_rate=1e-7)
    assert loaded.evaluate(TEXTS, LABELS)["loss"] == pytest.approx(scores["loss"], rel=1e-2)
    command = albert_tf.ClassificationSettings(
        output_dir=tmp_path / "kept",
        dev_file=write_rows(tmp_path / "dev.jsonl", TABLE),
        do_eval=True,
    )
    assert albert_tf.run_classification(command).scores == scores


def test_numeric_class_names(new_classifier):
    scores = new_classifier(labels=["0", "1"]).evaluate(TEXTS, np.array([1, 0, 1, 0, 1]))
    assert scores.keys() >= {"eval_accuracy", "loss"}


def test_regression_of_pairs(new_classifier):
    number, others = new_classifier(labels=[]), TEXTS[::-1]
    validation_data = (TEXTS, np.arange(5.0), others)
    scores = number.fit(TEXTS, [1, 2.5, 3, 4, 5], others, validation_data=validation_data, epochs=1)
    assert scores.keys() >= {"pearson", "spearman"}
    assert number.pairs is True
    for value in (None, "x", float("nan"), [1.0]):
        with pytest.raises(ValueError, match=r"labels\[1\] must be a finite number"):
            number.fit(TEXTS[:2], [1.5, value])


def test_multi_label(new_classifier):
    several = new_classifier(labels=["a", "b", "c"], multi_label=True)
    several.fit(TEXTS, [["a"], [], ["b", "c"], ["a", "b"], ["c"]], epochs=1)
    assert several.evaluate(TEXTS[:2], [["a"], []]).keys() >= {"f1_micro", "f1_macro"}
    with pytest.raises(ValueError, match=r"labels\[1\].*'d'"):
        several.evaluate(TEXTS[:2], [["a"], ["d"]])


def test_invalid_data_is_rejected(new_classifier):
    classifier = new_classifier()
    for labels, named in (
        (["yes", "no"], "labels"),
        (["yes", "no", "yes", "maybe", "no"], r"labels\[3\].*'maybe'"),
        ([1, 0, 1, 0, 1], r"labels\[0\].*1"),
    ):
        with pytest.raises(ValueError, match=named):
            classifier.fit(TEXTS, labels)
    for validation_data in ((TEXTS, LABELS), (TEXTS, LABELS, TEXTS[:2])):
        with pytest.raises(ValueError, match=r"validation_data|text_pairs"):
            classifier.fit(TEXTS, LABELS, TEXTS, validation_data=validation_data)


def test_a_stored_head_is_kept_renamed_or_replaced(tmp_path, new_classifier):
    new_classifier().save(tmp_path / "model")
    load = albert_tf.AlbertForClassification.load

    def weights(labels, **settings):
        return np.array(
            load(tmp_path / "model", labels=labels, **settings).classifier.output_weights
        )

    kept = weights(["no", "yes"])
    np.testing.assert_array_equal(weights(["bad", "good"], rename_labels=True), kept)
    assert np.all(weights(["bad", "good"], new_head=True) != kept)
    assert load(tmp_path / "model", labels=["a", "b"], rename_labels=True).labels == ("a", "b")
    for labels in (["yes", "no"], ["a", "b"], ["a", "b", "c"]):
        with pytest.raises(ValueError, match="rename_labels"):
            albert_tf.TextClassifier.load(tmp_path / "model", labels=labels)
    with pytest.raises(ValueError, match="needs 2 names"):
        weights(["a", "b", "c"], rename_labels=True)
