"""Writes the tokenizer of a Hugging Face directory."""

import base64
import json
import os
from collections.abc import Iterator
from typing import Any

from albert_tf.checkpoints.huggingface.sentencepiece_messages import parse_model, penalty
from albert_tf.checkpoints.huggingface.tokenizer import (
    CONFIG_FILE,
    JSON_FILE,
    SENTENCEPIECE_FILE,
    WORDPIECE_FILE,
    vocabulary_lines,
)
from albert_tf.config import AlbertConfig
from albert_tf.data.files import write_file
from albert_tf.tokenization.base import WORD_START, Tokenizer
from albert_tf.tokenization.sentence_piece import SentencePieceTokenizer

_METASPACE = {
    "type": "Metaspace",
    "replacement": WORD_START,
    "prepend_scheme": "always",
    "split": True,
}


def write_tokenizer(directory: str, tokenizer: Tokenizer, config: AlbertConfig) -> None:
    """Writes the files that `AutoTokenizer.from_pretrained` needs."""
    if isinstance(tokenizer, SentencePieceTokenizer):
        write_file(os.path.join(directory, SENTENCEPIECE_FILE), tokenizer.model_proto)
        # To read spiece.model, transformers needs a protobuf that TensorFlow may not support.
        _write_json(directory, JSON_FILE, tokenizer_json(tokenizer))
        # The AlbertTokenizer of transformers 5 would replace `` and '' by ".
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", "keep_accents": False}
    else:
        # In transformers, duplicate lines of a vocabulary also have ids.
        write_file(os.path.join(directory, WORDPIECE_FILE), vocabulary_lines(tokenizer.tokens))
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
        # transformers 5 omits segment ids by default, which changes the results of pairs.
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
    }
    _write_json(directory, CONFIG_FILE, settings)


def _write_json(directory: str, name: str, values: dict[str, Any]) -> None:
    text = json.dumps(values, indent=2, ensure_ascii=False)
    write_file(os.path.join(directory, name), f"{text}\n")


def tokenizer_json(tokenizer: SentencePieceTokenizer) -> dict[str, Any]:
    """Returns a `tokenizer.json` that produces the same ids as a SentencePiece tokenizer.

    The only exception is that transformers recognizes special tokens in texts.
    """
    proto = parse_model(tokenizer.model_proto, next(iter(tokenizer.files), "The tokenizer"))
    vocabulary = [[piece.piece, piece.score - penalty(piece.piece)] for piece in proto.pieces]
    normalizers: list[dict[str, Any]] = [{"type": "NFKD"}, {"type": "StripAccents"}]
    if tokenizer.do_lower_case:
        normalizers.append({"type": "Lowercase"})
    if proto.normalizer_spec.precompiled_charsmap:
        charsmap = base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()
        normalizers.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": list(_added_tokens(tokenizer)),
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "WhitespaceSplit"}, _METASPACE],
        },
        "post_processor": _template(tokenizer),
        "decoder": _METASPACE,
        "model": {
            "type": "Unigram",
            "unk_id": tokenizer.unk_id,
            "vocab": vocabulary,
            "byte_fallback": False,
        },
    }


def _added_tokens(tokenizer: Tokenizer) -> Iterator[dict[str, Any]]:
    special = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id)
    for i in sorted({*special, tokenizer.mask_id}):
        yield {
            "id": i,
            "content": tokenizer.tokens[i],
            "single_word": False,
            "lstrip": i == tokenizer.mask_id,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }


def _template(tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns [CLS] A [SEP], and [CLS] A [SEP] B [SEP] with segment 1 for B and its separator."""
    marks = [(tokenizer.tokens[i], i) for i in (tokenizer.cls_id, tokenizer.sep_id)]
    cls_a, sep_a = ({"SpecialToken": {"id": mark, "type_id": 0}} for mark, _ in marks)
    text_a = {"Sequence": {"id": "A", "type_id": 0}}
    text_b = {"Sequence": {"id": "B", "type_id": 1}}
    sep_b = {"SpecialToken": {"id": tokenizer.tokens[tokenizer.sep_id], "type_id": 1}}
    return {
        "type": "TemplateProcessing",
        "single": [cls_a, text_a, sep_a],
        "pair": [cls_a, text_a, sep_a, text_b, sep_b],
        "special_tokens": {mark: {"id": mark, "ids": [i], "tokens": [mark]} for mark, i in marks},
    }
