"""`TokenClassifier.fit`, `evaluate` and `save`, compared with `run_token_classifier`."""

import numpy as np
import pandas
import pytest

import albert_tf
from tests.token_run import tagged_sentences, write_conll

NAMES = ["O", "B-animal", "B-place", "I-animal", "I-place"]
TRAIN, DEV = tagged_sentences(13, 0), tagged_sentences(5, 1)
SETTINGS = {"learning_rate": 1e-3, "seed": 7}


def columns(rows):
    return [[word for word, _ in row] for row in rows], [[name for _, name in row] for row in rows]


@pytest.fixture
def classifier(small_pretrained):
    return albert_tf.TokenClassifier.load(small_pretrained, labels=NAMES, max_seq_length=16)


def test_fit_gives_the_weights_of_the_command(tmp_path, classifier, small_pretrained):
    scores = classifier.fit(
        *columns(TRAIN), validation_data=columns(DEV), epochs=2, batch_size=4, **SETTINGS
    )
    result = albert_tf.run_token_classification(
        albert_tf.TokenClassificationSettings(
            train_file=write_conll(tmp_path / "train.conll", TRAIN),
            dev_file=write_conll(tmp_path / "dev.conll", DEV),
            albert_hub_module_handle=small_pretrained,
            output_dir=tmp_path / "run",
            do_train=True,
            do_eval=True,
            max_seq_length=16,
            train_batch_size=4,
            num_train_epochs=2,
            save_checkpoints_steps=4,
            **SETTINGS,
        )
    )
    assert scores == result.scores
    other = albert_tf.TokenClassifier.load(tmp_path / "run")
    for ours, theirs in zip(classifier.model.weights, other.model.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    evaluated = classifier.evaluate(*columns(DEV))
    assert evaluated.keys() == scores.keys()
    np.testing.assert_allclose(list(evaluated.values()), list(scores.values()), rtol=1e-6)


def test_saved_models_predict_the_same_and_can_be_trained_further(tmp_path, classifier):
    table = pandas.DataFrame(dict(zip(["words", "labels"], columns(TRAIN), strict=True)))
    before = classifier.evaluate(table["words"], table["labels"])["eval_loss"]
    classifier.fit(table["words"], table["labels"], epochs=20, batch_size=4, learning_rate=0.01)
    after = classifier.evaluate(table["words"], table["labels"])["eval_loss"]
    assert after < 0.5 * before
    classifier.save(tmp_path / "saved")
    loaded = albert_tf.TokenClassifier.load(tmp_path / "saved")
    assert loaded(columns(DEV)[0]) == classifier(columns(DEV)[0])
    loaded.fit(*columns(TRAIN), epochs=1, learning_rate=1e-7)
    assert loaded.evaluate(*columns(TRAIN))["eval_loss"] == pytest.approx(after, rel=0.02)


def test_labels_of_a_head_are_renamed_or_replaced(tmp_path, classifier):
    classifier.save(tmp_path / "saved")
    load = albert_tf.TokenClassifier.load
    other = ["O", "B-x", "B-y", "I-x", "I-y"]
    with pytest.raises(ValueError, match="new_head=True"):
        load(tmp_path / "saved", labels=other)
    texts = columns(DEV)[0]
    renamed = load(tmp_path / "saved", labels=other, rename_labels=True)
    for one, two in zip(load(tmp_path / "saved")(texts), renamed(texts), strict=True):
        assert [NAMES.index(word.label) for word in one.words] == [
            other.index(word.label) for word in two.words
        ]
    replaced = load(tmp_path / "saved", labels=["O", "B-z"], new_head=True)
    assert {word.label for one in replaced(texts) for word in one.words} <= {"O", "B-z"}


@pytest.mark.parametrize(
    ("sentences", "labels", "error", "named"),
    [
        ([["a", "b"]], [["O"]], ValueError, r"labels\[0\]"),
        ([["a"]], [["O"], ["O"]], ValueError, "labels"),
        ([["a"]], [["B-unknown"]], ValueError, r"labels\[0\]"),
        (["a text"], [["O"]], TypeError, r"sentences\[0\]"),
        ([["a"]], [[1]], TypeError, r"labels\[0\]"),
    ],
)
def test_invalid_input_is_rejected(classifier, sentences, labels, error, named):
    with pytest.raises(error, match=named):
        classifier.fit(sentences, labels)
