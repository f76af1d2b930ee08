"""The training input of a run: its batches, and what is to be saved with its position."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from albert_tf.data.damaged_records import SKIPPED, SkippedRecords


@dataclasses.dataclass
class TrainingInput:
    """Where batches come from.

    Attributes:
        iterator: of `tf.data`, endless.
        description: what decides the batches; a resumed run compares it.
        skipped: records that were left out so far.
        is_broken: reading failed; the position means nothing any more.
    """

    iterator: Any
    description: Mapping[str, Any]
    skipped: SkippedRecords
    is_broken: bool = False

    def next_batch(self) -> Mapping[str, tf.Tensor]:
        """Returns the next batch, after telling of records left out before it."""
        self.is_broken = True
        batch = next(self.iterator)
        self.is_broken = False
        return self.skipped.take_from(batch)

    @property
    def batch_spec(self) -> dict[str, tf.TensorSpec]:
        """What `next_batch` returns."""
        spec = self.iterator.element_spec
        return {name: feature for name, feature in spec.items() if name != SKIPPED}

    def saved_iterator(self) -> Any | None:
        """The iterator if its position is worth saving."""
        return None if self.is_broken else self.iterator
