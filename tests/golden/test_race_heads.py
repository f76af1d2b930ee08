"""Multiple choice of the original release: scores, losses, gradients, names."""

import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.load_weights import load_weights
from albert_tf.checkpoints.original.names import original_names
from albert_tf.config import AlbertConfig
from albert_tf.multiple_choice.task import MultipleChoiceTask
from tests.golden.reference import assert_close, features_of

CHOICES, LENGTH = 4, 64


class Head:
    """golden/race/heads."""

    def __init__(self, golden):
        self.folder = golden / "race" / "heads"
        config = AlbertConfig.from_json_file(str(self.folder / "albert_config.json"))
        self.task = MultipleChoiceTask(config, max_seq_length=LENGTH)
        self.model = self.task.build_model()
        load_weights(self.model, str(self.folder / "model.ckpt")).check_complete()
        self.features = features_of(
            {
                name: values if name == "label_ids" else values.reshape(-1, CHOICES, LENGTH)
                for name, values in self.arrays("inputs").items()
            }
        )

    def arrays(self, name):
        with np.load(self.folder / f"{name}.npz") as file:
            return dict(file)

    def loss(self):
        return self.task.total_loss(self.task.losses(self.model(self.features), self.features))


@pytest.fixture(scope="module")
def head(golden):
    return Head(golden)


def test_variables_have_the_names_shapes_and_order_of_the_original(head):
    recorded = json.loads((head.folder / "variables.json").read_text())
    variables = original_names(head.model)
    assert [(name, list(v.shape)) for name, v in variables.items()] == [
        (row["name"], row["shape"]) for row in recorded
    ]
    assert {id(v) for v in variables.values()} == {id(v) for v in head.model.trainable_variables}


def test_outputs_and_losses_equal_the_original(head):
    recorded = head.arrays("outputs")
    logits = head.model(head.features)["logits"]
    labels = head.features["label_ids"]
    outputs = {
        "logits": logits,
        "probabilities": tf.nn.softmax(logits),
        "predictions": tf.argmax(logits, axis=-1, output_type=tf.int32),
        "per_example_loss": tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits),
        "loss": head.loss(),
    }
    assert outputs.keys() == recorded.keys()
    for name, output in outputs.items():
        assert output.dtype == recorded[name].dtype, name
        assert_close(output, recorded[name], name=name)
    np.testing.assert_array_equal(outputs["predictions"], recorded["predictions"])


def test_options_scored_one_by_one_score_the_same(head):
    flat = {
        name: tf.reshape(head.features[name], [-1, LENGTH])
        for name in ("input_ids", "input_mask", "segment_ids")
    }
    logits = head.model(flat)["logits"]
    assert_close(tf.reshape(logits, [-1, CHOICES]), head.arrays("outputs")["logits"])


def test_gradients_equal_the_original(head):
    recorded = head.arrays("gradients")
    variables = original_names(head.model)
    with tf.GradientTape() as tape:
        loss = head.loss()
    gradients = tape.gradient(loss, list(variables.values()))
    assert variables.keys() == recorded.keys()
    for name, gradient in zip(variables, gradients, strict=True):
        if name.endswith("self/key/bias") or name == "output_bias":
            # Softmax does not see these: the gradients are 0, and what is recorded is rounding.
            np.testing.assert_allclose(gradient, 0 * recorded[name], rtol=0, atol=1e-6)
        else:
            # The options' terms nearly cancel: the recorded gradients are off by up to 3.3e-7 from
            # those of double precision, and ours by as much.
            assert_close(gradient, recorded[name], at_least=6e-7, name=name)
