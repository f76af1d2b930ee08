"""Token sequences of different lengths, stored without padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from albert_tf.data.errors import UserError

# Length of batches. "longest": the longest sequence of the batch; "buckets": one of a few lengths,
# each compiled once; "max": always max_seq_length.
PADDINGS = ("longest", "buckets", "max")


@dataclass(frozen=True, eq=False)
class TokenSequences:
    """N sequences of one or two segments, including special tokens; only batches are padded.

    Attributes:
        tokens: int32 [T]; the ids of all sequences, concatenated.
        starts: int64 [N + 1]; start of each sequence in `tokens`; the last entry is T.
        first_lengths: int32 [N]; tokens of segment 0 in each sequence.
    """

    tokens: np.ndarray
    starts: np.ndarray
    first_lengths: np.ndarray

    def __len__(self) -> int:
        return len(self.first_lengths)

    @cached_property
    def lengths(self) -> np.ndarray:
        """int32 [N]; tokens of each sequence."""
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

        Until a pair fits, the last token of its longer segment is removed, of b if both are equally
        long. If this removes all of b, the sequence becomes [CLS] a [SEP].

        Args:
            tokens: int32 [T]; a of the first row, b of the first row, a of the second row ...
            lengths: integer [N, 2]; number of tokens of a and b.
            cls_id: id of [CLS].
            sep_id: id of [SEP].
            max_length: maximum length of a sequence. If `None`, nothing is truncated.

        Source: `convert_single_example` of the original's classifier_utils.
        """
        if max_length is not None:
            kept = _kept_lengths(lengths, max_length)
            tokens, lengths = _cut(tokens, lengths, kept), kept
        first = lengths[:, 0] + 2
        second = lengths[:, 1] + (lengths[:, 1] > 0)
        starts = _starts_of(first + second)
        is_special: np.ndarray = np.zeros(starts[-1], bool)
        joined = np.full(starts[-1], sep_id, np.int32)
        joined[starts[:-1]] = cls_id
        # Without a second segment, the last two are the same separator.
        for place in (starts[:-1], starts[:-1] + first - 1, starts[1:] - 1):
            is_special[place] = True
        joined[~is_special] = tokens
        return cls(joined, starts, first.astype(np.int32))

    @classmethod
    def concatenate(cls, parts: Sequence[TokenSequences]) -> TokenSequences:
        """Concatenates sets of sequences."""
        if not parts:
            return cls(np.zeros(0, np.int32), np.zeros(1, np.int64), np.zeros(0, np.int32))
        return cls(
            np.concatenate([part.tokens for part in parts]),
            _starts_of(np.concatenate([part.lengths for part in parts])),
            np.concatenate([part.first_lengths for part in parts]),
        )

    def padded(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Returns a batch of B rows of length S; ValueError if a sequence is longer.

        The values are int32 [B, S], zero in padding: `input_ids`; `input_mask`, 1 = real token;
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
            # Indices after the last token are clipped and masked like all padding.
            np.multiply(self.tokens.take(places, mode="clip"), is_real, out=input_ids)
        return {
            "input_ids": input_ids,
            "input_mask": is_real.astype(np.int32),
            "segment_ids": is_second.astype(np.int32),
        }


def check_room(is_pair: bool, max_length: int, name: str = "max_seq_length") -> None:
    """Raises ValueError unless a sequence has room for a token of each text."""
    needed = 5 if is_pair else 3
    if max_length < needed:
        raise UserError(
            f"`{name}` must be at least {needed} for {'pairs of ' * is_pair}texts: "
            f"[CLS], [SEP] and a token of each text. Received: {max_length}"
        )


def _starts_of(lengths: np.ndarray) -> np.ndarray:
    """Returns int64 [N + 1]: the start of each piece, and the end of the last one."""
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def _kept_lengths(lengths: np.ndarray, max_seq_length: int) -> np.ndarray:
    """Returns the truncated lengths, int64 [N, 2]; equal to removing tokens one by one."""
    first, second = lengths.T
    room = np.where(second > 0, max_seq_length - 3, max_seq_length - 2)
    # Each segment may use half of the room, or whatever the other one leaves.
    half = np.where(second > 0, room // 2, 0)
    return np.stack(
        [
            np.minimum(first, np.maximum(room - second, room - half)),
            np.minimum(second, np.maximum(room - first, half)),
        ],
        axis=1,
    )


def _cut(tokens: np.ndarray, lengths: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Returns the first `kept` tokens of each of the concatenated texts of `lengths` tokens."""
    flat = lengths.ravel()
    starts = np.cumsum(flat) - flat
    # The end of the text that contains each token.
    ends = np.repeat(starts + kept.ravel(), flat)
    return tokens[np.arange(len(tokens)) < ends]
