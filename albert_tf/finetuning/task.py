"""Training tasks with token sequences in memory, their batches, and class weights."""

import dataclasses
import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.config import AlbertConfig
from albert_tf.data.arguments import value_of
from albert_tf.data.errors import UserError, visible
from albert_tf.data.sequences import TokenSequences
from albert_tf.data.strict_json import listed
from albert_tf.labels import Labels, decimal_number
from albert_tf.modeling.losses import LossSum, accuracy, classification_loss
from albert_tf.modeling.ops import PLAIN, Ops
from albert_tf.settings import as_type
from albert_tf.training.objective import EXAMPLE_WEIGHTS, WHOLE, Features, Objective, Shard

LOSS = "loss"  # also the name of the total loss
HEAD_VARIABLES = ("output_weights", "output_bias")  # of classifiers, by the original's names

# (limit, multiple): lengths up to `limit` are rounded up to a multiple of `multiple`.
_STEPS = ((64, 8), (128, 16), (256, 32), (512, 64))
_SHORTEST_BUCKET = 32
_SHUFFLE_ROUNDS = 8  # with TensorFlow's default of 4, too many examples keep their position


class InMemoryTask(Objective, ABC):
    """A task with N training examples in memory, by default with the cross entropy of the logits.

    `train` contains labels and N * C `sequences`; if it is `None`, the task cannot be trained.
    `padded_length` describes `padding`, `FactorizedEmbedding` `use_one_hot_embeddings`. Raises
    ValueError if `max_seq_length` exceeds the positions of the model.
    """

    sequences_per_example = 1  # C

    def __init__(
        self,
        config: AlbertConfig,
        train: Any = None,
        *,
        max_seq_length: int,
        padding: str = "longest",
        use_one_hot_embeddings: bool = False,
    ) -> None:
        config.check_sequence_length(max_seq_length)
        self.config = config
        self.train = train
        self.max_seq_length = max_seq_length
        self.padding = padding
        self.use_one_hot_embeddings = use_one_hot_embeddings

    @abstractmethod
    def _columns(self) -> dict[str, np.ndarray]:
        """Returns labels by name, [N, ...] each."""

    @property
    def num_examples(self) -> int:
        """Number of training examples."""
        return len(self.train.sequences) // self.sequences_per_example

    def train_dataset(self, batch_size: int, seed: int, shard: Shard = WHOLE) -> tf.data.Dataset:
        """See `Objective`."""
        return training_batches(
            self.train.sequences,
            self._columns(),
            batch_size,
            seed=seed,
            max_seq_length=self.max_seq_length,
            padding=self.padding,
            sequences_per_example=self.sequences_per_example,
            shard=shard,
        )

    def explain_read_errors(self) -> AbstractContextManager[None]:
        """See `Objective`."""
        return nullcontext()

    def describe_input(self) -> dict[str, Any]:
        """See `Objective`."""
        sequences, columns = self.train.sequences, self._columns().values()
        return {
            "examples": self.num_examples,
            "digest": data_digest(sequences, *columns),
            "max_seq_length": self.max_seq_length,
            "padding": self.padding,
        }

    def _targets(self, features: Features) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the label ids and their weights in the accuracy."""
        return features["label_ids"], features[EXAMPLE_WEIGHTS]

    def _loss_targets(self, features: Features) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the labels and their weights in the loss."""
        return self._targets(features)

    def loss_weights(self, features: Features) -> dict[str, tf.Tensor]:
        """See `Objective`."""
        return {LOSS: tf.reduce_sum(self._loss_targets(features)[1])}

    def losses(
        self, outputs: Mapping[str, Any], features: Features, ops: Ops = PLAIN
    ) -> dict[str, LossSum]:
        """See `Objective`."""
        return {LOSS: classification_loss(outputs["logits"], *self._loss_targets(features), ops)}

    def total_loss(self, losses: Mapping[str, LossSum]) -> Any:
        """See `Objective`."""
        return losses[LOSS].mean()

    def metrics(self, outputs: Mapping[str, Any], features: Features) -> dict[str, LossSum]:
        """See `Objective`."""
        return {"accuracy": accuracy(outputs["logits"], *self._targets(features))}


def data_digest(*values: Any) -> str:
    """Returns a digest of arrays, data classes and other values with a complete `repr`."""
    digest = hashlib.sha256()

    def add(value: Any) -> None:
        if isinstance(value, np.ndarray):
            digest.update(f"{value.dtype.str}{value.shape}".encode())
            digest.update(np.ascontiguousarray(value).data)
        elif dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                add(getattr(value, field.name))
        else:
            digest.update(repr(value).encode())

    for value in values:
        add(value)
    return digest.hexdigest()


