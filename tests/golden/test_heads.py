"""Variables, outputs, gradients, scores and exports of the heads of the original release."""

from functools import cache

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.loading import load_weights
from albert_tf.classification.export import export_classifier
from albert_tf.classification.task import ClassificationTask
from albert_tf.config import AlbertConfig
from albert_tf.finetuning import metrics
from albert_tf.finetuning.metrics import per_example_losses, predictions, probabilities, scores
from albert_tf.labels import Labels
from albert_tf.modeling.models import position_mask
from albert_tf.modeling.ops import PLAIN, Ops
from albert_tf.modeling.original_names import original_names
from albert_tf.multiple_choice.task import MultipleChoiceTask
from albert_tf.squad.export import export_spans
from albert_tf.squad.task import SquadTask
from tests.golden.reference import DATA, INPUTS, assert_close, features_of, read_arrays, read_json
from tests.serving import serialized
from tests.unpadding import UnpaddingOps
from tests.usual import usual

LABELS = {
    "mrpc": Labels(("0", "1")),
    "mnli": Labels(("contradiction", "entailment", "neutral")),
    "cola": Labels(("0", "1")),
    "sts-b": Labels(),
}
METRICS = {"mrpc": ("f1",), "mnli": (), "cola": ("matthews",), "sts-b": ("pearson", "spearman")}
ADDED = {"f1", "spearman"}  # defined by the benchmark, not reported by the original
CHOICES, LENGTH = 4, 64
POOLER = {"bert/pooler/dense/kernel", "bert/pooler/dense/bias"}


class Head:
    """A recorded head: its folder, task, model and features.

    Attributes:
        without_effect: endings of variables that a softmax ignores. Their gradients are 0, and the
            recorded values are rounding errors.
        terms_cancel: whether some gradients are differences of nearly equal numbers, so that their
            errors are relative to the largest gradient of the model.
        not_trained: variables without a gradient.
    """

    without_effect: tuple[str, ...] = ("self/key/bias",)
    terms_cancel = False
    not_trained: frozenset[str] = frozenset()

    def __init__(self, folder, prefix):
        self.folder, self.prefix = folder, prefix
        self.config = AlbertConfig.from_json_file(str(folder / "albert_config.json"))
        self.task = self.make_task()
        self.model = self.task.build_model()
        load_weights(self.model, str(folder / f"{prefix}model.ckpt")).check_complete()
        self.features = features_of(self.prepared(self.arrays("inputs")))

    def prepared(self, inputs):
        return inputs

    def arrays(self, name, prefix=""):
        return read_arrays(self.folder / f"{self.prefix}{name}.npz", prefix)

    def variables(self):
        rows = read_json(self.folder / f"{self.prefix}variables.json")
        return [(row["name"], row["shape"]) for row in rows]

    def loss(self, ops=PLAIN, padding=0):
        """Returns the loss; `padding` positions are added to each sequence."""
        features = dict(self.features)
        for name in {*INPUTS, "p_mask"} & features.keys():
            values = features[name]
            ends = [[0, 0]] * (values.shape.rank - 1) + [[0, padding]]
            features[name] = tf.pad(values, ends, constant_values=int(name == "p_mask"))
        outputs = self.model(features, ops=ops)
        return self.task.total_loss(self.task.losses(outputs, features))


class Classifier(Head):
    def __init__(self, name):
        self.labels = LABELS[name]
        super().__init__(DATA / "glue" / "heads", f"{name}_")

    def make_task(self):
        return ClassificationTask(self.config, self.labels, max_seq_length=32)


class Choice(Head):
    without_effect = ("self/key/bias", "output_bias")
    terms_cancel = True  # between the options

    def __init__(self):
        super().__init__(DATA / "race" / "heads", "")

    def make_task(self):
        return MultipleChoiceTask(self.config, max_seq_length=LENGTH)

    def prepared(self, inputs):
        return {
            name: values if name == "label_ids" else values.reshape(-1, CHOICES, LENGTH)
            for name, values in inputs.items()
        }


class Squad(Head):
    without_effect = (
        "self/key/bias",
        "squad/output_bias",
        "start_logits/dense/bias",
        "end_logits/LayerNorm/beta",
        "end_logits/dense_1/bias",
    )
    not_trained = frozenset(POOLER)

    def __init__(self, version):
        self.version = version
        super().__init__(DATA / "squad" / "heads", f"v{version}_")
        self.features["is_impossible"] = tf.cast(self.features["is_impossible"], tf.float32)

    def make_task(self):
        return SquadTask(self.config, self.version, max_seq_length=64)

    def outputs(self, mode, ops):
        """Returns our outputs and the recorded ones, of training or prediction."""
        recorded = self.arrays("outputs", f"{mode}/")
        recorded.pop("unique_ids", None)
        inputs = dict(self.features)
        if mode == "predict":
            del inputs["start_positions"], inputs["p_mask"]
        outputs = self.model(inputs, ops=ops)
        if self.version == 1:
            # Despite their names, these are raw scores.
            for side in ("start", "end"):
                outputs[f"{side}_log_prob"] = outputs[f"{side}_logits"]
        if mode == "train":
            outputs["total_loss"] = self.loss(ops)
        return {name: outputs[name].numpy() for name in recorded}, recorded


