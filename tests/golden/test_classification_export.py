"""Outputs of exported classifiers, compared with the original release."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.load_weights import load_weights
from albert_tf.classification.export import export_classifier
from albert_tf.config import AlbertConfig
from albert_tf.data.text_examples import Labels
from albert_tf.modeling.models import AlbertForClassification
from tests.serving import serialized

LABELS = {
    "mrpc": Labels(("0", "1")),
    "mnli": Labels(("contradiction", "entailment", "neutral")),
    "sts-b": Labels(),
}
LENGTH = 32
INPUTS = ("input_ids", "input_mask", "segment_ids")


def arrays(path) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return dict(file)


@pytest.fixture(scope="module", params=list(LABELS))
def task(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def signatures(golden, task, tmp_path_factory):
    """Returns the signatures of the export of a recorded checkpoint."""
    heads = golden / "glue" / "heads"
    config = AlbertConfig.from_json_file(str(heads / "albert_config.json"))
    model = AlbertForClassification(config, LABELS[task].num_outputs)
    load_weights(model, str(heads / f"{task}_model.ckpt")).check_complete()
    path = export_classifier(model, LABELS[task], str(tmp_path_factory.mktemp(task)), LENGTH)
    return tf.saved_model.load(path).signatures


def test_both_signatures_equal_the_original(golden, task, signatures):
    stored = arrays(golden / "glue" / "heads" / f"{task}_inputs.npz")
    features = {name: stored[name] for name in INPUTS}
    recorded = arrays(golden / "glue" / "heads" / f"{task}_outputs.npz")
    for outputs in (
        signatures["tokens"](**{name: tf.constant(v) for name, v in features.items()}),
        signatures["serving_default"](input=tf.constant(serialized(features))),
    ):
        for name in ("probabilities", "predictions"):
            expected = recorded[name]
            assert outputs[name].shape == expected.shape
            assert outputs[name].dtype == expected.dtype
            np.testing.assert_allclose(outputs[name], expected, rtol=0, atol=1e-5)


def test_records_of_the_original_are_accepted(golden, task, signatures):
    """Padding does not change the results."""
    # There are no records of MNLI; records of MRPC have the same features.
    name = "sts-b" if task == "sts-b" else "mrpc"
    path = golden / "glue" / f"{name}_dev_{LENGTH}.tfrecord"
    records = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
    outputs = signatures["serving_default"](input=tf.constant(records))
    for number, record in enumerate(records):
        features = tf.train.Example.FromString(record).features.feature
        real_tokens = sum(features["input_mask"].int64_list.value)
        if not features["is_real_example"].int64_list.value[0]:
            real_tokens = LENGTH  # all masked: attention is uniform over the whole length
        tokens = {
            name: tf.constant([features[name].int64_list.value[:real_tokens]], tf.int32)
            for name in INPUTS
        }
        alone = signatures["tokens"](**tokens)["probabilities"][0]
        np.testing.assert_allclose(outputs["probabilities"][number], alone, rtol=0, atol=1e-5)
    assert len(records) > 5
