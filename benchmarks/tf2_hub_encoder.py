"""Measures a reusable SavedModel: its size, the time to write and load it, and training steps.

The model has random weights and both pretraining heads. A step computes the gradients of a function
of the pooled output with respect to all weights of the encoder. Steps of the SavedModel and of the
Keras model run as graphs and are measured alternately in this process. The best wall time is
reported, because other programs can only add time.

    python -m benchmarks.tf2_hub_encoder --preset=base_v2
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from absl import app, flags
from albert_tf.checkpoints.model_contents import ModelContents

from albert_tf.checkpoints import tf2_hub
from albert_tf.config import AlbertConfig
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.original_names import original_names
from benchmarks.timing import best_seconds, seconds

flags.DEFINE_string("preset", "base_v2", "Model.")
flags.DEFINE_integer("batch_size", 4, "Number of examples per step.")
flags.DEFINE_integer("length", 128, "Number of tokens per example.")
flags.DEFINE_integer("rounds", 5, "Number of timings; the shortest is printed.")
FLAGS = flags.FLAGS


def gradients(call: Callable, variables: list, inputs: dict) -> Callable:
    """Returns the graph function of a training step without the weight update."""

    @tf.function
    def step() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.sin(call(inputs, training=True)["pooled_output"]))
        return tape.gradient(loss, variables)

    step()
    return step


def main(_: list[str]) -> None:
    """Prints the size in MB and the times in seconds."""
    model = AlbertForPretraining(AlbertConfig.from_preset(FLAGS.preset))
    weights = {name: variable.numpy() for name, variable in original_names(model).items()}
    contents = ModelContents(model.config, weights)
    with tempfile.TemporaryDirectory() as directory:
        print(f"write: {seconds(lambda: tf2_hub.write(directory, contents)):.1f} s")
        for name in ("saved_model.pb", "variables/variables.data-00000-of-00001"):
            print(f"{name}: {os.path.getsize(os.path.join(directory, name)) / 1e6:.1f} MB")
        loads = [seconds(lambda: tf.saved_model.load(directory)) for _ in range(3)]
        print(f"load: {min(loads):.1f} s")
        loaded = tf.saved_model.load(directory)
    shape = (FLAGS.batch_size, FLAGS.length)
    ids = np.random.default_rng(0).integers(5, model.config.vocab_size, shape)
    inputs = {
        "input_ids": tf.constant(ids, tf.int32),
        "input_mask": tf.ones(shape, tf.int32),
        "segment_ids": tf.zeros(shape, tf.int32),
    }
    names = [name for name in original_names(model) if name.startswith("bert/")]
    own = [original_names(model)[name].value for name in names]
    steps = {
        "step of the SavedModel": gradients(loaded, list(loaded.trainable_variables), inputs),
        "step of the model": gradients(model.encoder, own, inputs),
    }
    for name, value in best_seconds(steps, FLAGS.rounds).items():
        print(f"{name}: {value:.2f} s")


if __name__ == "__main__":
    app.run(main)
