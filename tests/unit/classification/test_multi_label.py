"""Multi-label classification: files, losses, scores, and equal results in all formats."""

import csv
import json
import random

import numpy as np
import pytest
import tensorflow as tf
from scipy import special
from sklearn import metrics as sklearn_metrics

import albert_tf
from albert_tf.checkpoints.formats import huggingface
from albert_tf.checkpoints.loading import read_model
from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.classification.data import CustomData
from albert_tf.classification.task import ClassificationTask
from albert_tf.data.splits import TRAIN
from albert_tf.finetuning.metrics import per_example_losses, predictions, scores
from albert_tf.labels import Labels
from albert_tf.modeling.losses import means
from albert_tf.modeling.models import AlbertForClassification
from albert_tf.serving.litert import LiteRTExport
from tests.classifier_run import ClassifierRun
from tests.text_models import CONFIG, write_model

pytestmark = pytest.mark.usefixtures("eager")

NAMES = ("joy", "anger", "10", "so, so")
LABELS = Labels(NAMES, True, 0.3)
RANDOM = np.random.default_rng(7)
LOGITS = RANDOM.normal(-0.5, 2.0, [9, 4]).astype(np.float32)
TARGETS = (RANDOM.random([9, 4]) < 0.4).astype(np.uint8)
IS_RIGHT = (special.logit(0.3) <= LOGITS) == TARGETS

CSV = 'label,text_a\njoy|anger,I\n,you\n"so, so | joy",it\n-,we\n'
JSONL = """{"label": ["joy", "anger"], "text_a": "I"}
{"label": [], "text_a": "you"}
{"label": "so, so|joy", "text_a": "it"}
{"label": null, "text_a": "we"}
{"text_a": "they"}
"""
# As pandas writes them.
LISTS = "label,text_a\n\"['a, b', 'c']\",I\n[],you\n\"('c',)\",it\n[x,we\n"
TOXIC = "text_a,toxic,insult\nI,1,0\nyou,False,TRUE\nit,0.0,1.0\nwe,,\nthey,-1,-1\n"
TOXIC_JSONL = """{"text_a": "I", "insult": 0, "toxic": 1}
{"text_a": "you", "toxic": false, "insult": true}
{"text_a": "it", "toxic": 0.0, "insult": 1.0}
{"text_a": "we", "toxic": "", "insult": 0}
{"text_a": "they", "toxic": null, "insult": 1}
"""
WRONG = "text_a,toxic,insult\nI,1,0\nyou,0,2\n"


def columns(names: object, **settings):
    given = albert_tf.ClassificationSettings(output_dir="x", label_column=names)
    return {"label_column": given.label_column, **settings}


