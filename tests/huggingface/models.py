"""Models for the comparison with transformers, which this module does not need.

`record.py` runs transformers and stores its results in `recorded/`.
"""

import functools
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path

import keras
import numpy as np
from safetensors.numpy import load_file, save_file

from albert_tf.checkpoints.formats import huggingface
from albert_tf.checkpoints.loading import empty_model
from albert_tf.checkpoints.stored_model import StoredModel
from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.labels import Labels
from albert_tf.modeling.models import AlbertForMultipleChoice, AlbertForPretraining
from albert_tf.modeling.original_names import original_names
from albert_tf.tokenization.loading import tokenizer_from_files
from tests.huggingface.values import values_of
from tests.small_model import encoder_inputs, small_config

RECORDED = Path(__file__).parent / "recorded"
GOLDEN = Path(__file__).parents[1] / "golden" / "data"
WEIGHTS = "model.safetensors"
TOKENIZERS = {"english": "small_1000.model", "chinese": "vocab.txt"}
MASKED_LM = {"cls/predictions/output_bias": (31,)}
SENTENCE_ORDER = {"cls/seq_relationship/output_weights": (2, 12)}
MNLI = StoredTask("mnli", Labels(("contradiction", "entailment", "neutral")))
IOB2 = StoredTask("tokens", Labels(("O", "B-PER", "I-PER")), False)
# Heads, changes of the configuration and task of our models.
OURS = {
    "pretraining": ({**MASKED_LM, **SENTENCE_ORDER}, {}, None),
    "masked_lm": (MASKED_LM, {"hidden_act": "relu"}, None),
    "classifier": ({"output_weights": (3, 12)}, {}, MNLI),
    "tokens": ({"output_weights": (3, 12)}, {}, IOB2),
    "regression": ({"output_weights": (1, 12)}, {}, StoredTask("sts-b")),
    "choice": ({"output_weights": (1, 12)}, {}, StoredTask("race", max_seq_length=16)),
    "questions": ({"cls/squad/output_weights": (2, 12)}, {}, StoredTask("squad1.1")),
    "encoder": ({}, {"hidden_act": "linear"}, None),
    "unshared": ({}, {"parameter_sharing": "none", "hidden_act": "tanh"}, None),
    "same_sizes": ({}, {"embedding_size": 12}, None),
}
TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "Caf\u00e9 na\u00efve: it's 3.5 kilos (about 7 pounds), isn't it?",
    "In 1999 there were `` two '' of them, and in 2005 three.",
    "A very-long-word and  two   blanks\tand a tab",
    "unfathomable \u4f60\u597d \u20ac5 \u00a37 \u2013 end",
    "1\ufe0f\u20e3 first, me \u2122\ufe0f too; it\u2019s \u203c\ufe0f now \ue000",
    "\u039f\u0394\u039f\u03a3 \u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2",
    "\u0939\u0942\u0901 \u1112\u1161\u11ab \u0e19\u0e49\u0e33 \u09af\u09be",
]
# The ids differ: the original puts the word mark before the last digit.
DIGIT_COMMA = "In 1999, 12,000 people came; 2,005 of them left."


# Names of outputs in transformers. All other outputs are compared with `logits`.
NAMES = {
    "masked_lm_logits": "prediction_logits",
    "sentence_order_logits": "sop_logits",
    "sequence_output": "last_hidden_state",
    "pooled_output": "pooler_output",
}


def outputs_of(model: keras.Model, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the outputs for a batch. For multiple choice, the rows are options of one example."""
    if isinstance(model, AlbertForMultipleChoice):
        inputs = {name: value[None] for name, value in inputs.items()}
    if isinstance(model, AlbertForPretraining):
        rows, length = inputs["input_ids"].shape
        everywhere = np.tile(np.arange(length, dtype=np.int32), (rows, 1))
        inputs = {**inputs, "masked_lm_positions": everywhere}
    return {name: np.asarray(value) for name, value in model(inputs).items()}


def assert_outputs_equal(
    model: keras.Model,
    inputs: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
    tolerance: float = 1e-5,
) -> None:
    """Checks that a model computes all outputs of transformers."""
    compared = []
    for name, value in outputs_of(model, inputs).items():
        theirs = expected.get(NAMES.get(name, name), expected.get("logits"))
        if theirs is not None and theirs.shape == value.shape:
            np.testing.assert_allclose(value, theirs, rtol=1e-6, atol=tolerance, err_msg=name)
            compared.append(name)
    assert len(compared) == len(expected)


@functools.cache
def ours(name: str) -> StoredModel:
    """Returns a model of this package by name."""
    return our_contents(*OURS[name])


def our_contents(heads, changes, task=None, tokenizer=None) -> StoredModel:
    """Creates a model of this package with random values in all variables."""
    config = small_config(**({"num_hidden_groups": 1} if "parameter_sharing" in changes else {}))
    model = empty_model(config.replace(**changes), heads, task)
    weights = {
        name: values_of(name, tuple(variable.shape))
        for name, variable in original_names(model).items()
    }
    return StoredModel.in_memory(model.config, weights, tokenizer, task=task)


def write_ours(folder: Path) -> None:
    """Writes models as `ours/<name>`, tokenizers, and the inputs."""
    for name in OURS:
        _write(folder / "ours" / name, ours(name))
    np.savez(folder / "inputs.npz", **inputs())
    (folder / "texts.json").write_text(json.dumps([*TEXTS, DIGIT_COMMA]))
    for name, file in TOKENIZERS.items():
        tokenizer = tokenizer_from_files(spm_model_file=GOLDEN / "tokenizer" / file)
        changes = {"vocab_size": tokenizer.vocab_size}
        _write(folder / "tokenizers" / name, our_contents({}, changes, None, tokenizer))


def _write(path: Path, contents: StoredModel) -> None:
    path.mkdir(parents=True)
    huggingface.write(str(path), contents)


def write_theirs(folder: Path, recorded: dict) -> None:
    """Writes the recorded models of transformers as `theirs/<name>`."""
    for name, model in recorded["theirs"].items():
        path = folder / "theirs" / name
        path.mkdir(parents=True)
        (path / "config.json").write_text(json.dumps(model["config"]))
        tensors = {tensor: values_of(tensor, shape) for tensor, shape in model["tensors"].items()}
        save_file(tensors, path / WEIGHTS, metadata={"format": "pt"})


def inputs() -> dict[str, np.ndarray]:
    """Returns a ragged batch by the names of transformers."""
    ours = {name: value.numpy() for name, value in encoder_inputs().items()}
    return {
        "input_ids": ours["input_ids"],
        "attention_mask": ours["input_mask"],
        "token_type_ids": ours["segment_ids"],
    }


def digest(folder: Path) -> str:
    """Returns a digest of all values and keys that transformers reads in a directory."""
    found = hashlib.sha256()
    for path in sorted(folder.glob("*.json")):
        if path.name != "labels.json":  # ignored by transformers
            # Character classes depend on the Unicode version of Python.
            text = re.sub(r'"Regex": "[^"]{400,}"', '"Regex": ""', path.read_text("utf-8"))
            content = json.loads(text)
            found.update(f"{path.name} {json.dumps(content, sort_keys=True)}".encode())
    for path in (folder / "spiece.model", folder / "vocab.txt"):
        found.update(path.read_bytes() if path.exists() else b"")
    for name, values in sorted(load_file(folder / WEIGHTS).items()):
        found.update(f"{name} {values.dtype} {values.shape}".encode() + values.tobytes())
    return found.hexdigest()
