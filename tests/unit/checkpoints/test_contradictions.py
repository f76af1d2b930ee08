"""Places that state different facts about one model, and what happens. See also test_facts.py."""

import json
import re
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

import albert_tf
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
GOLDEN = Path(__file__).parents[2] / "golden" / "data"
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

    def __init__(self, folder):
        self.folder, self.run = folder, folder / "run"

    def load(self, file=LABELS_FILE, **values):
        """Loads the model after a file was changed."""
        change_json(self.run / file, **values)
        assert albert_tf.load(self.run).labels in (LABELS, None)

    def copy(self, file, **values):
        """Loads a model that is not in the directory of its run."""
        (self.run / RUN_CONFIG_FILE).unlink()
        self.load(file, **values)

    def damage(self, file, content):
        (self.run / file).write_text(content)
        assert albert_tf.load(self.run).labels == LABELS

    def remove(self, file):
        (self.run / file).unlink()
        assert albert_tf.load(self.run).labels == LABELS

    def next_to(self, **values):
        """Loads the model from a directory with the `config.json` of another program."""
        theirs = huggingface.config_json(StoredModel.in_memory(CONFIG, {"x": np.zeros(2)}))
        self.damage("config.json", json.dumps({**theirs, **values}))

    def huggingface(self, file="config.json", **values):
        change_json(self.folder / "huggingface" / file, **values)
        albert_tf.load(self.folder / "huggingface")

    def keras(self, file, **values):
        path = changed_copy(self.folder / "model.keras", self.folder / "x.keras", file, values)
        albert_tf.load(path)

    def preset(self, **values):
        shutil.copytree(SAMPLES / "keras_hub", self.folder / "preset")
        change_json(self.folder / "preset" / "metadata.json", albert_tf={"config": values})
        keras_hub.read_config(str(self.folder / "preset"))

    def module(self, **values):
        module = shutil.copytree(GOLDEN / "hub" / "module", self.folder / "module")
        change_json(*(module / "assets").glob("*config.json"), **values)
        assert open_model(str(module)).do_lower_case is True

    def encoder(self, **changes):
        """Opens a SavedModel with another configuration."""
        zipfile.ZipFile(GOLDEN / "tf2_hub" / "albert_encoder.zip").extractall(self.folder)
        module = self.folder / "albert_encoder"
        config = open_model(str(module)).config.replace(**changes)
        (module / "assets.extra").mkdir()
        config.to_json_file(str(module / "assets.extra" / CONFIG_FILE))
        assert open_model(str(module)).config == config

    def release(self, **changes):
        folder = self.folder / "release"
        folder.mkdir()
        config = AlbertConfig.from_preset("xlarge_v2").replace(**changes)
        config.to_json_file(str(folder / CONFIG_FILE))
        write_checkpoint(str(folder / "model.ckpt-best"), {"a": [1.0]}, 0)
        choose_model(init_checkpoint=str(folder))

    def tokenizer(self, words, **rules):
        write_vocabulary(self.run / "vocab.txt", words)
        albert_tf.load_tokenizer(self.run, **rules)

    def choose(self, source="init_checkpoint", *, words=None, config=None, **rules):
        """Replaces parts of the model; without a `source`, names only the parts."""
        named = {source: str(self.run)} if source else {}
        if words:
            named["vocab_file"] = write_vocabulary(self.folder / "other.txt", words)
        if config is not None:
            named["albert_config_file"] = str(self.folder / "mine.json")
            CONFIG.replace(**config).to_json_file(named["albert_config_file"])
        source = choose_model(**named, **rules)
        assert named.get("albert_config_file", source.config_file) == source.config_file
        assert named.get("vocab_file", source.tokenizer.source) == source.tokenizer.source

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

    def task(self, name="custom", labels=LABELS, is_pair=False, *, is_training=True):
        """Checks the task of a command in the directory of the run."""
        known, directory = StoredTask.read(str(self.run)), str(self.run)
        known.check_name(name, directory, is_training=is_training)
        known.check_answers(StoredTask(name, Labels(labels), is_pair), directory)

    def evaluate(self, **changes):
        compare_config_next_to(str(self.run / "model.ckpt-5"), CONFIG.replace(**changes))

    def predict(self, length):
        new_predictor(albert_tf.load(self.run), CONFIG, TASK, max_seq_length=length, batch_size=3)


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
    albert_tf.save(model, folder / "huggingface", format="huggingface", pairs=False)
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
    (ERROR, "pairs is True in .*, but False in", T.load, LABELS_FILE, {"pairs": True}),
    (ERROR, "task is mnli in .*, but custom in", T.load, LABELS_FILE, {"task_name": "mnli"}),
    (WARNING, "max_seq_length is 12 in .*, but 9", T.load, LABELS_FILE, {"max_seq_length": 12}),
    (NOTHING, "", T.load, LABELS_FILE, {"columns": {"label_column": "1"}}),
    (ERROR, "config.json, but 3 in .*run_config", T.load, CONFIG_FILE, {"num_attention_heads": 6}),
    (ERROR, "'relu' in .*, but 'gelu' in", T.load, CONFIG_FILE, {"hidden_act": "relu"}),
    (ERROR, "num_hidden_layers is", T.load, CONFIG_FILE, {"num_hidden_layers": 6}),
    (ERROR, "do_lower_case is True in", T.load, CONFIG_FILE, {"do_lower_case": True}),
    (NOTHING, "", T.load, CONFIG_FILE, {**DROPOUT, "note": 1}),
    (NOTHING, "", T.copy, CONFIG_FILE, {"num_attention_heads": 6}),
    (ERROR, "one score .*3 classes", T.copy, LABELS_FILE, {"task_name": "race", "settings": {}}),
    (ERROR, "2 classes in .*3 classes", T.copy, LABELS_FILE, {"labels": ["x", "y"]}),
    (ERROR, "answer spans .*3 cl", T.copy, LABELS_FILE, {"task_name": "squad1.1", "settings": {}}),
    (ERROR, "vocabulary_sha256 .*run/vocab.txt.* delete this key", T.tokenizer, WORDS[::-1], {}),
    (WARNING, "True in the arguments", T.tokenizer, WORDS, {"do_lower_case": True}),
    (WARNING, "labels.json is missing", T.remove, LABELS_FILE, {}),
    *((NOTHING, "", T.damage, RUN_CONFIG_FILE, text, {}) for text in ("[]", "{}")),
    (NOTHING, "", T.load, RUN_CONFIG_FILE, {"config": {"task": {}}}),
    # Files of the original next to a file of transformers
    (NOTHING, "", T.next_to),
    (
        ERROR,
        "3 in .*albert_config.*, but 4 in .*/config.json",
        T.next_to,
        {"num_attention_heads": 4},
    ),
    (ERROR, "'gelu' in .*, but 'relu' in", T.next_to, {"hidden_act": "relu"}),
    (ERROR, "'gelu' in .*, but 'gelu_exact' in", T.next_to, {"hidden_act": "gelu"}),
    (ERROR, "intermediate_size is 20 in", T.next_to, {"intermediate_size": 24}),
    (NOTHING, "", T.next_to, DROPOUT),
    (NOTHING, "", T.next_to, {"model_type": "bert", "num_attention_heads": 4}),
    (NOTHING, "", T.damage, "config.json", "{", {}),
    # transformers leaves `labels.json` unchanged when it fine-tunes in place
    (NOTHING, "", T.huggingface, {"problem_type": None}),
    (NOTHING, "", T.huggingface, {"id2label": {str(i): f"LABEL_{i}" for i in range(3)}}),
    (ERROR, "num_labels is 3 in .*labels.*, but 2", T.huggingface, {"id2label": None}),
    (
        ERROR,
        "labels is .*, .* in .*config",
        T.huggingface,
        {"id2label": {"0": "a", "1": "b", "2": "c"}},
    ),
    (ERROR, "problem_type is single", T.huggingface, {"problem_type": "regression"}),
    (ERROR, "type is single", T.huggingface, {"problem_type": "multi_label_classification"}),
    (ERROR, "architecture is ", T.huggingface, {"architectures": ["AlbertForQuestionAnswering"]}),
    (ERROR, "architecture is ", T.huggingface, LABELS_FILE, {"task_name": "race", "settings": {}}),
    # Files inside a `.keras` file
    (ERROR, "labels is", T.keras, LABELS_FILE, {"labels": SWAPPED}),
    (ERROR, "labels is", T.keras, LABELS_FILE, {"labels": ["bad", "fine"]}),
    (ERROR, "num_attention_heads is 6 in", T.keras, CONFIG_FILE, {"num_attention_heads": 6}),
    (ERROR, "vocabulary is 0000", T.keras, CONFIG_FILE, {"vocabulary_sha256": "0" * 64}),
    # Parts of a preset of KerasHub, a module, an exported encoder and a released model
    (ERROR, "'gelu' in config.json, but 'relu' in .*metadata", T.preset, {"hidden_act": "relu"}),
    (ERROR, "3 in config.json, but 6 in .*metadata", T.preset, {"num_attention_heads": 6}),
    (ERROR, "num_hidden_layers is 4 in ", T.preset, {"num_hidden_layers": 5}),
    (NOTHING, "", T.module, {"do_lower_case": True}),
    (WARNING, "do_lower_case is True in other files of", T.module, {"do_lower_case": False}),
    (NOTHING, "", T.encoder),
    (
        ERROR,
        "4 in .*assets.extra.*, but 3 in saved_model.pb",
        T.encoder,
        {"num_attention_heads": 4},
    ),
    (ERROR, "num_blocks is 5 in ", T.encoder, {"num_hidden_layers": 5}),
    (NOTHING, "", T.release, {"hidden_dropout_prob": 0.3}),
    (WARNING, "16 in .*, but 32 in the released xlarge", T.release, {"num_attention_heads": 16}),
    (WARNING, "hidden_act is 'relu' in ", T.release, {"hidden_act": "relu"}),
    (WARNING, "layers is 6 in .*, but 24 in", T.release, {"num_hidden_layers": 6}),
    (NOTHING, "", T.release, {"num_hidden_layers": 6, "parameter_sharing": "none"}),
    # Arguments
    (NOTHING, "", T.choose, {"words": WORDS, "config": DROPOUT, "do_lower_case": False}),
    (
        WARNING,
        "'relu' in .*mine.json, but 'gelu' in .*Omit",
        T.choose,
        {"config": {"hidden_act": "relu"}},
    ),
    (ERROR, "'relu' in .*, but 'gelu' in", T.choose, STRICT, {"config": {"hidden_act": "relu"}}),
    (WARNING, "grow_init", T.choose, {"config": {"max_position_embeddings": 24}}),
    (WARNING, "vocabulary is .*other.txt, .*grow_init", T.choose, {"words": WORDS[::-1]}),
    (ERROR, "vocabulary is", T.choose, STRICT, {"words": WORDS[::-1]}),
    (
        ERROR,
        "31 in .*, but 32 in .*other.txt",
        T.choose,
        "",
        {"config": {}, "words": [*WORDS, "zz"]},
    ),
    (WARNING, "size is 31 in .*, but 30 in", T.choose, "", {"config": {}, "words": WORDS[1:]}),
    (WARNING, "True in the arguments, but False in .*run", T.choose, {"do_lower_case": True}),
    (WARNING, "True in the arguments", T.choose, STRICT, {"do_lower_case": True}),
    (ERROR, "keep_accents is True in the", T.choose, {"keep_accents": True}),
    (
        WARNING,
        "num_hidden_layers is 6 in this model, but 1 in",
        T.evaluate,
        {"num_hidden_layers": 6},
    ),
    (NOTHING, "", T.evaluate, DROPOUT),
    (WARNING, "max_seq_length is 9 in .*, but 7 in", T.predict, 7, {}),
    (NOTHING, "", T.predict, 9, {}),
    (NOTHING, "", T.predict, None, {}),
    # The directory of a run
    (NOTHING, "", T.resume),
    (ERROR, "1 in .*, but 6 in this run.*`output_dir`", T.resume, {"num_hidden_layers": 6}),
    (WARNING, "initializer_range is 0.2 in", T.resume, DROPOUT),
    (ERROR, "vocabulary is .*/run, .*`output_dir`", T.resume, WORDS[::-1], {}),
    (NOTHING, "", T.task),
    (NOTHING, "", T.task, {"is_training": False}),
    (ERROR, "task is custom in .*run, but mnli in this", T.task, {"name": "mnli"}),
    (ERROR, "task is custom in", T.task, {"name": "mnli", "is_training": False}),
    (ERROR, "labels is .*'bad', .*labels.json, but 'fine'", T.task, {"labels": SWAPPED}),
    (ERROR, "numbers in the data", T.task, {"labels": ()}),
    (
        ERROR,
        "pairs is False in .*, but True in the data.* another model",
        T.task,
        {"is_pair": True},
    ),
    (NOTHING, "", T.begin),
    (ERROR, "True in .*first, but False in .*run.*`output_dir`", T.begin, {"do_lower_case": True}),
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


def test_a_new_head_replaces_a_head_of_another_task(trained):
    (trained.run / RUN_CONFIG_FILE).unlink()
    (trained.run / LABELS_FILE).write_text(json.dumps({"task_name": "race", "settings": {}}))
    replaced = albert_tf.AlbertForClassification.load(trained.run, labels=["x", "y"], new_head=True)
    assert replaced.labels == ("x", "y")


def test_models_without_a_fingerprint_and_with_another_tokenizer(trained, tmp_path):
    change_json(trained.run / CONFIG_FILE, vocabulary_sha256=None)
    write_vocabulary(trained.run / "vocab.txt", WORDS[::-1])
    other = albert_tf.load(trained.run)
    albert_tf.save(other, tmp_path / "saved")
    again = albert_tf.load(tmp_path / "saved")
    assert again.tokenizer.tokens == other.tokenizer.tokens
    assert "vocabulary_sha256" not in again.config.extra