@pytest.mark.parametrize(
    ("name", "text", "settings", "expected"),
    [
        # An empty cell means no labels; rows with "-", null or without the key are skipped.
        ("a.csv", CSV, {}, ["anger", "joy", "so, so", ":", "joy|anger", "", "so, so|joy"]),
        ("a.jsonl", JSONL, {}, ["anger", "joy", "so, so", ":", "joy|anger", "", "so, so|joy"]),
        *(
            ("a.csv", LISTS, settings, ["[x", "a, b", "c", ":", "a, b|c", "", "c", "[x"])
            for settings in ({}, {"labels": Labels(("[x", "a, b", "c"), True)})
        ),
        ("a.csv", "label,text_a\nx,I\nx|x,you\n", {}, r"line 3 .*'x\|x'"),
        ("a.csv", "label,text_a\nx,I\n,you\n", {}, "`train_file` .*'x'"),
        ("a.jsonl", '{"label": ["x|y", "z"], "text_a": "I"}\n', {}, "line 1 .*list"),
        ("a.csv", CSV, {"labels": Labels(("joy", "so, so"), True)}, r"line 2 .*'joy\|anger'"),
        ("a.csv", CSV, {"labels": Labels(("a", "b"))}, "`multi_label`"),
        ("a.csv", CSV, {"regression": True}, "`multi_label`"),
        # A column per label; an empty cell is 0, and -1 or null is unknown.
        *(
            (name, text, columns(given), ["toxic", "insult", ":", "toxic", "insult", "insult", ""])
            for name, text in (("a.csv", TOXIC), ("a.jsonl", TOXIC_JSONL))
            for given in (["toxic", "insult"], "toxic, insult", ["toxic|insult"])
        ),
        ("a.csv", WRONG, columns("toxic,insult"), "line 3 .*insult must be 0 or 1, .*'2'"),
        ("a.csv", WRONG, columns("toxic,insult", multi_label=False), "need `multi_label`"),
        ("a.csv", WRONG, columns("toxic,toxic"), "different columns"),
        ("a.csv", WRONG, columns("toxic,threat"), "no column named 'threat'.*`label_column`"),
    ],
)
def test_files_of_any_number_of_labels(name, text, settings, expected, tmp_path):
    path = tmp_path / name
    path.write_text(text)
    settings = {"multi_label": True, **settings}
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            CustomData(str(path), **settings).read(TRAIN)
        return
    custom = CustomData(str(path), **settings)
    found = [example.label for example in custom.read(TRAIN)]
    assert [*custom.labels.names, ":", *found] == expected
    assert custom.labels == Labels(custom.labels.names, True) != Labels(custom.labels.names)
    encoded = custom.labels.encode(found)
    assert encoded.dtype == np.uint8
    chosen = [{*np.array(custom.labels.names)[row > 0]} for row in encoded]
    assert chosen == [{*label.split("|")} - {""} for label in found]


def test_scores_equal_scikit_learn():
    predicted = special.logit(0.3) <= LOGITS
    found = scores(LOGITS, TARGETS, ("f1_micro", "f1_macro"), LABELS)
    micro = sklearn_metrics.f1_score(TARGETS, predicted, average="micro")
    assert found["f1_micro"] == pytest.approx(micro)
    macro = sklearn_metrics.f1_score(TARGETS, predicted, average="macro")
    assert found["f1_macro"] == pytest.approx(macro)
    assert found["eval_accuracy"] == pytest.approx(IS_RIGHT.all(axis=1).mean())
    losses = tf.keras.losses.binary_crossentropy(TARGETS, LOGITS, from_logits=True)
    np.testing.assert_allclose(per_example_losses(LOGITS, TARGETS, LABELS), losses, rtol=1e-5)
    assert found["eval_loss"] == pytest.approx(float(np.mean(losses)), rel=1e-5)
    assert predictions(LOGITS, LABELS).tolist() == predicted.astype(int).tolist()


@pytest.mark.parametrize("weights", [None, np.array([0.5, 4, 1, 2], np.float32)])
def test_a_loss_is_a_mean_over_texts_and_labels(weights):
    """Class weights multiply the terms of texts with and without the label."""
    task = ClassificationTask(CONFIG, LABELS, max_seq_length=20, class_weights=weights)
    example_weights = np.array([1, 0, 1, 1, 1, 1, 1, 1, 1.0], np.float32)
    features = {"label_ids": tf.constant(TARGETS), "example_weights": tf.constant(example_weights)}
    found = []
    for rows in (slice(0, 4), slice(4, 9)):
        part = {name: values[rows] for name, values in features.items()}
        outputs = {"logits": tf.constant(LOGITS[rows])}
        found.append({**task.losses(outputs, part), **task.metrics(outputs, part)})
        assert float(found[-1]["loss"].weight) == float(task.loss_weights(part)["loss"])
    losses = np.logaddexp(0, LOGITS) - LOGITS * TARGETS
    terms = example_weights[:, None] * (np.ones(4) if weights is None else weights)
    expected = {
        "loss": (terms * losses).sum() / terms.sum(),
        "accuracy": np.average(IS_RIGHT.all(axis=1), weights=example_weights),
    }
    assert means(found) == pytest.approx(expected, rel=1e-5)


