"""What the trainer requires of a job: its data, model and loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

import keras
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.modeling.losses import LossSum
from albert_tf.modeling.ops import PLAIN, Ops

# Feature of every batch: 1 for an example, 0 for padding of the batch.
EXAMPLE_WEIGHTS = "example_weights"
Features = Mapping[str, tf.Tensor]


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


class Objective(Protocol):
    """Data, model and loss of one job, as required by the trainer."""

    WITHOUT_LABELS: ClassVar[str] = "The examples of its batch have no labels."

    config: AlbertConfig
    max_seq_length: int
    # Mean number of tokens of an example, without padding, if it is known.
    mean_tokens: float | None = None

    # Units of variables by the original's names, see `AdamWeightDecay.units`. Others have unit 1.
    units: Mapping[str, float] = MappingProxyType({})

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

    def losses(
        self, outputs: Mapping[str, Any], features: Features, ops: Ops = PLAIN
    ) -> dict[str, LossSum]:
        """Returns the losses of a batch with the weights of `loss_weights`.

        `ops` are the operations of the training step.
        """
        ...

    def total_loss(self, losses: Mapping[str, LossSum]) -> Any:
        """Returns the loss to minimize. It must be linear in the sums of `losses`."""
        ...

    def metrics(self, outputs: Mapping[str, Any], features: Features) -> dict[str, LossSum]:
        """Returns other weighted means of a batch, as sums and weights."""
        ...


class EvaluatedObjective(Objective, Protocol):
    """An objective whose scores are weighted means over all examples, for the `Evaluator`."""

    def eval_dataset(self, batch_size: int) -> tf.data.Dataset:
        """Returns every evaluation example once; the last batch may be shorter."""
        ...
