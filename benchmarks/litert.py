"""Measures size, speed and accuracy of LiteRT files, compared with TensorFlow.

    python -m benchmarks.litert --preset=base_v2 --folder=litert_files --lengths=128,384
    python -m benchmarks.litert --model=mrpc --texts=texts.txt --folder=litert_files --lengths=128

With --preset, an encoder with random weights is measured on random ids. With --model, the model is
measured on texts: one per line, with a tab between the texts of a pair. Files that already exist in
the folder are used again.

Sequences are processed one at a time, and all are padded to the same length. All files are measured
alternately in one process. The best time is reported, because other programs can only add time.
"""

import os
from collections.abc import Callable, Sequence

import keras
import numpy as np
import tensorflow as tf
from absl import app, flags
from ai_edge_litert.interpreter import Interpreter

import albert_tf
from albert_tf.config import AlbertConfig
from albert_tf.data.sequences import TokenSequences
from albert_tf.data.streams import open_input, read_lines
from albert_tf.finetuning.texts import TextExample, text_sequences
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.serving.litert import QUANTIZATIONS, LiteRTExport, outputs_of
from benchmarks.timing import best_seconds

_PRESET = flags.DEFINE_string("preset", None, "Shape of an encoder with random weights.")
_MODEL = flags.DEFINE_string("model", None, "Model of any format, instead of --preset.")
_TEXTS = flags.DEFINE_string("texts", None, "Texts for --model.")
_FOLDER = flags.DEFINE_string("folder", None, "Directory for the files.", required=True)
_LENGTHS = flags.DEFINE_list("lengths", ["128"], "Sequence lengths, including padding.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Number of repetitions.", lower_bound=1)
_COMPARED = flags.DEFINE_integer("compared", 20, "Number of sequences to compare.", lower_bound=1)
# Files with a suffix accept any number of sequences of any length.
_KINDS = (*QUANTIZATIONS, "none-any", "int8-any")
_FILES = flags.DEFINE_list("files", list(_KINDS), "Files to measure.")


def random_sequences(config: AlbertConfig, length: int) -> TokenSequences:
    """Returns sequences of random ids, whose lengths are between a quarter and all of `length`."""
    random = np.random.default_rng(1)
    lengths = random.integers(length // 4, length + 1, _COMPARED.value)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    tokens = random.integers(0, config.vocab_size, starts[-1]).astype(np.int32)
    return TokenSequences(tokens, starts, (lengths // 2).astype(np.int32))


def model_and_sequences() -> tuple[keras.Model, Callable[[int], TokenSequences]]:
    """Returns the model, and a function that returns sequences up to a length."""
    if _PRESET.value:
        keras.utils.set_random_seed(1)
        config = AlbertConfig.from_preset(_PRESET.value)
        return AlbertEncoder(config), lambda length: random_sequences(config, length)
    model = albert_tf.load(_MODEL.value)
    with open_input(_TEXTS.value) as file:
        lines = [line.decode() for group in read_lines(file) for line in group]
    examples = [TextExample("", *line.split("\t")) for line in lines]
    return model, lambda n: text_sequences(examples, model.tokenizer, n)


def write_files(model: keras.Model, length: int) -> dict[str, str]:
    """Writes missing files; returns the path of each kind of file."""
    paths = {}
    for name in _FILES.value:
        quantization, _, is_any = name.partition("-")
        paths[name] = os.path.join(_FOLDER.value, f"{name}-{'any' if is_any else length}.tflite")
        if not os.path.exists(paths[name]):
            sizes = (None, None) if is_any else (length, 1)
            LiteRTExport(model, paths[name], quantization, *sizes).write()
    return paths


def agreement_cells(found: dict[str, list[np.ndarray]], wanted: dict[str, list[np.ndarray]]) -> str:
    """Returns table cells: difference, cosine, and share of equal predictions."""
    name = next(name for name in wanted if name != "end_log_prob")
    ours, theirs = (
        np.concatenate([v.ravel() for v in side[name]]).astype(np.float64)
        for side in (found, wanted)
    )
    difference = np.abs(ours - theirs).max()
    cosine = ours @ theirs / (np.linalg.norm(ours) * np.linalg.norm(theirs))
    same = "–"
    if "sequence_output" not in wanted:
        names = [n for n in ("predictions", "start_log_prob", "end_log_prob") if n in wanted]
        equal = [
            all(
                np.argmax(found[n][i]) == np.argmax(wanted[n][i])
                if n != "predictions"
                else (found[n][i] == wanted[n][i]).all()
                for n in names
            )
            for i in range(len(wanted[name]))
        ]
        same = f"{np.mean(equal):.1%} of {len(equal)}"
    return f"{difference:.2g} | {cosine:.6f} | {same}"


def real_outputs(
    run: Callable[..., dict], batches: Sequence[dict[str, np.ndarray]]
) -> dict[str, list[np.ndarray]]:
    """Returns the outputs for each sequence, without padding."""
    outputs: dict[str, list[np.ndarray]] = {}
    for batch in batches:
        is_real = batch["input_mask"] == 1
        for name, values in run(batch).items():
            values = np.asarray(values)
            kept = values[is_real] if values.shape[:2] == is_real.shape else values
            outputs.setdefault(name, []).append(kept)
    return outputs


def measure(model: keras.Model, sequences: TokenSequences, length: int) -> None:
    """Prints a row for TensorFlow and for each kind of file."""
    rows = np.arange(min(len(sequences), _COMPARED.value))
    batches = [sequences.padded(rows[i : i + 1], length) for i in rows]
    paths = write_files(model, length)
    compute = tf.function(outputs_of(model), autograph=False)
    wanted = real_outputs(compute, [{k: tf.constant(v) for k, v in b.items()} for b in batches])
    full = {name: np.ones((1, length), np.int32) for name in batches[0]}
    constant = {name: tf.constant(values) for name, values in full.items()}
    functions: dict[str, Callable[[], object]] = {"tensorflow": lambda: compute(constant)}
    cells = {}
    for name, path in paths.items():
        for threads in (1, 2):
            run = Interpreter(path, num_threads=threads).get_signature_runner()
            functions[f"{name} {threads}"] = lambda run=run: run(**full)
        found = real_outputs(lambda batch, run=run: run(**batch), batches)
        cells[name] = agreement_cells(found, wanted)
    best_seconds(functions, 1)  # the first run allocates memory
    best = {name: 1000 * value for name, value in best_seconds(functions, _ROUNDS.value).items()}
    base = best[f"{next(iter(paths))} 1"]
    print(f"| TensorFlow, {length} | – | – | {best['tensorflow']:.1f} | – | – | – |")
    for name, path in paths.items():
        one, two = (best[f"{name} {threads}"] for threads in (1, 2))
        size = os.path.getsize(path) / 1e6
        times = f"{one:.1f} ({base / one:.2f}x) | {two:.1f} ({base / two:.2f}x)"
        print(f"| {name}, {length} | {size:.1f} | {times} | {cells[name]} |")


def main(arguments: Sequence[str]) -> None:
    """Prints the table."""
    del arguments
    os.makedirs(_FOLDER.value, exist_ok=True)
    model, sequences = model_and_sequences()
    print(
        "| file, length | MB | ms, 1 thread | ms, 2 threads | largest difference | cosine | same |"
    )
    print("|---|---|---|---|---|---|---|")
    for length in map(int, _LENGTHS.value):
        measure(model, sequences(length), length)


if __name__ == "__main__":
    app.run(main)