HEADS = {
    **{name: (Classifier, name) for name in ("mrpc", "mnli", "sts-b")},
    "race": (Choice,),
    **{f"squad{version}": (Squad, version) for version in (1, 2)},
}


@cache
def head_named(name) -> Head:
    kind, *arguments = HEADS[name]
    return kind(*arguments)


@pytest.mark.parametrize("name", HEADS)
def test_names_shapes_and_order_of_variables(name):
    head = head_named(name)
    variables = original_names(head.model)
    assert [(name, list(v.shape)) for name, v in variables.items()] == head.variables()
    trained = {id(v) for v in head.model.trainable_variables}
    assert {n for n, v in variables.items() if id(v) not in trained} == head.not_trained
    assert trained <= {id(v) for v in variables.values()}


@pytest.mark.parametrize("is_unpadded", [False, True])
@pytest.mark.parametrize("name", HEADS)
def test_gradients_equal_the_original(name, is_unpadded):
    head, ops = head_named(name), UnpaddingOps(unpads=is_unpadded)
    recorded = head.arrays("gradients")
    variables = original_names(head.model)
    with tf.GradientTape() as tape:
        # The other models have no more positions.
        has_room = is_unpadded and isinstance(head, Classifier)
        loss = head.loss(ops, padding=16 if has_room else 0)
    gradients = dict(zip(variables, tape.gradient(loss, list(variables.values())), strict=True))
    assert {n for n, gradient in gradients.items() if gradient is None} == head.not_trained
    assert recorded.keys() == gradients.keys() - head.not_trained
    largest = max(np.abs(values).max() for values in recorded.values())
    at_least = 1e-5 * largest if head.terms_cancel else 0.0
    for variable, expected in recorded.items():
        if variable.endswith(head.without_effect):
            np.testing.assert_allclose(gradients[variable], 0 * expected, rtol=0, atol=1e-6)
        else:
            assert_close(gradients[variable], expected, at_least=at_least, name=variable)
    errors = [np.array(gradients[name]) - values for name, values in recorded.items()]
    norm = np.linalg.norm([np.linalg.norm(values) for values in recorded.values()])
    assert np.linalg.norm([np.linalg.norm(error) for error in errors]) <= 1e-5 * norm
    if has_room:
        ops.assert_removed(np.zeros(1))


def assert_outputs(outputs, recorded):
    assert outputs.keys() == recorded.keys()
    for name, output in outputs.items():
        assert output.dtype == recorded[name].dtype, name
        assert_close(output, recorded[name], name=name)


@pytest.mark.parametrize("is_unpadded", [False, True])
@pytest.mark.parametrize("name", ["mrpc", "mnli", "sts-b"])
def test_classifiers_equal_the_original(name, is_unpadded):
    head, ops = head_named(name), Ops(unpads=is_unpadded)
    recorded, labels = head.arrays("outputs"), head.labels
    logits = head.model(head.features, ops=ops)["logits"].numpy()
    label_ids = head.features["label_ids"].numpy()
    # The original drops the axis of length one from the logits of a number.
    shape = recorded["logits"].shape
    outputs = {
        "logits": logits.reshape(shape) if labels.is_regression else logits,
        "probabilities": probabilities(logits, labels),
        "predictions": predictions(logits, labels),
        "per_example_loss": per_example_losses(logits, label_ids, labels),
        "loss": head.loss(ops),
    }
    assert_outputs(outputs, recorded)
    if not labels.is_regression:
        np.testing.assert_array_equal(outputs["predictions"], recorded["predictions"])


@pytest.mark.parametrize("is_unpadded", [False, True])
def test_multiple_choice_equals_the_original(is_unpadded):
    head, ops = head_named("race"), Ops(unpads=is_unpadded)
    recorded = head.arrays("outputs")
    logits, labels = head.model(head.features, ops=ops)["logits"], head.features["label_ids"]
    outputs = {
        "logits": logits,
        "probabilities": tf.nn.softmax(logits),
        "predictions": tf.argmax(logits, axis=-1, output_type=tf.int32),
        "per_example_loss": tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits),
        "loss": head.loss(ops),
    }
    assert_outputs(outputs, recorded)
    np.testing.assert_array_equal(outputs["predictions"], recorded["predictions"])
    flat = {
        name: tf.reshape(head.features[name], [-1, LENGTH])
        for name in ("input_ids", "input_mask", "segment_ids")
    }
    one_by_one = head.model(flat, ops=ops)["logits"]
    assert_close(tf.reshape(one_by_one, [-1, CHOICES]), recorded["logits"])


