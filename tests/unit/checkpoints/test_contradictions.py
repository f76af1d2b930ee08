"""Tests for files of one model that contradict each other."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest

import albert_tf
from albert_tf.checkpoints.errors import LoadError
from albert_tf.checkpoints.formats import keras_hub
from albert_tf.checkpoints.formats.choose import open_model
from albert_tf.checkpoints.model_choice import choose_model
from albert_tf.checkpoints.model_directory import ModelDirectory
from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.finetuning.predictor import new_predictor
from albert_tf.labels import Labels
from tests.changed_json import change_json, changed_copy
from tests.small_model import ONE_BLOCK, small_config

SAMPLES = Path(__file__).parents[2] / "fuzz" / "samples"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [chr(ord("a") + number) for number in range(26)]
LABELS = ("bad", "fine", "good")
CONFIG = small_config(**ONE_BLOCK, extra={"do_lower_case": False})


def write_vocabulary(path, words):
    path.write_text("\n".join([*SPECIAL, *words]), "utf-8")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "words.txt"
    write_vocabulary(path, WORDS)
    return albert_tf.load_tokenizer(path, do_lower_case=False)


@pytest.fixture(scope="module")
def model(tokenizer):
    model = albert_tf.AlbertForClassification(CONFIG, labels=LABELS)
    model.tokenizer = tokenizer
    return model


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    """Returns a directory with the model as a training run, and as a Keras file."""
    folder = tmp_path_factory.mktemp("saved")
    albert_tf.save(model, folder / "run", max_seq_length=9, pairs=False)
    task = StoredTask.read(str(folder / "run")).to_dict()
    config = {"config": {"model": CONFIG.to_dict(), "task": task}}
    (folder / "run" / "run_config.json").write_text(json.dumps(config))
    model.save(folder / "model.keras")
    return folder


@pytest.fixture
def run(saved, tmp_path):
    """Returns a copy of the training run."""
    return shutil.copytree(saved / "run", tmp_path / "run")


class TestTask:
    @pytest.mark.parametrize(
        "values",
        [
            {"labels": ["fine", "bad", "good"]},
            {"labels": ["bad", "fine", "best"]},
            {"pairs": True},
            {"task_name": "mnli"},
            {"labels": [], "regression": True},
        ],
    )
    def test_labels_that_were_changed_after_training(self, run, values):
        assert albert_tf.load(run).labels == LABELS
        change_json(run / "labels.json", **values)
        for read in (albert_tf.load, StoredTask.read):
            with pytest.raises(ValueError, match=r"labels\.json.*run_config\.json"):
                read(str(run))

    def test_settings_that_may_change(self, run, warnings):
        change_json(run / "labels.json", columns={"label_column": "1"})
        assert albert_tf.load(run).labels == LABELS
        assert warnings == []
        change_json(run / "labels.json", max_seq_length=12)
        assert albert_tf.load(run).labels == LABELS
        assert "max_seq_length=9" in warnings[0]

    def test_missing_labels_are_read_from_the_run(self, run, warnings):
        (run / "labels.json").unlink()
        assert StoredTask.read(str(run)).labels == Labels(LABELS)
        assert albert_tf.load(run).labels == LABELS
        assert "labels.json is missing" in warnings[0]

    @pytest.mark.parametrize("content", ["{", "[]", '{"config": {"task": {}}}', "{}"])
    def test_a_damaged_run_configuration_is_ignored(self, run, content):
        (run / "run_config.json").write_text(content)
        assert albert_tf.load(run).labels == LABELS

    @pytest.mark.parametrize(
        "task",
        [
            {"task_name": "custom", "labels": ["a", "b"], "pairs": False},
            {"task_name": "custom", "labels": [], "pairs": False},
            {"task_name": "tokens", "labels": ["a", "b", "c", "d"], "pairs": False},
            {"task_name": "squad2.0", "settings": {}},
            {"task_name": "squad1.1", "settings": {}},
            {"task_name": "race", "settings": {}},
        ],
    )
    def test_task_and_head(self, run, task):
        (run / "run_config.json").unlink()
        (run / "labels.json").write_text(json.dumps(task))
        with pytest.raises(LoadError, match="3 classes"):
            albert_tf.load(run)

    def test_a_new_head_replaces_a_head_of_another_task(self, run):
        (run / "run_config.json").unlink()
        (run / "labels.json").write_text(json.dumps({"task_name": "race", "settings": {}}))
        replaced = albert_tf.AlbertForClassification.load(run, labels=["x", "y"], new_head=True)
        assert replaced.labels == ("x", "y")


class TestConfiguration:
    @pytest.mark.parametrize(
        "values",
        [
            {"num_attention_heads": 6},
            {"hidden_act": "relu"},
            {"num_hidden_layers": 6},
            {"do_lower_case": True},
        ],
    )
    def test_a_configuration_that_was_changed_after_training(self, run, tokenizer, values):
        change_json(run / "albert_config.json", **values)
        (key,) = values
        message = rf"albert_config\.json contradicts run_config\.json.*{key}"
        with pytest.raises(LoadError, match=message):
            albert_tf.load(run)
        with pytest.raises(LoadError, match=message):
            ModelDirectory(str(run), CONFIG, tokenizer)
        with pytest.raises(LoadError, match=message):
            choose_model(output_dir=str(run))
        with pytest.raises(LoadError, match=message):
            choose_model(albert_config_file=str(run / "albert_config.json"))
        (run / "run_config.json").unlink()
        assert choose_model(output_dir=str(run))

    def test_values_that_may_change(self, run):
        change_json(
            run / "albert_config.json", hidden_dropout_prob=0.1, initializer_range=0.3, note=1
        )
        assert albert_tf.load(run).config.hidden_dropout_prob == 0.1

    def test_another_do_lower_case_in_a_module(self, golden, tmp_path, warnings):
        module = shutil.copytree(golden / "hub" / "module", tmp_path / "module")
        (path,) = (module / "assets").glob("*config.json")
        change_json(path, do_lower_case=True)
        assert open_model(str(module)).do_lower_case is True
        assert warnings == []
        change_json(path, do_lower_case=False)
        assert open_model(str(module)).do_lower_case is True
        assert "do_lower_case=False" in warnings[0]

    def test_heads_and_layers_of_a_module(self, golden, tmp_path):
        zipfile.ZipFile(golden / "tf2_hub" / "albert_encoder.zip").extractall(tmp_path)
        config = open_model(str(tmp_path / "albert_encoder")).config
        for key, value in (("num_attention_heads", 4), ("num_hidden_layers", 5), (None, None)):
            module = shutil.copytree(tmp_path / "albert_encoder", tmp_path / f"{key}")
            (module / "assets.extra").mkdir()
            path = str(module / "assets.extra" / "albert_config.json")
            config.replace(**({key: value} if key else {})).to_json_file(path)
            if key:
                with pytest.raises(LoadError, match=r"contradicts saved_model\.pb"):
                    open_model(str(module))
        assert open_model(str(module)).config == config


class TestVocabulary:
    def test_a_replaced_vocabulary_of_the_same_size(self, tokenizer, tmp_path):
        model = albert_tf.AlbertEncoder(CONFIG)
        model.tokenizer = tokenizer
        albert_tf.save(model, tmp_path / "saved", format="original")
        loaded = albert_tf.load(tmp_path / "saved")
        assert loaded.tokenizer.tokens == tokenizer.tokens
        assert "vocabulary_sha256" not in loaded.config.extra
        (path,) = (tmp_path / "saved").rglob("*.txt")
        write_vocabulary(path, ["b", "a", *WORDS[2:]])
        for read in (albert_tf.load, albert_tf.load_tokenizer):
            with pytest.raises(LoadError, match="not trained with the vocabulary"):
                read(tmp_path / "saved")

    def test_resuming_with_a_replaced_vocabulary(self, run):
        write_vocabulary(run / "vocab.txt", ["b", "a", *WORDS[2:]])
        replaced = albert_tf.load_tokenizer(run / "vocab.txt", do_lower_case=False)
        with pytest.raises(LoadError, match="not trained with the vocabulary"):
            ModelDirectory(str(run), CONFIG, replaced)
        for settings in (
            {"output_dir": str(run)},
            {"init_checkpoint": str(run), "vocab_file": str(run / "vocab.txt")},
        ):
            with pytest.raises(LoadError, match="not trained with the vocabulary"):
                choose_model(**settings)

    def test_models_without_a_fingerprint_and_with_another_tokenizer(self, run, model, tmp_path):
        values = json.loads((run / "albert_config.json").read_text("utf-8"))
        del values["vocabulary_sha256"]
        (run / "albert_config.json").write_text(json.dumps(values))
        write_vocabulary(run / "vocab.txt", WORDS[::-1])
        other = albert_tf.load(run).tokenizer
        albert_tf.save(albert_tf.load(run), tmp_path / "copy")
        assert albert_tf.load(tmp_path / "copy").tokenizer.tokens == other.tokens


class TestKerasFiles:
    @pytest.mark.parametrize(
        ("name", "values"),
        [
            ("labels.json", {"labels": ["fine", "bad", "good"]}),
            ("labels.json", {"labels": ["bad", "fine"]}),
            ("albert_config.json", {"num_attention_heads": 6}),
            ("albert_config.json", {"vocabulary_sha256": "0" * 64}),
        ],
    )
    def test_files_inside(self, saved, tmp_path, name, values):
        assert albert_tf.load(saved / "model.keras").labels == LABELS
        copy = changed_copy(saved / "model.keras", tmp_path / "copy.keras", name, values)
        with pytest.raises(LoadError):
            albert_tf.load(copy)


@pytest.mark.parametrize(
    "values",
    [{"hidden_act": "relu"}, {"num_attention_heads": 6}, {"num_hidden_layers": 5}],
)
def test_metadata_of_keras_hub(tmp_path, values):
    folder = shutil.copytree(SAMPLES / "keras_hub", tmp_path / "preset")
    keras_hub.read_config(str(folder))
    metadata = json.loads((folder / "metadata.json").read_text("utf-8"))
    metadata["albert_tf"]["config"] = {**metadata["albert_tf"]["config"], **values}
    (folder / "metadata.json").write_text(json.dumps(metadata))
    (key,) = values
    with pytest.raises(LoadError, match=rf"metadata\.json sets {key}"):
        keras_hub.read_config(str(folder))


def test_another_length_than_in_training(warnings):
    task = StoredTask("custom", Labels(LABELS), max_seq_length=9)
    model = albert_tf.AlbertForClassification(CONFIG, labels=LABELS)
    for length in (None, 9):
        new_predictor(model, CONFIG, task, max_seq_length=length, batch_size=3)
    assert warnings == []
    new_predictor(model, CONFIG, task, max_seq_length=7, batch_size=3)
    assert "max_seq_length=9" in warnings[0]
