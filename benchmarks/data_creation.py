"""Measures the creation of record files from text, relative to SentencePiece, on one core.

    python -m benchmarks.data_creation --text=prose.txt --spm_model_file=30k-clean.model

SentencePiece encodes the raw lines as one list. This package reads the text file, cleans and
tokenizes it, creates pairs, masks, serializes, shuffles and writes the records. Both are measured
alternately in this process, and their medians are compared. TensorFlow is not imported.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence

import sentencepiece
from absl import app, flags

from albert_tf.pretraining.create_records import create_records
from albert_tf.pretraining.instances import InstanceSettings, SegmentSettings
from albert_tf.pretraining.masking import MaskingSettings
from albert_tf.tokenization.loading import tokenizer_from_files

_TEXT = flags.DEFINE_string("text", None, "Text, one sentence per line.", required=True)
_MODEL = flags.DEFINE_string("spm_model_file", None, "SentencePiece model.", required=True)
_LENGTH = flags.DEFINE_integer("max_seq_length", 512, "Tokens per sequence.")
_PREDICTIONS = flags.DEFINE_integer(
    "max_predictions_per_seq", 20, "Maximum predictions per sequence."
)
_WORKERS = flags.DEFINE_integer("num_workers", 1, "Processes.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Number of repetitions.", lower_bound=1)


def seconds_of(action: Callable[[], int]) -> tuple[float, int]:
    """Returns the seconds that an action takes and the number of tokens that it returns."""
    begin = time.perf_counter()
    tokens = action()
    return time.perf_counter() - begin, tokens


def create(output_file: str) -> int:
    """Creates the records. Returns the number of tokens of the text."""
    settings = InstanceSettings(
        SegmentSettings(_LENGTH.value),
        MaskingSettings(max_predictions_per_seq=_PREDICTIONS.value),
        dupe_factor=1,
    )
    tokenizer = tokenizer_from_files(spm_model_file=_MODEL.value)
    counts = create_records([_TEXT.value], [output_file], tokenizer, settings, _WORKERS.value)
    return counts["text_tokens"]


def main(arguments: Sequence[str]) -> None:
    """Prints the tokens per second of SentencePiece and of this package, and their ratio."""
    del arguments
    with open(_TEXT.value, encoding="utf-8", newline="\n") as file:
        lines = file.read().split("\n")
    bare = sentencepiece.SentencePieceProcessor(model_file=_MODEL.value)
    times: dict[str, list[float]] = {"bare_sentencepiece": [], "create_pretraining_data": []}
    with tempfile.TemporaryDirectory() as folder:
        output_file = os.path.join(folder, "benchmark.tfrecord")
        actions: dict[str, Callable[[], int]] = {
            "bare_sentencepiece": lambda: sum(map(len, bare.encode(lines, num_threads=1))),
            "create_pretraining_data": lambda: create(output_file),
        }
        tokens = {}
        for _ in range(_ROUNDS.value):
            for name, action in actions.items():
                seconds, tokens[name] = seconds_of(action)
                times[name].append(seconds)
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, seconds in medians.items():
        print(f"{name}: tokens_per_second={tokens[name] / seconds:,.0f} seconds={seconds:.2f}")
    ratio = medians["bare_sentencepiece"] / medians["create_pretraining_data"]
    print(f"ratio_to_bare_sentencepiece={ratio:.3f}")


if __name__ == "__main__":
    app.run(main)
