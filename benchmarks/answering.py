"""Measures how fast a classifier answers: this package, ONNX Runtime and other runtimes.

    python -m benchmarks.answering --model=sst --texts=texts.txt
    python -m benchmarks.answering --preset=base_v2 --texts=texts.txt --engines=keras,onnx-int8

Texts are one per line, with a tab between the texts of a pair. `--preset` measures a classifier
with random weights and the vocabulary of `mini`. All engines answer alternately in one process with
the same number of threads, and the best round counts, because other programs can only add time. A
single text is answered 20 times in a row, because the threads of some engines remain busy for some
milliseconds after an answer.
The single text has the median length. Time includes the tokenizer. For batches, texts are sorted by
length, 32 per batch. Texts are truncated to 128 tokens.

`openvino` needs the package of this name, and reads the float32 file. `transformers` and
`transformers-bfloat16` need PyTorch.
"""

import contextlib
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

with contextlib.suppress(ImportError):
    import torch  # the process crashes if TensorFlow is imported first
    from transformers import AlbertForSequenceClassification

import keras
import numpy as np
import onnxruntime
from absl import app, flags

import albert_tf
from albert_tf.data.streams import open_input, read_lines
from albert_tf.serving.onnx_export import OnnxExport
from albert_tf.serving.onnx_graph import INPUTS
from benchmarks.timing import best_seconds

_MODEL = flags.DEFINE_string("model", None, "Fine-tuned classifier of any format.")
_PRESET = flags.DEFINE_string("preset", None, "Shape of a classifier with random weights.")
_TEXTS = flags.DEFINE_string("texts", None, "Texts, or pairs of texts.", required=True)
_MOST_TEXTS = flags.DEFINE_integer("most_texts", 408, "Number of texts.", lower_bound=1)
_THREADS = flags.DEFINE_integer("threads", 2, "Number of threads.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Number of repetitions.", lower_bound=1)
_ENGINES = flags.DEFINE_list(
    "engines", ["keras", "onnx-none", "onnx-int8"], "Engines, the first one for comparison."
)
_BATCH, _LENGTH = 32, 128

Texts = list[tuple[str, ...]]
Answer = Callable[[Texts], np.ndarray]  # returns class ids


def classifier(precision: str) -> albert_tf.TextClassifier:
    """Loads the classifier, or creates one with random weights."""
    settings: dict[str, Any] = {"batch_size": _BATCH, "max_seq_length": _LENGTH}
    if _MODEL.value:
        return albert_tf.TextClassifier.load(_MODEL.value, precision=precision, **settings)
    keras.utils.set_random_seed(1)
    mini = albert_tf.load("mini")
    config = albert_tf.AlbertConfig.from_preset(_PRESET.value)
    config = config.replace(vocab_size=mini.config.vocab_size)
    dtype = "mixed_bfloat16" if precision == "bfloat16" else "float32"
    model = albert_tf.AlbertForClassification(config, 2, dtype=dtype)
    model.set_origin(mini.tokenizer, None)
    return albert_tf.TextClassifier(model, labels=["no", "yes"], **settings)


def columns(texts: Texts) -> list[list[str]]:
    """Returns the texts, or the first and the second texts of pairs."""
    return [list(column) for column in zip(*texts, strict=True)]


def padded(classifier: albert_tf.TextClassifier, texts: Texts) -> dict[str, np.ndarray]:
    """Returns the inputs of an ONNX file, int64 [B, S]."""
    tokens = classifier.model.tokenizer(*columns(texts), max_length=_LENGTH)
    names = ("input_ids", "input_mask", "segment_ids")
    return {to: np.asarray(tokens[name], np.int64) for name, to in zip(names, INPUTS, strict=True)}