def test_compiled_models_have_the_same_loss():
    model = AlbertForClassification(CONFIG, labels=NAMES, multi_label=True)
    assert type(model).from_config(model.get_config()).multi_label
    loss = model.default_loss()["logits"]
    np.testing.assert_allclose(
        loss(tf.constant(TARGETS, tf.float32), tf.constant(LOGITS)),
        per_example_losses(LOGITS, TARGETS, LABELS).mean(),
        rtol=1e-5,
    )
    assert np.isnan(loss(tf.fill([9, 4], 2.0), tf.constant(LOGITS)))
    with pytest.raises(ValueError, match="multi_label needs at least two labels"):
        AlbertForClassification(CONFIG, 1, multi_label=True)


def test_a_model_keeps_its_labels_and_threshold_in_every_format(tokenizer, tmp_path):
    random.seed(3)
    model = AlbertForClassification(CONFIG, 4)
    task = StoredTask("custom", LABELS, is_pair=False, max_seq_length=20)
    directory = write_model(tmp_path / "trained", model, tokenizer, task)
    assert StoredTask.read(directory).labels.threshold == 0.3
    contents, _ = read_model(directory)
    (tmp_path / "huggingface").mkdir()
    huggingface.write(str(tmp_path / "huggingface"), contents)
    config = json.loads((tmp_path / "huggingface" / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"
    assert config["id2label"] == {str(i): name for i, name in enumerate(NAMES)}
    loaded = albert_tf.load(directory)
    albert_tf.save(loaded, tmp_path / "saved")
    lines = ["the cat", "on a mat", "it was very good"]
    expected = albert_tf.TextClassifier.load(directory, max_seq_length=20)(lines)
    for where in ("huggingface", "saved"):
        other = albert_tf.TextClassifier.load(tmp_path / where, max_seq_length=20)
        assert other(lines) == expected
    assert albert_tf.TextClassifier(loaded)(lines) == expected
    for prediction in expected:
        chosen = [name for name, p in prediction.probabilities.items() if p >= 0.3]
        assert prediction.label == "|".join(chosen)
    albert_tf.save(AlbertForClassification(CONFIG, 4, multi_label=True), tmp_path / "unnamed")
    assert StoredTask.read(str(tmp_path / "unnamed")).labels.multi_label
    one = AlbertForClassification.load(directory, labels=NAMES, multi_label=False)
    assert (one.multi_label, one.trained_task) == (False, None)
    assert AlbertForClassification.load(directory, labels=NAMES).multi_label
    assert not AlbertForClassification.load(directory, num_labels=3, new_head=True).multi_label


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"multi_label_threshold": 1.0}, "`multi_label_threshold` must"),
        ({"multi_label_threshold": 0.7, "multi_label": False}, "needs `multi_label`"),
        ({"task_name": "cola"}, "`multi_label` needs `task_name`=custom"),
        ({"class_weights": "fear=2"}, "`class_weights` must .*fear"),
    ],
)
def test_contradicting_flags_are_rejected(changes, named, tmp_path, golden):
    small = several_labels(tmp_path, golden)
    with pytest.raises(ValueError, match=named):
        albert_tf.run_classification(settings(small, do_train=True, **changes))
    assert not small.output.exists()


def test_a_multi_label_model_is_rejected_without_multi_label(tmp_path, golden):
    """The error is about `multi_label`, not about the threshold, which is not set."""
    small = several_labels(tmp_path, golden)
    small.output.mkdir()
    StoredTask("custom", Labels(NAMES, True, 0.3), False).write(str(small.output))
    with pytest.raises(ValueError, match="trained with `multi_label`=True"):
        albert_tf.run_classification(settings(small, do_train=True, multi_label=False))


