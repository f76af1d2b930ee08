"""What the trainer, and the evaluation by losses, ask of a job."""

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

# Added to every batch: 1 for an example, 0 for a row that only fills the batch up.
EXAMPLE_WEIGHTS = "example_weights"
Features = Mapping[str, tf.Tensor]

# In a batch, string [B]: what was left out before each example; lines `file TAB first TAB last`,
# numbers of records, the last one -1 for the rest of the file.
SKIPPED = "skipped_records"
REST_OF_FILE = -1


@dataclass(frozen=True)
class Shard:
    """Which rows of every global batch a worker computes: equal shares, in the workers' order.

    Attributes:
        index: of the worker.
        count: of all workers.
    """

    index: int = 0
    count: int = 1

    def rows(self, batch_size: int) -> slice:
        """Returns the worker's rows of a batch whose size is a multiple of `count`."""
        share = batch_size // self.count
        return slice(self.index * share, (self.index + 1) * share)


WHOLE = Shard()


class StreamIterator:
    """Endless batches made of streams, each with a position of its own.

    Args:
        streams: iterators of the worker's streams by their numbers among all workers' streams.
        count: of the streams of all workers.
        make_batch: makes the features of what each stream gives, in the order of `streams`.
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
        """What a batch is like."""
        return self._read.get_concrete_function().structured_outputs


def input_positions(iterator: Any) -> dict[str, Any]:
    """Returns the `tf.data` iterators behind one over batches, by the names they are saved as."""
    if isinstance(iterator, StreamIterator):
        return {f"stream_{number}": stream for number, stream in iterator.streams.items()}
    return {"iterator": iterator}


class Task(Protocol):
    """Data, model and loss of one job: what the trainer needs.

    Attributes:
        config: the model's configuration.
        max_seq_length: S that no sequence exceeds.
    """

    config: AlbertConfig
    max_seq_length: int

    def train_dataset(
        self, batch_size: int, seed: int, shard: Shard = WHOLE
    ) -> tf.data.Dataset | StreamIterator:
        """Returns endless training batches of `batch_size` examples, in the seed's order.

        Of each batch only the rows of `shard` are made. The state of a dataset's iterator must not
        depend on the shard, nor that of a stream: a run goes on with any number of workers.
        """
        ...

    def explain_read_errors(self) -> AbstractContextManager[None]:
        """Returns a context in which an error of reading names the file and the record."""
        ...

    def describe_input(self) -> dict[str, Any]:
        """Returns what decides the training input, as JSON: a resumed run compares it."""
        ...

    def build_model(self) -> keras.Model:
        """Returns the model with fresh weights."""
        ...

    def loss_weights(self, features: Features) -> dict[str, tf.Tensor]:
        """Returns the weight of every loss of a batch, known before the model has run.

        Dividing by the sum of these over all replicas makes the gradients of replicas add up to
        the gradient of the whole batch.
        """
        ...

    def losses(self, outputs: Mapping[str, Any], features: Features) -> dict[str, LossSum]:
        """Returns the losses of a batch; their weights are those of `loss_weights`."""
        ...

    def total_loss(self, losses: Mapping[str, LossSum]) -> Any:
        """Returns what is minimised, linear in the sums of the losses.

        Args:
            losses: as `losses` returns them, of tensors or of numbers.
        """
        ...

    def metrics(self, outputs: Mapping[str, Any], features: Features) -> dict[str, LossSum]:
        """Returns what else is reported of a batch, each a weighted mean as a sum and a weight."""
        ...


class EvaluatedTask(Task, Protocol):
    """A task whose scores are weighted means over batches: what the evaluator needs besides."""

    def eval_dataset(self, batch_size: int) -> tf.data.Dataset:
        """Returns every evaluation example once; the last batch may be shorter."""
        ...


class SkippedRecords:
    """Tells of every place once, however often the input comes by, and counts.

    Args:
        places: what was told of already.

    Attributes:
        places: lines as in `SKIPPED`.
    """

    def __init__(self, places: Iterable[str] = ()) -> None:
        self.places: dict[str, None] = dict.fromkeys(places)

    def take_from(self, batch: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        """Notes what a batch tells of, and returns the batch without that."""
        if SKIPPED not in batch:
            return batch
        for lines in filter(None, batch[SKIPPED].numpy()):
            self.add(filter(None, lines.decode().split("\n")))
        return {name: values for name, values in batch.items() if name != SKIPPED}

    def add(self, lines: Iterable[str]) -> None:
        """Notes places, lines as in `SKIPPED`, such as those that another worker met."""
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
        """Records left out; the rest of a file, whose records nobody can count, is one."""
        spans = [map(int, line.split("\t")[1:]) for line in self.places]
        return sum(1 if last == REST_OF_FILE else last - first + 1 for first, last in spans)