@pytest.mark.parametrize("name", ["squad1", "squad2"])
@pytest.mark.parametrize("mode", ["predict", "train"])
@pytest.mark.parametrize("is_unpadded", [False, True])
def test_question_answering_equals_the_original(name, mode, is_unpadded):
    ours, recorded = head_named(name).outputs(mode, Ops(unpads=is_unpadded))
    assert recorded
    for key, values in recorded.items():
        assert ours[key].dtype == values.dtype, key
        if values.dtype == np.int32:
            np.testing.assert_array_equal(ours[key], values, err_msg=key)
            continue
        is_masked = values < -1e29
        assert (values[~is_masked] > -100).all()
        np.testing.assert_array_equal(ours[key][is_masked], values[is_masked], err_msg=key)
        assert_close(ours[key][~is_masked], values[~is_masked], name=key)


def test_position_mask_equals_the_original():
    for path in sorted((DATA / "squad" / "features").glob("*.npz")):
        recorded = read_arrays(path)
        mask = position_mask(recorded["input_mask"], recorded["segment_ids"])
        np.testing.assert_array_equal(mask, recorded["p_mask"], err_msg=path.name)


@pytest.mark.parametrize("number", range(7))
def test_evaluation_equals_the_original(number, monkeypatch):
    case = read_json(DATA / "glue" / "metrics.json")[number]
    labels = LABELS[case["task"]]
    recorded = read_arrays(DATA / "glue" / "metric_inputs.npz", f"{case['name']}/")
    columns = {
        name: np.concatenate([recorded[f"batch_{i}/{name}"] for i in range(case["batches"])])
        for name in ("logits", "label_ids", "per_example_loss", "is_real_example")
    }
    real = columns["is_real_example"] == 1
    assert real.all() != case["weighted"]
    logits = columns["logits"].reshape(len(real), labels.num_outputs)
    # The recorded losses are an input, and do not follow from the logits.
    losses = columns["per_example_loss"][real]
    monkeypatch.setattr(metrics, "per_example_losses", lambda *_: losses)
    result = scores(logits[real], columns["label_ids"][real], METRICS[case["task"]], labels)
    assert result.keys() - ADDED == case["metrics"].keys()
    for name, value in case["metrics"].items():
        np.testing.assert_allclose(result[name], value, rtol=1e-6, atol=1e-6, err_msg=name)


def exported_inputs(head):
    return {name: values for name, values in head.arrays("inputs").items() if name in INPUTS}


@pytest.fixture(scope="module", params=usual(["mnli", "sts-b"], "mnli"))
def exported_classifier(request, tmp_path_factory):
    """Returns a head and the signatures of its export."""
    head = head_named(request.param)
    path = export_classifier(head.model, head.labels, str(tmp_path_factory.mktemp("export")), 32)
    return head, tf.saved_model.load(path).signatures


def test_both_signatures_of_exported_classifiers_equal_the_original(exported_classifier):
    head, signatures = exported_classifier
    features, recorded = exported_inputs(head), head.arrays("outputs")
    for outputs in (
        signatures["tokens"](**{name: tf.constant(v) for name, v in features.items()}),
        signatures["serving_default"](input=tf.constant(serialized(features))),
    ):
        for name in ("probabilities", "predictions"):
            expected = recorded[name]
            assert outputs[name].shape == expected.shape
            assert outputs[name].dtype == expected.dtype
            np.testing.assert_allclose(outputs[name], expected, rtol=0, atol=1e-5)


def test_exported_classifiers_accept_records_of_the_original(exported_classifier):
    """Padding does not change the results."""
    head, signatures = exported_classifier
    # There are no records of MNLI; records of MRPC have the same features.
    name = "sts-b" if head.prefix == "sts-b_" else "mrpc"
    path = DATA / "glue" / f"{name}_dev_32.tfrecord"
    records = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
    outputs = signatures["serving_default"](input=tf.constant(records))
    for number, record in enumerate(records):
        features = tf.train.Example.FromString(record).features.feature
        real_tokens = sum(features["input_mask"].int64_list.value)
        if not features["is_real_example"].int64_list.value[0]:
            real_tokens = 32  # all masked: attention is uniform over the whole length
        tokens = {
            name: tf.constant([features[name].int64_list.value[:real_tokens]], tf.int32)
            for name in INPUTS
        }
        alone = signatures["tokens"](**tokens)["probabilities"][0]
        np.testing.assert_allclose(outputs["probabilities"][number], alone, rtol=0, atol=1e-5)
    assert len(records) > 5


@pytest.mark.parametrize("name", usual(["squad1", "squad2"], "squad2"))
def test_exported_question_answering_equals_the_original(tmp_path, name):
    head = head_named(name)
    loaded = tf.saved_model.load(export_spans(head.model, str(tmp_path)))
    features = {key: tf.constant(v, tf.int32) for key, v in exported_inputs(head).items()}
    outputs = loaded.signatures["serving_default"](**features)
    recorded = head.arrays("outputs", "predict/")
    del recorded["unique_ids"]
    assert set(outputs) == set(recorded)
    for key, values in recorded.items():
        assert outputs[key].dtype == values.dtype, key
        if values.dtype == np.int32:
            np.testing.assert_array_equal(outputs[key], values, err_msg=key)
        else:
            assert (values > -100).all()  # unmasked: the tolerance is relative to the largest value
            assert_close(outputs[key], values, name=key)
