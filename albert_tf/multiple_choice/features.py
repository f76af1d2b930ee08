"""From questions with options to token sequences, one for each option."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
from absl import logging
from tqdm import tqdm

from albert_tf.data.sequences import TokenSequences
from albert_tf.multiple_choice.data import ChoiceExample
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.sentence_piece import SentencePieceTokenizer

_SPECIAL = 3  # [CLS] context [SEP] ending [SEP]
_TEXTS_AT_ONCE = 4096  # ids are Python integers for so long, eight times as large
_SECONDS_WITHOUT_BAR = 3


@dataclass(frozen=True, eq=False)
class ChoiceFeatures:
    """What a model is trained on, or chooses from.

    Attributes:
        sequences: N * C sequences, [CLS] context [SEP] ending [SEP]; those of a question stand
            together. Options that a question does not have are empty sequences, after the others.
        choice_counts: int32 [N]; options of each question.
        label_ids: int32 [N], number of the right option from 0; None for questions without labels.
        example_ids: N names, see `ChoiceExample`.
        levels: N of them, "" where there is none.
        cut_contexts: options whose context lost tokens.
        cut_endings: options that lost tokens, or whose question did.

    Raises:
        ValueError: they do not belong together.
    """

    sequences: TokenSequences
    choice_counts: np.ndarray
    label_ids: np.ndarray | None
    example_ids: list[str]
    levels: list[str]
    cut_contexts: int = 0
    cut_endings: int = 0

    def __post_init__(self) -> None:
        """Checks that there are as many of everything, and that labels are options."""
        count = len(self.choice_counts)
        labels = np.zeros(count, np.int32) if self.label_ids is None else self.label_ids
        is_there = self.sequences.lengths > 0
        if (
            len(self.example_ids) != count
            or len(self.levels) != count
            or len(labels) != count
            or len(is_there) != count * self.num_choices
            or not np.array_equal(is_there, self.choice_mask.ravel())
        ):
            raise ValueError(
                f"{len(is_there)} sequences, {np.count_nonzero(is_there)} of them not empty, do "
                f"not go with {count} questions of {self.choice_counts.sum()} options, "
                f"{len(self.example_ids)} names, {len(self.levels)} levels, {len(labels)} labels."
            )
        is_wrong = (labels < 0) | (labels >= self.choice_counts)
        if np.any(is_wrong):
            place = int(is_wrong.argmax())
            raise ValueError(
                f"Question {self.example_ids[place]} has {self.choice_counts[place]} options and "
                f"the label {labels[place]}, counted from 0."
            )

    def __len__(self) -> int:
        """N, the number of questions."""
        return len(self.choice_counts)

    @property
    def num_choices(self) -> int:
        """C, sequences of a question: as many as the most options one has."""
        return len(self.sequences) // max(1, len(self))

    @cached_property
    def choice_mask(self) -> np.ndarray:
        """float32 [N, C]; 1 = an option, 0 = none."""
        return (np.arange(self.num_choices) < self.choice_counts[:, None]).astype(np.float32)


@dataclass(frozen=True)
class _Texts:
    """Tokenized texts: what stays of them, and how long they were.

    Attributes:
        tokens: int32 [T], one text after the other.
        lengths: int64 [n], what stays of each text.
        full_lengths: int64 [n], what there was.
    """

    tokens: np.ndarray
    lengths: np.ndarray
    full_lengths: np.ndarray

    def starts(self) -> np.ndarray:
        """Returns where in `tokens` each text begins, int64 [n]."""
        return np.cumsum(self.lengths) - self.lengths


def choice_features(
    examples: Sequence[ChoiceExample],
    tokenizer: Tokenizer,
    *,
    max_seq_length: int,
    max_qa_length: int = 128,
) -> ChoiceFeatures:
    """Tokenizes questions, a passage once for all of its questions; logs how many were cut.

    The last `max_qa_length` tokens of question and option stay, then the end of the context is cut
    off until both fit. Question and option without a token still have their [SEP].

    Args:
        examples: N questions; all have a label, or none has.
        tokenizer: what the model was trained with.
        max_seq_length: tokens of a sequence at most.
        max_qa_length: tokens of question and option at most.

    Raises:
        ValueError: a length is too small, or only some examples have a label.

    Source: race_utils.py of the original release, convert_single_example.
    Differs: question and option that do not even fit alone, which stop the original, lose more of
        their first tokens, and the context all of its tokens.
    """
    label_ids = _label_ids(examples)
    check_lengths(max_seq_length, max_qa_length)
    room = max_seq_length - _SPECIAL
    rows: dict[str, int] = {}
    context_rows = [rows.setdefault(example.context, len(rows)) for example in examples]
    contexts = _encoded(list(rows), tokenizer, slice(None, room))
    endings = _encoded_endings(examples, tokenizer, min(max_qa_length, room))
    counts = np.array([len(example.options) for example in examples], np.int32)
    context_of = np.repeat(np.array(context_rows, np.int64), counts)
    kept = np.minimum(contexts.full_lengths[context_of], room - endings.lengths)
    features = ChoiceFeatures(
        _sequences(contexts, context_of, kept, endings, counts, tokenizer),
        counts,
        label_ids,
        [example.example_id for example in examples],
        [example.level for example in examples],
        cut_contexts=int((kept < contexts.full_lengths[context_of]).sum()),
        cut_endings=int((endings.lengths < endings.full_lengths).sum()),
    )
    settings = f"max_seq_length={max_seq_length} max_qa_length={max_qa_length}"
    _report(features, endings, settings)
    return features


def _label_ids(examples: Sequence[ChoiceExample]) -> np.ndarray | None:
    found = [example.label for example in examples if example.label is not None]
    if not found:
        return None
    if len(found) < len(examples):
        missing = next(example.example_id for example in examples if example.label is None)
        raise ValueError(
            f"{len(found)} of {len(examples)} questions have a label; the first without one is "
            f"{missing!r}. Give all of them a label, or none."
        )
    return np.array(found, np.int32)


def check_lengths(max_seq_length: int, max_qa_length: int) -> None:
    """Raises ValueError unless there is room for a token."""
    if max_seq_length <= _SPECIAL:
        raise ValueError(
            f"--max_seq_length must be at least {_SPECIAL + 1}: [CLS], two [SEP] and a token. "
            f"Received: {max_seq_length}"
        )
    if max_qa_length < 1:
        raise ValueError(f"--max_qa_length must be at least 1. Received: {max_qa_length}")


def _encoded_endings(
    examples: Sequence[ChoiceExample], tokenizer: Tokenizer, length: int
) -> _Texts:
    # Text for SentencePiece is cleaned before the options are put in, as in the original;
    # cleaning it once more when it is encoded changes nothing.
    clean = tokenizer.clean if isinstance(tokenizer, SentencePieceTokenizer) else None
    endings = list(chain.from_iterable(example.endings(clean) for example in examples))
    return _encoded(endings, tokenizer, slice(-length, None))


def _encoded(texts: Sequence[str], tokenizer: Tokenizer, kept: slice) -> _Texts:
    """Tokenizes texts and keeps a part of each."""
    tokens: list[np.ndarray] = []
    lengths: list[int] = []
    full_lengths: list[int] = []
    with tqdm(
        total=len(texts),
        desc="tokenizing",
        unit="text",
        disable=None,
        delay=_SECONDS_WITHOUT_BAR,
        leave=False,
    ) as bar:
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            ids = tokenizer.encode_batch(texts[start : start + _TEXTS_AT_ONCE])
            parts = [row[kept] for row in ids]
            full_lengths += map(len, ids)
            lengths += map(len, parts)
            tokens.append(np.fromiter(chain.from_iterable(parts), np.int32))
            bar.update(len(ids))
    joined = np.concatenate(tokens) if tokens else np.zeros(0, np.int32)
    return _Texts(joined, np.array(lengths, np.int64), np.array(full_lengths, np.int64))


def _sequences(
    contexts: _Texts,
    context_of: np.ndarray,
    kept: np.ndarray,
    endings: _Texts,
    counts: np.ndarray,
    tokenizer: Tokenizer,
) -> TokenSequences:
    """Puts the sequences together in one array, which is the largest by far and made once.

    Args:
        contexts: of n passages.
        context_of: int64 [M]; the passage of each option.
        kept: int64 [M]; how many tokens of it stay.
        endings: of M options.
        counts: int32 [N]; options of each question.
        tokenizer: has the special tokens.
    """
    num_choices = int(counts.max(initial=0))
    is_there = (np.arange(num_choices) < counts[:, None]).ravel()
    lengths = np.zeros(len(is_there), np.int64)
    lengths[is_there] = kept + endings.lengths + _SPECIAL
    first_lengths = np.zeros(len(is_there), np.int32)
    first_lengths[is_there] = kept + 2
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    begins = starts[:-1][is_there]
    tokens = np.full(starts[-1], tokenizer.sep_id, np.int32)
    tokens[begins] = tokenizer.cls_id
    context_begins = contexts.starts()[context_of]
    _copy(contexts.tokens, context_begins, kept, tokens, begins + 1)
    _copy(endings.tokens, endings.starts(), endings.lengths, tokens, begins + kept + 2)
    return TokenSequences(tokens, starts, first_lengths)


def _copy(
    source: np.ndarray,
    source_starts: np.ndarray,
    lengths: np.ndarray,
    target: np.ndarray,
    target_starts: np.ndarray,
) -> None:
    """Copies pieces of these lengths from places in one array to places in another."""
    columns = (column.tolist() for column in (source_starts, lengths, target_starts))
    for begin, length, place in zip(*columns, strict=True):
        target[place : place + length] = source[begin : begin + length]


def _report(features: ChoiceFeatures, endings: _Texts, settings: str) -> None:
    count = len(endings.lengths)
    if features.cut_contexts:
        logging.info("truncated_contexts=%d of=%d %s", features.cut_contexts, count, settings)
    if features.cut_endings:
        logging.warning(
            "%d of %d options lost tokens at the front, together with their question: %s",
            features.cut_endings,
            count,
            settings,
        )
    empty = int((endings.lengths == 0).sum())
    if empty:
        logging.warning("%d of %d options have no token, nor has their question", empty, count)
