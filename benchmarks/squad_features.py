"""Measures the conversion of questions to windows, relative to SentencePiece.

    python -m benchmarks.squad_features --squad_file=dev-v1.1.json --spm_model_file=30k-clean.model

SentencePiece encodes every context once and every question. This package creates windows with the
token positions of the answers and the character offsets of all tokens. Both are measured
alternately in this process. The best time is reported, because other programs can only add time.
"""

import time
from collections.abc import Callable, Sequence

import sentencepiece
from absl import app, flags

from albert_tf.squad.data import SquadData, read_squad
from albert_tf.squad.features import squad_features
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.loading import tokenizer_from_files
from benchmarks.timing import best_seconds

_DATA = flags.DEFINE_string("squad_file", None, "Questions in the format of SQuAD.")
_VERSION = flags.DEFINE_integer("squad_version", 1, "1 or 2.", lower_bound=1, upper_bound=2)
_MODEL = flags.DEFINE_string("spm_model_file", None, "SentencePiece model.")
_VOCAB = flags.DEFINE_string(
    "vocab_file", None, "WordPiece vocabulary, instead of --spm_model_file."
)
_LENGTH = flags.DEFINE_integer("max_seq_length", 384, "Tokens of a window.")
_STRIDE = flags.DEFINE_integer("doc_stride", 128, "Tokens between the starts of windows.")
_QUERY = flags.DEFINE_integer("max_query_length", 64, "Tokens of a question.")
_WORKERS = flags.DEFINE_integer("num_workers", 1, "Processes that tokenize.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Number of repetitions.", lower_bound=1)


def print_speed(data: SquadData, tokenizer: Tokenizer) -> None:
    """Prints the questions per second of SentencePiece and of this package, and their ratio."""
    functions: dict[str, Callable[[], object]] = {
        "squad_features": lambda: squad_features(
            data,
            tokenizer,
            max_seq_length=_LENGTH.value,
            doc_stride=_STRIDE.value,
            max_query_length=_QUERY.value,
            is_training=True,
            num_workers=_WORKERS.value,
        )
    }
    if _MODEL.value:
        bare = sentencepiece.SentencePieceProcessor(model_file=_MODEL.value)
        texts = data.contexts + [question.question for question in data.questions]
        functions["bare_sentencepiece"] = lambda: bare.encode(texts, out_type=int, num_threads=1)
    seconds = best_seconds(functions, _ROUNDS.value)
    for name, value in seconds.items():
        ratio = seconds.get("bare_sentencepiece", float("nan")) / value
        print(
            f"{name}: {len(data.questions) / value:,.0f} questions/s, "
            f"ratio_to_bare_sentencepiece={ratio:.2f}"
        )


def main(arguments: Sequence[str]) -> None:
    """Prints the speed, and the number of windows and answers."""
    del arguments
    tokenizer = tokenizer_from_files(vocab_file=_VOCAB.value, spm_model_file=_MODEL.value)
    begin = time.perf_counter()
    data = read_squad(_DATA.value, version=_VERSION.value, is_training=True)
    print(
        f"read in {time.perf_counter() - begin:.1f} s: contexts={len(data.contexts)} "
        f"questions={len(data.questions)}"
    )
    print_speed(data, tokenizer)


if __name__ == "__main__":
    flags.mark_flag_as_required("squad_file")
    app.run(main)
