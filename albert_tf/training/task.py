"""The protocol of a training task, and its input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import keras
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.modeling.losses import LossSum

# Feature of every batch: 1 for an example, 0 for padding of the batch.
EXAMPLE_WEIGHTS = "example_weights"
Features = Mapping[str, tf.Tensor]
# Converts the next batches to the argument of a step.
Prepare = Callable[[Sequence[Features]], Any]


@dataclass(frozen=True)
class Shard:
    """The part of every global batch that a worker computes. All parts have the same size."""

    index: int = 0
    count: int = 1

    def rows(self, batch_size: int) -> slice:
        """Returns the rows of the worker. `batch_size` must be a multiple of `count`."""
        share = batch_size // self.count
        return slice(self.index * share, (self.index + 1) * share)


WHOLE = Shard()


class StreamIterator:
    """Endless batches from several streams, whose positions are saved separately.

    All workers together have `count` streams. `streams` contains the iterators of this worker by
    number. `make_batch` combines the next element of each of these streams.
    """

    def __init__(
        self,
        streams: Mapping[int, Iterator[Any]],
        count: int,
        make_batch: Callable[[Sequence[Any]], Features],
    ) -> None:
        self.streams = streams
        self.count = count

        @tf.function(autograph=False)
        def read() -> Features:
            with tf.device("/cpu:0"):
                return make_batch([next(stream) for stream in streams.values()])

        self._read = read

    def __iter__(self) -> StreamIterator:
        return self

    def __next__(self) -> Features:
        return self._read()

    @property
    def element_spec(self) -> dict[str, tf.TensorSpec]:
        """The specs of the features of a batch."""
        return self._read.get_concrete_function().structured_outputs


def input_positions(iterator: Any) -> dict[str, Any]:
    """Returns the `tf.data` iterators of an iterator by their names in checkpoints."""
    if isinstance(iterator, StreamIterator):
        return {f"stream_{number}": stream for number, stream in iterator.streams.items()}
    return {"iterator": iterator}


class Task(Protocol):
    """Data, model and loss of one job, as required by the trainer."""

    config: AlbertConfig
    max_seq_length: int

    def train_dataset(
        self, batch_size: int, seed: int, shard: Shard = WHOLE
    ) -> tf.data.Dataset | StreamIterator:
        """Returns endless batches. Each batch contains only the rows of `shard`.

        The order of the examples depends on the seed. The position of an iterator or stream must
        not depend on the shard, because a run can be resumed with another number of workers.
        """
        ...

    def explain_read_errors(self) -> AbstractContextManager[None]:
        """Returns a context manager in which read errors name the file and the record."""
        ...

    def describe_input(self) -> dict[str, Any]:
        """Returns the settings of the training input as JSON. A resumed run compares them."""
        ...

    def build_model(self) -> keras.Model:
        """Returns the model with new weights."""
        ...

    def loss_weights(self, features: Features) -> dict[str, tf.Tensor]:
        """Returns the total weight of each loss in a batch, by which the sum is divided."""
        ...

    def losses(self, outputs: Mapping[str, Any], features: Features) -> dict[str, LossSum]:
        """Returns the losses of a batch with the weights of `loss_weights`."""
        ...

    def total_loss(self, losses: Mapping[str, LossSum]) -> Any:
        """Returns the loss to minimize. It must be linear in the sums of `losses`."""
        ...

    def metrics(self, outputs: Mapping[str, Any], features: Features) -> dict[str, LossSum]:
        """Returns other weighted means of a batch, as sums and weights."""
        ...


class EvaluatedTask(Task, Protocol):
    """A task that the evaluator can score: its scores are weighted means over all examples."""

    def eval_dataset(self, batch_size: int) -> tf.data.Dataset:
        """Returns every evaluation example once; the last batch may be shorter."""
        ...


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
