"""Tests for ONNX files, run by ONNX Runtime."""

from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf
from onnx import TensorProto, helper, numpy_helper

import albert_tf
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForMultipleChoice,
    AlbertForPretraining,
    AlbertForQuestionAnswering,
    AlbertForQuestionAnsweringWithBeamSearch,
    AlbertForTokenClassification,
)
from albert_tf.modeling.original_names import original_names
from albert_tf.serving import onnx_export
from albert_tf.serving.onnx_export import OnnxExport, onnx_model, outputs_of
from albert_tf.serving.onnx_graph import INPUTS, IR_VERSION, OPSET, Graph
from tests.serving import batch
from tests.small_model import small_config
from tests.usual import usual

CONFIG = small_config(
    vocab_size=307,
    embedding_size=24,
    hidden_size=48,
    intermediate_size=96,
    num_hidden_layers=2,
    num_hidden_groups=1,
    inner_group_num=1,
)


def new_model(kind, *arguments, config=CONFIG, deviation=0.2):
    """Creates a model in which every weight matters."""
    model = kind(config, *arguments)
    random = np.random.default_rng(4)
    for name, variable in original_names(model).items():
        scale = 0.5 if "output_weights" in name else deviation
        values = random.normal(size=variable.shape, scale=scale)
        variable.assign(values + ("gamma" in name))
    return model


def write(model, folder, **options):
    """Exports a model, and returns a function that runs the file, and the path."""
    path = str(folder / "model.onnx")
    OnnxExport(model, path, **options).write()
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(inputs):
        values = [np.asarray(inputs[name], np.int64) for name in batch(1, 1)]
        return dict(
            zip(names, session.run(None, dict(zip(INPUTS, values, strict=True))), strict=True)
        )

    return run, path


MODELS = {
    "encoder": (AlbertEncoder,),
    "pretraining": (AlbertForPretraining,),
    "masked LM only": (AlbertForPretraining, False, False),
    "classification": (AlbertForClassification, 3),
    "regression": (AlbertForClassification, 1),
    "tokens": (AlbertForTokenClassification, 5),
    "choices": (AlbertForMultipleChoice,),
    "answers": (AlbertForQuestionAnswering,),
    "no answers": (AlbertForQuestionAnsweringWithBeamSearch, 4, 3),
}
OUTPUTS = {
    "encoder": {"last_hidden_state", "pooler_output"},
    "pretraining": {"logits", "sop_logits"},
    "answers": {"start_logits", "end_logits"},
    "no answers": {"cls_logits", "start_top_log_probs", "end_top_log_probs"}
    | {"start_top_index", "end_top_index"},
}


def assert_same_outputs(name, folder, *shapes, **changes):
    model = new_model(*MODELS[name], config=CONFIG.replace(**changes))
    run, _ = write(model, folder)
    for shape in shapes:
        inputs = batch(*shape)
        if name == "choices":
            inputs = {key: np.stack([value, value[:, ::-1]], 1) for key, value in inputs.items()}
            inputs["input_mask"][-1, 1] = 0  # an option that does not exist
        expected = outputs_of(model)({key: tf.constant(value) for key, value in inputs.items()})
        found = run(inputs)
        assert set(found) == set(expected) == OUTPUTS.get(name, {"logits"})
        for key, values in found.items():
            np.testing.assert_allclose(values, expected[key], rtol=0, atol=2e-5, err_msg=key)


@pytest.mark.parametrize("name", usual(MODELS, *MODELS.keys() - {"regression"}))
def test_every_model_has_the_same_outputs(name, tmp_path):
    assert_same_outputs(name, tmp_path, (3, 11), (1, 16), (2, 2))


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_act": "gelu_exact"},
        {"hidden_act": "relu"},
        {"inner_group_num": 2, "num_hidden_layers": 3, "num_hidden_groups": 3},
        pytest.param({"parameter_sharing": "attention"}, marks=pytest.mark.slow),
        {"parameter_sharing": "ffn"},
        pytest.param({"parameter_sharing": "none", "num_hidden_groups": 2}, marks=pytest.mark.slow),
        {"embedding_size": 48},
        {"num_attention_heads": 3},  # the scale of the scores is not a power of two
    ],
)
def test_every_configuration_has_the_same_outputs(changes, tmp_path):
    assert_same_outputs("encoder", tmp_path, (3, 11), **changes)


