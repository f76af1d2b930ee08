"""The numbers recorded with the original release, and our models with its weights."""

import json
from pathlib import Path

import numpy as np
import tensorflow as tf

from albert_tf.checkpoints.load_weights import load_weights
from albert_tf.config import AlbertConfig
from albert_tf.modeling.losses import cross_entropy
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.original_names import original_names
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.training.task import EXAMPLE_WEIGHTS

CONFIGURATIONS = [f"config_{number}" for number in range(8)]


class Reference:
    """A configuration of golden/modeling with its recorded inputs and outputs."""

    def __init__(self, golden: Path, name: str) -> None:
        self.folder = golden / "modeling" / name
        self.config = AlbertConfig.from_json_file(str(self.folder / "albert_config.json"))
        self.checkpoint = str(self.folder / "model.ckpt")
        self.inputs = features_of(self.arrays("inputs"))
        _, length = self.inputs["input_ids"].shape
        _, predictions = self.inputs["masked_lm_positions"].shape
        self.task = PretrainingTask(
            self.config, max_seq_length=length, max_predictions_per_seq=predictions
        )

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """Returns the arrays of `<name>.npz`."""
        with np.load(self.folder / f"{name}.npz") as file:
            return dict(file)

    def values(self, name: str) -> dict:
        """Returns the content of `<name>.json`."""
        return json.loads((self.folder / f"{name}.json").read_text())

    def model(self, use_one_hot_embeddings: bool = False, **config_changes) -> AlbertForPretraining:
        """Returns our model with the recorded weights."""
        config = self.config.replace(**config_changes)
        model = AlbertForPretraining(config, use_one_hot_embeddings)
        load_weights(model, self.checkpoint).check_complete()
        return model


def features_of(arrays: dict[str, np.ndarray]) -> dict[str, tf.Tensor]:
    """Returns a batch in the form of the input pipeline, from recorded arrays."""
    batch = {name: tf.constant(values) for name, values in arrays.items()}
    batch[EXAMPLE_WEIGHTS] = tf.ones(len(arrays["input_ids"]))
    return batch


def numbered(arrays: dict[str, np.ndarray], number: int) -> dict[str, tf.Tensor]:
    """Returns the batch recorded as `batch_<number>/...`."""
    prefix = f"batch_{number}/"
    return features_of(
        {
            name.removeprefix(prefix): values
            for name, values in arrays.items()
            if name.startswith(prefix)
        }
    )


def pretraining_outputs(
    model: AlbertForPretraining, task: PretrainingTask, features: dict[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """Returns all tensors that golden/modeling contains for a forward pass, by its names."""
    outputs = model(features, output_hidden_states=True)
    losses = task.losses(outputs, features)
    labels = {
        "masked_lm": features["masked_lm_ids"],
        "sentence_order": features["next_sentence_labels"][:, 0],
    }
    recorded = {
        name: outputs[name]
        for name in (
            "word_embedding_output",
            "embedding_output",
            "sequence_output",
            "pooled_output",
        )
    }
    for number, output in enumerate(outputs["encoder_outputs"]):
        recorded[f"encoder_layer_{number}"] = output
    for name, label in labels.items():
        logits = outputs[f"{name}_logits"]
        recorded[f"{name}_log_probs"] = tf.reshape(
            tf.nn.log_softmax(logits), [-1, logits.shape[-1]]
        )
        recorded[f"{name}_example_loss"] = tf.reshape(cross_entropy(logits, label), [-1])
    # The total equals one loss if the sum of the other one is zero.
    nothing = {name: loss._replace(sum=0.0) for name, loss in losses.items()}
    for name in losses:
        recorded[name] = task.total_loss({**nothing, name: losses[name]})
    recorded["total_loss"] = task.total_loss(losses)
    return recorded


def pretraining_gradients(
    model: AlbertForPretraining,
    task: PretrainingTask,
    features: dict[str, tf.Tensor],
    training: bool = False,
) -> dict[str, tf.Tensor]:
    """Returns d total_loss / d variable, by the original's names."""
    variables = original_names(model)
    with tf.GradientTape() as tape:
        losses = task.losses(model(features, training=training), features)
        loss = task.total_loss(losses)
    return dict(zip(variables, tape.gradient(loss, list(variables.values())), strict=True))


def assert_close(
    actual, expected, share: float = 1e-5, at_least: float = 0.0, name: str = ""
) -> None:
    """Checks shapes, and that errors are at most `share` of the largest expected entry.

    Errors up to `at_least` are ignored.
    """
    expected = np.asarray(expected)
    assert np.shape(actual) == expected.shape, name
    atol = max(share * np.abs(expected).max(), at_least)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=atol, err_msg=name)
