"""Features of questions with options, one sequence per option, and the training task."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import keras
import numpy as np
from absl import logging

from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.config import AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.data.parallel import progress
from albert_tf.data.sequences import TokenSequences, log_truncated
from albert_tf.data.splits import given_labels
from albert_tf.finetuning.objective import InMemoryTask
from albert_tf.finetuning.predictor import Predictor
from albert_tf.labels import Labels
from albert_tf.modeling.models import AlbertForMultipleChoice
from albert_tf.multiple_choice.data import LETTERS, ChoiceExample
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.piece_counts import PieceCounts, counting
from albert_tf.tokenization.sentence_piece import SentencePieceTokenizer

CLASSES = Labels(tuple(LETTERS))
SPECIAL_TOKENS = 3  # [CLS] context [SEP] ending [SEP]
_LONGEST_ENDING = 128  # tokens
_TEXTS_AT_ONCE = 4096  # limits the memory for ids as Python integers


@dataclass(frozen=True, eq=False)
class ChoiceFeatures:
    """Features of N questions, with N * C sequences [CLS] context [SEP] ending [SEP].

    An ending is a question with an option. Questions with fewer than C options have empty sequences
    after their options.
    """

    sequences: TokenSequences
    choice_counts: np.ndarray  # int32 [N], number of options
    label_ids: np.ndarray | None  # int32 [N], index of the correct option
    example_ids: list[str]
    levels: list[str]  # "" if unknown

    def __len__(self) -> int:
        """Number of questions N."""
        return len(self.choice_counts)

    @property
    def num_choices(self) -> int:
        """Number of sequences C per question: the maximum number of options."""
        return len(self.sequences) // max(1, len(self))

    @cached_property
    def choice_mask(self) -> np.ndarray:
        """Bool [N, C]; False for missing options."""
        return np.arange(self.num_choices) < self.choice_counts[:, None]


def choice_features(
    examples: Sequence[ChoiceExample],
    tokenizer: Tokenizer,
    *,
    max_seq_length: int,
    max_qa_length: int = 128,
    warn_above: float = 1.0,
    source: str | None = None,
) -> ChoiceFeatures:
    """Tokenizes N questions, and every context once.

    The last `max_qa_length` tokens of each ending are kept. The context is truncated at its end so
    that the sequence has at most `max_seq_length` tokens. For `warn_above` see `log_truncated`, for
    `source` see `counting`.

    Raises:
        ValueError: a length is too small, or only some examples have a label.

    Source: race_utils.py of the original release, convert_single_example.
    Differs: if an ending exceeds `max_seq_length`, the original fails. Here the whole context and
        further tokens at the start of the ending are removed.
    """
    check_lengths(max_seq_length, max_qa_length)
    labels = given_labels(
        [(example.example_id, example.label) for example in examples], "questions"
    )
    room = max_seq_length - SPECIAL_TOKENS
    longest_ending = min(max_qa_length, room)
    rows: dict[str, int] = {}
    context_rows = [rows.setdefault(example.context, len(rows)) for example in examples]
    # As in the original, text for SentencePiece is cleaned before the options are inserted.
    clean = tokenizer.clean if isinstance(tokenizer, SentencePieceTokenizer) else None
    texts = list(chain.from_iterable(example.endings(clean) for example in examples))
    with counting(tokenizer, source) as found:
        contexts, context_lengths = _encoded(list(rows), tokenizer, slice(None, room), found)
        endings, ending_lengths = _encoded(texts, tokenizer, slice(-longest_ending, None), found)
    counts = np.array([len(example.options) for example in examples], np.int32)
    context_of = np.repeat(np.array(context_rows, np.int64), counts)
    full, kept_endings = context_lengths[context_of], np.array([*map(len, endings)], np.int64)
    kept = np.minimum(full, room - kept_endings)
    log_truncated(full + kept_endings + SPECIAL_TOKENS, max_seq_length, warn_above)
    if cut := int(np.sum(ending_lengths > longest_ending)):
        text = "The start of the question is truncated for %d of %d options: `max_qa_length`=%d"
        logging.warning(text, cut, len(endings), longest_ending)
    cls_id, sep_id = (np.array([i], np.int32) for i in (tokenizer.cls_id, tokenizer.sep_id))
    pieces = [np.zeros(0, np.int32)]
    for row, length, ending in zip(context_of.tolist(), kept.tolist(), endings, strict=True):
        pieces += [cls_id, contexts[row][:length], sep_id, ending, sep_id]
    is_there = (np.arange(counts.max(initial=0)) < counts[:, None]).ravel()
    starts = np.zeros(len(is_there) + 1, np.int64)
    starts[1:][is_there] = kept + [len(ending) + SPECIAL_TOKENS for ending in endings]
    first_lengths = np.zeros(len(is_there), np.int32)
    first_lengths[is_there] = kept + 2
    return ChoiceFeatures(
        TokenSequences(np.concatenate(pieces), np.cumsum(starts), first_lengths),
        counts,
        np.array(labels, np.int32) if labels else None,
        [example.example_id for example in examples],
        [example.level for example in examples],
    )


def check_lengths(max_seq_length: int, max_qa_length: int) -> None:
    """Raises ValueError unless the lengths leave room for a token."""
    if max_seq_length <= SPECIAL_TOKENS:
        raise UserError(
            f"`max_seq_length` must be at least {SPECIAL_TOKENS + 1}, for [CLS], two [SEP] and a "
            f"token. Received: {max_seq_length}"
        )
    if max_qa_length < 1:
        raise UserError(f"`max_qa_length` must be at least 1. Received: {max_qa_length}")


def _encoded(
    texts: Sequence[str], tokenizer: Tokenizer, kept: slice, counts: PieceCounts
) -> tuple[list[np.ndarray], np.ndarray]:
    """Returns the slice `kept` of the tokens of each text, and the numbers of tokens, int64 [n]."""
    parts: list[np.ndarray] = []
    lengths: list[int] = []
    for start in progress(range(0, len(texts), _TEXTS_AT_ONCE), "tokenizing"):
        part = texts[start : start + _TEXTS_AT_ONCE]
        ids = tokenizer.encode_batch(part)
        counts.add(tokenizer, part, ids)
        parts += [np.array(row[kept], np.int32) for row in ids]
        lengths += map(len, ids)
    return parts, np.array(lengths, np.int64)


def stored_qa_length(task: StoredTask) -> int:
    """Returns the `max_qa_length` used in training, otherwise the default."""
    return int(task.settings.get("max_qa_length", _LONGEST_ENDING))


def option_logits(features: ChoiceFeatures, predictor: Predictor, description: str) -> np.ndarray:
    """Returns the scores of the options of N questions, float32 [N, C]; -inf if missing."""
    logits = predictor.predict(features.sequences, description)["logits"]
    mask = features.choice_mask
    return np.where(mask, logits.reshape(mask.shape), -np.inf)


class MultipleChoiceTask(InMemoryTask):
    """The training task of `run_race.py` on `ChoiceFeatures`; see `InMemoryTask`."""

    def __init__(
        self,
        config: AlbertConfig,
        train: ChoiceFeatures | None = None,
        *,
        dropout_prob: float = 0.1,
        **inputs: Any,
    ) -> None:
        super().__init__(config, train, **inputs)
        self.dropout_prob = dropout_prob
        if train is not None:
            self.sequences_per_example = train.num_choices

    def _columns(self) -> dict[str, np.ndarray]:
        return {"label_ids": self.train.label_ids}

    def build_model(self) -> keras.Model:
        """See `Objective`."""
        return AlbertForMultipleChoice(self.config, self.dropout_prob, self.use_one_hot_embeddings)
