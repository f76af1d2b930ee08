"""Places that state different facts about one model, and what happens. See also test_facts.py."""

import json
import re
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

import albert_tf
from albert_tf.checkpoints.errors import LoadError
from albert_tf.checkpoints.formats import huggingface, keras_hub
from albert_tf.checkpoints.formats.choose import open_model
from albert_tf.checkpoints.formats.original import write_checkpoint
from albert_tf.checkpoints.model_choice import choose_model
from albert_tf.checkpoints.model_directory import (
    CONFIG_FILE,
    RUN_CONFIG_FILE,
    ModelDirectory,
    compare_config_next_to,
)
from albert_tf.checkpoints.stored_model import StoredModel
from albert_tf.checkpoints.stored_task import LABELS_FILE, StoredTask
from albert_tf.config import AlbertConfig
from albert_tf.finetuning.predictor import new_predictor
from albert_tf.labels import Labels
from tests.changed_json import change_json, changed_copy
from tests.small_model import ONE_BLOCK, small_config

SAMPLES = Path(__file__).parents[2] / "fuzz" / "samples"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [chr(ord("a") + number) for number in range(26)]
LABELS = ("bad", "fine", "good")
CONFIG = small_config(**ONE_BLOCK, extra={"do_lower_case": False})
TASK = StoredTask("custom", Labels(LABELS), False, max_seq_length=9)
STRICT = "albert_hub_module_handle"  # contradictions to it are rejected


def write_vocabulary(path, words):
    path.write_text("\n".join([*SPECIAL, *words]), "utf-8")
    return str(path)


