"""Configuration and tokenizer in a model directory, with the file names of the original release."""

import os
import shutil

import tensorflow as tf
from absl import logging

from albert_tf.config import AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.data.files import check_folder, open_binary, raise_write_errors, write_then_rename
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.loading import load_tokenizer
from albert_tf.tokenization.sentence_piece import SentencePieceTokenizer

CONFIG_FILE = "albert_config.json"
SENTENCEPIECE_FILE = "30k-clean.model"
SENTENCEPIECE_LIST_FILE = "30k-clean.vocab"
WORDPIECE_FILE = "vocab.txt"

# Key of albert_config.json; no other file of the original format contains this setting.
LOWER_CASE_KEY = "do_lower_case"

# Keys that affect training, but not the outputs of the trained model.
_TRAINING_KEYS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range")


def find_tokenizer(directory: str) -> Tokenizer | None:
    """Returns the tokenizer in a model directory, or `None`."""
    paths = find_tokenizer_files(directory)
    return load_tokenizer(vocab_file=paths[0]) if paths else None


def find_tokenizer_files(directory: str) -> list[str]:
    """Returns the paths of the SentencePiece model and vocabularies in a model directory."""
    names = (SENTENCEPIECE_FILE, WORDPIECE_FILE, "vocab_chinese.txt")  # of the Chinese releases
    return [*filter(tf.io.gfile.exists, (os.path.join(directory, name) for name in names))]


def make_output_dir(path: str) -> None:
    """Creates a directory if necessary. Raises `ValueError` or `WriteError` on failure."""
    check_folder(path)
    with raise_write_errors(path):
        tf.io.gfile.makedirs(path)


def warn_of_another_config(checkpoint: str, config: AlbertConfig) -> None:
    """Logs a warning if the configuration next to a checkpoint describes another model."""
    path = os.path.join(os.path.dirname(checkpoint), CONFIG_FILE)
    if not tf.io.gfile.exists(path):
        return
    differences = essential_differences(AlbertConfig.from_json_file(path), config)
    if differences:
        logging.warning(
            "%s, next to the checkpoint, differs from `albert_config_file`: %s",
            path,
            "; ".join(differences),
        )


def essential_differences(there: AlbertConfig, now: AlbertConfig) -> list[str]:
    """Describes the differences of two configurations that make the models different."""
    changes, essential = _changes(there, now)
    return [changes[key] for key in sorted(essential)]


def _changes(there: AlbertConfig, now: AlbertConfig) -> tuple[dict[str, str], set[str]]:
    """Returns the differences by key, and the keys that make the models different."""
    # to_dict omits the default of parameter_sharing.
    known, asked = (
        {**config.to_dict(), "parameter_sharing": config.parameter_sharing}
        for config in (there, now)
    )
    changes = {
        key: f"{key} is {known.get(key)!r} there, {asked.get(key)!r} now"
        for key in sorted({*known, *asked})
        if known.get(key) != asked.get(key)
    }
    return changes, set(changes) - {*_TRAINING_KEYS, *there.extra, *now.extra}


class ModelDirectory:
    """Configuration and tokenizer of a model in a directory; the constructor writes nothing.

    Raises `ValueError` if the directory belongs to another model.
    """

    def __init__(self, path: str, config: AlbertConfig, tokenizer: Tokenizer | None) -> None:
        self.path = path
        self.config = config
        self.tokenizer = tokenizer
        self._config_path = os.path.join(path, CONFIG_FILE)
        if not tf.io.gfile.exists(self._config_path):
            return
        changes, essential = _changes(AlbertConfig.from_json_file(self._config_path), config)
        if essential:
            raise UserError(
                f"`output_dir` belongs to another model: {self._config_path} differs from "
                f"`albert_config_file` ({'; '.join(changes.values())}). Use a new `output_dir` or "
                "the same configuration."
            )
        for change in changes.values():
            logging.warning("%s changes: %s", self._config_path, change)
        there = find_tokenizer(path)
        if there and tokenizer and there.tokens != tokenizer.tokens:
            raise UserError(
                f"`output_dir` belongs to another model: its vocabulary {there.files[0]} differs "
                f"from {tokenizer.files[0]}. Use a new `output_dir` or the same vocabulary."
            )

    def write(self) -> None:
        """Creates the directory, and writes configuration and tokenizer."""
        make_output_dir(self.path)
        self.config.to_json_file(self._config_path)
        if self.tokenizer is not None:
            self._copy_tokenizer(self.tokenizer)
        if find_tokenizer(self.path) is None:
            logging.info(
                "No tokenizer is stored in %s: pass `spm_model_file` or `vocab_file`", self.path
            )

    def write_if_absent(self) -> None:
        """Calls `write` unless the directory already contains a configuration."""
        if tf.io.gfile.exists(self._config_path):
            make_output_dir(self.path)
        else:
            self.write()

    def _copy_tokenizer(self, tokenizer: Tokenizer) -> None:
        is_sentencepiece = isinstance(tokenizer, SentencePieceTokenizer)
        model_name = SENTENCEPIECE_FILE if is_sentencepiece else WORDPIECE_FILE
        names = (model_name, SENTENCEPIECE_LIST_FILE)[: len(tokenizer.files)]
        for source, name in zip(tokenizer.files, names, strict=True):
            target = os.path.join(self.path, name)
            if os.path.abspath(source) != os.path.abspath(target):
                with open_binary(source, "rb") as file, write_then_rename(target) as copy:
                    shutil.copyfileobj(file, copy)