def several_labels(tmp_path, golden):
    """Returns a run whose files have any number of labels per text."""
    small = ClassifierRun(tmp_path, golden)
    random = np.random.default_rng(5)
    for split, rows in small.rows.items():
        with (tmp_path / f"{split}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("label", "review"))
            for _, text in rows:
                chosen = [name for name in NAMES if random.random() < 0.4]
                writer.writerow(("|".join(chosen), text))
    return small


def settings(small, **changes):
    flags = small.flags(**{"multi_label": True, "class_weights": "balanced", **changes})
    return albert_tf.ClassificationSettings(**flags)


@pytest.mark.slow
def test_all_outputs_have_the_same_labels(tmp_path, golden):
    small = several_labels(tmp_path, golden)
    result = albert_tf.run_classification(
        settings(small, do_train=True, do_eval=True, do_predict=True, multi_label_threshold=0.01)
    )
    stored = json.loads((small.output / "labels.json").read_text())
    names = stored["labels"]
    assert result.scores.keys() == {
        "f1_micro",
        "f1_macro",
        "eval_accuracy",
        "eval_loss",
        "loss",
    } | {f"f1_{name}" for name in names}
    best = max(r["f1_micro"] for r in result.history if r["phase"] == "eval")
    assert result.scores["f1_micro"] == best
    assert (sorted(names), stored["multi_label_threshold"]) == (sorted(NAMES), 0.01)
    assert not (small.output / "confusion_matrix.png").exists()

    def submitted():
        rows = (small.output / "submit_results.tsv").read_text().splitlines()[1:]
        return [row.split("\t")[1] for row in rows]

    given = [text for _, text in small.rows["test"]]
    of_python = albert_tf.TextClassifier.load(small.output)(given)
    assert {prediction.label for prediction in of_python} == {*submitted()} == {"|".join(names)}

    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"{text}\n" for text in given))
    threshold = float(np.sort(small.predicted()[:, 0])[5:7].mean())
    again = albert_tf.run_classification(
        albert_tf.ClassificationSettings(
            output_dir=str(small.output),
            do_predict=True,
            test_file=str(tmp_path / "test.csv"),
            predict_file=str(lines),
            predict_output_file=str(tmp_path / "answers.tsv"),
            export_dir=str(tmp_path / "exported"),
            export_text_model=True,
            multi_label_threshold=threshold,
        )
    )
    assert again.step == result.step
    found = small.predicted()
    chosen = ["|".join(np.array(names)[row]) for row in found >= threshold]
    assert submitted() == chosen
    assert len(set(chosen)) > 1
    answers = (tmp_path / "answers.tsv").read_text().splitlines()
    assert [answer.split("\t")[0] for answer in answers] == chosen
    (text_model,) = (tmp_path / "exported" / "text").iterdir()
    served = tf.saved_model.load(str(text_model)).signatures["serving_default"](
        texts=tf.constant(given)
    )
    assert [name.decode() for name in served["predicted_labels"].numpy()] == chosen
    np.testing.assert_allclose(served["probabilities"], found, rtol=0, atol=1e-5)
    assert served["predictions"].numpy().tolist() == (found >= threshold).astype(int).tolist()

    labels = Labels(tuple(names), True, threshold)
    model = albert_tf.load(small.output / "model.ckpt-best")
    LiteRTExport(model, str(tmp_path / "a.tflite"), labels=labels).write()
    runner = tf.lite.Interpreter(str(tmp_path / "a.tflite")).get_signature_runner()
    ids = np.array([[2, 13, 25, 3]], np.int32)
    inputs = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}
    of_litert = runner(**inputs)
    (token_model,) = (p for p in (tmp_path / "exported").iterdir() if p.name != "text")
    tokens = tf.saved_model.load(str(token_model)).signatures["tokens"]
    of_tokens = tokens(**{name: tf.constant(values) for name, values in inputs.items()})
    np.testing.assert_allclose(of_litert["probabilities"], of_tokens["probabilities"], atol=1e-5)
    np.testing.assert_array_equal(of_litert["predictions"], of_tokens["predictions"])