class Trained:
    """A model that was trained in `run`, and the same model as a `.keras` file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run = folder, folder / "run"
        self.theirs = huggingface.config_json(StoredModel.in_memory(CONFIG, {"x": np.zeros(2)}))

    def load(self, file=LABELS_FILE, **values):
        """Loads the model after a file was changed."""
        change_json(self.run / file, **values)
        return albert_tf.load(self.run)

    def copy(self, file, **values):
        """Loads a model that is not in the directory of its run."""
        (self.run / RUN_CONFIG_FILE).unlink()
        return self.load(file, **values)

    def next_to(self, content=None, **values):
        """Loads the model from a directory with the `config.json` of another program."""
        (self.run / "config.json").write_text(content or json.dumps({**self.theirs, **values}))
        return albert_tf.load(self.run)

    def keras(self, file, **values):
        path = changed_copy(self.folder / "model.keras", self.folder / "x.keras", file, values)
        return albert_tf.load(path)

    def tokenizer(self, words, **replaced):
        write_vocabulary(self.run / "vocab.txt", words)
        return albert_tf.load_tokenizer(self.run, **replaced)

    def choose(self, source="init_checkpoint", *, words=None, config=None, **rules):
        """Replaces parts of the model; without a `source`, names only the parts."""
        named = {source: str(self.run)} if source else {}
        if words:
            named["vocab_file"] = write_vocabulary(self.folder / "other.txt", words)
        if config is not None:
            named["albert_config_file"] = str(self.folder / "mine.json")
            CONFIG.replace(**config).to_json_file(named["albert_config_file"])
        return choose_model(**named, **rules)

    def resume(self, words=WORDS, **changes):
        """Starts another run in the directory."""
        vocabulary = write_vocabulary(self.folder / "given.txt", words)
        tokenizer = albert_tf.load_tokenizer(vocabulary, do_lower_case=False)
        ModelDirectory(str(self.run), CONFIG.replace(**changes), tokenizer)

    def begin(self, *, given=None, **stored):
        """Starts from another model in the directory of the run."""
        other = shutil.copytree(self.run, self.folder / "first")
        (other / RUN_CONFIG_FILE).unlink()
        change_json(other / CONFIG_FILE, **stored)
        choose_model(init_checkpoint=str(other), output_dir=str(self.run), do_lower_case=given)

    def evaluate(self, **changes):
        compare_config_next_to(str(self.run / "model.ckpt-5"), CONFIG.replace(**changes))

    def predict(self, length):
        new_predictor(self.load(), CONFIG, TASK, max_seq_length=length, batch_size=3)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    model = albert_tf.AlbertForClassification(CONFIG, labels=LABELS)
    vocabulary = write_vocabulary(folder / "words.txt", WORDS)
    model.tokenizer = albert_tf.load_tokenizer(vocabulary, do_lower_case=False)
    albert_tf.save(model, folder / "run", max_seq_length=9, pairs=False)
    config = {"config": {"model": CONFIG.to_dict(), "task": TASK.to_dict()}}
    (folder / "run" / RUN_CONFIG_FILE).write_text(json.dumps(config))
    model.save(folder / "model.keras")
    return folder


@pytest.fixture
def trained(saved, tmp_path):
    return Trained(shutil.copytree(saved, tmp_path / "copy"))


T = Trained
ERROR, WARNING, NOTHING = "error", "warning", "nothing"
DROPOUT = {"hidden_dropout_prob": 0.1, "initializer_range": 0.3}
SWAPPED = ["fine", "bad", "good"]
SITUATIONS = [
    (NOTHING, "", T.load),
    (ERROR, "labels is .*labels.json.*run_config", T.load, LABELS_FILE, {"labels": SWAPPED}),
    (ERROR, "labels is", T.load, LABELS_FILE, {"labels": ["bad", "fine", "best"]}),
    (ERROR, "labels is numbers", T.load, LABELS_FILE, {"labels": [], "regression": True}),
    (ERROR, "pairs is True in .*, False in", T.load, LABELS_FILE, {"pairs": True}),
    (ERROR, "task is mnli in .*, custom in", T.load, LABELS_FILE, {"task_name": "mnli"}),
    (WARNING, "max_seq_length is 12 in .*, 9", T.load, LABELS_FILE, {"max_seq_length": 12}),
    (NOTHING, "", T.load, LABELS_FILE, {"columns": {"label_column": "1"}}),
    (ERROR, "config.json, 3 in .*run_config", T.load, CONFIG_FILE, {"num_attention_heads": 6}),
    (ERROR, "'relu' in .*, 'gelu' in", T.load, CONFIG_FILE, {"hidden_act": "relu"}),
    (ERROR, "num_hidden_layers is", T.load, CONFIG_FILE, {"num_hidden_layers": 6}),
    (ERROR, "do_lower_case is True in", T.load, CONFIG_FILE, {"do_lower_case": True}),
    (NOTHING, "", T.load, CONFIG_FILE, {**DROPOUT, "note": 1}),
    (NOTHING, "", T.copy, CONFIG_FILE, {"num_attention_heads": 6}),
    (ERROR, "one score .*3 classes", T.copy, LABELS_FILE, {"task_name": "race", "settings": {}}),
    (ERROR, "2 classes in .*3 classes", T.copy, LABELS_FILE, {"labels": ["x", "y"]}),
    (ERROR, "answer spans .*3 cl", T.copy, LABELS_FILE, {"task_name": "squad1.1", "settings": {}}),
    (ERROR, "vocabulary_sha256 .* in .*run/vocab.txt", T.tokenizer, WORDS[::-1], {}),
    (WARNING, "True in the arguments", T.tokenizer, WORDS, {"do_lower_case": True}),
    # Files of the original next to a file of transformers
    (NOTHING, "", T.next_to),
    (ERROR, "3 in .*albert_config.*, 4 in .*/config.json", T.next_to, {"num_attention_heads": 4}),
    (ERROR, "'gelu' in .*, 'relu' in", T.next_to, {"hidden_act": "relu"}),
    (ERROR, "'gelu' in .*, 'gelu_exact' in", T.next_to, {"hidden_act": "gelu"}),
    (ERROR, "intermediate_size is 20 in", T.next_to, {"intermediate_size": 24}),
    (NOTHING, "", T.next_to, DROPOUT),
    (NOTHING, "", T.next_to, {"model_type": "bert", "num_attention_heads": 4}),
    (NOTHING, "", T.next_to, "{", {}),
    # Files inside a `.keras` file
    (ERROR, "labels is", T.keras, LABELS_FILE, {"labels": SWAPPED}),
    (ERROR, "labels is", T.keras, LABELS_FILE, {"labels": ["bad", "fine"]}),
    (ERROR, "num_attention_heads is 6 in", T.keras, CONFIG_FILE, {"num_attention_heads": 6}),
    (ERROR, "vocabulary is 0000", T.keras, CONFIG_FILE, {"vocabulary_sha256": "0" * 64}),
    # Arguments
    (NOTHING, "", T.choose, {"words": WORDS, "config": DROPOUT, "do_lower_case": False}),
    (
        WARNING,
        "'relu' in .*mine.json, 'gelu' in .*Omit",
        T.choose,
        {"config": {"hidden_act": "relu"}},
    ),
    (ERROR, "'relu' in .*, 'gelu' in", T.choose, STRICT, {"config": {"hidden_act": "relu"}}),
    (WARNING, "grow_init", T.choose, {"config": {"max_position_embeddings": 24}}),
    (WARNING, "vocabulary is .*other.txt, .*grow_init", T.choose, {"words": WORDS[::-1]}),
    (ERROR, "vocabulary is", T.choose, STRICT, {"words": WORDS[::-1]}),
    (ERROR, "31 in .*, 32 in .*other.txt", T.choose, "", {"config": {}, "words": [*WORDS, "zz"]}),
    (WARNING, "size is 31 in .*, 30 in", T.choose, "", {"config": {}, "words": WORDS[1:]}),
    (WARNING, "True in the arguments, False in .*run", T.choose, {"do_lower_case": True}),
    (WARNING, "True in the arguments", T.choose, STRICT, {"do_lower_case": True}),
    (ERROR, "keep_accents is True in the", T.choose, {"keep_accents": True}),
    (WARNING, "num_hidden_layers is 6 in this model, 1 in", T.evaluate, {"num_hidden_layers": 6}),
    (NOTHING, "", T.evaluate, DROPOUT),
    (WARNING, "max_seq_length is 9 in .*, 7 in", T.predict, 7, {}),
    (NOTHING, "", T.predict, 9, {}),
    (NOTHING, "", T.predict, None, {}),
    # The directory of a run
    (NOTHING, "", T.resume),
    (ERROR, "1 in .*, 6 in this run.*`output_dir`", T.resume, {"num_hidden_layers": 6}),
    (WARNING, "initializer_range is 0.2 in", T.resume, DROPOUT),
    (ERROR, "vocabulary is .*/run, .*`output_dir`", T.resume, WORDS[::-1], {}),
    (NOTHING, "", T.begin),
    (ERROR, "True in .*first, False in .*run.*`output_dir`", T.begin, {"do_lower_case": True}),
    (WARNING, "True in .*False in .*run", T.begin, {"given": True, "do_lower_case": True}),
]


@pytest.mark.parametrize("row", SITUATIONS, ids=lambda row: f"{row[2].__name__}-{row[3:]}"[:60])
def test_situations(row, trained, warnings):
    outcome, words, act, *args = row
    changes = args.pop() if args else {}
    messages = warnings
    if outcome == ERROR:
        with pytest.raises(ValueError, match=words) as raised:
            act(trained, *args, **changes)
        messages = [str(raised.value)]
    else:
        act(trained, *args, **changes)
    assert len(messages) == (outcome != NOTHING)
    assert all(re.search(words, message) for message in messages)


def test_missing_labels_are_read_from_the_run(trained, warnings):
    (trained.run / LABELS_FILE).unlink()
    assert StoredTask.read(str(trained.run)).labels == Labels(LABELS)
    assert albert_tf.load(trained.run).labels == LABELS
    assert "labels.json is missing" in warnings[0]


@pytest.mark.parametrize("content", ["{", "[]", '{"config": {"task": {}}}', "{}"])
def test_a_damaged_run_configuration_is_ignored(trained, content):
    (trained.run / RUN_CONFIG_FILE).write_text(content)
    assert trained.load().labels == LABELS


def test_a_new_head_replaces_a_head_of_another_task(trained):
    (trained.run / RUN_CONFIG_FILE).unlink()
    (trained.run / LABELS_FILE).write_text(json.dumps({"task_name": "race", "settings": {}}))
    replaced = albert_tf.AlbertForClassification.load(trained.run, labels=["x", "y"], new_head=True)
    assert replaced.labels == ("x", "y")


def test_models_without_a_fingerprint_and_with_another_tokenizer(trained, tmp_path):
    values = json.loads((trained.run / CONFIG_FILE).read_text("utf-8"))
    del values["vocabulary_sha256"]
    (trained.run / CONFIG_FILE).write_text(json.dumps(values))
    write_vocabulary(trained.run / "vocab.txt", WORDS[::-1])
    other = trained.load()
    albert_tf.save(other, tmp_path / "saved")
    again = albert_tf.load(tmp_path / "saved")
    assert again.tokenizer.tokens == other.tokenizer.tokens
    assert "vocabulary_sha256" not in again.config.extra


def test_do_lower_case_of_a_module(golden, tmp_path, warnings):
    module = shutil.copytree(golden / "hub" / "module", tmp_path / "module")
    (path,) = (module / "assets").glob("*config.json")
    for lower_case in (True, False):
        change_json(path, do_lower_case=lower_case)
        assert open_model(str(module)).do_lower_case is True
        assert len(warnings) == (not lower_case)


def test_heads_and_layers_of_a_module(golden, tmp_path):
    zipfile.ZipFile(golden / "tf2_hub" / "albert_encoder.zip").extractall(tmp_path)
    config = open_model(str(tmp_path / "albert_encoder")).config
    for key, value in (("num_attention_heads", 4), ("num_hidden_layers", 5), (None, None)):
        module = shutil.copytree(tmp_path / "albert_encoder", tmp_path / f"{key}")
        (module / "assets.extra").mkdir()
        path = str(module / "assets.extra" / CONFIG_FILE)
        config.replace(**({key: value} if key else {})).to_json_file(path)
        if key:
            with pytest.raises(LoadError, match=r"assets\.extra.*in saved_model\.pb"):
                open_model(str(module))
    assert open_model(str(module)).config == config


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
    with pytest.raises(LoadError, match=rf"^{key} is .* in config.json, .*metadata\.json"):
        keras_hub.read_config(str(folder))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_dropout_prob": 0.3}, None),
        ({"num_attention_heads": 16}, "num_attention_heads is 16 in .*, 32 in the released xlarge"),
        ({"hidden_act": "relu"}, "hidden_act is 'relu' in "),
        ({"num_hidden_layers": 6}, "num_hidden_layers is 6 in .*, 24 in "),
        ({"num_hidden_layers": 6, "parameter_sharing": "none"}, None),  # visible in the weights
    ],
)
def test_differences_from_a_released_model_are_logged(tmp_path, caplog, changes, message):
    config = AlbertConfig.from_preset("xlarge_v2").replace(**changes)
    config.to_json_file(str(tmp_path / CONFIG_FILE))
    write_checkpoint(str(tmp_path / "model.ckpt-best"), {"a": [1.0]}, 0)
    choose_model(init_checkpoint=str(tmp_path))
    assert len(caplog.messages) == bool(message)
    if message:
        assert caplog.text.count("xlarge") == 1
