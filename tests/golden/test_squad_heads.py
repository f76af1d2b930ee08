"""Both heads of question answering of the original release: outputs, losses, gradients, names."""

import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.load_weights import load_weights
from albert_tf.checkpoints.original.names import original_names
from albert_tf.config import AlbertConfig
from albert_tf.modeling.models import position_mask
from albert_tf.squad.task import SquadTask
from tests.golden.reference import assert_close, features_of

POOLER = {"bert/pooler/dense/kernel", "bert/pooler/dense/bias"}
# A softmax does not see what all its scores share, be it a bias of the scores or of what they are
# projected from: the gradients are 0, and what is recorded is rounding.
WITHOUT_EFFECT = (
    "self/key/bias",
    "squad/output_bias",
    "start_logits/dense/bias",
    "end_logits/LayerNorm/beta",
    "end_logits/dense_1/bias",
)


class Head:
    """One version of golden/squad/heads."""

    def __init__(self, golden, version):
        self.folder, self.version = golden / "squad" / "heads", version
        config = AlbertConfig.from_json_file(str(self.folder / "albert_config.json"))
        self.task = SquadTask(config, version, max_seq_length=64)
        self.model = self.task.build_model()
        load_weights(self.model, str(self.folder / f"v{version}_model.ckpt")).check_complete()
        self.features = features_of(self.arrays("inputs"))
        self.features["is_impossible"] = tf.cast(self.features["is_impossible"], tf.float32)

    def arrays(self, name):
        with np.load(self.folder / f"v{self.version}_{name}.npz") as file:
            return dict(file)

    def outputs(self, mode):
        """What was recorded of training or of prediction, and ours beside it."""
        prefix = f"{mode}/"
        recorded = {
            name.removeprefix(prefix): values
            for name, values in self.arrays("outputs").items()
            if name.startswith(prefix) and not name.endswith("unique_ids")
        }
        inputs = dict(self.features)
        if mode == "predict":
            del inputs["start_positions"], inputs["p_mask"]
        outputs = self.model(inputs)
        if self.version == 1:
            # The names say otherwise, but these are raw scores.
            for side in ("start", "end"):
                outputs[f"{side}_log_prob"] = outputs[f"{side}_logits"]
        if mode == "train":
            outputs["total_loss"] = self.loss()
        return {name: outputs[name].numpy() for name in recorded}, recorded

    def loss(self):
        return self.task.total_loss(self.task.losses(self.model(self.features), self.features))


@pytest.fixture(scope="module", params=[1, 2])
def head(golden, request):
    return Head(golden, request.param)


def test_variables_have_the_names_shapes_and_order_of_the_original(head):
    recorded = json.loads((head.folder / f"v{head.version}_variables.json").read_text())
    variables = original_names(head.model)
    assert [(name, list(v.shape)) for name, v in variables.items()] == [
        (row["name"], row["shape"]) for row in recorded
    ]
    trained = {id(v) for v in head.model.trainable_variables}
    assert {name for name, v in variables.items() if id(v) not in trained} == POOLER


@pytest.mark.parametrize("mode", ["predict", "train"])
def test_outputs_equal_the_original(head, mode):
    ours, recorded = head.outputs(mode)
    assert recorded
    for name, values in recorded.items():
        assert ours[name].dtype == values.dtype, name
        if values.dtype == np.int32:
            np.testing.assert_array_equal(ours[name], values, err_msg=name)
            continue
        is_masked = values < -1e29
        assert (values[~is_masked] > -100).all()
        np.testing.assert_array_equal(ours[name][is_masked], values[is_masked], err_msg=name)
        assert_close(ours[name][~is_masked], values[~is_masked], name=name)


def test_gradients_equal_the_original(head):
    recorded = head.arrays("gradients")
    variables = original_names(head.model)
    with tf.GradientTape() as tape:
        loss = head.loss()
    gradients = dict(zip(variables, tape.gradient(loss, list(variables.values())), strict=True))
    assert {name for name, gradient in gradients.items() if gradient is None} == POOLER
    assert recorded.keys() == gradients.keys() - POOLER
    for name, expected in recorded.items():
        if name.endswith(WITHOUT_EFFECT):
            np.testing.assert_allclose(gradients[name], 0 * expected, rtol=0, atol=1e-6)
        else:
            assert_close(gradients[name], expected, name=name)


def test_the_mask_of_positions_follows_from_the_segments(golden):
    for path in sorted((golden / "squad" / "features").glob("*.npz")):
        with np.load(path) as file:
            mask = position_mask(file["input_mask"], file["segment_ids"])
            np.testing.assert_array_equal(mask, file["p_mask"], err_msg=path.name)