@pytest.mark.parametrize("name", ["classification", "choices", "tokens"])
def test_the_last_layer_computes_only_the_first_token_of_classifiers(name):
    file = onnx.shape_inference.infer_shapes(onnx_model(new_model(*MODELS[name])))
    hidden = {
        layer: [
            value.type.tensor_type.shape.dim[1].dim_value
            for value in file.graph.value_info
            if value.name.startswith(layer)
            and value.type.tensor_type.shape.dim[-1].dim_value == CONFIG.intermediate_size
        ]
        for layer in ("layer_1/", "layer_2/")
    }
    assert hidden["layer_1/"]
    assert {*hidden["layer_1/"]} == {0}  # unknown
    assert {*hidden["layer_2/"]} == {0 if name == "tokens" else 1}


@pytest.mark.parametrize("quantization", ["none", "float16", "int8"])
def test_weights_are_stored_once_in_their_type(quantization):
    model = new_model(AlbertForPretraining)
    file = onnx_model(model, quantization)
    sizes = {}
    for weight in file.graph.initializer:
        kind = onnx.helper.tensor_dtype_to_np_dtype(weight.data_type).name
        sizes[kind] = sizes.get(kind, 0) + int(np.prod(weight.dims))
    shapes = {name: variable.shape for name, variable in original_names(model).items()}
    weights = list(shapes.values())
    small = ("token_type_embeddings", "output_weights")
    matrices = [s for name, s in shapes.items() if len(s) == 2 and not name.endswith(small)]
    wanted = {
        "none": {"float32": weights},
        "float16": {"float16": weights},
        "int8": {"int8": matrices},
    }[quantization]
    for kind, shapes in wanted.items():
        assert 0 <= sizes[kind] - sum(int(np.prod(shape)) for shape in shapes) <= 3
    assert {node.domain for node in file.graph.node} == {""}
    if quantization == "int8":  # of each layer, and the masked-LM head
        kinds = [node.op_type for node in file.graph.node]
        assert kinds.count("MatMulInteger") == 4 * 2 + 4
        assert kinds.count("ReduceMax") == 4 * 2 + 4


@pytest.mark.parametrize(
    ("quantization", "least", "most"), [("float16", 0.999999, 1.1), ("int8", 0.99, 0.99999)]
)
def test_quantized_models_are_near(tmp_path, quantization, least, most):
    model = new_model(AlbertForPretraining, deviation=0.05)
    run, _ = write(model, tmp_path, quantization=quantization)
    inputs = batch(8, 16)
    is_real = inputs["input_mask"] == 1
    expected = outputs_of(model)({key: tf.constant(value) for key, value in inputs.items()})
    found, wanted = run(inputs)["logits"][is_real], expected["logits"].numpy()[is_real]
    cosine = (found * wanted).sum() / np.linalg.norm(found) / np.linalg.norm(wanted)
    assert least < cosine < most
    assert np.abs(found - wanted).max() > 1e-6  # the weights are rounded


def test_int8_results_do_not_depend_on_other_rows_padding_and_order(tmp_path):
    run, path = write(new_model(AlbertForPretraining), tmp_path, quantization="int8")
    inputs = batch(5, 16)
    lengths = inputs["input_mask"].sum(1)
    orders = ([0, 1, 2, 3, 4], [4, 2, 0, 3, 1])
    found = [run({name: values[order] for name, values in inputs.items()}) for order in orders]
    for row, length in enumerate(lengths):
        alone = run({name: values[row : row + 1, :length] for name, values in inputs.items()})
        for order, outputs in zip(orders, found, strict=True):
            place = order.index(row)
            for name, index in (("logits", slice(length)), ("sop_logits", slice(None))):
                values = outputs[name][place, index]
                np.testing.assert_allclose(values, alone[name][0], atol=1e-3)
    # So the sums of two products with 8-bit integers fit into 16 bits.
    weights = [w for w in onnx.load(path).graph.initializer if w.data_type == TensorProto.INT8]
    assert (
        max(np.abs(numpy_helper.to_array(w).astype(int)).max() for w in weights) * 2 * 255 < 2**15
    )


