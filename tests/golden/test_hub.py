"""TF-Hub modules and exported checkpoints of the original: reading, writing, and their outputs."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import variable_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from albert_tf.checkpoints.convert import export_weights
from albert_tf.checkpoints.formats import tf1_hub
from albert_tf.checkpoints.formats.choose import open_weights
from albert_tf.checkpoints.loading import load_weights
from albert_tf.checkpoints.model_choice import choose_model
from albert_tf.checkpoints.stored_model import StoredModel
from albert_tf.config import AlbertConfig
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.tokenization.loading import tokenizer_from_files
from tests.golden.reference import DATA, read_arrays, read_json
from tests.lazily import Lazily
from tests.usual import usual

tensorflow_hub = Lazily("tensorflow_hub")

HUB = DATA / "hub"
RELEASE = HUB / "albert_directory"  # the same model in the form of a release
MODULES = {"module": True, "module_cased_matmul": False}  # do_lower_case of each
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture(scope="module")
def inputs():
    return {name: tf.constant(values) for name, values in read_arrays(HUB / "inputs.npz").items()}


@pytest.mark.parametrize("handle", [*MODULES, RELEASE.name])
def test_outputs_of_a_loaded_model_equal_all_signatures(inputs, handle):
    source = choose_model(albert_hub_module_handle=str(HUB / handle))
    assert (
        source.tokenizer.tokens
        == tokenizer_from_files(vocab_file=RELEASE / "30k-clean.model").tokens
    )
    assert source.tokenizer.clean("A B") == ("a b" if MODULES.get(handle, True) else "A B")
    model = AlbertForPretraining(source.config)
    load_weights(model, source.checkpoint).check_complete()
    features = {k: v for k, v in inputs.items() if k != "mlm_positions"}
    features["masked_lm_positions"] = inputs["mlm_positions"]
    outputs = model(features, output_hidden_states=True)
    ours = {
        "sequence_output": outputs["sequence_output"],
        "pooled_output": outputs["pooled_output"],
        "sop_log_probs": tf.nn.log_softmax(outputs["sentence_order_logits"]),
        # The module returns the predictions of all sequences on one axis.
        "mlm_logits": tf.reshape(outputs["masked_lm_logits"], [-1, source.config.vocab_size]),
    }
    name = handle if handle in MODULES else "module"
    recorded = read_arrays(HUB / "outputs.npz", f"{name}/")
    assert len(recorded) == 8
    for key, values in recorded.items():
        output = ours[key.split("/")[1]]
        assert output.shape == values.shape, key
        np.testing.assert_allclose(output, values, **CLOSE, err_msg=key)


@pytest.mark.parametrize("name", MODULES)
def test_the_description_of_a_module_equals_the_original(name):
    recorded, module = read_json(HUB / "module_info.json")[name], tf1_hub.read(str(HUB / name))
    assert module.do_lower_case is recorded["tokenization_info"]["do_lower_case"]
    assert module.stored_tokenizer.files[0].endswith(
        recorded["tokenization_info"]["vocab_file_ends_with"]
    )
    weights = open_weights(module.checkpoint)
    assert sorted(f"module/{variable}" for variable in weights) == recorded["variables"]


def release_contents(do_lower_case: bool) -> StoredModel:
    """Returns the model of the recorded modules, including slots."""
    weights = open_weights(str(RELEASE / "model.ckpt-best"))
    return StoredModel.in_memory(
        AlbertConfig.from_json_file(str(RELEASE / "albert_config.json")),
        {name: value for name, value in weights.items() if name != "global_step"},
        tokenizer_from_files(vocab_file=RELEASE / "30k-clean.model"),
        do_lower_case=do_lower_case,
        global_step=125000,
    )


@pytest.fixture(scope="module", params=usual(MODULES, "module"))
def pair(tmp_path_factory, request):
    """Returns the recorded module and our module of the same model."""
    ours = tmp_path_factory.mktemp(request.param)
    contents = release_contents(MODULES[request.param])
    tf1_hub.write(str(ours), contents)
    unsupported = tf1_hub.unsupported_weights(contents)
    assert len(unsupported) == 64  # two slots per variable
    assert all(name.endswith(("/adam_m", "/adam_v")) for name in unsupported)
    return HUB / request.param, ours


def graphs_of(module):
    saved_model = saved_model_pb2.SavedModel.FromString((module / "saved_model.pb").read_bytes())
    assert saved_model.saved_model_schema_version == 0
    return list(saved_model.meta_graphs)


def signatures_of(graph):
    """Returns names, types and shapes of inputs and outputs."""
    return {
        key: [
            {name: (info.dtype, str(info.tensor_shape)) for name, info in infos.items()}
            for infos in (signature.inputs, signature.outputs)
        ]
        + [signature.method_name]
        for key, signature in graph.signature_def.items()
    }


def variables_of(graph, collection):
    """Returns names and properties of all variables in a collection, in order."""
    found = []
    for serialized in graph.collection_def[collection].bytes_list.value:
        variable = variable_pb2.VariableDef.FromString(serialized)
        nodes = (variable.variable_name, variable.initializer_name, variable.snapshot_name)
        found.append((*nodes, variable.is_resource, variable.trainable))
    return found


def assets_of(graph):
    """Returns the file and the value of each constant that contains the path of an asset."""
    nodes = {node.name: node for node in graph.graph_def.node}
    found = {}
    for packed in graph.collection_def["saved_model_assets"].any_list.value:
        asset = meta_graph_pb2.AssetFileDef()
        assert packed.Unpack(asset)
        name = asset.tensor_info.name
        value = nodes[name.removesuffix(":0")].attr["value"].tensor
        found[name] = (asset.filename, list(value.string_val), str(value.tensor_shape))
    return found


def tokenization_of(graph):
    """Returns the constant for lower-casing, and the tensor with the vocabulary file."""
    outputs = graph.signature_def["tokenization_info"].outputs
    name = outputs["do_lower_case"].name.removesuffix(":0")
    (node,) = (node for node in graph.graph_def.node if node.name == name)
    return bool(tf.make_ndarray(node.attr["value"].tensor)), outputs["vocab_file"]


def test_graphs_have_the_same_tags_signatures_and_collections(pair):
    theirs, ours = map(graphs_of, pair)
    assert len(ours) == len(theirs) == 2
    for their, our in zip(theirs, ours, strict=True):
        assert list(our.meta_info_def.tags) == list(their.meta_info_def.tags)
        assert our.meta_info_def.stripped_default_attrs
        assert signatures_of(our) == signatures_of(their)
        assert set(our.collection_def) == set(their.collection_def)
        for collection in ("variables", "trainable_variables", "model_variables"):
            assert variables_of(our, collection) == variables_of(their, collection), collection
        paths = [g.collection_def["asset_filepaths"].node_list.value for g in (our, their)]
        assert list(paths[0]) == list(paths[1])
        assert assets_of(our) == assets_of(their)
        assert tokenization_of(our) == tokenization_of(their)
        assert len(our.asset_file_def) == len(their.asset_file_def) == 0
        assert our.HasField("saver_def") is their.HasField("saver_def") is False
        assert our.HasField("object_graph_def") is their.HasField("object_graph_def") is False
        assert not our.graph_def.library.function


def test_files_are_equal(pair):
    theirs, ours = (
        {str(path.relative_to(module)) for path in module.rglob("*") if path.is_file()}
        for module in pair
    )
    assert ours == theirs
    for name in ("assets/30k-clean.model", "assets/30k-clean.vocab", "tfhub_module.pb"):
        assert (pair[1] / name).read_bytes() == (pair[0] / name).read_bytes(), name
    configs = [read_json(module / "assets" / "albert_config.json") for module in pair]
    assert configs[0] == configs[1]


def assert_same_variables(actual, expected):
    ours, theirs = open_weights(actual), open_weights(expected)
    assert ours.shapes == theirs.shapes
    for name, value in theirs.items():
        assert ours[name].dtype == value.dtype
        np.testing.assert_array_equal(ours[name], value, err_msg=name)


def test_variables_are_equal(pair):
    theirs, ours = (str(module / "variables" / "variables") for module in pair)
    assert_same_variables(ours, theirs)


def test_outputs_of_the_written_module_equal_the_recorded_ones(pair, inputs):
    """The configuration has no dropout, so the graphs for training and inference agree."""
    tags = ["train"] if pair[0].name == "module" else []
    module = tensorflow_hub.load(str(pair[1]), tags=tags)
    for name in ("tokens", "sop", "mlm"):
        recorded = read_arrays(HUB / "outputs.npz", f"{pair[0].name}/{name}/")
        given = {k: v for k, v in inputs.items() if name == "mlm" or k != "mlm_positions"}
        outputs = module.signatures[name](**given)
        assert outputs.keys() == recorded.keys()
        for key, values in recorded.items():
            np.testing.assert_allclose(outputs[key], values, **CLOSE, err_msg=key)


@pytest.mark.slow
def test_gradients_equal_the_original(tmp_path, inputs):
    """The module does not contain our custom gradients."""
    tf1_hub.write(str(tmp_path), release_contents(do_lower_case=True))
    gradients = []
    for path in (HUB / "module", tmp_path):
        module = tensorflow_hub.load(str(path), tags=["train"])
        weights = {variable.name: variable for variable in module.variables}
        with tf.GradientTape() as tape:
            outputs = module.signatures["mlm"](**inputs)
            loss = tf.reduce_mean(tf.square(outputs["mlm_logits"]))
            loss += tf.reduce_mean(outputs["pooled_output"] ** 3)
        gradients.append(tape.gradient(loss, weights))
    with_gradient = [name for name, value in gradients[0].items() if value is not None]
    assert len(with_gradient) == 30  # all variables except the sentence-order head
    for name in with_gradient:
        theirs, ours = (tf.convert_to_tensor(group[name]) for group in gradients)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6, err_msg=name)


def test_exported_checkpoints_equal_the_original(tmp_path):
    path = str(tmp_path / "exported" / "model.ckpt")
    names = export_weights(str(RELEASE / "model.ckpt-best"), path)
    assert_same_variables(path, str(HUB / "exported_checkpoint" / "model.ckpt"))
    assert len(names) == len(export_weights(str(HUB / "module"), str(tmp_path / "module"))) == 32
    with pytest.raises(ValueError, match=path):
        export_weights(str(RELEASE / "model.ckpt-best"), path)
    with pytest.raises(ValueError, match=r"model\.ckpt-500"):
        export_weights(str(RELEASE / "model.ckpt-500"), str(tmp_path / "new"))
