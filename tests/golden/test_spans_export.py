"""Outputs of exported question-answering models, compared with those of the original."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.load_weights import load_weights
from albert_tf.config import AlbertConfig
from albert_tf.squad.export import export_spans
from albert_tf.squad.task import SquadTask
from tests.golden.reference import assert_close


def arrays(path) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return dict(file)


@pytest.mark.parametrize("version", [1, 2])
def test_the_default_signature_equals_the_original(golden, tmp_path, version):
    heads = golden / "squad" / "heads"
    config = AlbertConfig.from_json_file(str(heads / "albert_config.json"))
    model = SquadTask(config, version, max_seq_length=64).build_model()
    load_weights(model, str(heads / f"v{version}_model.ckpt")).check_complete()
    loaded = tf.saved_model.load(export_spans(model, str(tmp_path)))
    features = arrays(heads / f"v{version}_inputs.npz")
    names = ("input_ids", "input_mask", "segment_ids")
    outputs = loaded.signatures["serving_default"](
        **{name: tf.constant(features[name], tf.int32) for name in names}
    )
    recorded = {
        name.removeprefix("predict/"): values
        for name, values in arrays(heads / f"v{version}_outputs.npz").items()
        if name.startswith("predict/") and not name.endswith("unique_ids")
    }
    assert set(outputs) == set(recorded)
    for name, values in recorded.items():
        assert outputs[name].dtype == values.dtype, name
        if values.dtype == np.int32:
            np.testing.assert_array_equal(outputs[name], values, err_msg=name)
        else:
            assert (values > -100).all()  # unmasked: the tolerance is relative to the largest value
            assert_close(outputs[name], values, name=name)