def test_int8_products_have_a_scale_per_row():
    """Also checks that the runtime does not scale the bias."""
    random = np.random.default_rng(3)
    weights = {"a/kernel": random.normal(size=(32, 16)), "a/bias": np.full(16, 10)}
    graph = Graph({name: np.float32(values) for name, values in weights.items()}, "int8")
    graph.op("Identity", graph.linear("x", "a"), name="y")
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", None]) for n in "xy"]
    parts = (graph.nodes, "graph", values[:1], values[1:], [*graph.initializers.values()])
    imports = [helper.make_opsetid("", OPSET)]
    file = helper.make_model(
        helper.make_graph(*parts), opset_imports=imports, ir_version=IR_VERSION
    )
    x = np.float32(random.normal(size=(4, 32)) * [[0], [0.01], [1], [100]])
    found = onnxruntime.InferenceSession(file.SerializeToString()).run(None, {"x": x})[0]
    errors = np.abs(found - (x @ weights["a/kernel"] + 10)).max(1)
    np.testing.assert_array_less(errors, [1e-6, 3e-3, 0.3, 30])


@pytest.mark.parametrize("quantization", ["none", "int8"])
def test_invalid_inputs_fail(tmp_path, quantization):
    run, _ = write(new_model(AlbertEncoder), tmp_path, quantization=quantization)
    longest = CONFIG.max_position_embeddings
    with pytest.raises(Exception, match=f"at_most_{longest}_tokens"):
        run(batch(2, longest + 1))
    with pytest.raises(Exception, match="out of data bounds"):
        run({**batch(2, 3), "input_ids": np.full((2, 3), CONFIG.vocab_size)})
    for name in ("input_mask", "segment_ids"):
        with pytest.raises(Exception, match="Reshape"):
            run({**batch(2, 3), name: batch(1, 3)[name]})


def test_different_results_are_not_written(tmp_path, monkeypatch):
    model = new_model(AlbertEncoder)
    other = new_model(AlbertEncoder)
    other.pooler.bias.assign_add([3e-4] * 48)
    content = onnx_model(other)
    monkeypatch.setattr(onnx_export, "onnx_model", lambda *_: content)
    path = tmp_path / "model.onnx"
    with pytest.raises(ValueError, match="pooler_output"):
        OnnxExport(model, str(path)).write()
    monkeypatch.setattr(
        onnx_export, "onnx_model", lambda *_: SimpleNamespace(SerializeToString=lambda: b"invalid")
    )
    with pytest.raises(ValueError, match="does not run"):
        OnnxExport(model, str(path)).write()
    assert not path.exists()


def test_export_inspect_and_load(tmp_path, monkeypatch):
    path = tmp_path / "mini.onnx"
    agreement = albert_tf.export_onnx("mini", path, quantization="int8", encoder_only=True)
    assert agreement["last_hidden_state"].cosine > 0.98
    assert path.stat().st_size < 3.2e6
    text = albert_tf.inspect(path)
    assert "input_ids" in text
    assert "int64 [batch, sequence]" in text
    assert "last_hidden_state" in text
    with pytest.raises(ValueError, match="ONNX model"):
        albert_tf.load(path)
    path.write_bytes(path.read_bytes()[:4000])
    with pytest.raises(ValueError, match=r"mini\.onnx"):
        albert_tf.inspect(path)
    monkeypatch.setitem(__import__("sys").modules, "albert_tf.serving.onnx_export", None)
    with pytest.raises(ValueError, match=r"requirements/onnx\.txt"):
        albert_tf.export_onnx("mini", tmp_path / "other.onnx")
