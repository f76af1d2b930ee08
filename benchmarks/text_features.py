"""Measures the conversion of pairs of texts to features, relative to SentencePiece, on one thread.

    python -m benchmarks.text_features --data_dir=GLUE --spm_model_file=30k-clean.model

The data are the training data of MRPC. SentencePiece encodes the same texts as one list. This
package creates truncated sequences and label ids. Both are measured alternately in this process.
The best time is reported, because other programs can only add time.
"""

from collections.abc import Callable, Sequence

import sentencepiece
from absl import app, flags

from albert_tf.classification.data import GlueData
from albert_tf.classification.task import text_features
from albert_tf.data.splits import TRAIN
from albert_tf.tokenization.loading import tokenizer_from_files
from benchmarks.timing import best_seconds

_DATA = flags.DEFINE_string("data_dir", None, "Directory of GLUE, or its subdirectory MRPC.")
_MODEL = flags.DEFINE_string("spm_model_file", None, "SentencePiece model.")
_VOCAB = flags.DEFINE_string("vocab_file", None, "WordPiece vocabulary. Default: not timed.")
_LENGTH = flags.DEFINE_integer("max_seq_length", 128, "Tokens of a sequence.", lower_bound=5)
_ROUNDS = flags.DEFINE_integer("rounds", 9, "Number of repetitions.", lower_bound=1)


def main(arguments: Sequence[str]) -> None:
    """Prints the pairs per second of SentencePiece and of this package, and their ratios."""
    del arguments
    data = GlueData("mrpc", _DATA.value)
    examples = data.read(TRAIN)
    texts = [text for example in examples for text in (example.text_a, example.text_b or "")]
    bare = sentencepiece.SentencePieceProcessor(model_file=_MODEL.value)
    functions: dict[str, Callable[[], object]] = {
        "bare_sentencepiece": lambda: bare.encode(texts, out_type=int, num_threads=1),
    }
    tokenizers = {"text_features": tokenizer_from_files(spm_model_file=_MODEL.value)}
    if _VOCAB.value:
        tokenizers["wordpiece_text_features"] = tokenizer_from_files(vocab_file=_VOCAB.value)
    for name, tokenizer in tokenizers.items():
        functions[name] = lambda tokenizer=tokenizer: text_features(
            examples, data.labels, tokenizer, _LENGTH.value
        )
    seconds = best_seconds(functions, _ROUNDS.value)
    for name, value in seconds.items():
        ratio = seconds["bare_sentencepiece"] / value
        print(
            f"{name}: {len(examples) / value:,.0f} pairs/s, ratio_to_bare_sentencepiece={ratio:.2f}"
        )


if __name__ == "__main__":
    flags.mark_flags_as_required(["data_dir", "spm_model_file"])
    app.run(main)
