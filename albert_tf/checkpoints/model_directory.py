"""A directory that holds a whole model: configuration, tokenizer and checkpoints together.

The files have the names of the original release, so its programs and the other commands of this
package find them: `albert_config.json`; `30k-clean.model` and `30k-clean.vocab`, or `vocab.txt`
(`vocab_chinese.txt` beside the released Chinese models).
"""

from __future__ import annotations

import os
import shutil

import tensorflow as tf
from absl import logging

from albert_tf.config import AlbertConfig
from albert_tf.data.files import check_folder, open_binary, raise_write_errors, write_then_rename
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.loading import load_tokenizer
from albert_tf.tokenization.sentence_piece import SentencePieceTokenizer

CONFIG_FILE = "albert_config.json"
SENTENCEPIECE_FILE = "30k-clean.model"
SENTENCEPIECE_LIST_FILE = "30k-clean.vocab"
WORDPIECE_FILE = "vocab.txt"
RELEASED_CHINESE_FILE = "vocab_chinese.txt"  # its name beside the released Chinese models

# Key of albert_config.json where a model keeps what its text went through; nothing else says it.
LOWER_CASE_KEY = "do_lower_case"

# What may change between two runs of one model: how it is trained, not what it is.
_TRAINING_KEYS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range")


def find_tokenizer(directory: str, do_lower_case: bool = True) -> Tokenizer | None:
    """Returns the tokenizer whose files lie in a model directory, None where there is none."""
    paths = find_tokenizer_files(directory)
    return load_tokenizer(vocab_file=paths[0], do_lower_case=do_lower_case) if paths else None


def find_tokenizer_files(directory: str) -> list[str]:
    """Returns the paths of a model directory's SentencePiece model and vocabularies."""
    names = (SENTENCEPIECE_FILE, WORDPIECE_FILE, RELEASED_CHINESE_FILE)
    return [*filter(tf.io.gfile.exists, (os.path.join(directory, name) for name in names))]


def make_output_dir(path: str) -> None:
    """Creates a directory if necessary; ValueError or WriteError if that is impossible."""
    check_folder(path)
    with raise_write_errors(path):
        tf.io.gfile.makedirs(path)


def warn_of_another_config(checkpoint: str, config: AlbertConfig) -> None:
    """Says so when the configuration beside a checkpoint prefix describes another model.

    Heads, activation and layers that share weights leave no trace in the shapes of a checkpoint:
    with a wrong number of them it loads, and gives wrong results.
    """
    path = os.path.join(os.path.dirname(checkpoint), CONFIG_FILE)
    if not tf.io.gfile.exists(path):
        return
    differences = essential_differences(AlbertConfig.from_json_file(path), config)
    if differences:
        logging.warning(
            "%s, next to the checkpoint, differs from --albert_config_file: %s",
            path,
            "; ".join(differences),
        )


def essential_differences(there: AlbertConfig, now: AlbertConfig) -> list[str]:
    """Returns what makes two configurations different models, a phrase for each key."""
    changes, essential = _changes(there, now)
    return [changes[key] for key in sorted(essential)]


def _changes(there: AlbertConfig, now: AlbertConfig) -> tuple[dict[str, str], set[str]]:
    """Differences of two configurations by key, and the keys that make them different models."""
    # The files of models that share all do not say so.
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
    """Configuration and tokenizer of a model, to be kept beside its checkpoints.

    Nothing is written before `write`: the constructor checks that all fits together. Without a
    `tokenizer`, that beside `config_file`, where the configuration came from, is taken.

    Raises:
        ValueError: the directory belongs to another model, or the vocabulary has not as many
            entries as the configuration says.
    """

    def __init__(
        self, path: str, config: AlbertConfig, config_file: str, tokenizer: Tokenizer | None = None
    ) -> None:
        self.path = path
        self.config = config
        if tokenizer is None:
            tokenizer = find_tokenizer(os.path.dirname(config_file))
        self.tokenizer = tokenizer
        if self.tokenizer is not None and self.tokenizer.vocab_size != config.vocab_size:
            raise ValueError(
                f"The vocabulary {self.tokenizer.files[0]} has {self.tokenizer.vocab_size} "
                f"entries, but {config_file} (--albert_config_file) says vocab_size "
                f"{config.vocab_size}."
            )
        if tf.io.gfile.exists(self._config_path):
            self._check_same_model(AlbertConfig.from_json_file(self._config_path))
            self._check_same_tokenizer(find_tokenizer(path))

    @property
    def _config_path(self) -> str:
        return os.path.join(self.path, CONFIG_FILE)

    def _check_same_model(self, there: AlbertConfig) -> None:
        changes, essential = _changes(there, self.config)
        if essential:
            raise ValueError(
                f"--output_dir belongs to another model: {self._config_path} differs from "
                f"--albert_config_file ({'; '.join(changes.values())}). Use a new --output_dir or "
                "the same configuration."
            )
        for change in changes.values():
            logging.warning("%s changes: %s", self._config_path, change)

    def _check_same_tokenizer(self, there: Tokenizer | None) -> None:
        if there is None or self.tokenizer is None or there.tokens == self.tokenizer.tokens:
            return
        raise ValueError(
            f"--output_dir belongs to another model: its vocabulary {there.files[0]} is not that "
            f"of {self.tokenizer.files[0]}. Use a new --output_dir or the same vocabulary."
        )

    def write(self) -> None:
        """Makes the directory, and writes configuration and tokenizer into it.

        Raises:
            ValueError: nothing can be written there.
        """
        make_output_dir(self.path)
        self.config.to_json_file(self._config_path)
        if self.tokenizer is not None:
            self._copy_tokenizer(self.tokenizer)
        if find_tokenizer(self.path) is None:
            logging.info(
                "No tokenizer is stored in %s: pass --spm_model_file or --vocab_file", self.path
            )

    def write_if_absent(self) -> None:
        """Writes a directory that has no configuration yet; what a training wrote stays."""
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