def onnx_engine(path: str, source: albert_tf.TextClassifier) -> Answer:
    """Returns a function that answers with ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = _THREADS.value
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda texts: session.run(["logits"], padded(source, texts))[0].argmax(-1)


def openvino_engine(path: str, source: albert_tf.TextClassifier) -> Answer:
    """Returns a function that answers with OpenVINO, in the precision that it selects."""
    import openvino

    options = {"INFERENCE_NUM_THREADS": _THREADS.value, "PERFORMANCE_HINT": "LATENCY"}
    compiled = openvino.Core().compile_model(path, "CPU", options)
    return lambda texts: compiled(padded(source, texts))["logits"].argmax(-1)


def transformers_engine(path: str, precision: str, source: albert_tf.TextClassifier) -> Answer:
    """Returns a function that answers with PyTorch."""
    albert_tf.save(source.model, path, format="huggingface")
    torch.set_num_threads(_THREADS.value)
    model = AlbertForSequenceClassification.from_pretrained(path, dtype=getattr(torch, precision))

    @torch.inference_mode()
    def answer(texts: Texts) -> np.ndarray:
        inputs = {name: torch.from_numpy(ids) for name, ids in padded(source, texts).items()}
        return model.eval()(**inputs).logits.argmax(-1).numpy()

    return answer


def keras_engine(source: albert_tf.TextClassifier) -> Answer:
    """Returns a function that answers with this package."""
    return lambda texts: np.array(
        [np.argmax(list(answer.probabilities.values())) for answer in source(*columns(texts))]
    )


def engines(folder: str, source: albert_tf.TextClassifier) -> dict[str, Answer]:
    """Returns the selected engines by name, and prints the sizes of their files."""
    found = {}
    for name in _ENGINES.value:
        kind, _, quantization = name.partition("-")
        if kind == "keras":
            found[name] = keras_engine(classifier(quantization) if quantization else source)
            continue
        if kind == "transformers":
            directory = os.path.join(folder, name)
            found[name] = transformers_engine(directory, quantization or "float32", source)
            continue
        path = os.path.join(folder, f"{name}.onnx")
        OnnxExport(source.model, path, quantization or "none").write()
        print(f"{name}: {os.path.getsize(path) / 1e6:.1f} MB")
        found[name] = (openvino_engine if kind == "openvino" else onnx_engine)(path, source)
    return found


def in_batches(answer: Answer, texts: Texts) -> np.ndarray:
    """Answers texts that are sorted by length."""
    batches = [texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH)]
    return np.concatenate([answer(batch) for batch in batches])


def main(arguments: Sequence[str]) -> None:
    """Prints a table."""
    del arguments
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(_THREADS.value)
    with open_input(_TEXTS.value) as file:
        lines = [line.decode() for group in read_lines(file) for line in group]
    lines = sorted(lines[: _MOST_TEXTS.value], key=len)
    texts = [tuple(line.split("\t")) for line in lines]
    with tempfile.TemporaryDirectory() as folder:
        source = classifier("float32")
        all_engines = engines(folder, source)
    answers = {name: in_batches(answer, texts) for name, answer in all_engines.items()}
    middle = [texts[len(texts) // 2]]
    many = best_seconds(
        {name: lambda f=f: in_batches(f, texts) for name, f in all_engines.items()}, _ROUNDS.value
    )
    one: dict[str, float] = {}
    for _ in range(_ROUNDS.value):
        for name, answer in all_engines.items():
            best = best_seconds({name: lambda f=answer: f(middle)}, 20)[name]
            one[name] = min(best, one.get(name, best))
    first = next(iter(all_engines))
    tokens = padded(source, middle)["input_ids"].size
    print(f"| engine | texts/s | ratio | ms for {tokens} tokens | ratio | same labels |")
    print("|---|---:|---:|---:|---:|---:|")
    for name in all_engines:
        same = (answers[name] == answers[first]).mean()
        print(
            f"| {name} | {len(texts) / many[name]:.0f} | {many[first] / many[name]:.2f} "
            f"| {1000 * one[name]:.1f} | {one[name] / one[first]:.2f} | {same:.1%} |"
        )


if __name__ == "__main__":
    app.run(main)
