"""Measures the conversion of words and labels to features, including reading, and its memory.

    python -m benchmarks.token_features --train_file=train.conll --model=mini --copies=20

The file is repeated. The cache of `WordTokenizer` contains its words after the first copy, so the
first copy is timed separately.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from absl import app, flags

from albert_tf.checkpoints.load_tokenizer import load_tokenizer
from albert_tf.token_classification.data import read_sentences
from albert_tf.token_classification.features import WordTokenizer, token_features
from albert_tf.token_classification.labels import recognize_scheme
from benchmarks.timing import peak_memory, seconds

_FILE = flags.DEFINE_string("train_file", None, "Columns of words and labels.", required=True)
_MODEL = flags.DEFINE_string("model", "mini", "Model whose tokenizer is used.")
_COPIES = flags.DEFINE_integer("copies", 20, "Number of copies of the file.", lower_bound=1)
_LENGTH = flags.DEFINE_integer("max_seq_length", 128, "Tokens of a window.", lower_bound=3)


def main(arguments: Sequence[str]) -> None:
    """Prints words per second, including both readings of the file, and the peak memory."""
    del arguments
    tokenizer = load_tokenizer(_MODEL.value)
    text = Path(_FILE.value).read_bytes().rstrip() + b"\n\n"
    with tempfile.TemporaryDirectory() as folder:
        for copies in (1, _COPIES.value):
            path = Path(folder, f"{copies}.conll")
            path.write_bytes(text * copies)
            counts = []

            def run(path: str = str(path), counts: list[int] = counts) -> None:
                recognize_scheme(read_sentences(path))
                labels: dict[str, int] = {}
                features = token_features(
                    (
                        (s.words, [labels.setdefault(x, len(labels)) for x in s.labels or ()])
                        for s in read_sentences(path)
                    ),
                    WordTokenizer(tokenizer),
                    _LENGTH.value,
                )
                counts.append(len(features.positions))

            rate = 1 / seconds(run)
            print(
                f"copies={copies}: {counts[0] * rate:,.0f} words/s, words={counts[0]:,}, "
                f"peak_memory={peak_memory():.2f} GB"
            )


if __name__ == "__main__":
    app.run(main)
