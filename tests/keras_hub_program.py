"""What KerasHub itself makes of presets, in a process of its own: it does not see this package.

Called with a directory. Of each preset in `ours/` it computes outputs and saves it again, to
`again/`. In `theirs/` it saves presets of models with random weights, and computes theirs.
"""

import os
import sys
import warnings
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import keras
import keras_hub
import numpy as np

TEXT = "the cat sat on the mat, and many people saw it."
POSITIONS = np.array([[1, 6], [3, 0], [4, 2]])
SIZES = {
    "vocabulary_size": 31,
    "embedding_dim": 8,
    "hidden_dim": 12,
    "num_layers": 4,
    "num_groups": 2,
    "num_heads": 3,
    "intermediate_dim": 20,
    "num_inner_repetitions": 2,
    "max_sequence_length": 16,
    "num_segments": 5,
    "dropout": 0.25,
}
SHALLOW = {**SIZES, "num_layers": 1, "num_groups": 1, "num_inner_repetitions": 1}
ORIGINAL_EPSILON = 1e-12


def inputs(num_words: int, num_segments: int) -> dict[str, np.ndarray]:
    """Three rows of different lengths; what is padding has ids as well."""
    random = np.random.default_rng(3)
    return {
        "token_ids": random.integers(0, num_words, (3, 7)),
        "segment_ids": random.integers(0, num_segments, (3, 7)),
        "padding_mask": (np.arange(7) < np.array([[7], [4], [5]])).astype("int32"),
    }


def outputs(model: keras.Model) -> dict[str, np.ndarray]:
    """What a model gives for `inputs`; a masked LM also with the original's epsilon."""
    backbone = getattr(model, "backbone", model)
    batch = inputs(backbone.vocabulary_size, backbone.num_segments)
    found = {name: np.asarray(value) for name, value in backbone(batch).items()}
    found.update(batch, masked_lm_positions=POSITIONS)
    if hasattr(model, "masked_lm_head"):
        batch["mask_positions"] = POSITIONS
        found["kept_epsilon"] = np.asarray(model(batch))
        model.masked_lm_head._intermediate_layer_norm.epsilon = ORIGINAL_EPSILON
        found["scores"] = np.asarray(model(batch))
    elif model is not backbone:
        found["scores"] = np.asarray(model(batch))
    return found


def randomise(model: keras.Model) -> keras.Model:
    """Gives every weight values of its own, layer norms and biases too."""
    random = np.random.default_rng(5)
    for weight in model.weights:
        if "seed" not in weight.path:
            weight.assign(random.normal(0.3, 0.4, weight.shape))
    return model


def load(directory: str) -> keras.Model:
    """The model of a preset, of the class that its files name."""
    models = keras_hub.models
    if not os.path.exists(os.path.join(directory, "task.json")):
        return models.AlbertBackbone.from_preset(directory)
    is_classifier = "Classifier" in Path(directory, "task.json").read_text()
    task = models.AlbertTextClassifier if is_classifier else models.AlbertMaskedLM
    return task.from_preset(directory)


def read_ours(root: str) -> None:
    for name in sorted(os.listdir(os.path.join(root, "ours"))):
        directory = os.path.join(root, "ours", name)
        model = load(directory)
        found = outputs(model)
        if os.path.exists(os.path.join(directory, "tokenizer.json")):
            tokenizer = keras_hub.models.AlbertTokenizer.from_preset(directory)
            found["ids"] = np.asarray(tokenizer(TEXT))
            packed = model.preprocessor(["the mat"])
            packed = packed[0] if isinstance(packed, tuple) else packed
            found["packed_length"] = np.shape(packed["token_ids"])[1]
            other = keras_hub.models.AlbertTextClassifier.from_preset(directory, num_classes=3)
            found["of_other_task"] = outputs(other)["pooled_output"]
        np.savez(os.path.join(root, f"ours_{name}.npz"), **found)
        model.save_to_preset(os.path.join(root, "again", name))


def write_theirs(root: str) -> None:
    models = keras_hub.models
    theirs = {
        "masked_lm": models.AlbertMaskedLM(models.AlbertBackbone(**SIZES)),
        "classifier": models.AlbertTextClassifier(models.AlbertBackbone(**SIZES), num_classes=6),
        "sharded": models.AlbertBackbone(**SIZES),
        "bfloat16": models.AlbertBackbone(**SHALLOW, dtype="bfloat16"),
        "projected": models.AlbertBackbone(**{**SHALLOW, "embedding_dim": 12}),
    }
    for name, model in theirs.items():
        size = 4e-6 if name == "sharded" else 10  # GB
        randomise(model).save_to_preset(os.path.join(root, "theirs", name), max_shard_size=size)
        if name not in ("bfloat16", "projected"):
            np.savez(os.path.join(root, f"theirs_{name}.npz"), **outputs(model))
    bert = models.BertBackbone(
        vocabulary_size=31,
        num_layers=1,
        num_heads=3,
        hidden_dim=12,
        intermediate_dim=20,
        max_sequence_length=16,
    )
    bert.save_to_preset(os.path.join(root, "theirs", "bert"))


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        read_ours(sys.argv[1])
    write_theirs(sys.argv[1])
