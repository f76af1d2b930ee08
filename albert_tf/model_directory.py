"""A directory that holds a whole model: configuration, tokenizer and checkpoints together.

The files have the names of the original release, so its programs and the other commands of this
package find them: `albert_config.json`; `30k-clean.model` and `30k-clean.vocab`, or `vocab.txt`.
"""

from __future__ import annotations

import os

import tensorflow as tf
from absl import logging

from albert_tf.config import AlbertConfig
from albert_tf.tokenization import SentencePieceTokenizer, Tokenizer, load_tokenizer

CONFIG_FILE = "albert_config.json"
SENTENCEPIECE_FILE = "30k-clean.model"
SENTENCEPIECE_LIST_FILE = "30k-clean.vocab"
WORDPIECE_FILE = "vocab.txt"


def find_tokenizer(directory: str, do_lower_case: bool = True) -> Tokenizer | None:
    """Returns the tokenizer whose files lie in a model directory, None where there is none."""
    for name in (SENTENCEPIECE_FILE, WORDPIECE_FILE):
        path = os.path.join(directory, name)
        if tf.io.gfile.exists(path):
            return load_tokenizer(vocab_file=path, do_lower_case=do_lower_case)
    return None


def prepare_model_directory(
    directory: str, config: AlbertConfig, tokenizer: Tokenizer | None, config_file: str
) -> None:
    """Makes a directory ready for the checkpoints of a model, and checks that all fits together.

    Args:
        directory: created if need be.
        config: the model.
        tokenizer: its files are copied; None takes the one beside `config_file`, if any.
        config_file: where the configuration came from.

    Raises:
        ValueError: the directory belongs to another model, the vocabulary has not as many entries
            as the configuration says, or nothing can be written there.
    """
    path = os.path.join(directory, CONFIG_FILE)
    if tf.io.gfile.exists(path):
        _check_same_model(path, AlbertConfig.from_json_file(path), config)
    tokenizer = tokenizer or find_tokenizer(os.path.dirname(config_file))
    if tokenizer is not None and tokenizer.vocab_size != config.vocab_size:
        raise ValueError(
            f"The vocabulary {tokenizer.files[0]} has {tokenizer.vocab_size} entries, but "
            f"{config_file} (--albert_config_file) says vocab_size {config.vocab_size}."
        )
    try:
        tf.io.gfile.makedirs(directory)
        config.to_json_file(path)
        if tokenizer is None:
            logging.info(
                "No tokenizer is kept in %s: give --spm_model_file or --vocab_file", directory
            )
        else:
            _copy_tokenizer(tokenizer, directory)
    except tf.errors.OpError as error:
        raise ValueError(f"--output_dir {directory!r} cannot be written to: {error}") from error


def _check_same_model(path: str, there: AlbertConfig, wanted: AlbertConfig) -> None:
    known, asked = there.to_dict(), wanted.to_dict()
    different = [
        f"{key} is {known.get(key)!r} there, {asked.get(key)!r} now"
        for key in sorted({*known, *asked})
        if known.get(key) != asked.get(key)
    ]
    if different:
        raise ValueError(
            f"--output_dir belongs to another model: {path} differs from --albert_config_file "
            f"({'; '.join(different)}). Give a fresh --output_dir, or the same configuration."
        )


def _copy_tokenizer(tokenizer: Tokenizer, directory: str) -> None:
    """Copies the files of a tokenizer under the names of the original release."""
    is_sentencepiece = isinstance(tokenizer, SentencePieceTokenizer)
    model_name = SENTENCEPIECE_FILE if is_sentencepiece else WORDPIECE_FILE
    for source, name in zip(tokenizer.files, (model_name, SENTENCEPIECE_LIST_FILE), strict=False):
        target = os.path.join(directory, name)
        if os.path.abspath(source) != os.path.abspath(target):
            tf.io.gfile.copy(source, target, overwrite=True)
