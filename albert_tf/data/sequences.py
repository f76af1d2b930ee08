"""Token sequences of different lengths, stored without padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from absl import logging

from albert_tf.data.errors import UserError

# Length of batches. "longest": the length of the longest sequence; "buckets": one of a few lengths,
# so that few shapes are compiled; "max": `max_seq_length`.
PADDINGS = ("longest", "buckets", "max")
MANY_TRUNCATED = 0.1  # share of training texts


@dataclass(frozen=True, eq=False)
class TokenSequences:
    """N sequences of one or two segments, including special tokens.

    Attributes:
        tokens: int32 [T]; the ids of all sequences, concatenated.
        starts: int64 [N + 1]; start of each sequence in `tokens`; the last entry is T.
        first_lengths: int32 [N]; number of tokens in segment 0 of each sequence.
    """

    tokens: np.ndarray
    starts: np.ndarray
    first_lengths: np.ndarray

    def __len__(self) -> int:
        return len(self.first_lengths)

    @cached_property
    def lengths(self) -> np.ndarray:
        """int32 [N]; number of tokens of each sequence."""
        return np.diff(self.starts).astype(np.int32)

    @classmethod
    def from_segments(
        cls,
        tokens: np.ndarray,
        lengths: np.ndarray,
        *,
        cls_id: int,
        sep_id: int,
        max_length: int | None = None,
    ) -> TokenSequences:
        """Creates the sequences [CLS] a [SEP], or [CLS] a [SEP] b [SEP] if b is not empty.

        Until a pair fits, the last token of the longer segment is removed. If both segments have
        the same length, the last token of b is removed. If this removes all of b, the sequence
        becomes [CLS] a [SEP].

        Args:
            tokens: int32 [T]; a and b of the first row, a and b of the second row, and so on.
            lengths: integer [N, 2]; number of tokens of a and b.
            cls_id: id of [CLS].
            sep_id: id of [SEP].
            max_length: maximum length of a sequence. If `None`, nothing is truncated.

        Source: `convert_single_example` of the original's classifier_utils.
        """
        if max_length is not None:
            kept, flat = _kept_lengths(lengths, max_length), lengths.ravel()
            ends = np.cumsum(flat) - flat + kept.ravel()  # of the kept part of each text
            tokens = tokens[np.arange(len(tokens)) < np.repeat(ends, flat)]
            lengths = kept
        first = lengths[:, 0] + 2
        second = lengths[:, 1] + (lengths[:, 1] > 0)
        starts = starts_of(first + second)
        is_special: np.ndarray = np.zeros(starts[-1], bool)
        joined = np.full(starts[-1], sep_id, np.int32)
        joined[starts[:-1]] = cls_id
        # Without a second segment, the last two places are equal.
        for place in (starts[:-1], starts[:-1] + first - 1, starts[1:] - 1):
            is_special[place] = True
        joined[~is_special] = tokens
        return cls(joined, starts, first.astype(np.int32))

    @classmethod
    def concatenate(cls, parts: Sequence[TokenSequences]) -> TokenSequences:
        """Concatenates sets of sequences."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls(np.zeros(0, np.int32), np.zeros(1, np.int64), np.zeros(0, np.int32))
        return cls(
            np.concatenate([part.tokens for part in parts]),
            starts_of(np.concatenate([part.lengths for part in parts])),
            np.concatenate([part.first_lengths for part in parts]),
        )

    def padded(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Returns a batch of B rows, padded to length S; raises ValueError if a row is longer.

        The values are int32 [B, S] and 0 in padding: `input_ids`, `input_mask` (1 = real token) and
        `segment_ids`.
        """
        lengths = self.lengths[rows]
        if lengths.size and lengths.max() > length:
            raise UserError(f"A sequence of {lengths.max()} tokens does not fit into {length}.")
        positions = np.arange(length, dtype=np.int32)
        is_real = positions < lengths[:, None]
        is_second = is_real & (positions >= self.first_lengths[rows][:, None])
        input_ids = np.zeros(is_real.shape, np.int32)
        if self.tokens.size:
            places = self.starts[:-1][rows][:, None] + positions
            # Places after the last token are clipped, and masked like padding.
            np.multiply(self.tokens.take(places, mode="clip"), is_real, out=input_ids)
        return {
            "input_ids": input_ids,
            "input_mask": is_real.astype(np.int32),
            "segment_ids": is_second.astype(np.int32),
        }


def check_room(is_pair: bool, max_length: int, name: str = "max_seq_length") -> None:
    """Raises ValueError if a sequence has no room for a token of each text."""
    needed = 5 if is_pair else 3
    if max_length < needed:
        raise UserError(
            f"`{name}` must be at least {needed} for {'pairs of ' * is_pair}texts: "
            f"[CLS], [SEP] and a token of each text. Received: {max_length}"
        )


def log_truncated(lengths: np.ndarray, max_seq_length: int, warn_above: float) -> None:
    """Logs the share of texts, with `lengths` tokens, that are truncated, unless it is 0.

    If the share exceeds `warn_above`, the log line is a warning.
    """
    if share := float(np.mean(lengths > max_seq_length)) if len(lengths) else 0.0:
        level = logging.WARNING if share > warn_above else logging.INFO
        text = "%.1f%% of %d texts have more than `max_seq_length`=%d tokens and are truncated"
        enough = int(np.quantile(lengths, 0.95, method="inverted_cdf"))
        if enough > max_seq_length:
            text += f". With `max_seq_length`={enough}, 95%% fit, if the model has enough positions"
        logging.log(level, text, 100 * share, len(lengths), max_seq_length)


def starts_of(lengths: np.ndarray) -> np.ndarray:
    """Returns the start of each sequence and the end of the last sequence, int64 [N + 1]."""
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def _kept_lengths(lengths: np.ndarray, max_seq_length: int) -> np.ndarray:
    """Returns the lengths after truncation, int64 [N, 2]."""
    first, second = lengths.T
    room = np.where(second > 0, max_seq_length - 3, max_seq_length - 2)
    # Each segment may use half of the room, and the part that the other segment does not need.
    half = np.where(second > 0, room // 2, 0)
    return np.stack(
        [
            np.minimum(first, np.maximum(room - second, room - half)),
            np.minimum(second, np.maximum(room - first, half)),
        ],
        axis=1,
    )
