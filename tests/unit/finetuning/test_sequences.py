"""Predictions do not depend on padding, order or replicas."""

import random
import signal

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data.sequences import PADDINGS, TokenSequences
from albert_tf.finetuning import batches
from albert_tf.finetuning import predictor as module
from albert_tf.finetuning.predictor import Predictor
from albert_tf.modeling.layers import TransformerBlock
from albert_tf.modeling.models import AlbertForClassification
from albert_tf.training.interruption import Interruption, TrainingInterrupted
from albert_tf.training.strategies import create_strategy
from tests.small_model import small_config
from tests.small_training import ONE_BLOCK

LENGTHS = (3, 16, 5, 9, 9, 2, 13, 7, 7, 7, 16, 4, 11)
MAX_LENGTH = 16
TOLERANCE = {"rtol": 0, "atol": 1e-5}


def some_sequences(lengths=LENGTHS):
    rng = np.random.default_rng(5)
    starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    first_lengths = np.array([rng.integers(1, n + 1) for n in lengths], np.int32)
    return TokenSequences(
        rng.integers(0, 31, starts[-1], dtype=np.int32), starts, first_lengths.reshape(-1)
    )


def make_model(replicas=1):
    strategy = create_strategy("one_device" if replicas == 1 else "mirrored")
    random.seed(3)
    with strategy.scope():
        return AlbertForClassification(
            small_config(type_vocab_size=2, **ONE_BLOCK), num_labels=5
        ), strategy


@pytest.fixture(scope="module", params=[1, 2])
def predictor(request):
    return Predictor(*make_model(request.param), max_seq_length=MAX_LENGTH, tokens_per_batch=40)


@pytest.fixture(scope="module")
def expected():
    """Returns the logits, computed one sequence at a time without padding."""
    model, _ = make_model()
    sequences = some_sequences()
    alone = [sequences.padded(np.array([i]), length) for i, length in enumerate(LENGTHS)]
    return np.concatenate([model(features)["logits"] for features in alone])


def test_padding_and_replicas_do_not_change_results(expected, predictor, monkeypatch):
    # 50 tokens are 3 rows of 16: two replicas can share such a batch only with an additional row.
    monkeypatch.setattr(predictor, "tokens_per_batch", 50)
    assert np.ptp(expected, axis=0).min() > 0.02  # a wrong order of rows is detected
    for padding in PADDINGS:
        monkeypatch.setattr(predictor, "padding", padding)
        logits = predictor.predict(some_sequences())["logits"]
        assert logits.dtype == np.float32
        np.testing.assert_allclose(logits, expected, **TOLERANCE)


@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("on_tpu", [False, True])
def test_compiled_models_give_the_same_results_with_one_shape_per_length(
    expected, replicas, on_tpu, monkeypatch
):
    """Batches have 4 rows of 16 tokens, or on a TPU as many rows as each length allows."""
    monkeypatch.setattr(module, "is_tpu", lambda _: on_tpu)
    monkeypatch.setattr(batches, "_SHORTEST_BUCKET", 4)
    model, strategy = make_model(replicas)
    sizes = {"max_seq_length": MAX_LENGTH, "tokens_per_batch": 4 * MAX_LENGTH}
    settings = {} if on_tpu else {"padding": "max", "jit_compile": True}
    predictor = Predictor(model, strategy, **sizes, **settings)
    shapes, run = set(), predictor._run
    predictor._concrete = lambda columns: shapes.add(tuple(columns.shape[1:])) or run(columns)
    np.testing.assert_allclose(predictor.predict(some_sequences())["logits"], expected, **TOLERANCE)
    assert shapes == ({(8, 8), (4, 16)} if on_tpu else {(4, MAX_LENGTH)})
    assert run.experimental_get_tracing_count() == len(shapes)


def test_a_signal_during_training_stops_between_batches(predictor):
    taken = []
    with pytest.raises(TrainingInterrupted), Interruption() as i, i.evaluation(3):
        taken += (signal.raise_signal(signal.SIGTERM) for _ in predictor.batches(some_sequences()))
    assert taken == [None]


@pytest.mark.parametrize("replicas", [1, 2])
def test_batches_contain_each_row_once_with_the_length_of_the_batch(replicas):
    model, strategy = make_model(replicas)
    predictor = Predictor(
        model.encoder,
        strategy,
        outputs=("sequence_output", "pooled_output"),
        max_seq_length=MAX_LENGTH,
        tokens_per_batch=40,
    )
    sequences = some_sequences()
    seen = []
    for rows, outputs in predictor.batches(sequences, "testing"):
        assert outputs.keys() == {"sequence_output", "pooled_output"}
        length = max(LENGTHS[row] for row in rows)
        assert outputs["sequence_output"].shape == (len(rows), length, 12)
        features = sequences.padded(rows, length)
        for name, value in predictor.model(features, training=False).items():
            if name in outputs:
                np.testing.assert_allclose(outputs[name], value, **TOLERANCE)
        seen += rows.tolist()
    assert sorted(seen) == list(range(len(LENGTHS)))


def test_the_model_is_traced_once_and_uses_new_weights(predictor):
    before = predictor.predict(some_sequences())["logits"]
    predictor.predict(some_sequences((2, 6, 15)))
    bias = predictor.model.classifier.output_bias
    bias.assign_add([1.0, 2.0, 3.0, 4.0, 5.0])
    after = predictor.predict(some_sequences())["logits"]
    bias.assign_sub([1.0, 2.0, 3.0, 4.0, 5.0])
    np.testing.assert_allclose(after - before, [[1, 2, 3, 4, 5]] * len(LENGTHS), **TOLERANCE)
    assert predictor._run.experimental_get_tracing_count() == 1


def test_shared_blocks_are_traced_once(monkeypatch):
    config = small_config(type_vocab_size=2, **{**ONE_BLOCK, "num_hidden_layers": 4})
    model = AlbertForClassification(config, num_labels=5)
    sequence = some_sequences((9,))
    expected = tf.function(model, autograph=False)(sequence.padded(np.array([0]), 9))["logits"]
    traced, call = [], TransformerBlock.call

    def record(self, *args, **kwargs):
        traced.append(self)
        return call(self, *args, **kwargs)

    monkeypatch.setattr(TransformerBlock, "call", record)
    strategy = create_strategy("one_device")
    predictor = Predictor(model, strategy, max_seq_length=16, tokens_per_batch=40)
    np.testing.assert_array_equal(predictor.predict(sequence)["logits"], expected)
    assert traced == 2 * model.encoder.blocks  # the last layer differs from the others


def test_dropout_is_off_and_outputs_are_float32():
    config = small_config(hidden_dropout_prob=0.5, **ONE_BLOCK)
    model = AlbertForClassification(config, 5, dropout_prob=0.5, dtype="mixed_bfloat16")
    strategy = create_strategy("one_device")
    predictor = Predictor(model, strategy, max_seq_length=16, tokens_per_batch=40)
    first, second = (predictor.predict(some_sequences())["logits"] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert first.dtype == np.float32


def test_outputs_that_are_not_finite_are_rejected(predictor):
    sequences = some_sequences()
    sequences.tokens[sequences.tokens == 30] = 29
    sequences.tokens[sequences.starts[6]] = 30
    table = predictor.model.encoder.embeddings.word_embeddings
    good = table.numpy()
    for value in (np.nan, np.inf):
        bad = good.copy()
        bad[30] = value
        table.assign(bad)
        with pytest.raises(ValueError, match=r"logits are not finite for 1 of .* example 7\."):
            predictor.predict(sequences)
        table.assign(good)
