"""The protocol of a training task, and its input."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import keras
import tensorflow as tf
from absl import logging

from albert_tf.config import AlbertConfig
from albert_tf.modeling.losses import LossSum

# Feature of every batch: 1 for an example, 0 for padding of the batch.
EXAMPLE_WEIGHTS = "example_weights"
Features = Mapping[str, tf.Tensor]
# Converts the next batches to the argument of a step.
Prepare = Callable[[Sequence[Features]], Any]

# Feature, string [B]: the damaged records that were skipped before each example. It consists of
# lines `file TAB first record TAB last record`. The last record is -1 for the rest of the file.
SKIPPED = "skipped_records"
REST_OF_FILE = -1


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


class SkippedRecords:
    """The damaged records that were skipped. Each one is logged once.

    `places` are the lines of a resumed run, as in `SKIPPED`.
    """

    def __init__(self, places: Iterable[str] = ()) -> None:
        self.places: dict[str, None] = dict.fromkeys(places)

    def take_from(self, batch: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        """Adds the skipped records of a batch. Returns the batch without this feature."""
        if SKIPPED not in batch:
            return batch
        for lines in filter(None, batch[SKIPPED].numpy()):
            self.add(filter(None, lines.decode().split("\n")))
        return {name: values for name, values in batch.items() if name != SKIPPED}

    def add(self, lines: Iterable[str]) -> None:
        """Adds lines as in `SKIPPED`, and logs new lines."""
        for line in lines:
            if line in self.places:
                continue
            self.places[line] = None
            path, first, last = line.split("\t")
            what = f"record {first}" if last == first else f"records {first} to {last}"
            if int(last) == REST_OF_FILE:
                what = f"record {first} and all after it"
            logging.warning("Skipped as damaged: %s, %s", path, what)

    @property
    def count(self) -> int:
        """Number of skipped records. The rest of a file, whose size is unknown, counts as one."""
        spans = [map(int, line.split("\t")[1:]) for line in self.places]
        return sum(1 if last == REST_OF_FILE else last - first + 1 for first, last in spans)


@dataclass
class TrainingInput:
    """The source of batches: an endless `tf.data` iterator or a `StreamIterator`.

    The trainer does not read beyond the next checkpoint, so it can save the position of `iterator`
    unless reading has failed (`is_broken`). A resumed run compares the `description`.
    """

    iterator: Any
    description: Mapping[str, Any]
    skipped: SkippedRecords
    is_broken: bool = False

    def __post_init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="training_input")
        self._ahead: tuple[int, Future[tuple[list[Features], Any]]] | None = None
        self._returned: deque[Features] = deque()  # read before a rollback, but not used

    def read_ahead(self, count: int, prepare: Prepare) -> None:
        """Starts reading batches for a call of `take` with the same arguments."""
        assert self._ahead is None
        self._ahead = count, self._thread.submit(self._read, count, prepare)

    def take(self, count: int, prepare: Prepare) -> Any:
        """Returns the result of `prepare` for the next `count` batches, without `SKIPPED`.

        Logs skipped records. Raises the errors of reading, including reading ahead.
        """
        self.is_broken = True
        if self._ahead and self._ahead[0] != count:  # training has rolled back
            self._returned.extend(self._ahead[1].result()[0])
            self._ahead = None
        if self._ahead is None:
            self.read_ahead(count, prepare)
        assert self._ahead is not None
        batches, prepared = self._ahead[1].result()
        self._ahead = None
        self.is_broken = False
        for batch in batches:
            self.skipped.take_from(batch)
        return prepared

    def _read(self, count: int, prepare: Prepare) -> tuple[list[Features], Any]:
        batches = [
            self._returned.popleft() if self._returned else next(self.iterator)
            for _ in range(count)
        ]
        features = [{n: v for n, v in batch.items() if n != SKIPPED} for batch in batches]
        return batches, prepare(features)

    @property
    def is_ahead(self) -> bool:
        """Whether batches were read ahead, or are being read ahead."""
        return self._ahead is not None or bool(self._returned)

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
                if name != SKIPPED
            }
            return prepare([zeros] * (unknown if is_several else 1))

        one, other = prepare_zeros(1), prepare_zeros(2)
        return {
            name: tf.type_spec_from_value(one[name]).most_specific_common_supertype(
                [tf.type_spec_from_value(other[name])]
            )
            for name in one
        }
