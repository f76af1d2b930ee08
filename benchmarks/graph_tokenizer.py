"""Compares ids and speed of the tokenizer in a TensorFlow graph and in Python, on one core.

    python -m benchmarks.graph_tokenizer --text=prose.txt,more.txt --spm_model_file=30k-clean.model

Every line of the files is a text. All tokenizers get the same batches of lines. CPU time is
measured, because other programs affect it less. With --offsets, positions are also compared and
timed. Lines with differences are counted, and the first of them are printed. Lines with two equally
good segmentations are counted separately, because versions of SentencePiece resolve such ties
differently.
"""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from typing import Any

import sentencepiece
import tensorflow as tf
from absl import app, flags

from albert_tf.serving.tokenizer_graph import GraphTokenizer
from albert_tf.tokenization.base import Encoding, Tokenizer
from albert_tf.tokenization.loading import tokenizer_from_files
from albert_tf.tokenization.sentence_piece import SentencePieceTokenizer

_TEXT = flags.DEFINE_list("text", None, "Texts to encode, UTF-8, one per line.")
_MODEL = flags.DEFINE_string("spm_model_file", None, "SentencePiece model.")
_VOCAB = flags.DEFINE_string("vocab_file", None, "WordPiece vocabulary.")
_LOWER = flags.DEFINE_boolean("do_lower_case", True, "Whether text is lower-cased.")
_LINES = flags.DEFINE_integer("lines", 100_000, "Number of lines to use.", lower_bound=1)
_BATCH = flags.DEFINE_integer("batch_size", 1000, "Lines per batch.", lower_bound=1)
_OFFSETS = flags.DEFINE_boolean("offsets", False, "Also compare positions.")
_SHOWN = flags.DEFINE_integer("shown", 5, "Number of differing lines to print.", lower_bound=0)

Batches = list[list[str]]


def stay_on_one_core() -> None:
    """Limits the process to one core. Must be called before TensorFlow starts its threads."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def timed(encode: Callable[[Any], Iterable], batches: Iterable[Any]) -> tuple[list, float]:
    """Returns the results for all lines and the CPU time in seconds."""
    begin = time.process_time()
    results = [encode(batch) for batch in batches]
    seconds = time.process_time() - begin
    return list(chain.from_iterable(results)), seconds


def in_bytes(line: str, encoding: Encoding) -> tuple[list[int], list[int], list[int]]:
    """Returns an encoding with positions in bytes instead of characters."""
    if line.isascii():
        return tuple(encoding)  # type: ignore[return-value]
    before = [0]
    for character in line:
        before.append(before[-1] + len(character.encode()))
    starts, ends = ([before[place] for place in row] for row in encoding[1:])
    return encoding.ids, starts, ends


def is_tie(tokenizer: Tokenizer, ids: list[int], others: list[int]) -> bool:
    """Returns whether two segmentations have the same score in SentencePiece."""
    if not isinstance(tokenizer, SentencePieceTokenizer):
        return False
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model_proto)
    scores = [sum(processor.get_score(i) for i in row) for row in (ids, others)]
    return abs(scores[0] - scores[1]) < 1e-5


def report_differences(tokenizer: Tokenizer, lines: list[str], ours: list, python: list) -> None:
    """Prints the number of lines with different results, and the first of these lines."""
    pairs = zip(lines, ours, python, strict=True)
    differing = [(line, a, b) for line, a, b in pairs if a != b]
    ties = shown = 0
    for line, a, b in differing:
        ids, others = (a[0], b[0]) if _OFFSETS.value else (a, b)
        tie = ids != others and is_tie(tokenizer, ids, others)
        if not tie and (shown := shown + 1) <= _SHOWN.value:
            print(f"differs: {line[:200]!a}\n  graph:  {a!s:.300}\n  python: {b!s:.300}")
        ties += tie
    print(f"{len(lines)} lines, {len(differing)} differ, {ties} of them ties of SentencePiece")


def main(arguments: Sequence[str]) -> None:
    """Prints the differences, and lines and megabytes per second of each tokenizer."""
    del arguments
    stay_on_one_core()
    tokenizer = tokenizer_from_files(
        spm_model_file=_MODEL.value, vocab_file=_VOCAB.value, do_lower_case=_LOWER.value
    )
    graph = GraphTokenizer(tokenizer)
    files = [open(path, encoding="utf-8") for path in _TEXT.value]  # noqa: SIM115
    lines = [line.rstrip("\n") for line in islice(chain.from_iterable(files), _LINES.value)]
    batches: Batches = [
        lines[start : start + _BATCH.value] for start in range(0, len(lines), _BATCH.value)
    ]
    tensors = [tf.constant([line.encode() for line in batch]) for batch in batches]
    graph.tokenize(tensors[0]), graph.tokenize_with_offsets(tensors[0])  # traces the functions
    seconds = {}
    ids, seconds["graph"] = timed(lambda batch: [graph.tokenize(batch)], tensors)
    ours = [row for ragged in ids for row in ragged.to_list()]
    python, seconds["encode_batch"] = timed(tokenizer.encode_batch, batches)
    if _OFFSETS.value:
        rows, seconds["graph, offsets"] = timed(
            lambda batch: [graph.tokenize_with_offsets(batch)], tensors
        )
        assert ours == [row for located in rows for row in located[0].to_list()]
        ours = [
            row
            for located in rows
            for row in zip(*(part.to_list() for part in located), strict=True)
        ]
        located, seconds["encode_with_offsets"] = timed(
            lambda batch: [tokenizer.encode_with_offsets(line) for line in batch], batches
        )
        python = [in_bytes(line, row) for line, row in zip(lines, located, strict=True)]
    if isinstance(tokenizer, SentencePieceTokenizer):
        bare = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model_proto)
        _, seconds["bare_sentencepiece"] = timed(
            lambda batch: bare.encode(batch, out_type=int, num_threads=1), batches
        )
    report_differences(tokenizer, lines, ours, python)
    size = sum(len(line.encode()) for line in lines) / 1e6
    print(f"{size:.1f} MB, {sum(map(str.isascii, lines)) / len(lines):.0%} of the lines in ASCII")
    for name, value in seconds.items():
        ratio = seconds["encode_batch"] / value
        print(
            f"{name}: {len(lines) / value:,.0f} lines/s, {size / value:.2f} MB/s, "
            f"ratio_to_encode_batch={ratio:.2f}"
        )


if __name__ == "__main__":
    flags.mark_flags_as_required(["text"])
    app.run(main)
