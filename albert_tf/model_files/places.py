"""What lies where a flag points: a TF-Hub module, a directory, a checkpoint, a configuration."""

from __future__ import annotations

import dataclasses
import os

import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.archives import is_indirect
from albert_tf.checkpoints.formats import recognise
from albert_tf.checkpoints.shipped import HINT, is_shipped
from albert_tf.config import AlbertConfig
from albert_tf.model_files.directory import CONFIG_FILE, LOWER_CASE_KEY, find_tokenizer_file

HANDLE_FLAG = "--albert_hub_module_handle"
CONFIG_FLAG = "--albert_config_file"
CHECKPOINT_FLAG = "--init_checkpoint"
EVAL_FLAG = "--eval_checkpoint"
OUTPUT_FLAG = "--output_dir"


@dataclasses.dataclass(frozen=True)
class ModelPlace:
    """What one flag's value holds of a model; None for what it does not hold.

    Attributes:
        flag: the flag.
        path: its value.
        config_file: path of an `albert_config.json`, or what another format has.
        config: its content.
        tokenizer_file: SentencePiece model or vocabulary.
        do_lower_case: whether the model's text was lower-cased.
        checkpoint: its weights, see `StoredModel`.
    """

    flag: str
    path: str
    config_file: str | None = None
    config: AlbertConfig | None = None
    tokenizer_file: str | None = None
    do_lower_case: bool | None = None
    checkpoint: str | None = None

    @property
    def is_fixed(self) -> bool:
        """Whether no other configuration or vocabulary may take the place of its own."""
        return self.flag == HANDLE_FLAG or is_shipped(self.path)


def place_of_model(value: str | None, flag: str) -> ModelPlace | None:
    """Returns what lies where a flag points that names a model of any format.

    Args:
        value: of the flag; None and "" name nothing.
        flag: `HANDLE_FLAG` or `CHECKPOINT_FLAG`.

    Raises:
        ValueError: there is no model.
    """
    if not value:
        return None
    if flag == HANDLE_FLAG and not (tf.io.gfile.isdir(value) or is_indirect(value)):
        raise ValueError(
            f"{flag}={value}: there is no such directory. Give the directory or the URL of a "
            f"TF-Hub module, or a directory with {CONFIG_FILE}, tokenizer and checkpoint; a "
            f"checkpoint's prefix belongs to {CHECKPOINT_FLAG}. {HINT}"
        )
    stored = recognise(value, flag)
    place = ModelPlace(
        flag,
        value,
        tokenizer_file=stored.tokenizer_file,
        do_lower_case=stored.do_lower_case,
        checkpoint=stored.checkpoint,
    )
    if stored.config is None or stored.config_file is None:
        return place
    return _with_config(place, stored.config, stored.config_file)


def model_in(albert_directory: str, checkpoint_name: str, is_named: bool) -> str:
    """Returns the path of the model that --albert_directory and --checkpoint_name mean.

    Args:
        albert_directory: a release directory, or a model of any other format.
        checkpoint_name: of its checkpoint.
        is_named: whether the user gave that name. The default one need not be there: the directory
            is taken as it is then, with its newest checkpoint.
    """
    path = os.path.join(albert_directory, checkpoint_name)
    if is_named or tf.io.gfile.exists(f"{path}.index"):
        return path
    logging.info("%s has no %s: it is taken as it is", albert_directory, checkpoint_name)
    return albert_directory


def place_of_directory(path: str, flag: str) -> ModelPlace:
    """Returns the configuration and the tokenizer that lie in a directory, if they do.

    Raises:
        ValueError: the configuration cannot be used.
    """
    place = ModelPlace(flag, path, tokenizer_file=find_tokenizer_file(path))
    config_file = os.path.join(path, CONFIG_FILE)
    if not tf.io.gfile.exists(config_file):
        return place
    return _with_config(place, AlbertConfig.from_json_file(config_file), config_file)


def place_of_config(path: str) -> ModelPlace:
    """Returns a configuration file that was named, and the tokenizer beside it.

    Raises:
        ValueError: there is no such file, or it is not a configuration.
    """
    tokenizer_file = find_tokenizer_file(os.path.dirname(path))
    place = ModelPlace(CONFIG_FLAG, path, tokenizer_file=tokenizer_file)
    return _with_config(place, AlbertConfig.from_json_file(path), path)


def _with_config(place: ModelPlace, config: AlbertConfig, config_file: str) -> ModelPlace:
    lower_case = place.do_lower_case
    if lower_case is None:
        lower_case = config.extra.get(LOWER_CASE_KEY)
    return dataclasses.replace(
        place, config_file=config_file, config=config, do_lower_case=lower_case
    )
