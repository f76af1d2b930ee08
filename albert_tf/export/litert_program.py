"""Runs a LiteRT model on batches; a program by itself, which needs NumPy and an interpreter.

    python litert_program.py MODEL.tflite BATCHES.npz OUTPUTS.npz

A batch's inputs are stored as `<number>/<name>`, its outputs likewise.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np


def make_interpreter(path: str, num_threads: int = 1) -> Any:
    """Returns the interpreter of LiteRT, or where that is not installed TensorFlow's, of a file."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        import tensorflow as tf

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it says that the other one is its successor
            return tf.lite.Interpreter(path, num_threads=num_threads)
    return Interpreter(path, num_threads=num_threads)


def main(model_file: str, batches_file: str, outputs_file: str) -> None:
    """Reads batches and writes what the model gives for them."""
    batches: dict[str, dict[str, np.ndarray]] = {}
    with np.load(batches_file) as file:
        for key in file.files:
            number, name = key.split("/")
            batches.setdefault(number, {})[name] = file[key]
    run = make_interpreter(model_file).get_signature_runner()
    outputs = {
        f"{number}/{name}": values
        for number, batch in batches.items()
        for name, values in run(**batch).items()
    }
    np.savez(outputs_file, **outputs)


if __name__ == "__main__":
    main(*sys.argv[1:])
