"""The input of the trainer, which is read ahead in a thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from albert_tf.training.objective import Features, StreamIterator

# Converts the next batches to the argument of a step.
Prepare = Callable[[Sequence[Features]], Any]


def input_positions(iterator: Any) -> dict[str, Any]:
    """Returns the `tf.data` iterators of an iterator by their names in checkpoints."""
    if isinstance(iterator, StreamIterator):
        return {f"stream_{number}": stream for number, stream in iterator.streams.items()}
    return {"iterator": iterator}


@dataclass
class TrainingInput:
    """The source of batches: an endless `tf.data` iterator or a `StreamIterator`.

    The trainer does not read beyond the next checkpoint, so it can save the position of `iterator`
    unless reading has failed (`is_broken`). A resumed run compares the `description`.
    """

    iterator: Any
    description: Mapping[str, Any]
    is_broken: bool = False

    def __post_init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="training_input")
        self._ahead: Future[Any] | None = None

    def read_ahead(self, count: int, prepare: Prepare) -> None:
        """Starts reading batches for a call of `take` with the same arguments."""
        assert self._ahead is None
        self._ahead = self._thread.submit(self._read, count, prepare)

    def take(self, count: int, prepare: Prepare) -> Any:
        """Returns the result of `prepare` for the next `count` batches.

        Raises the errors of reading, including reading ahead.
        """
        self.is_broken = True
        if self._ahead is None:
            self.read_ahead(count, prepare)
        assert self._ahead is not None
        prepared = self._ahead.result()
        self._ahead = None
        self.is_broken = False
        return prepared

    def _read(self, count: int, prepare: Prepare) -> Any:
        return prepare([next(self.iterator) for _ in range(count)])

    @property
    def is_ahead(self) -> bool:
        """Whether batches were read ahead, or are being read ahead."""
        return self._ahead is not None

    def close(self) -> None:
        """Waits until the thread ends, because it may run Python code, such as masking."""
        self._thread.shutdown(cancel_futures=True)

    @property
    def has_one_shape(self) -> bool:
        """Whether all batches have the same shape."""
        return all(spec.shape.is_fully_defined() for spec in self.iterator.element_spec.values())

    def prepared_spec(self, prepare: Prepare, *, is_several: bool) -> dict[str, tf.TypeSpec]:
        """Returns the spec of the results of `prepare` for batches of any length.

        If `is_several` is true, the number of batches is also variable.
        """

        def prepare_zeros(unknown: int) -> Any:
            zeros = {
                name: tf.zeros([unknown if n is None else n for n in spec.shape], spec.dtype)
                for name, spec in self.iterator.element_spec.items()
            }
            return prepare([zeros] * (unknown if is_several else 1))

        one, other = prepare_zeros(1), prepare_zeros(2)
        return {
            name: tf.type_spec_from_value(one[name]).most_specific_common_supertype(
                [tf.type_spec_from_value(other[name])]
            )
            for name in one
        }
