"""TF1 modules equal those of the original in everything that users can see."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub
from tensorflow.core.framework import variable_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from albert_tf.checkpoints import tf1_hub
from albert_tf.checkpoints.load_weights import open_checkpoint
from albert_tf.checkpoints.model_contents import ModelContents
from albert_tf.config import AlbertConfig
from albert_tf.tokenization.loading import load_tokenizer

MODULES = {"module": True, "module_cased_matmul": False}  # do_lower_case of each
VARIABLES = "variables/variables"


def contents(golden: Path, do_lower_case: bool, **config) -> ModelContents:
    """Returns the release directory of the recorded modules, including slots."""
    release = golden / "hub" / "albert_directory"
    reader, shapes = open_checkpoint(str(release / "model.ckpt-best"))
    return ModelContents(
        AlbertConfig.from_json_file(str(release / "albert_config.json")).replace(**config),
        {name: reader.get_tensor(name) for name in shapes if name != "global_step"},
        load_tokenizer(vocab_file=release / "30k-clean.model"),
        do_lower_case,
        global_step=125000,
    )


@pytest.fixture(scope="module", params=list(MODULES))
def pair(golden, tmp_path_factory, request):
    """Returns the recorded module, our module, and the variables that it does not contain."""
    ours = tmp_path_factory.mktemp(request.param)
    model = contents(golden, MODULES[request.param])
    tf1_hub.write(str(ours), model)
    return golden / "hub" / request.param, ours, tf1_hub.unsupported_weights(model)


def graphs(module):
    saved_model = saved_model_pb2.SavedModel()
    saved_model.ParseFromString((module / "saved_model.pb").read_bytes())
    assert saved_model.saved_model_schema_version == 0
    return list(saved_model.meta_graphs)


def signatures(graph):
    """Returns names, types and shapes of inputs and outputs."""
    return {
        key: [
            {name: (info.dtype, str(info.tensor_shape)) for name, info in infos.items()}
            for infos in (signature.inputs, signature.outputs)
        ]
        + [signature.method_name]
        for key, signature in graph.signature_def.items()
    }


def variables(graph, collection):
    """Returns names and properties of all variables in a collection, in order."""
    found = []
    for serialized in graph.collection_def[collection].bytes_list.value:
        variable = variable_pb2.VariableDef()
        variable.ParseFromString(serialized)
        nodes = (variable.variable_name, variable.initializer_name, variable.snapshot_name)
        found.append((*nodes, variable.is_resource, variable.trainable))
    return found


def assets(graph):
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


def test_graphs_have_the_same_tags_signatures_and_collections(pair):
    theirs, ours = (graphs(module) for module in pair[:2])
    assert len(ours) == len(theirs) == 2
    for their, our in zip(theirs, ours, strict=True):
        assert list(our.meta_info_def.tags) == list(their.meta_info_def.tags)
        assert our.meta_info_def.stripped_default_attrs
        assert signatures(our) == signatures(their)
        assert set(our.collection_def) == set(their.collection_def)
        for collection in ("variables", "trainable_variables", "model_variables"):
            assert variables(our, collection) == variables(their, collection), collection
        paths = [g.collection_def["asset_filepaths"].node_list.value for g in (our, their)]
        assert list(paths[0]) == list(paths[1])
        assert assets(our) == assets(their)
        assert len(our.asset_file_def) == len(their.asset_file_def) == 0
        assert our.HasField("saver_def") is their.HasField("saver_def") is False
        assert our.HasField("object_graph_def") is their.HasField("object_graph_def") is False
        assert not our.graph_def.library.function


def test_tokenization_info_names_the_same_file_and_case(pair):
    for their, our in zip(*(graphs(module) for module in pair[:2]), strict=True):
        named = [g.signature_def["tokenization_info"].outputs["vocab_file"] for g in (their, our)]
        assert named[0] == named[1]
        cases = []
        for graph in (their, our):
            info = graph.signature_def["tokenization_info"].outputs["do_lower_case"]
            node = next(n for n in graph.graph_def.node if f"{n.name}:0" == info.name)
            cases.append(bool(tf.make_ndarray(node.attr["value"].tensor)))
        assert cases[0] is cases[1]


def test_files_are_equal(pair):
    theirs, ours = (
        {str(path.relative_to(module)) for path in module.rglob("*") if path.is_file()}
        for module in pair[:2]
    )
    assert ours == theirs
    for name in ("assets/30k-clean.model", "assets/30k-clean.vocab", "tfhub_module.pb"):
        assert (pair[1] / name).read_bytes() == (pair[0] / name).read_bytes(), name
    their_config, our_config = (
        json.loads((module / "assets" / "albert_config.json").read_text()) for module in pair[:2]
    )
    assert our_config == their_config


def test_variables_are_equal(pair):
    (their_reader, their_shapes), (our_reader, our_shapes) = (
        open_checkpoint(str(module / VARIABLES)) for module in pair[:2]
    )
    assert our_shapes == their_shapes
    dtypes = [reader.get_variable_to_dtype_map() for reader in (our_reader, their_reader)]
    assert dtypes[0] == dtypes[1]
    for name in their_shapes:
        ours, theirs = our_reader.get_tensor(name), their_reader.get_tensor(name)
        np.testing.assert_array_equal(ours, theirs, err_msg=name)


def test_slots_are_unsupported(pair):
    """Each of the 32 variables has two slots."""
    assert len(pair[2]) == 64
    assert all(name.endswith(("/adam_m", "/adam_v")) for name in pair[2])


@pytest.fixture(scope="module")
def inputs(golden):
    with np.load(golden / "hub" / "inputs.npz") as file:
        return {name: tf.constant(values) for name, values in file.items()}


def test_outputs_of_the_loaded_module_equal_the_recorded_ones(pair, inputs, golden):
    """The configuration has no dropout, so the graphs for training and inference agree."""
    tags = ["train"] if pair[0].name == "module" else []
    module = tensorflow_hub.load(str(pair[1]), tags=tags)
    recorded = np.load(golden / "hub" / "outputs.npz")
    for name in ("tokens", "sop", "mlm"):
        wanted = [key for key in recorded if key.startswith(f"{pair[0].name}/{name}/")]
        given = {k: v for k, v in inputs.items() if name == "mlm" or k != "mlm_positions"}
        outputs = module.signatures[name](**given)
        assert len(wanted) == len(outputs) == 2 + (name != "tokens")
        for key in wanted:
            ours = outputs[key.rsplit("/", 1)[1]]
            np.testing.assert_allclose(ours, recorded[key], rtol=1e-5, atol=1e-5, err_msg=key)


@pytest.mark.slow
def test_gradients_equal_the_original(golden, tmp_path, inputs):
    """The module does not contain our custom gradients."""
    tf1_hub.write(str(tmp_path), contents(golden, do_lower_case=True))
    gradients = []
    for path in (golden / "hub" / "module", tmp_path):
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
