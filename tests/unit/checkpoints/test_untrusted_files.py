"""Tests for files that were made to mislead: names, sizes and old libraries."""

import os
import shutil
import zipfile
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from tensorflow.core.protobuf import meta_graph_pb2

import albert_tf
from albert_tf.checkpoints.errors import LoadError
from albert_tf.checkpoints.formats import keras_file
from albert_tf.checkpoints.formats.choose import open_model
from albert_tf.checkpoints.formats.original import write_checkpoint
from albert_tf.checkpoints.report import LoadReport, check_version
from albert_tf.tools.inspect import describe
from tests.changed_json import change_json, changed_copy
from tests.saved_models import edit_graphs
from tests.small_model import ONE_BLOCK, small_config

TERMINAL = "a\x1b[2Jb\nc\u202e"
VISIBLE = r"a\x1b[2Jb\nc\u202e"
DENSE = {"module": "keras.layers", "class_name": "Dense", "config": {"units": 3}}
THIS = {"class_name": "s", "module": "this", "registered_name": "s"}  # prints when imported


class TestAssets:
    @pytest.fixture(params=["tf1_hub", "tf2_hub"])
    def module(self, request, hub, golden, tmp_path):
        """Returns a copy of a recorded module of TF1 or TF2."""
        if request.param == "tf1_hub":
            return shutil.copytree(hub / "module", tmp_path / "module")
        zipfile.ZipFile(golden / "tf2_hub" / "albert_encoder.zip").extractall(tmp_path)
        return tmp_path / "albert_encoder"

    @pytest.mark.parametrize("name", ["../../outside.txt", "{}/outside.txt", "a/../../x", "..", ""])
    def test_names_that_lead_out_of_the_module_are_rejected(self, module, tmp_path, name):
        (tmp_path / "outside.txt").write_text("private\n[CLS]\n")
        changed = []

        def change(graph):
            for asset in graph.asset_file_def:
                asset.filename = name.format(tmp_path)
                changed.append(asset)
            for packed in graph.collection_def["saved_model_assets"].any_list.value:
                asset = meta_graph_pb2.AssetFileDef.FromString(packed.value)
                asset.filename = name.format(tmp_path)
                packed.Pack(asset)
                changed.append(asset)

        edit_graphs(module, change)
        assert changed
        with pytest.raises(LoadError, match="asset") as error:
            open_model(str(module))
        assert "private" not in str(error.value)


class TestKerasFiles:
    @pytest.fixture(scope="class")
    def model_file(self, tmp_path_factory):
        path = tmp_path_factory.mktemp("models") / "model.keras"
        albert_tf.AlbertForClassification(small_config(**ONE_BLOCK), 3).save(path)
        return path

    @pytest.mark.parametrize(
        ("keys", "values", "message"),
        [
            (["config", "config"], {"vocab_size": 10**8}, "parameters"),
            (["config", "config"], {"max_position_embeddings": 10**8}, "parameters"),
            (["config", "config"], {"intermediate_size": 10**8}, "parameters"),
            (["config"], {"num_labels": 10**8}, "parameters"),
            (["config"], {"dtype": DENSE}, "'Dense'"),
            ([], THIS, "contains a s"),
        ],
    )
    def test_other_sizes_and_classes_are_rejected_before_building(
        self, model_file, tmp_path, monkeypatch, keys, values, message
    ):
        path = changed_copy(model_file, tmp_path / "changed.keras", "config.json", values, keys)
        monkeypatch.setattr(keras.models, "load_model", None)
        with pytest.raises(LoadError, match=message):
            albert_tf.load(path)

    def test_a_compressed_file_of_another_policy_is_loaded(self, tmp_path):
        model = albert_tf.AlbertEncoder(small_config(**ONE_BLOCK), dtype="mixed_bfloat16")
        model.compile(albert_tf.Lamb(1e-3))
        model.save(tmp_path / "model.keras")
        with (
            zipfile.ZipFile(tmp_path / "model.keras") as source,
            zipfile.ZipFile(tmp_path / "small.keras", "w", zipfile.ZIP_DEFLATED) as target,
        ):
            for name in source.namelist():
                target.writestr(name, source.read(name))
        loaded = albert_tf.load(tmp_path / "small.keras")
        for one, other in zip(loaded.weights, model.weights, strict=True):
            np.testing.assert_array_equal(one, other)

    def test_old_versions_of_keras_are_refused(self, model_file, monkeypatch):
        old = SimpleNamespace(__name__="keras", __version__="3.8.0", models=keras.models)
        monkeypatch.setattr(keras_file, "keras", old)
        with pytest.raises(LoadError, match=r"keras>=3\.9"):
            albert_tf.load(model_file)


def test_old_versions_of_pytorch_are_refused():
    old, new = (SimpleNamespace(__name__="torch", __version__=v) for v in ("2.5.1+cpu", "2.10.0"))
    check_version(new, "2.6", "pytorch_model.bin")
    with pytest.raises(LoadError, match=r"torch>=2\.6"):
        check_version(old, "2.6", "pytorch_model.bin")


@pytest.mark.parametrize("format", ["original", "huggingface"])
def test_sizes_of_directories_are_compared_before_a_model_is_built(tmp_path, format, monkeypatch):
    albert_tf.save(
        albert_tf.AlbertEncoder(small_config(**ONE_BLOCK)), tmp_path / "model", format=format
    )
    (path,) = (tmp_path / "model").glob("*config.json")
    change_json(path, vocab_size=10**9)
    monkeypatch.setattr("albert_tf.checkpoints.loading.empty_model", None)
    with pytest.raises(LoadError, match="parameters"):
        albert_tf.load(tmp_path / "model")


class TestControlCharacters:
    def test_names_of_tensors_in_errors(self, tmp_path):
        write_checkpoint(str(tmp_path / "model.ckpt"), {TERMINAL: np.zeros(3)}, None)
        small_config(**ONE_BLOCK).to_json_file(str(tmp_path / "albert_config.json"))
        with pytest.raises(LoadError) as error:
            albert_tf.load(tmp_path)
        assert VISIBLE in str(error.value)
        assert not set(TERMINAL) & set(str(error.value)) - {*VISIBLE, "\n"}

    def test_names_of_tensors_in_reports(self, capsys):
        report = LoadReport("checkpoint", {}, {TERMINAL: "a"}, [], [TERMINAL], [])
        assert VISIBLE in report.summary()
        assert all(line.isprintable() for line in report.summary().splitlines())

    def test_labels_in_descriptions(self, tmp_path):
        config = small_config(**ONE_BLOCK)
        model = albert_tf.AlbertForClassification(config, labels=[TERMINAL, "other"])
        albert_tf.save(model, tmp_path / "model")
        lines = list(describe(os.fspath(tmp_path / "model")))
        assert any(VISIBLE in line for line in lines)
        assert all(line.isprintable() for line in lines)
