"""Configuration and tokenizer in a model directory, with the file names of the original release."""

import os
import shutil
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.facts import Meeting, config_facts, settle, stated
from albert_tf.config import AlbertConfig
from albert_tf.data.files import check_folder, open_binary, raise_write_errors, write_then_rename
from albert_tf.data.strict_json import read_json
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.library import JSON_FILE, LibraryTokenizer
from albert_tf.tokenization.loading import tokenizer_from_files
from albert_tf.tokenization.sentence_piece import SentencePieceTokenizer

CONFIG_FILE = "albert_config.json"
SENTENCEPIECE_FILE = "30k-clean.model"
SENTENCEPIECE_LIST_FILE = "30k-clean.vocab"
WORDPIECE_FILE = "vocab.txt"

# Key of albert_config.json; no other file of the original format contains this setting.
LOWER_CASE_KEY = "do_lower_case"

# Only written if it is true. If only the previous key is present, it is false.
ACCENTS_KEY = "keep_accents"

# Key for the fingerprint of the vocabulary, which detects a replaced file.
VOCABULARY_KEY = "vocabulary_sha256"

# Written by the last start of a training run.
RUN_CONFIG_FILE = "run_config.json"


def read_run_config(output_dir: str) -> dict[str, Any]:
    """Returns the settings of the last start of a run. A damaged file is ignored."""
    config = read_run_file(output_dir).get("config")
    return config if isinstance(config, dict) else {}  # a file of another program


def read_run_file(output_dir: str) -> dict[str, Any]:
    """Returns the content of `run_config.json`. A damaged file is ignored."""
    path = os.path.join(output_dir, RUN_CONFIG_FILE)
    if not tf.io.gfile.exists(path):
        return {}
    try:
        content = read_json(path, path)
    except ValueError as error:
        logging.warning("The previous settings of this run are unknown. %s", error)
        return {}
    return content if isinstance(content, dict) else {}


def read_config(path: str) -> AlbertConfig:
    """Reads an `albert_config.json`.

    Raises `LoadError` if the `run_config.json` of the run that trained the model has other values.
    """
    config = AlbertConfig.from_json_file(path)
    try:
        trained = AlbertConfig.from_dict(read_run_config(os.path.dirname(path))["model"])
    except (LookupError, TypeError, ValueError):  # no run, or a file of another program
        return config
    configs = {path: config, os.path.join(os.path.dirname(path), RUN_CONFIG_FILE): trained}
    sources = {where: config_facts(one) | stored_rules(one) for where, one in configs.items()}
    settle(sources, Meeting.LOAD)
    return config


def stored_rules(config: AlbertConfig | None) -> dict[str, Any]:
    """Returns the settings of the tokenizer in a configuration; `None` if they are unknown."""
    extra = config.extra if config else {}
    accents = extra.get(ACCENTS_KEY, False if LOWER_CASE_KEY in extra else None)
    return {LOWER_CASE_KEY: extra.get(LOWER_CASE_KEY), ACCENTS_KEY: accents}


def with_rules(config: AlbertConfig, rules: Mapping[str, Any]) -> AlbertConfig:
    """Returns a configuration with those settings of the tokenizer that `rules` contains."""
    known = {key: rules.get(key) for key in (LOWER_CASE_KEY, ACCENTS_KEY)}
    extra = {**config.extra, **{key: v for key, v in known.items() if v is not None}}
    if not extra.get(ACCENTS_KEY):
        extra.pop(ACCENTS_KEY, None)
    return config.replace(extra=extra)


def with_vocabulary(config: AlbertConfig, tokenizer: Tokenizer | None) -> AlbertConfig:
    """Returns a configuration with the fingerprint of a vocabulary, or without a fingerprint."""
    extra = {key: value for key, value in config.extra.items() if key != VOCABULARY_KEY}
    if tokenizer is not None:
        extra[VOCABULARY_KEY] = tokenizer.fingerprint
    return config.replace(extra=extra)


def check_vocabulary(config: AlbertConfig | None, tokenizer: Tokenizer) -> None:
    """Raises `LoadError` if a configuration contains the fingerprint of another vocabulary."""
    expected = config.extra.get(VOCABULARY_KEY) if config else None
    known = {f"{VOCABULARY_KEY} of the configuration": expected}
    sources = stated("vocabulary", {**known, tokenizer.source: tokenizer.fingerprint})
    advice = "Restore the file. To use the new vocabulary, delete this key from the configuration."
    settle(sources, Meeting.LOAD, advice=advice)


def find_tokenizer(directory: str) -> Tokenizer | None:
    """Returns the tokenizer in a model directory, or `None`."""
    paths = find_tokenizer_files(directory)
    return tokenizer_from_files(vocab_file=paths[0]) if paths else None


def find_tokenizer_files(directory: str) -> list[str]:
    """Returns the paths of the SentencePiece model and vocabularies in a model directory.

    If there are none, returns the path of the `tokenizer.json`.
    """
    names = (SENTENCEPIECE_FILE, WORDPIECE_FILE, "vocab_chinese.txt")  # of the Chinese releases
    found = [*filter(tf.io.gfile.exists, (os.path.join(directory, name) for name in names))]
    library_file = os.path.join(directory, JSON_FILE)
    return found or [*filter(tf.io.gfile.exists, [library_file])]


def make_output_dir(path: str) -> None:
    """Creates a directory if necessary. Raises `ValueError` or `WriteError` on failure."""
    check_folder(path)
    with raise_write_errors(path):
        tf.io.gfile.makedirs(path)


def compare_config_next_to(checkpoint: str, config: AlbertConfig) -> None:
    """Logs a warning if the configuration next to a checkpoint describes another model."""
    path = os.path.join(os.path.dirname(checkpoint), CONFIG_FILE)
    if tf.io.gfile.exists(path):
        stored = AlbertConfig.from_json_file(path)
        settle({"this model": config_facts(config), path: config_facts(stored)}, Meeting.GIVEN)


class ModelDirectory:
    """Configuration and tokenizer of a model in a directory; the constructor writes nothing.

    Raises `ValueError` if the directory contains another model.
    """

    def __init__(self, path: str, config: AlbertConfig, tokenizer: Tokenizer | None) -> None:
        self.path = path
        self.config = config
        self.tokenizer = tokenizer
        self._config_path = os.path.join(path, CONFIG_FILE)
        if not tf.io.gfile.exists(self._config_path):
            return
        stored, there = read_config(self._config_path), find_tokenizer(path)
        if there:
            check_vocabulary(stored, there)
        known = {"vocabulary": stored.extra.get(VOCABULARY_KEY), "tokenizer": there}
        given = {"vocabulary": tokenizer and tokenizer.fingerprint, "tokenizer": tokenizer}
        sources = {path: config_facts(stored) | known, "this run": config_facts(config) | given}
        settle(sources, Meeting.RESUME)

    def write(self) -> None:
        """Creates the directory, and writes configuration and tokenizer."""
        make_output_dir(self.path)
        with_vocabulary(self.config, self.tokenizer).to_json_file(self._config_path)
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
        names = [model_name, SENTENCEPIECE_LIST_FILE][: len(tokenizer.files)]
        if isinstance(tokenizer, LibraryTokenizer):
            names = [*map(os.path.basename, tokenizer.files)]
        for source, name in zip(tokenizer.files, names, strict=True):
            target = os.path.join(self.path, name)
            if os.path.abspath(source) != os.path.abspath(target):
                with open_binary(source, "rb") as file, write_then_rename(target) as copy:
                    shutil.copyfileobj(file, copy)
