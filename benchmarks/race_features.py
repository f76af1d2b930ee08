"""Measures the conversion of RACE to features, relative to SentencePiece, on one thread.

    python -m benchmarks.race_features --data_dir=RACE --spm_model_file=30k-clean.model

The data are the middle-school part of the development set. SentencePiece encodes the same texts as
one list: every passage once, and every question with each of its options. Both are measured
alternately in this process. The best time is reported, because other programs can only add time.
Finally the peak memory is measured for --questions questions. They are the same data repeated, with
different passages in each repetition.
"""

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import sentencepiece
from absl import app, flags

from albert_tf.data.splits import DEV
from albert_tf.multiple_choice.data import MIDDLE, ChoiceExample, read_race
from albert_tf.multiple_choice.task import choice_features
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.loading import tokenizer_from_files
from benchmarks.timing import best_seconds

_DATA = flags.DEFINE_string("data_dir", None, "Directory RACE, or its parent.")
_MODEL = flags.DEFINE_string("spm_model_file", None, "SentencePiece model.")
_LENGTH = flags.DEFINE_integer("max_seq_length", 512, "Tokens of a sequence.", lower_bound=4)
_ROUNDS = flags.DEFINE_integer("rounds", 7, "Number of repetitions.", lower_bound=1)
_QUESTIONS = flags.DEFINE_integer(
    "questions", 0, "Questions to measure memory with; RACE has 87,866.", lower_bound=0
)


def _print_memory(examples: Sequence[ChoiceExample], tokenizer: Tokenizer) -> None:
    many, passages = [], set()
    while len(many) < _QUESTIONS.value:
        marks = {example.context: f"{len(many)} {example.context}" for example in examples}
        passages.update(marks.values())
        many += [replace(example, context=marks[example.context]) for example in examples]
    del many[_QUESTIONS.value :]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    sequences = choice_features(many, tokenizer, max_seq_length=_LENGTH.value).sequences
    seconds = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"questions={len(many)} passages={len(passages)} sequences={len(sequences)} "
        f"seconds={seconds:.1f} tokens_mib={sequences.tokens.nbytes / 2**20:.0f} "
        f"peak_growth_mib={(after - before) / 2**10:.0f}"
    )


def main(arguments: Sequence[str]) -> None:
    """Prints the questions per second of SentencePiece and of this package, and their ratios."""
    del arguments
    tokenizer = tokenizer_from_files(spm_model_file=_MODEL.value)
    bare = sentencepiece.SentencePieceProcessor(model_file=_MODEL.value)

    def read() -> list[ChoiceExample]:
        return read_race(_DATA.value, DEV, levels=(MIDDLE,))

    examples = read()
    texts = list(dict.fromkeys(example.context for example in examples))
    texts += [ending for example in examples for ending in example.endings()]
    functions: dict[str, Callable[[], object]] = {
        "bare_sentencepiece": lambda: bare.encode(texts, out_type=int, num_threads=1),
        "choice_features": lambda: choice_features(
            examples, tokenizer, max_seq_length=_LENGTH.value
        ),
        "reading_and_choice_features": lambda: choice_features(
            read(), tokenizer, max_seq_length=_LENGTH.value
        ),
    }
    seconds = best_seconds(functions, _ROUNDS.value)
    for name, value in seconds.items():
        ratio = seconds["bare_sentencepiece"] / value
        rate = len(examples) / value
        print(f"{name}: {rate:,.0f} questions/s, ratio_to_bare_sentencepiece={ratio:.2f}")
    if _QUESTIONS.value:
        _print_memory(examples, tokenizer)


if __name__ == "__main__":
    flags.mark_flags_as_required(["data_dir", "spm_model_file"])
    app.run(main)
