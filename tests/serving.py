"""Exported models, served by a process that has TensorFlow and nothing of ours."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np

# A stranger's program: it is handed batches for exported models, and where to put the results.
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
    """`input_ids`, `input_mask` (ragged) and `segment_ids`, int32 [rows, length]."""
    random = np.random.default_rng(100 * rows + length)
    real_tokens = random.integers(1, length + 1, (rows, 1))
    return {
        "input_ids": random.integers(0, 31, (rows, length), np.int32),
        "input_mask": (np.arange(length) < real_tokens).astype(np.int32),
        "segment_ids": random.integers(0, 5, (rows, length), np.int32),
    }


def serve(folder: Path, requests: list) -> list:
    """The answers of another process, whose working folder is empty, to (path, signature, inputs).

    An answer is a dictionary of arrays, or the text of the error.
    """
    (folder / "batches").write_bytes(pickle.dumps(requests))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(
        [sys.executable, "-c", SERVER, folder / "batches", folder / "results"],
        cwd=folder,
        env=environment,
        check=True,
    )
    return pickle.loads((folder / "results").read_bytes())
