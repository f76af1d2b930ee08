"""A fine-tuned classifier as a SavedModel that needs nothing but TensorFlow to run."""

from __future__ import annotations

import json
import math
import os
import time

import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.original import original_names
from albert_tf.data.files import write_then_rename
from albert_tf.data.text_examples import Labels
from albert_tf.models import AlbertForClassification

EXAMPLES_SIGNATURE = "serving_default"
TOKENS_SIGNATURE = "tokens"
LABELS_FILE = "labels.json"
# The folder of a SavedModel for files that TensorFlow itself does not read.
_EXTRA_FOLDER = "assets.extra"
_INPUTS = ("input_ids", "input_mask", "segment_ids")


def export_classifier(
    model: AlbertForClassification,
    labels: Labels,
    export_dir: str,
    max_seq_length: int,
    threshold: float | None = None,
) -> str:
    """Writes a SavedModel into a new subfolder of `export_dir`, complete or not at all.

    It computes in float32 without dropout, whatever the precision of `model`, holds the weights
    alone, and has two signatures, B being the number of examples and S any length up to the
    model's `max_position_embeddings`:

    * `serving_default`, the original's: `input`, string [B], serialized `tf.train.Example`s with
      `input_ids`, `input_mask` and `segment_ids` of `max_seq_length` integers each.
    * `tokens`: `input_ids`, `input_mask` (1 = real token, 0 = padding) and `segment_ids`,
      int32 [B, S] each.

    Both give `probabilities`, float32 [B, K], and `predictions`, int32 [B], the likeliest class;
    of a regression the number, float32 [B, 1] and [B]. With a threshold there is `threshold`,
    a float32 scalar. `tokens` of a classifier gives `predicted_labels`, string [B], as well; the
    names of all classes, in the order of the probabilities, stand in `assets.extra/labels.json`
    (an empty list for a regression).

    Args:
        model: the classifier; is left as it is.
        labels: what its outputs mean.
        export_dir: created if need be; the subfolder is named after the time, in seconds.
        max_seq_length: length of the features in serialized examples.
        threshold: a number for the program that serves the model; None or NaN leaves it out.

    Returns:
        Path of the subfolder.

    Raises:
        ValueError: the labels are not the model's, `max_seq_length` exceeds its positions, or
            nothing can be written there.

    Source: run_classifier.py of the original release, _serving_input_receiver_fn.
    Differs: the original cannot export a regression, and has no `tokens`.
    """
    if labels.num_outputs != model.num_labels:
        raise ValueError(
            f"The model has {model.num_labels} outputs, the labels need {labels.num_outputs}: "
            f"{', '.join(labels.names) or 'one number'}"
        )
    model.config.check_sequence_length(max_seq_length, "--max_seq_length")
    served = _Served(model, labels, max_seq_length, threshold)
    try:
        path = _save(served, labels, export_dir)
    except (tf.errors.OpError, OSError) as error:
        raise ValueError(f"--export_dir {export_dir!r} cannot be written to: {error}") from error
    logging.info("Exported the classifier to %s", path)
    return path


class _Served:
    """The functions that become signatures, and the weights they read.

    The weights are copies: those of `model` may be of another precision or spread over replicas,
    and a Keras model would be saved with all its parts.
    """

    def __init__(
        self,
        model: AlbertForClassification,
        labels: Labels,
        max_seq_length: int,
        threshold: float | None,
    ) -> None:
        self._model = AlbertForClassification(model.config, model.num_labels, dtype="float32")
        self._labels = labels
        self._max_seq_length = max_seq_length
        self._threshold = None if threshold is None or math.isnan(threshold) else threshold
        self._variables = original_names(self._model)
        for name, variable in original_names(model).items():
            self._variables[name].assign(tf.cast(tf.convert_to_tensor(variable), tf.float32))

    def save(self, path: str) -> None:
        """Writes the SavedModel; the weights have the names of the original in it."""
        examples = tf.TensorSpec([None], tf.string, name="input")
        tokens = [tf.TensorSpec([None, None], tf.int32, name=name) for name in _INPUTS]
        from_examples = tf.function(self._from_examples, [examples], autograph=False)
        from_tokens = tf.function(self._from_tokens, tokens, autograph=False)
        root = tf.Module()
        root.weights = {name: variable.value for name, variable in self._variables.items()}
        signatures = {EXAMPLES_SIGNATURE: from_examples, TOKENS_SIGNATURE: from_tokens}
        tf.saved_model.save(root, path, signatures)

    def _from_examples(self, serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        row = tf.io.FixedLenFeature([self._max_seq_length], tf.int64)
        features = tf.io.parse_example(serialized, dict.fromkeys(_INPUTS, row))
        return self._outputs({name: tf.cast(ids, tf.int32) for name, ids in features.items()})

    def _from_tokens(
        self, input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        for name, values in (("input_mask", input_mask), ("segment_ids", segment_ids)):
            # A row for all examples would be accepted, and give something else than was meant.
            tf.debugging.assert_equal(
                tf.shape(values), tf.shape(input_ids), f"{name} must have the shape of input_ids."
            )
        outputs = self._outputs(
            dict(zip(_INPUTS, (input_ids, input_mask, segment_ids), strict=True))
        )
        if not self._labels.is_regression:
            names = tf.constant(self._labels.names)
            outputs["predicted_labels"] = tf.gather(names, outputs["predictions"])
        return outputs

    def _outputs(self, features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        logits = self._model(features, training=False)["logits"]
        if self._labels.is_regression:
            outputs = {"probabilities": logits, "predictions": logits[:, 0]}
        else:
            outputs = {
                "probabilities": tf.nn.softmax(logits),
                "predictions": tf.argmax(logits, axis=-1, output_type=tf.int32),
            }
        if self._threshold is not None:
            outputs["threshold"] = tf.constant(self._threshold, tf.float32)
        return outputs


def _save(served: _Served, labels: Labels, export_dir: str) -> str:
    """Writes all files under a temporary name, which servers pass over, and renames the folder."""
    tf.io.gfile.makedirs(export_dir)
    temporary = os.path.join(export_dir, f"temp-{int(time.time())}-{os.getpid()}")
    try:
        served.save(temporary)
        with write_then_rename(os.path.join(temporary, _EXTRA_FOLDER, LABELS_FILE)) as file:
            file.write(json.dumps(labels.names, ensure_ascii=False, indent=1).encode())
        path = _unused_folder(export_dir)
        tf.io.gfile.rename(temporary, path)
    except BaseException:
        if tf.io.gfile.exists(temporary):
            tf.io.gfile.rmtree(temporary)
        raise
    return path


def _unused_folder(export_dir: str) -> str:
    """The first second from now on that no export is named after."""
    second = int(time.time())
    while tf.io.gfile.exists(os.path.join(export_dir, str(second))):
        second += 1
    return os.path.join(export_dir, str(second))
