"""How fast questions become windows, next to SentencePiece alone, and what answers survive it.

    python -m benchmarks.squad_features --squad_file=dev-v1.1.json --spm_model_file=30k-clean.model

Bare SentencePiece gets every context once and every question, and gives ids; ours gives windows
with positions of answers and the characters of every token. Both run in turns in this process, and
the best of each is compared: other work on the machine only ever adds time.

Then every reference answer is taken to its tokens and back, and compared as the metric does. What
cannot come back are answers that end inside of a token, most of them inside of a word.
"""

import time
from collections.abc import Callable, Sequence

import sentencepiece
from absl import app, flags

from albert_tf.squad.data import SquadData, read_squad
from albert_tf.squad.features import answers_through_tokens, squad_features, squad_tokens
from albert_tf.squad.metrics import normalize_answer
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.loading import load_tokenizer
from benchmarks.timing import best_seconds

_DATA = flags.DEFINE_string("squad_file", None, "Questions in the layout of SQuAD.")
_VERSION = flags.DEFINE_integer("squad_version", 1, "1 or 2.", lower_bound=1, upper_bound=2)
_MODEL = flags.DEFINE_string("spm_model_file", None, "SentencePiece model.")
_VOCAB = flags.DEFINE_string("vocab_file", None, "WordPiece vocabulary, instead of that.")
_LENGTH = flags.DEFINE_integer("max_seq_length", 384, "Tokens of a window.")
_STRIDE = flags.DEFINE_integer("doc_stride", 128, "Tokens from a window to the next.")
_QUERY = flags.DEFINE_integer("max_query_length", 64, "Tokens of a question.")
_WORKERS = flags.DEFINE_integer("num_workers", 1, "Processes that tokenize.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 3, "How often to time each.", lower_bound=1)
_SHOWN = 20


def print_speed(data: SquadData, tokenizer: Tokenizer) -> None:
    """Prints questions a second of each way, and the ratio of ours to bare SentencePiece."""
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


def print_answers(tokenizer: Tokenizer) -> None:
    """Prints how many reference answers come back from their tokens, and some that do not."""
    data = read_squad(_DATA.value, version=_VERSION.value, is_training=False, flag="--squad_file")
    tokens = squad_tokens(data, tokenizer, _QUERY.value, _WORKERS.value)
    asked = [
        (data.contexts[question.paragraph], start)
        for question in data.questions
        for _, start in question.answers
    ]
    references = whole = survived = whole_survived = 0
    answered: dict[str, bool] = {}
    lost = []
    for (context, start), (qas_id, wanted, found) in zip(
        asked, answers_through_tokens(data, tokens), strict=True
    ):
        is_same = normalize_answer(wanted) == normalize_answer(found)
        is_whole = not cuts_a_word(context, start, start + len(wanted))
        references += 1
        survived += is_same
        whole += is_whole
        whole_survived += is_whole and is_same
        answered[qas_id] = is_same or answered.get(qas_id, False)
        if not is_same:
            lost.append(f"  {wanted!r} from {found!r}{'' if is_whole else ', inside of a word'}")
    print(f"answers that come back: {survived} of {references} ({survived / references:.3%})")
    print(f"of those of whole words: {whole_survived} of {whole} ({whole_survived / whole:.3%})")
    print(f"questions with one: {sum(answered.values())} of {len(answered)}")
    print("\n".join(lost[:_SHOWN]))


def cuts_a_word(context: str, start: int, end: int) -> bool:
    """Whether a letter or digit stands on both sides of an edge of `context[start:end]`."""
    return any(
        0 < edge < len(context) and context[edge - 1].isalnum() and context[edge].isalnum()
        for edge in (start, end)
    )


def main(arguments: Sequence[str]) -> None:
    """Prints speed and answers."""
    del arguments
    tokenizer = load_tokenizer(vocab_file=_VOCAB.value, spm_model_file=_MODEL.value)
    begin = time.perf_counter()
    data = read_squad(_DATA.value, version=_VERSION.value, is_training=True, flag="--squad_file")
    print(
        f"read in {time.perf_counter() - begin:.1f} s: contexts={len(data.contexts)} "
        f"questions={len(data.questions)}"
    )
    print_speed(data, tokenizer)
    print_answers(tokenizer)


if __name__ == "__main__":
    flags.mark_flag_as_required("squad_file")
    app.run(main)
