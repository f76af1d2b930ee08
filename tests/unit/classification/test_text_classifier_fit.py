"""`TextClassifier.fit`, `evaluate` and `save`, compared with `run_classifier`."""

import json

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
SETTINGS = {"learning_rate": 1e-3, "seed": 7}


@pytest.fixture
def new_classifier(small_pretrained):
    """Returns a function that loads a classifier with a new head."""
    settings = {"labels": ["no", "yes"], "max_seq_length": 16}
    return lambda **changes: albert_tf.TextClassifier.load(
        small_pretrained, **{**settings, **changes}
    )


def write_rows(path, texts, labels):
    rows = ({"text_a": text, "label": label} for text, label in zip(texts, labels, strict=True))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


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
    write_rows(tmp_path / "train.jsonl", TEXTS, LABELS)
    write_rows(tmp_path / "dev.jsonl", TEXTS[:3], LABELS[:3])
    result = albert_tf.run_classification(
        albert_tf.ClassificationSettings(
            task_name="custom",
            train_file=tmp_path / "train.jsonl",
            dev_file=tmp_path / "dev.jsonl",
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
    classifier = new_classifier()
    before = classifier.evaluate(TEXTS, LABELS)["loss"]
    classifier.fit(TEXTS, LABELS, epochs=30, batch_size=5, learning_rate=0.01)
    scores = classifier.evaluate(TEXTS, LABELS)
    assert scores["loss"] < 0.7 * before
    classifier.save(tmp_path / "kept")
    loaded = albert_tf.TextClassifier.load(tmp_path / "kept")
    assert loaded(TEXTS) == classifier(TEXTS)
    assert loaded.evaluate(TEXTS, LABELS) == scores
    loaded.fit(TEXTS, LABELS, epochs=1, batch_size=5, learning_rate=1e-7)
    assert loaded.evaluate(TEXTS, LABELS)["loss"] == pytest.approx(scores["loss"], rel=1e-2)
    command = albert_tf.ClassificationSettings(
        output_dir=tmp_path / "kept", dev_file=tmp_path / "dev.jsonl", do_eval=True
    )
    write_rows(tmp_path / "dev.jsonl", TEXTS, LABELS)
    assert albert_tf.run_classification(command).scores == scores


def test_pairs_regression_multi_label_and_labels_that_are_numbers(new_classifier):
    pairs = new_classifier()
    pairs.fit(TEXTS, LABELS, TEXTS[::-1], epochs=1)
    assert pairs.pairs is True
    assert pairs.evaluate(TEXTS, LABELS, TEXTS[::-1]).keys() >= {"eval_accuracy", "loss"}
    number = new_classifier(labels=[])
    scores = number.fit(TEXTS, [1, 2.5, 3, 4, 5], validation_data=(TEXTS, np.arange(5.0)), epochs=1)
    assert scores.keys() >= {"pearson", "spearman"}
    several = new_classifier(labels=["a", "b", "c"], multi_label=True)
    several.fit(TEXTS, [["a"], [], ["b", "c"], ["a", "b"], ["c"]], epochs=1)
    assert several.evaluate(TEXTS[:2], [["a"], []]).keys() >= {"f1_micro", "f1_macro"}
    with pytest.raises(ValueError, match=r"labels\[1\].*'d'"):
        several.evaluate(TEXTS[:2], [["a"], ["d"]])
    new_classifier(labels=["0", "1"]).fit(TEXTS, np.array([1, 0, 1, 0, 1]), epochs=1)


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        (["yes", "no"], "labels"),
        (["yes", "no", "yes", "maybe", "no"], r"labels\[3\].*'maybe'"),
        ([1, 0, 1, 0, 1], r"labels\[0\].*1"),
    ],
)
def test_wrong_labels_are_rejected(new_classifier, labels, named):
    with pytest.raises(ValueError, match=named):
        new_classifier().fit(TEXTS, labels)


@pytest.mark.parametrize("value", [None, "x", float("nan"), [1.0]])
def test_numbers_of_a_regression_must_be_finite(new_classifier, value):
    classifier = new_classifier(labels=[])
    for train in (classifier.fit, classifier.evaluate):
        with pytest.raises(ValueError, match=r"labels\[1\] must be a finite number"):
            train(TEXTS[:2], [1.5, value])


class TestStoredHeads:
    @pytest.fixture
    def trained(self, new_classifier, tmp_path):
        new_classifier().save(tmp_path / "model")
        return tmp_path / "model"

    def weights(self, model):
        return np.array(model.classifier.output_weights)

    @pytest.mark.parametrize("labels", [["yes", "no"], ["a", "b"], ["a", "b", "c"]])
    def test_other_labels_are_rejected(self, trained, labels):
        for load in (albert_tf.TextClassifier.load, albert_tf.AlbertForClassification.load):
            with pytest.raises(ValueError, match="rename_labels"):
                load(trained, labels=labels)

    def test_the_head_is_kept_renamed_or_replaced(self, trained):
        load = albert_tf.AlbertForClassification.load
        kept = self.weights(load(trained, labels=["no", "yes"]))
        renamed = load(trained, labels=["bad", "good"], rename_labels=True)
        assert renamed.labels == ("bad", "good")
        np.testing.assert_array_equal(self.weights(renamed), kept)
        new = load(trained, labels=["bad", "good"], new_head=True)
        assert np.all(self.weights(new) != kept)
        with pytest.raises(ValueError, match="needs 2 names"):
            load(trained, labels=["a", "b", "c"], rename_labels=True)


def test_the_former_argument_still_works():
    with pytest.warns(DeprecationWarning, match="path"):
        albert_tf.TextClassifier.load(where="mini", labels=["a", "b"])


def test_columns_of_a_table(new_classifier):
    table = pandas.DataFrame({"text": TEXTS, "label": LABELS})
    classifier = new_classifier()
    classifier.fit(table["text"], table["label"], epochs=1, **SETTINGS)
    assert classifier.evaluate(table["text"], table["label"]) == classifier.evaluate(TEXTS, LABELS)
    with pytest.raises(TypeError, match="texts"):
        classifier.fit(table, table["label"])
