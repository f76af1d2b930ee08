"""Runs exported models in a process that has TensorFlow but not this package."""

import os
import pickle
import subprocess
from pathlib import Path

import numpy as np
import tensorflow as tf

from tests.programs import isolated_python

# Arguments: files with the batches for exported models and with the results.
SERVER = """
import os, pickle, sys
import tensorflow as tf

batches, results = sys.argv[1:]
models, answers = {}, []
for path, name, inputs in pickle.load(open(batches, "rb")):
    if path not in models:
        models[path] = tf.saved_model.load(path)
    try:
        outputs = models[path].signatures[name](**{k: tf.constant(v) for k, v in inputs.items()})
        answers.append({k: v.numpy() for k, v in outputs.items()})
    except tf.errors.InvalidArgumentError as error:
        answers.append(str(error))
assert "albert_tf" not in sys.modules
pickle.dump(answers, open(results, "wb"))
"""


def batch(rows: int, length: int) -> dict[str, np.ndarray]:
    """Returns `input_ids`, `input_mask` (ragged) and `segment_ids`, int32 [rows, length]."""
    random = np.random.default_rng(100 * rows + length)
    real_tokens = random.integers(1, length + 1, (rows, 1))
    return {
        "input_ids": random.integers(0, 31, (rows, length), np.int32),
        "input_mask": (np.arange(length) < real_tokens).astype(np.int32),
        "segment_ids": random.integers(0, 5, (rows, length), np.int32),
    }


def serialized(features: dict[str, np.ndarray]) -> list[bytes]:
    """Returns the rows of a batch as `tf.train.Example`s."""
    examples = []
    for row in range(len(features["input_ids"])):
        example = tf.train.Example()
        for name, values in features.items():
            example.features.feature[name].int64_list.value.extend(values[row].tolist())
        examples.append(example.SerializeToString())
    return examples


def serve(folder: Path, requests: list) -> list:
    """Returns the answers of a separate process to requests of (path, signature, inputs).

    An answer is a dictionary of arrays, or the text of the error.
    """
    return _run(SERVER, folder, requests)


# For models that take texts. They are called as functions and, like TensorFlow Serving does, in a
# session with the tensor names of the signature.
TEXT_SERVER = """
import pickle, sys
import numpy as np
import tensorflow as tf
import tensorflow_text

requests, results = sys.argv[1:]
models, answers = {}, []
for path, inputs in pickle.load(open(requests, "rb")):
    if path not in models:
        session = tf.compat.v1.Session(graph=tf.Graph())
        with session.graph.as_default():
            graph = tf.compat.v1.saved_model.load(session, ["serve"], path)
        models[path] = tf.saved_model.load(path), session, graph.signature_def["serving_default"]
    model, session, signature = models[path]
    try:
        texts = {k: tf.constant(v) for k, v in inputs.items()}
        outputs = model.signatures["serving_default"](**texts)
    except tf.errors.InvalidArgumentError as error:
        answers.append(str(error))
        continue
    fetches = {k: tensor.name for k, tensor in signature.outputs.items()}
    feeds = {signature.inputs[k].name: v for k, v in inputs.items()}
    served = session.run(fetches, feeds)
    answers.append({k: v.numpy() for k, v in outputs.items()})
    assert served.keys() == answers[-1].keys()
    for k, values in served.items():
        if values.dtype.kind == "f":  # rounding differs, because a session fuses other operations
            np.testing.assert_allclose(values, answers[-1][k], rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(values, answers[-1][k])
        assert len(values) == len(next(iter(inputs.values()))), k
assert "albert_tf" not in sys.modules
pickle.dump(answers, open(results, "wb"))
"""


def serve_texts(folder: Path, requests: list) -> list:
    """Returns the answers of a separate process to requests of (path, lists of texts by name).

    See `serve`. The process imports TensorFlow and TensorFlow Text.
    """
    encoded = [
        (path, {name: np.char.encode(texts, "utf-8").astype(object) for name, texts in row.items()})
        for path, row in requests
    ]
    return _run(TEXT_SERVER, folder, encoded)


def _run(program: str, folder: Path, requests: list) -> list:
    (folder / "requests").write_bytes(pickle.dumps(requests))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(
        [isolated_python(), "-c", program, folder / "requests", folder / "results"],
        cwd=folder,
        env=environment,
        check=True,
    )
    return pickle.loads((folder / "results").read_bytes())
