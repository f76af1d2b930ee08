"""The tokenizer in a Hugging Face directory: found, and written so that AutoTokenizer loads it.

English models have a `spiece.model`; those that transformers 5 saved have a `tokenizer.json` in its
place, from which the SentencePiece model is made again. Chinese ones have a `vocab.txt`.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

from absl import logging

from albert_tf.checkpoints.archives import cached
from albert_tf.checkpoints.huggingface.configuration import read_content
from albert_tf.checkpoints.huggingface.tokenizer_json import (
    is_wordpiece,
    lower_cases,
    sentencepiece_model,
    tokenizer_json,
    wordpiece_tokens,
)
from albert_tf.checkpoints.report import LoadError
from albert_tf.config import AlbertConfig
from albert_tf.data.files import file_exists, write_then_rename
from albert_tf.data.strict_json import JsonError, JsonValue
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.sentence_piece import SentencePieceTokenizer

SENTENCEPIECE_FILE = "spiece.model"
WORDPIECE_FILE = "vocab.txt"
JSON_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"


def find_tokenizer_file(directory: str, flag: str) -> str | None:
    """Returns the path of a directory's SentencePiece model or vocabulary, None without.

    One that is only there as `tokenizer.json` is made again in the cache; if that cannot be done,
    a warning says why.

    Args:
        directory: of the model.
        flag: the flag it came from, for messages.
    """
    for name in (SENTENCEPIECE_FILE, WORDPIECE_FILE):
        path = os.path.join(directory, name)
        if file_exists(path):
            return path
    path = os.path.join(directory, JSON_FILE)
    if not file_exists(path):
        return None
    try:
        return _made_again(read_content(path))
    except (ValueError, OSError) as error:
        logging.warning(
            "%s=%s: cannot create a tokenizer. %s Pass --spm_model_file or --vocab_file.",
            flag,
            directory,
            error,
        )
        return None


def find_lower_case(directory: str) -> bool | None:
    """Returns whether a directory says that text is lower-cased, None where it says nothing.

    Raises:
        LoadError: a file cannot be read.
    """
    path = os.path.join(directory, CONFIG_FILE)
    values = read_content(path).value if file_exists(path) else {}
    if values.get("keep_accents") or values.get("strip_accents") is False:
        logging.warning("%s keeps accents; the tokenizer here, as the original's, drops them", path)
    if isinstance(values.get("do_lower_case"), bool):
        return values["do_lower_case"]
    path = os.path.join(directory, JSON_FILE)
    try:
        return lower_cases(read_content(path)) if file_exists(path) else None
    except JsonError as error:
        raise LoadError(str(error)) from error


def write_tokenizer(directory: str, tokenizer: Tokenizer, config: AlbertConfig) -> None:
    """Writes what `AutoTokenizer.from_pretrained` needs, with nothing else installed.

    Args:
        directory: where to.
        tokenizer: the model's.
        config: the model's, for the longest sequence.
    """
    if isinstance(tokenizer, SentencePieceTokenizer):
        _write(directory, SENTENCEPIECE_FILE, tokenizer.model_proto)
        # transformers reads spiece.model only beside a protobuf that TensorFlow may not allow.
        _write_json(directory, JSON_FILE, tokenizer_json(tokenizer))
        # The general class takes tokenizer.json as it is; the AlbertTokenizer of transformers 5
        # would also turn `` and '' into ", which the original leaves alone.
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", "keep_accents": False}
    else:
        # From the tokens: a repeated line of a vocabulary takes an id there, and none here.
        _write(directory, WORDPIECE_FILE, "".join(f"{t}\n" for t in tokenizer.tokens).encode())
        settings = {"tokenizer_class": "BertTokenizer", "strip_accents": None}
    names = {
        "pad_token": tokenizer.pad_id,
        "unk_token": tokenizer.unk_id,
        "cls_token": tokenizer.cls_id,
        "sep_token": tokenizer.sep_id,
        "mask_token": tokenizer.mask_id,
    }
    settings |= {name: tokenizer.tokens[i] for name, i in names.items()}
    settings |= {
        "do_lower_case": tokenizer.do_lower_case,
        "model_max_length": config.max_position_embeddings,
        # By itself transformers 5 leaves segment ids out, and pairs then give other results.
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
    }
    _write_json(directory, CONFIG_FILE, settings)


def _made_again(content: JsonValue) -> str:
    """The path of a SentencePiece model or a vocabulary that says what a tokenizer.json does."""
    if is_wordpiece(content):
        name = WORDPIECE_FILE
        data = "".join(f"{token}\n" for token in wordpiece_tokens(content)).encode()
    else:
        name, data = SENTENCEPIECE_FILE, sentencepiece_model(content)
    digest = hashlib.sha256(data).hexdigest()[:16]
    path = cached("tokenizers", digest, name)
    if not file_exists(path):
        with write_then_rename(path) as file:
            file.write(data)
    return path


def _write_json(directory: str, name: str, values: dict[str, Any]) -> None:
    content = json.dumps(values, indent=2, ensure_ascii=False)
    _write(directory, name, f"{content}\n".encode())


def _write(directory: str, name: str, content: bytes) -> None:
    with write_then_rename(os.path.join(directory, name)) as file:
        file.write(content)