class LabelTask(InMemoryTask):
    """A task that predicts labels of texts or of words; see `InMemoryTask`.

    `classifier_dropout_prob` is the dropout rate of the input of the head. `class_weights`, float32
    [K], are the weights of the classes in the loss. If `None`, all are 1.
    """

    def __init__(
        self,
        config: AlbertConfig,
        labels: Labels,
        train: Any = None,
        *,
        classifier_dropout_prob: float = 0.1,
        class_weights: np.ndarray | None = None,
        **inputs: Any,
    ) -> None:
        super().__init__(config, train, **inputs)
        self.labels = labels
        self.classifier_dropout_prob = classifier_dropout_prob
        self.class_weights = class_weights

    def describe_input(self) -> dict[str, Any]:
        """See `Objective`."""
        return {**super().describe_input(), "labels": list(self.labels.names)}

    def _loss_targets(self, features: Features) -> tuple[tf.Tensor, tf.Tensor]:
        label_ids, weights = self._targets(features)
        if self.class_weights is not None:
            weights *= tf.gather(tf.constant(self.class_weights), label_ids)
        return label_ids, weights


def padded_length(longest: int, max_seq_length: int, padding: str) -> int:
    """Returns the length S of a training batch, longest <= S <= max_seq_length.

    If `padding` is "longest", S is a multiple of 8, or for longer sequences of 16, 32 or 64 (see
    `_STEPS`). If it is "buckets", for devices that compile once per shape, S is a power of 2 from
    32 on. If it is "max", S is `max_seq_length`. Raises ValueError if a sequence is longer than
    `max_seq_length`.
    """
    if longest > max_seq_length:
        raise UserError(
            f"A sequence has {longest} tokens, more than `max_seq_length`={max_seq_length}."
        )
    if padding == "max":
        return max_seq_length
    if padding == "buckets":
        length = max(_SHORTEST_BUCKET, 1 << max(0, longest - 1).bit_length())
    else:
        step = next((step for limit, step in _STEPS if longest <= limit), _STEPS[-1][1])
        length = max(1, -(-longest // step)) * step
    return min(length, max_seq_length)


def num_padded_lengths(max_seq_length: int, padding: str) -> int:
    """Returns the number of possible lengths of training batches, see `padded_length`."""
    lengths = range(1, max_seq_length + 1)
    return len({padded_length(length, max_seq_length, padding) for length in lengths})


def training_batches(
    sequences: TokenSequences,
    columns: Mapping[str, np.ndarray],
    batch_size: int,
    *,
    seed: int,
    max_seq_length: int,
    padding: str = "longest",
    sequences_per_example: int = 1,
    shard: Shard = WHOLE,
) -> tf.data.Dataset:
    """Returns endless shuffled batches; every example occurs once per epoch.

    The examples of batch n depend only on seed and n, so a restored iterator continues with the
    same batches. A batch may contain examples of two epochs.

    The C `sequences` of an example are adjacent. `columns` are other values of the examples, each
    [N, ...]. `batch_size`, B, is a multiple of the number of workers. `shard` selects the rows of
    this worker; S, see `padded_length`, is the same for all workers.

    Returns:
        `input_ids`, `input_mask`, `segment_ids` int32 [B, S], or [B, C, S] if C > 1; each column
        [B, ...]; `example_weights` float32 [B], ones.
    """
    count = len(sequences) // sequences_per_example
    rows = shard.rows(batch_size)
    num_rows = rows.stop - rows.start
    padded = _padder(sequences, max_seq_length, padding, (num_rows, sequences_per_example))
    with tf.device("/CPU:0"):  # tensors, because NumPy arrays would be copied into the graph
        constants = {name: tf.constant(values) for name, values in columns.items()}

    @tf.autograph.experimental.do_not_convert  # conversion takes a second and is not needed
    def make(number: tf.Tensor) -> Features:
        positions = number * batch_size + tf.range(batch_size, dtype=tf.int64)
        # tf.random.experimental.index_shuffle accepts only one seed for all indices.
        examples = tf.raw_ops.RandomIndexShuffle(
            index=positions % count,
            seed=_order_keys(positions // count, seed),
            max_index=tf.constant(count - 1, tf.int64),
            rounds=_SHUFFLE_ROUNDS,
        )
        batch = {name: tf.gather(values, examples[rows]) for name, values in constants.items()}
        return {**padded(examples, rows), **batch, EXAMPLE_WEIGHTS: tf.ones(num_rows)}

    options = tf.data.Options()
    options.deterministic = True
    options.experimental_symbolic_checkpoint = True  # saves the position, not prefetched batches
    batches = tf.data.Dataset.counter().map(make, num_parallel_calls=tf.data.AUTOTUNE)
    return batches.prefetch(2).with_options(options)


def _order_keys(epochs: tf.Tensor, seed: int) -> tf.Tensor:
    """Returns the shuffle keys of epochs [B], int64 [B, 3], by hashing seed and epoch."""

    # The hash is the finalizer of SplitMix64. For few examples, the shuffle uses only the lowest
    # 8 bits of its key. Without hashing, orders would repeat after 256 epochs.
    def constant(value: int) -> tf.Tensor:
        return tf.constant(value % 2**64, tf.uint64)

    words = tf.cast(epochs[:, None] * 3 + tf.range(3, dtype=tf.int64), tf.uint64)
    mixed = (words + constant(seed * 0xD1B54A32D192ED03)) * constant(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        shifted = tf.bitwise.right_shift(mixed, constant(shift))
        mixed = tf.bitwise.bitwise_xor(mixed, shifted) * constant(factor)
    return tf.cast(tf.bitwise.right_shift(mixed, constant(33)), tf.int64)


def _padder(
    sequences: TokenSequences, max_seq_length: int, padding: str, shape: tuple[int, int]
) -> Callable[[tf.Tensor, slice], Features]:
    """Returns a graph function that pads the sequences of examples, int64 [B]."""
    num_rows, choices = shape
    longest = int(sequences.lengths.max(initial=0))
    table = [padded_length(length, max_seq_length, padding) for length in range(longest + 1)]
    with tf.device("/CPU:0"):
        tokens, starts, first_lengths, lengths, padded_lengths = map(
            tf.constant,
            (
                sequences.tokens,
                sequences.starts,
                sequences.first_lengths,
                sequences.lengths,
                np.array(table, np.int32),
            ),
        )
    static = [num_rows, choices, max_seq_length if padding == "max" else None]
    if choices == 1:
        del static[1]

    def padded(examples: tf.Tensor, wanted: slice) -> Features:
        all_rows = examples[:, None] * choices + tf.range(choices, dtype=tf.int64)
        length = tf.gather(padded_lengths, tf.reduce_max(tf.gather(lengths, all_rows)))
        positions = tf.range(length)
        rows = tf.reshape(all_rows[wanted], static[:-1])
        row_lengths = tf.gather(lengths, rows)
        is_real = positions < row_lengths[..., None]
        is_second = is_real & (positions >= tf.gather(first_lengths, rows)[..., None])
        places = tf.gather(starts, rows)[..., None] + tf.cast(positions, tf.int64)
        # Indices after the last token are replaced by its index; their values are masked.
        input_mask = tf.cast(is_real, tf.int32)
        features = {
            "input_ids": tf.gather(tokens, tf.minimum(places, len(tokens) - 1)) * input_mask,
            "input_mask": input_mask,
            "segment_ids": tf.cast(is_second, tf.int32),
        }
        return {name: tf.ensure_shape(values, static) for name, values in features.items()}

    return padded


def class_weights(
    setting: str | Mapping[str, float], labels: Sequence[str], counts: np.ndarray
) -> np.ndarray:
    """Returns and logs the weights of the K classes in the training loss, float32 [K].

    `setting` maps labels to weights, or consists of comma-separated entries `label=weight`, such as
    "a=2,b=0.5", with weight 1 for other labels; or it is "balanced" for N / (K * count), as in
    scikit-learn. N is the sum of `counts`, int [K], the numbers of training labels. Raises
    ValueError if a label is unknown or repeated, if a weight is not a number above 0, or if
    "balanced" finds a class without examples.
    """
    if setting == "balanced":
        if absent := [name for name, count in zip(labels, counts, strict=True) if not count]:
            raise UserError(
                "`class_weights`=balanced needs training examples of every label. Labels without "
                f"examples: {listed(absent)}"
            )
        weights = counts.sum() / (len(labels) * counts)
    else:
        given = _parse_weights(setting, labels)
        weights = np.array([given.get(name, 1.0) for name in labels])
    pairs = zip(labels, weights, strict=True)
    text = ", ".join(f"{name}={weight:.6g}" for name, weight in pairs)
    logging.info("`class_weights`: %s", visible(text))
    return weights.astype(np.float32)


def _parse_weights(
    setting: str | Mapping[str, float], labels: Sequence[str]
) -> Mapping[str, float]:
    pairs = [
        (str(value_of(label)), as_type(f"class_weights[{label!r}]", value, float))
        for label, value in (setting.items() if isinstance(setting, Mapping) else ())
    ]
    if isinstance(setting, str):
        entries = (entry.strip().rpartition("=") for entry in setting.split(","))
        pairs = [(label, decimal_number(number) or 0.0) for label, _, number in entries]
    given = dict(pairs)
    is_valid = all(label in labels and 0 < np.float32(n) < math.inf for label, n in pairs)
    if not is_valid or len(given) < len(pairs):
        raise UserError(
            "`class_weights` must be balanced, or entries such as a=2,b=0.5 (in Python also a "
            "dictionary) with each label at most once and weights above 0. The labels are "
            f"{listed(labels)}. Received: {setting!r}"
        )
    return given
