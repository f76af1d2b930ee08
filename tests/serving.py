"""Runs exported models in a process that has TensorFlow but not this package."""

import os
import pickle
import subprocess
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from tests.programs import isolated_python

# A program without this package. Its arguments are files with requests and with answers. It calls
# models that take texts as functions and, like TensorFlow Serving does, in a session with the
# tensor names of the signature.
SERVER = """
import pickle, sys
import numpy as np
import tensorflow as tf

requests, results = sys.argv[1:]
models, sessions, answers = {}, {}, []
for path, name, inputs, takes_texts in pickle.load(open(requests, "rb")):
    if takes_texts:
        import tensorflow_text
    if path not in models:
        models[path] = tf.saved_model.load(path)
    try:
        outputs = models[path].signatures[name](**{k: tf.constant(v) for k, v in inputs.items()})
    except tf.errors.InvalidArgumentError as error:
        answers.append(str(error))
        continue
    answers.append({k: v.numpy() for k, v in outputs.items()})
    if not takes_texts:
        continue
    if path not in sessions:
        session = tf.compat.v1.Session(graph=tf.Graph())
        with session.graph.as_default():
            graph = tf.compat.v1.saved_model.load(session, ["serve"], path)
        sessions[path] = session, graph.signature_def[name]
    session, signature = sessions[path]
    fetches = {k: tensor.name for k, tensor in signature.outputs.items()}
    served = session.run(fetches, {signature.inputs[k].name: v for k, v in inputs.items()})
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


def warmup_inputs(path: str) -> list[dict[str, np.ndarray]]:
    """Returns the inputs of the requests with which TensorFlow Serving warms up an export.

    TensorFlow reads the records, and the package of TensorFlow Serving parses them.
    """
    file = os.path.join(path, "assets.extra", "tf_serving_warmup_requests")
    requests = []
    for record in tf.data.TFRecordDataset(file).as_numpy_iterator():
        log = PredictionLog.FromString(record)
        log.DiscardUnknownFields()
        assert log.ByteSize() == len(record)
        request = log.predict_log.request
        assert not request.HasField("model_spec")  # valid for every name of the model
        requests.append({name: tf.make_ndarray(value) for name, value in request.inputs.items()})
    return requests


def serve(folder: Path, requests: list) -> list:
    """Returns the answers of a separate process to requests of (path, signature, inputs).

    An answer is a dictionary of arrays, or the text of the error.
    """
    return _serve(folder, [(*request, False) for request in requests])


def serve_texts(folder: Path, requests: list) -> list:
    """Returns the answers of a separate process to requests of (path, lists of texts by name).

    See `serve`. The process imports TensorFlow and TensorFlow Text.
    """
    encoded = []
    for path, inputs in requests:
        bytes_of = {k: np.char.encode(v, "utf-8").astype(object) for k, v in inputs.items()}
        encoded.append((path, "serving_default", bytes_of, True))
    return _serve(folder, encoded)


def _serve(folder: Path, requests: list) -> list:
    (folder / "requests").write_bytes(pickle.dumps(requests))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(
        [isolated_python(), "-c", SERVER, folder / "requests", folder / "results"],
        cwd=folder,
        env=environment,
        check=True,
    )
    return pickle.loads((folder / "results").read_bytes())
