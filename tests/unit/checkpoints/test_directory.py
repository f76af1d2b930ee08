"""Tests for configuration and tokenizer in model directories."""

import os

import pytest

from albert_tf.checkpoints.model_directory import (
    VOCABULARY_KEY,
    ModelDirectory,
    find_tokenizer,
)
from albert_tf.config import AlbertConfig
from albert_tf.tokenization.base import vocabulary_fingerprint
from albert_tf.tokenization.loading import tokenizer_from_files
from tests.small_model import small_config

CONFIG_FILE = "albert_config.json"


@pytest.fixture
def source(tmp_path):
    """Creates a directory with a configuration and a WordPiece vocabulary of 31 entries."""
    folder = tmp_path / "source"
    folder.mkdir()
    small_config().to_json_file(str(folder / CONFIG_FILE))
    write_vocabulary(folder / "vocab.txt")
    return folder


def write_vocabulary(path):
    letters = [chr(ord("a") + n) for n in range(25)]
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, "z"]))


def directory_of(path, source, **config):
    return ModelDirectory(str(path), small_config(**config), find_tokenizer(str(source)))


def test_constructor_writes_nothing(tmp_path, source):
    directory = directory_of(tmp_path / "run", source)
    assert not (tmp_path / "run").exists()
    directory.write()
    assert sorted(os.listdir(tmp_path / "run")) == [CONFIG_FILE, "vocab.txt"]
    written = AlbertConfig.from_json_file(str(tmp_path / "run" / CONFIG_FILE))
    tokens = find_tokenizer(str(tmp_path / "run")).tokens
    assert written == small_config(extra={VOCABULARY_KEY: vocabulary_fingerprint(tokens)})
    assert tokens == tokenizer_from_files(vocab_file=source / "vocab.txt").tokens


def test_dropout_and_extra_keys_may_change(tmp_path, source):
    directory_of(tmp_path / "run", source, hidden_dropout_prob=0.1).write()
    directory_of(tmp_path / "run", source, extra={"net_structure_type": 0}).write()
    written = AlbertConfig.from_json_file(str(tmp_path / "run" / CONFIG_FILE))
    assert written.extra.pop(VOCABULARY_KEY)
    assert written == small_config(extra={"net_structure_type": 0})
    assert written.hidden_dropout_prob == 0.0
