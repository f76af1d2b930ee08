"""Model outputs of many token sequences, with little padding and in the original order."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.checkpoints.stored_task import StoredTask, warn_of_another_length
from albert_tf.config import AlbertConfig
from albert_tf.data.arguments import check_whole_number
from albert_tf.data.errors import UserError
from albert_tf.data.parallel import progress_bar
from albert_tf.data.sequences import TokenSequences
from albert_tf.finetuning.batches import padded_length
from albert_tf.modeling.base import lora_rank
from albert_tf.modeling.encoder import BLOCK_TRACES
from albert_tf.modeling.ops import Ops
from albert_tf.modeling.rounded import RoundedModel, rounded_model
from albert_tf.training.interruption import raise_if_interrupted
from albert_tf.training.strategies import is_tpu, local_replicas

INPUTS = ("input_ids", "input_mask", "segment_ids")
Batch = tuple[np.ndarray, dict[str, np.ndarray]]
Outputs = Mapping[str, tf.Tensor]
Model = Callable[..., Outputs]

# To limit padding, a batch ends if the next row is shorter than _SIMILAR times the longest row, and
# the batch contains at least _WORTHWHILE times the allowed tokens.
_SIMILAR, _WORTHWHILE = 0.95, 0.25


class Predictor:
    """Runs a model on token sequences; sequences of similar lengths share a batch.

    The model is traced once for all shapes, or on a TPU once per padded length.

    `compute`, by default the model, takes `input_ids`, `input_mask` and `segment_ids`, `training`
    and `ops`, and returns a dictionary. `tokens_per_batch` limits the positions of a batch, with
    padding, on all replicas of a process. `padding` is one of `data.sequences.PADDINGS`; on a TPU,
    "longest" becomes "buckets". With `jit_compile`, XLA compiles the model once per length, except
    with "longest".
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
        compute: Model | None = None,
    ) -> None:
        self.model = model
        self._compute = compute or model
        self.strategy = strategy
        self.outputs = tuple(outputs)
        self.max_seq_length = max_seq_length
        self.tokens_per_batch = tokens_per_batch
        on_tpu = is_tpu(strategy)
        self.padding = "buckets" if on_tpu and padding == "longest" else padding
        self._compiles = on_tpu or (jit_compile and padding != "longest")
        self._trace()

    def _trace(self) -> None:
        """Creates the functions that are traced in the first call."""
        on_tpu = is_tpu(self.strategy)
        self._lora_rank = lora_rank(self.model)
        self._outputs = self._outputs_of
        if self._compiles and not on_tpu:
            self._outputs = tf.function(self._outputs_of, jit_compile=True, autograph=False)
        self._rounded: RoundedModel | None = None
        if not self._compiles and self.strategy.num_replicas_in_sync == 1:
            self._rounded = rounded_model(self.model, self.max_seq_length, self._outputs_of)
        # TPUStrategy adds padding if a shape is not static.
        signature = None if on_tpu else [tf.TensorSpec([len(INPUTS), None, None], tf.int32)]
        self._run = tf.function(self._run_replicas, input_signature=signature, autograph=False)
        traces_anew = on_tpu or tf.config.functions_run_eagerly()
        self._concrete: Callable[..., Any] | None = self._run if traces_anew else None

    def predict(
        self, sequences: TokenSequences, description: str = "predicting"
    ) -> dict[str, np.ndarray]:
        """Returns the outputs of N >= 1 sequences in their order, float32 [N, ...] each.

        The shapes of the outputs must not depend on the length of a batch. Raises ValueError if an
        output is not finite.
        """
        results: dict[str, np.ndarray] = {}
        for rows, outputs in self.batches(sequences, description):
            for name, values in outputs.items():
                if name not in results:
                    results[name] = np.zeros([len(sequences), *values.shape[1:]], np.float32)
                results[name][rows] = values
        return results

    def batches(
        self, sequences: TokenSequences, description: str = "predicting"
    ) -> Iterator[Batch]:
        """Yields the rows of each batch, int64 [n], and their outputs by name, float32 [n, ...].

        Raises ValueError if an output is not finite.
        """
        if lora_rank(self.model) != self._lora_rank:  # enabled after a prediction
            self._trace()
        batches = batches_by_length(
            sequences.lengths,
            self.tokens_per_batch,
            max_seq_length=self.max_seq_length,
            padding=self.padding,
            multiple_of=local_replicas(self.strategy),
            powers_of_two=self._rounded is not None,
        )

        def started() -> Iterator[Any]:
            for rows, length in batches:
                raise_if_interrupted()
                features = sequences.padded(rows, length)
                if self._rounded:
                    yield rows, threads.submit(self._rounded, features)
                else:
                    yield rows, self._start(features)
            yield None

        bar = progress_bar(total=len(sequences), desc=description, unit="example", leave=False)
        with bar, ThreadPoolExecutor(2) as threads:
            # `pairwise` starts the next batch before the results of a batch are fetched, so that an
            # accelerator computes while the next batch is padded and copied. A `RoundedModel`
            # computes both batches at once, because its operations use few cores.
            for (rows, outputs), _ in pairwise(started()):
                yield _finish(rows, outputs)
                bar.update(len(rows))

    def _start(self, features: Mapping[str, np.ndarray]) -> Outputs:
        """Starts a batch, with rows of zeros added until the replicas can share it evenly."""
        columns = np.stack([features[name] for name in INPUTS])
        _, count, length = columns.shape
        replicas = local_replicas(self.strategy)
        missing = -count % replicas
        if self._compiles:
            usual = self.tokens_per_batch // length // replicas * replicas
            missing = max(missing, usual - count)
        if missing:
            columns = np.pad(columns, [(0, 0), (0, missing), (0, 0)])
        if self._concrete is None:  # takes less time to call than the `tf.function`
            self._concrete = self._run.get_concrete_function()
        return self._concrete(tf.constant(columns))

    def _run_replicas(self, columns: tf.Tensor) -> dict[str, tf.Tensor]:
        results = self.strategy.run(self._run_replica, args=(columns,))
        return {
            name: tf.concat(self.strategy.experimental_local_results(values), axis=0)
            for name, values in results.items()
        }

    def _run_replica(self, columns: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the outputs of this replica's rows; each replica receives the whole batch."""
        context, replicas = tf.distribute.get_replica_context(), local_replicas(self.strategy)
        dynamic = tf.shape(columns)
        count, length = (columns.shape[i] or dynamic[i] for i in (1, 2))
        share = count // replicas
        start = context.replica_id_in_sync_group % replicas * share
        values = tf.unstack(tf.slice(columns, [0, start, 0], [len(INPUTS), share, length]))
        return self._outputs(dict(zip(INPUTS, values, strict=True)))

    def _outputs_of(
        self, features: Mapping[str, tf.Tensor], ops: Ops | None = None
    ) -> dict[str, tf.Tensor]:
        shares_traces = not (ops or self._compiles) and local_replicas(self.strategy) == 1
        ops = ops or Ops(unpads=not self._compiles)
        token = BLOCK_TRACES.set({} if shares_traces else None)
        try:
            outputs = self._compute(features, training=False, ops=ops)
        finally:
            BLOCK_TRACES.reset(token)
        return {name: tf.cast(outputs[name], tf.float32) for name in self.outputs}


def new_predictor(
    model: Model,
    config: AlbertConfig,
    task: StoredTask | None = None,
    *,
    outputs: Sequence[str] = ("logits",),
    max_seq_length: int | None,
    batch_size: int,
    longest: int = 512,
    compute: Model | None = None,
) -> Predictor:
    """Returns a `Predictor` for a model in memory, with the same batches as in the commands.

    If `max_seq_length` is `None`, the length of the `task` is used; if that is unknown, the smaller
    of `longest` and the number of positions of the model. A batch contains `batch_size` sequences
    of this length. Raises TypeError or ValueError for an invalid number.
    """
    check_whole_number("batch_size", batch_size, 1)
    warn_of_another_length(task, max_seq_length)
    if max_seq_length is None:
        trained = task.max_seq_length if task else None
        max_seq_length = trained or min(longest, config.max_position_embeddings)
    check_whole_number("max_seq_length", max_seq_length)
    config.check_sequence_length(max_seq_length)
    return Predictor(
        model,
        tf.distribute.get_strategy(),
        outputs=outputs,
        max_seq_length=max_seq_length,
        tokens_per_batch=batch_size * max_seq_length,
        compute=compute,
    )


def _finish(rows: np.ndarray, outputs: Outputs | Future[Outputs]) -> Batch:
    """Fetches and checks the results of a batch, without the added rows."""
    if isinstance(outputs, Future):
        outputs = outputs.result()
    values = {name: output.numpy()[: len(rows)] for name, output in outputs.items()}
    for name, value in values.items():
        is_finite = np.isfinite(value).reshape(len(rows), -1).all(axis=1)
        if not is_finite.all():
            bad = rows[~is_finite]
            raise UserError(
                f"The model's {name} are not finite for {len(bad)} of the {len(rows)} examples of "
                f"a batch. The first of them is example {bad.min() + 1}. The weights are "
                "damaged, or their training diverged."
            )
    return rows, values


def batches_by_length(
    lengths: np.ndarray,
    tokens_per_batch: int,
    *,
    max_seq_length: int,
    padding: str = "longest",
    multiple_of: int = 1,
    powers_of_two: bool = False,
) -> list[tuple[np.ndarray, int]]:
    """Groups sequences of similar lengths, integer [N], for evaluation; every row occurs once.

    A batch has B rows of length S. B * S is at most `tokens_per_batch`, unless the batch has a
    single row. B is a multiple of `multiple_of`, the number of replicas, if possible. With the
    padding "longest", S is not rounded up: multiples of 8 would add 6% of padding on MRPC. If
    `powers_of_two`, B is a power of two, except in the last batch.

    Returns:
        The rows, int64 [B], and the length S of each batch. The longest batch is first, so that
        batches that do not fit into memory fail early.
    """
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
        if powers_of_two and start + count < len(order):
            count = 1 << count.bit_length() - 1
        batches.append((order[start : start + count], length))
        start += count
    return batches
