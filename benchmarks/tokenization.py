"""Measures the conversion of texts to ids, relative to SentencePiece, on one thread.

    python -m benchmarks.tokenization --text=prose.txt --spm_model_file=30k-clean.model

SentencePiece encodes the raw lines as one list. This package also cleans the text and applies the
rule for digits and commas. Both are measured alternately in this process, and their medians are
compared. With --vocab_file, WordPiece is also measured.
"""

import statistics
import time
from collections.abc import Callable, Sequence

import sentencepiece
from absl import app, flags

from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.loading import tokenizer_from_files

_TEXT = flags.DEFINE_string("text", None, "Text to encode, UTF-8, one sentence per line.")
_MODEL = flags.DEFINE_string("spm_model_file", None, "SentencePiece model.")
_VOCAB = flags.DEFINE_string("vocab_file", None, "WordPiece vocabulary. Default: not timed.")
_LINES = flags.DEFINE_integer("lines", 40_000, "Number of lines to use.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 7, "Number of repetitions.", lower_bound=1)

Encode = Callable[[list[str]], list[list[int]]]


def median_seconds(encoders: dict[str, Encode], lines: list[str]) -> dict[str, float]:
    """Returns the median time of each encoder. They run alternately, so that load affects all."""
    seconds: dict[str, list[float]] = {name: [] for name in encoders}
    for _ in range(_ROUNDS.value):
        for name, encode in encoders.items():
            begin = time.perf_counter()
            encode(lines)
            seconds[name].append(time.perf_counter() - begin)
    return {name: statistics.median(values) for name, values in seconds.items()}


def with_offsets(tokenizer: Tokenizer) -> Encode:
    """Returns a function that encodes texts one by one, with character offsets."""
    return lambda lines: [tokenizer.encode_with_offsets(line).ids for line in lines]


def main(arguments: Sequence[str]) -> None:
    """Prints the characters per second of each tokenizer, and its ratio to SentencePiece."""
    del arguments
    with open(_TEXT.value, encoding="utf-8") as file:
        lines = [line for _, line in zip(range(_LINES.value), file, strict=False)]
    bare = sentencepiece.SentencePieceProcessor(model_file=_MODEL.value)
    ours = tokenizer_from_files(spm_model_file=_MODEL.value)
    encoders: dict[str, Encode] = {
        "bare_sentencepiece": lambda lines: bare.encode(lines, out_type=int, num_threads=1),
        "encode_batch": ours.encode_batch,
        "encode_with_offsets": with_offsets(ours),
    }
    if _VOCAB.value:
        words = tokenizer_from_files(vocab_file=_VOCAB.value)
        encoders["wordpiece_encode_batch"] = words.encode_batch
        encoders["wordpiece_encode_with_offsets"] = with_offsets(words)
    seconds = median_seconds(encoders, lines)
    characters = sum(map(len, lines))
    for name, median in seconds.items():
        rate = characters / median / 1e6
        ratio = seconds["bare_sentencepiece"] / median
        print(f"{name}: {rate:.2f} M characters/s, ratio_to_bare_sentencepiece={ratio:.2f}")


if __name__ == "__main__":
    flags.mark_flags_as_required(["text", "spm_model_file"])
    app.run(main)
