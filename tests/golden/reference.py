"""The numbers recorded with the original release, and our models with its weights."""

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.checkpoints.loading import load_weights
from albert_tf.config import AlbertConfig
from albert_tf.modeling.losses import cross_entropy
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.ops import PLAIN, Ops
from albert_tf.modeling.original_names import original_names
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.loading import tokenizer_from_files
from albert_tf.training.objective import EXAMPLE_WEIGHTS

DATA = Path(__file__).parent / "data"
CONFIGURATIONS = [f"config_{number}" for number in range(8)]
INPUTS = ("input_ids", "input_mask", "segment_ids")


def read_json(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def read_arrays(path: Path, prefix: str = "") -> dict[str, np.ndarray]:
    """Returns the arrays whose names start with a prefix, by the rest of their names."""
    with np.load(path) as file:
        names = [name for name in file.files if name.startswith(prefix)]
        return {name.removeprefix(prefix): file[name] for name in names}


@cache
def tokenizer_named(name: str, do_lower_case: bool = True) -> Tokenizer:
    """Returns the recorded tokenizer `spm`, `spm_cased` or `wordpiece`."""
    if name == "wordpiece":
        file = {"vocab_file": str(DATA / "tokenizer" / "vocab.txt")}
    else:
        file = {"spm_model_file": str(DATA / "tokenizer" / "small_1000.model")}
    return tokenizer_from_files(**file, do_lower_case=do_lower_case and name != "spm_cased")


def recorded_training(file: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the description of a recorded training run, and settings for `OptimizerConfig`."""
    (run,) = (r for r in read_json(DATA / "optimization" / "runs.json") if r["file"] == file)
    names = ("optimizer", "num_train_steps", "num_warmup_steps", "start_warmup_step", "poly_power")
    return run, {"learning_rate": run["init_lr"], **{name: run[name] for name in names}}


def recorded_flags(name: str) -> dict[str, Any]:
    """Returns the flags of a recorded run of a program, without paths."""
    recorded = read_json(DATA / "programs" / "runs.json")[name]["flags"]
    pairs = [flag.removeprefix("--").partition("=") for flag in recorded]
    return {key: value if equals else True for key, equals, value in pairs}


def flags_with_weights(output: Path, weights: Path, name: str, **flags: Any) -> dict[str, Any]:
    """Returns flags of a command whose output directory contains a recorded checkpoint.

    `weights` is the prefix of the checkpoint, and `name` its name in the output directory.
    """
    output.mkdir()
    for suffix in ("index", "data-00000-of-00001"):
        shutil.copy(f"{weights}.{suffix}", output / f"{name}.{suffix}")
    return {
        **flags,
        "output_dir": output,
        "spm_model_file": DATA / "tokenizer" / "small_1000.model",
        "albert_config_file": weights.parent / "albert_config.json",
    }


class Reference:
    """A configuration in data/modeling with its recorded inputs and outputs."""

    def __init__(self, name: str) -> None:
        self.folder = DATA / "modeling" / name
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
        return read_arrays(self.folder / f"{name}.npz")

    def values(self, name: str) -> dict:
        """Returns the content of `<name>.json`."""
        return read_json(self.folder / f"{name}.json")

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
    names = ("word_embedding_output", "embedding_output", "sequence_output", "pooled_output")
    recorded = {name: outputs[name] for name in names}
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
    ops: Ops = PLAIN,
) -> dict[str, tf.Tensor]:
    """Returns d total_loss / d variable, by the original's names."""
    variables = original_names(model)
    with tf.GradientTape() as tape:
        losses = task.losses(model(features, training=training, ops=ops), features)
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
