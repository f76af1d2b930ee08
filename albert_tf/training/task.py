"""The protocol of a training task, and the input that a task provides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import keras
import tensorflow as tf
from absl import logging

from albert_tf.config import AlbertConfig
from albert_tf.modeling.losses import LossSum

# Added to every batch: 1 for an example, 0 for padding of the batch.
EXAMPLE_WEIGHTS = "example_weights"
Features = Mapping[str, tf.Tensor]

# In a batch, string [B]: the records skipped before each example; lines `file TAB first TAB last`
# with numbers of records; last is -1 for the rest of the file.
SKIPPED = "skipped_records"
REST_OF_FILE = -1


@dataclass(frozen=True)
class Shard:
    """The rows of every global batch that a worker computes: equal shares, in order."""

    index: int = 0
    count: int = 1

    def rows(self, batch_size: int) -> slice:
        """Returns the worker's rows of a batch whose size is a multiple of `count`."""
        share = batch_size // self.count
        return slice(self.index * share, (self.index + 1) * share)


WHOLE = Shard()


class StreamIterator:
    """Endless batches made of several streams, each with its own position.

    `streams` are the worker's iterators by their numbers among the `count` streams of all workers.
    `make_batch` makes a batch of the next element of each stream, in the order of `streams`.
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
    """Returns the `tf.data` iterators of an iterator over batches by their names in checkpoints."""
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
        """Returns endless training batches of `batch_size` examples in an order given by the seed.

        Only the rows of `shard` are made. The state of a dataset's iterator, or of a stream, must
        not depend on the shard, because a run can resume with any number of workers.
        """
        ...

    def explain_read_errors(self) -> AbstractContextManager[None]:
        """Returns a context in which read errors name the file and the record."""
        ...

    def describe_input(self) -> dict[str, Any]:
        """Returns the settings of the training input as JSON, which a resumed run compares."""
        ...

    def build_model(self) -> keras.Model:
        """Returns the model with new weights."""
        ...

    def loss_weights(self, features: Features) -> dict[str, tf.Tensor]:
        """Returns the weight of every loss of a batch, which does not depend on the model.

        Losses are divided by the sum of these weights over all replicas.
        """
        ...

    def losses(self, outputs: Mapping[str, Any], features: Features) -> dict[str, LossSum]:
        """Returns the losses of a batch with the weights of `loss_weights`."""
        ...

    def total_loss(self, losses: Mapping[str, LossSum]) -> Any:
        """Returns the loss to minimize, which is linear in the sums of `losses`."""
        ...

    def metrics(self, outputs: Mapping[str, Any], features: Features) -> dict[str, LossSum]:
        """Returns further metrics of a batch, each a weighted mean as a sum and a weight."""
        ...


class EvaluatedTask(Task, Protocol):
    """A task whose scores are weighted means over batches, as required by the evaluator."""

    def eval_dataset(self, batch_size: int) -> tf.data.Dataset:
        """Returns every evaluation example once; the last batch may be shorter."""
        ...


class SkippedRecords:
    """Logs each skipped place once, and counts the records. `places` are lines as in `SKIPPED`."""

    def __init__(self, places: Iterable[str] = ()) -> None:
        self.places: dict[str, None] = dict.fromkeys(places)

    def take_from(self, batch: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        """Logs the skipped places of a batch, and returns the batch without them."""
        if SKIPPED not in batch:
            return batch
        for lines in filter(None, batch[SKIPPED].numpy()):
            self.add(filter(None, lines.decode().split("\n")))
        return {name: values for name, values in batch.items() if name != SKIPPED}

    def add(self, lines: Iterable[str]) -> None:
        """Logs skipped places, which may come from another worker; lines as in `SKIPPED`."""
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
        """Number of skipped records; the rest of a file, whose size is unknown, counts as one."""
        spans = [map(int, line.split("\t")[1:]) for line in self.places]
        return sum(1 if last == REST_OF_FILE else last - first + 1 for first, last in spans)
