"""Which tokens of a sequence make up a word."""

from typing import NamedTuple

import numpy as np


class Words(NamedTuple):
    """The words of each sequence; W is the largest number of them.

    Attributes:
        counts: int64 [B]; words of each sequence.
        of_position: int64 [B, S]; the word that a text position belongs to (elsewhere unspecified).
        begin: int64 [B, W + 1]; text tokens before each word; all of them from the last word on.
    """

    counts: np.ndarray
    of_position: np.ndarray
    begin: np.ndarray


def find_words(
    input_ids: np.ndarray, is_text: np.ndarray, starts_word: np.ndarray, whole_words: bool
) -> Words:
    """Groups tokens to words.

    Args:
        input_ids: integer [B, S].
        is_text: bool [B, S]; False for special tokens and padding, which belong to no word.
        starts_word: bool, by id.
        whole_words: False makes every text token a word.

    A token that does not start a word joins the word before it, across [SEP] too; the first text
    token always opens one. Source: `create_masked_lm_predictions` of the original.
    """
    opens = is_text & starts_word[input_ids] if whole_words else is_text.copy()
    rows = np.flatnonzero(is_text.any(axis=1))
    opens[rows, is_text[rows].argmax(axis=1)] = True
    of_position = opens.cumsum(axis=1) - 1
    counts = of_position[:, -1] + 1
    tokens_before = is_text.cumsum(axis=1) - is_text
    totals = np.count_nonzero(is_text, axis=1)
    begin = np.repeat(totals[:, None], int(counts.max(initial=0)) + 1, axis=1)
    row, position = np.nonzero(opens)
    begin[row, of_position[row, position]] = tokens_before[row, position]
    return Words(counts, of_position, begin)
