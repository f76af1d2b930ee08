"""Question answering models: inputs, padding, files."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data.sequences import TokenSequences
from albert_tf.modeling.models import AlbertForQuestionAnsweringWithBeamSearch
from tests.small_model import ONE_BLOCK, dropping_config, small_config

pytestmark = pytest.mark.usefixtures("eager")

LENGTHS, QUESTIONS = np.array([9, 5, 7, 4]), np.array([4, 3, 3, 4])  # the last has no context
B, S, K, M = 4, 9, 6, 3
INDICES, SCORES = ["start_top_index", "end_top_index"], ["start_top_log_probs", "end_top_log_probs"]
BEAMS = [*INDICES, *SCORES, "cls_logits"]


def windows():
    starts = np.concatenate([[0], np.cumsum(LENGTHS)])
    tokens = np.random.default_rng(3).integers(5, 31, starts[-1], dtype=np.int32)
    return TokenSequences(tokens, starts, QUESTIONS.astype(np.int32))


def span_inputs(length=S, rows=range(B)):
    return {name: tf.constant(x) for name, x in windows().padded(list(rows), length).items()}


def beam_model(config=None, **options):
    return AlbertForQuestionAnsweringWithBeamSearch(
        config or small_config(**ONE_BLOCK), **{"start_n_top": K, "end_n_top": M, **options}
    )


def assert_same_beams(actual, expected):
    for name in BEAMS:
        found, wanted = actual[name], expected[name]
        assert found.shape == wanted.shape
        if name.endswith("index"):
            np.testing.assert_array_equal(found, wanted, err_msg=name)
        else:
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5, err_msg=name)


def test_beams_do_not_depend_on_padding():
    """Even for sequences shorter than the beam."""
    model = beam_model()
    padded = [model(span_inputs(length)) for length in (10, 16)]
    for row, length in enumerate(LENGTHS):
        alone = model(span_inputs(length, rows=[row]))
        for outputs in padded:
            assert_same_beams(alone, {name: outputs[name][row : row + 1] for name in BEAMS})


@pytest.mark.parametrize("dtype", ["int32", "bool"])
def test_p_mask_can_be_passed(dtype):
    model = beam_model(start_n_top=1)
    mask = np.ones([B, S], dtype)
    mask[range(B), [1, 2, 4, 3]] = 0
    inputs = span_inputs()
    outputs = model({**inputs, "p_mask": tf.constant(mask)})
    np.testing.assert_array_equal(outputs["start_top_index"][:, 0], [1, 2, 4, 3])
    np.testing.assert_array_equal(outputs["end_top_index"][:, 0], [1, 2, 4, 3])
    del inputs["segment_ids"]  # only needed for the mask
    assert model({**inputs, "p_mask": tf.constant(mask)})["cls_logits"].shape == (B,)


def test_without_a_mask_there_is_no_padding():
    row = span_inputs(rows=[0])
    without = {name: x for name, x in row.items() if name != "input_mask"}
    model = beam_model(start_n_top=12)
    assert_same_beams(model(without), model(row))


def test_beams_work_in_functional_models(tmp_path):
    names = ("input_ids", "input_mask", "segment_ids")
    inputs = {name: keras.Input([None], dtype="int32", name=name) for name in names}
    beams = beam_model(dropping_config(**ONE_BLOCK))
    outputs = beams(inputs)
    model = keras.Model(inputs, {name: outputs[name] for name in BEAMS})
    assert outputs["end_top_index"].shape == (None, K * M)
    model.save(tmp_path / "model.keras")
    twin = keras.models.load_model(tmp_path / "model.keras")
    for length in (9, 12):
        assert_same_beams(twin(span_inputs(length)), beams(span_inputs(length)))
    assert_same_beams(twin(span_inputs(4, [3])), beams(span_inputs(4, [3])))


@pytest.mark.usefixtures("traced")
def test_beams_compile():
    model = beam_model(dropping_config(**ONE_BLOCK))
    compiled = tf.function(model, jit_compile=True, autograph=False)
    inputs = span_inputs(4, [3])  # padded to 6
    assert_same_beams(compiled(inputs), model(inputs))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (span_inputs()["input_ids"], "a dictionary of 'input_ids' and 'segment_ids'"),
        ({"input_ids": span_inputs()["input_ids"]}, r"Received: \['input_ids'\]"),
        ({"segment_ids": span_inputs()["segment_ids"]}, r"Received: \['segment_ids'\]"),
        (span_inputs(), "Training needs 'start_positions'"),
    ],
)
def test_missing_inputs_are_rejected(inputs, message):
    with pytest.raises(ValueError, match=message):
        beam_model()(inputs, training=True)


def test_beams_wider_than_the_position_table_are_rejected():
    with pytest.raises(ValueError, match=r"16 positions.*`start_n_top`=6, `end_n_top`=17"):
        beam_model(end_n_top=17)
