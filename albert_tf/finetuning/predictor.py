"""What a model says of many token sequences, each padded to need and answered in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from albert_tf.config import AlbertConfig
from albert_tf.data.arguments import check_whole_number
from albert_tf.data.sequences import TokenSequences
from albert_tf.finetuning.task import padded_length
from albert_tf.training.distribution import is_tpu, local_replicas
from albert_tf.training.interruption import raise_if_interrupted

INPUTS = ("input_ids", "input_mask", "segment_ids")
_IDS = tf.TensorSpec([None, None], tf.int32)
Batch = tuple[np.ndarray, dict[str, np.ndarray]]
Model = Callable[..., Mapping[str, tf.Tensor]]

# A batch ends early where the next row is shorter than this share of its longest, once it holds
# this share of the tokens it may: few rows are then padded much, and none alone.
_SIMILAR = 0.95
_WORTHWHILE = 0.25


class Predictor:
    """Runs a model over token sequences, any number of times.

    Sequences of similar lengths share a batch, so little is padding; every batch has about the same
    number of tokens. The model is traced once for all shapes. On a TPU it is traced and compiled
    once per padded length, and every batch of a length has the same number of rows.

    Args:
        model: takes `input_ids`, `input_mask` and `segment_ids` and returns a dictionary; made
            under `strategy`.
        strategy: the replicas; those of this process share the rows of each batch.
        outputs: names of the outputs wanted, each [B, ...].
        max_seq_length: length that no sequence exceeds.
        tokens_per_batch: positions of a batch over these replicas, padding included.
        padding: one of `data.sequences.PADDINGS`; on a TPU "longest" becomes "buckets".
        jit_compile: whether XLA compiles the model, for every length once; it does not with
            "longest", which has too many. Ignored on a TPU, which always compiles.
    """

    def __init__(
        self,
        model: Model,
        strategy: tf.distribute.Strategy,
        *,
        outputs: Sequence[str] = ("logits",),
        max_seq_length: int,
        tokens_per_batch: int,
        padding: str = "longest",
        jit_compile: bool = False,
    ) -> None:
        self.model = model
        self.strategy = strategy
        self.outputs = tuple(outputs)
        self.max_seq_length = max_seq_length
        self.tokens_per_batch = tokens_per_batch
        on_tpu = is_tpu(strategy)
        self.padding = "buckets" if on_tpu and padding == "longest" else padding
        self._compiles = on_tpu or (jit_compile and padding != "longest")
        self._outputs = self._outputs_of
        if self._compiles and not on_tpu:
            self._outputs = tf.function(self._outputs_of, jit_compile=True, autograph=False)
        # TPUStrategy adds padding of its own wherever a shape is not static.
        signature = None if on_tpu else [_IDS] * len(INPUTS)
        self._run = tf.function(self._run_replicas, input_signature=signature, autograph=False)

    def predict(
        self, sequences: TokenSequences, description: str = "predicting"
    ) -> dict[str, np.ndarray]:
        """Returns the outputs of N >= 0 sequences in their order, each float32 [N, ...].

        Raises:
            ValueError: an output is not finite, or its shape depends on the padding.
        """
        results = {name: self._empty(name, len(sequences)) for name in self.outputs}
        for rows, outputs in self.batches(sequences, description):
            for name, values in outputs.items():
                results[name][rows] = values
        return results

    def batches(
        self, sequences: TokenSequences, description: str = "predicting"
    ) -> Iterator[Batch]:
        """Yields the outputs batch by batch, in no particular order; of no sequences nothing.

        Yields:
            The rows of `sequences` in the batch, int64 [n], and their outputs by name, [n, ...].

        Raises:
            ValueError: an output is not finite.
        """
        batches = batches_by_length(
            sequences.lengths,
            self.tokens_per_batch,
            max_seq_length=self.max_seq_length,
            padding=self.padding,
            multiple_of=local_replicas(self.strategy),
        )
        bar = tqdm(
            total=len(sequences), desc=description, unit="example", disable=None, leave=False
        )
        with bar:
            # A batch is started before the results of the one before are asked for: on an
            # accelerator, padding and copying go on while it computes.
            started: tuple[np.ndarray, Mapping[str, tf.Tensor]] | None = None
            for rows, length in batches:
                raise_if_interrupted()
                outputs = self._start(sequences.padded(rows, length))
                if started is not None:
                    yield _finish(*started)
                    bar.update(len(started[0]))
                started = rows, outputs
            if started is not None:
                yield _finish(*started)
                bar.update(len(started[0]))

    def _start(self, features: Mapping[str, np.ndarray]) -> Mapping[str, tf.Tensor]:
        """Runs one batch, filled up with rows of zeros until the replicas can share it.

        If the model is compiled, all batches of a length have the same number of rows.
        """
        count, length = features[INPUTS[0]].shape
        replicas = local_replicas(self.strategy)
        missing = -count % replicas
        if self._compiles:
            usual = self.tokens_per_batch // length // replicas * replicas
            missing = max(missing, usual - count)
        columns = (np.pad(features[name], [(0, missing), (0, 0)]) for name in INPUTS)
        return self._run(*map(tf.constant, columns))

    def _run_replicas(self, *columns: tf.Tensor) -> dict[str, tf.Tensor]:
        """The outputs of a batch whose rows the replicas share evenly."""
        results = self.strategy.run(self._run_replica, args=columns)
        return {
            name: tf.concat(self.strategy.experimental_local_results(values), axis=0)
            for name, values in results.items()
        }

    def _run_replica(self, *columns: tf.Tensor) -> dict[str, tf.Tensor]:
        """The outputs of this replica's rows; every replica is handed the whole batch."""
        context, replicas = tf.distribute.get_replica_context(), local_replicas(self.strategy)
        dynamic = tf.shape(columns[0])
        count, length = (dynamic[i] if n is None else n for i, n in enumerate(columns[0].shape))
        share = count // replicas
        start = context.replica_id_in_sync_group % replicas * share
        features = {
            name: tf.slice(values, [start, 0], [share, length])
            for name, values in zip(INPUTS, columns, strict=True)
        }
        return self._outputs(features)

    def _outputs_of(self, features: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        outputs = self.model(features, training=False)
        return {name: tf.cast(outputs[name], tf.float32) for name in self.outputs}

    def _empty(self, name: str, num_rows: int) -> np.ndarray:
        """Returns zeros for the output of every row."""
        if is_tpu(self.strategy):  # its programs do not show which sizes depend on the batch
            function = tf.function(self._outputs_of, autograph=False)
            traced = function.get_concrete_function(dict.fromkeys(INPUTS, _IDS))
        else:
            traced = self._run.get_concrete_function()
        shape = traced.structured_outputs[name].shape[1:]
        if not shape.is_fully_defined():
            raise ValueError(f"The shape of {name!r} depends on the batch: {shape}. Use batches().")
        return np.zeros([num_rows, *shape], np.float32)


def new_predictor(
    model: Model,
    config: AlbertConfig,
    *,
    outputs: Sequence[str] = ("logits",),
    max_seq_length: int | None,
    batch_size: int,
    longest: int = 512,
) -> Predictor:
    """Returns what runs a model in memory, as many tokens at once as the commands do.

    Args:
        model: see `Predictor`.
        config: that of the model.
        outputs: see `Predictor`.
        max_seq_length: length that no sequence exceeds; None: `longest`, or what the model has
            positions for.
        batch_size: sequences of that length that are a batch.
        longest: the default of `max_seq_length`.

    Raises:
        TypeError: a number is not whole.
        ValueError: a number is out of range; names the argument.
    """
    check_whole_number("batch_size", batch_size, 1)
    if max_seq_length is None:
        max_seq_length = min(longest, config.max_position_embeddings)
    check_whole_number("max_seq_length", max_seq_length)
    config.check_sequence_length(max_seq_length, "max_seq_length")
    return Predictor(
        model,
        tf.distribute.get_strategy(),
        outputs=outputs,
        max_seq_length=max_seq_length,
        tokens_per_batch=batch_size * max_seq_length,
    )


def _finish(rows: np.ndarray, outputs: Mapping[str, tf.Tensor]) -> Batch:
    """Fetches the results of a batch, checked, without the rows that only filled it up."""
    values = {name: output.numpy()[: len(rows)] for name, output in outputs.items()}
    for name, value in values.items():
        is_finite = np.isfinite(value).reshape(len(rows), -1).all(axis=1)
        if not is_finite.all():
            bad = rows[~is_finite]
            raise ValueError(
                f"The model's {name} are not finite for {len(bad)} of the {len(rows)} examples of "
                f"a batch, the first being number {bad.min() + 1} of the input. The weights are "
                "damaged, or the training that made them diverged."
            )
    return rows, values


def batches_by_length(
    lengths: np.ndarray,
    tokens_per_batch: int,
    *,
    max_seq_length: int,
    padding: str = "longest",
    multiple_of: int = 1,
) -> list[tuple[np.ndarray, int]]:
    """Puts sequences of similar length together, for evaluation; every row is there once.

    With "longest" a batch is exactly as long as its longest row: evaluation does not work per
    shape, and rounding up to a multiple of 8 alone would pad MRPC by 6 %.

    Args:
        lengths: integer [N]; tokens of each sequence, at most `max_seq_length`.
        tokens_per_batch: B * S of a batch, at most; one row may have more.
        max_seq_length: what no sequence exceeds.
        padding: one of `PADDINGS`.
        multiple_of: replicas that share a batch; B is a multiple wherever `tokens_per_batch`
            allows, but for the last batch.

    Returns:
        The rows, int64 [B], and the length S of each batch; the longest first, so that one that
        does not fit into memory comes first.

    Raises:
        ValueError: another padding, no tokens, or a sequence that is too long.
    """
    padded_length(int(lengths.max(initial=0)), max_seq_length, padding)  # or raises
    if tokens_per_batch < 1:
        raise ValueError(f"A batch needs at least one token. Received: {tokens_per_batch}")
    order = np.argsort(-lengths.astype(np.int64), kind="stable")
    descending = lengths[order]
    batches = []
    start = 0
    while start < len(order):
        longest = int(descending[start])
        length = padded_length(longest, max_seq_length, padding)
        count = tokens_per_batch
        if padding == "longest":
            length = max(1, longest)
            similar = int(np.searchsorted(-descending, -_SIMILAR * longest, "right")) - start
            count = max(similar, int(_WORTHWHILE * tokens_per_batch / length), multiple_of)
        count = min(count, tokens_per_batch // length)
        count = count // multiple_of * multiple_of or max(1, count)
        batches.append((order[start : start + count], length))
        start += count
    return batches
