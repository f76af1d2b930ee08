"""Reads and writes the tokenizer in a Hugging Face directory.

English models have a `spiece.model`, Chinese models a `vocab.txt`. Transformers 5 saves only a
`tokenizer.json`, from which one of these files is created with the same ids.

SentencePiece's own message classes may require a newer protobuf than TensorFlow. This module
therefore declares the fields of sentencepiece_model.proto that it needs.
"""

import base64
import json
import os
from collections.abc import Iterator
from functools import cache
from typing import Any

from absl import logging
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from albert_tf.checkpoints.huggingface.weights import read_content
from albert_tf.checkpoints.names import store_tokenizer
from albert_tf.checkpoints.report import LoadError
from albert_tf.config import AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.data.files import file_exists, write_file
from albert_tf.data.strict_json import JsonError, JsonValue, is_encodable
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.sentence_piece import WORD_START, SentencePieceTokenizer

SENTENCEPIECE_FILE = "spiece.model"
WORDPIECE_FILE = "vocab.txt"
JSON_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4  # types of pieces
UNIGRAM = 1  # type of model
_PACKAGE = "albert_tf.sentencepiece"
_Field = descriptor_pb2.FieldDescriptorProto

# Fields of each message: name, number, and type or name of the message.
_MESSAGES: dict[str, tuple[tuple[str, int, Any], ...]] = {
    "Piece": (
        ("piece", 1, _Field.TYPE_STRING),
        ("score", 2, _Field.TYPE_FLOAT),
        ("type", 3, _Field.TYPE_INT32),
    ),
    "Trainer": (
        ("model_type", 3, _Field.TYPE_INT32),
        ("vocab_size", 4, _Field.TYPE_INT32),
        ("unk_id", 40, _Field.TYPE_INT32),
        ("bos_id", 41, _Field.TYPE_INT32),
        ("eos_id", 42, _Field.TYPE_INT32),
        ("pad_id", 43, _Field.TYPE_INT32),
        ("unk_piece", 45, _Field.TYPE_STRING),
        ("bos_piece", 46, _Field.TYPE_STRING),
        ("eos_piece", 47, _Field.TYPE_STRING),
        ("pad_piece", 48, _Field.TYPE_STRING),
    ),
    "Normalizer": (("name", 1, _Field.TYPE_STRING), ("precompiled_charsmap", 2, _Field.TYPE_BYTES)),
    "Model": (
        ("pieces", 1, "Piece"),
        ("trainer_spec", 2, "Trainer"),
        ("normalizer_spec", 3, "Normalizer"),
    ),
}

# transformers subtracts this from the scores of pieces like "9,", which are then never used. The
# original splits these pieces instead.
_PENALTY = 100.0
_SPECIAL = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
_METASPACE = {
    "type": "Metaspace",
    "replacement": WORD_START,
    "prepend_scheme": "always",
    "split": True,
}


def find_tokenizer_files(directory: str) -> list[str]:
    """Returns the paths of the SentencePiece model, vocabulary and `tokenizer.json`.

    A single `tokenizer.json` is converted into a SentencePiece model or vocabulary in the cache. If
    that fails, a warning is logged, and the list is empty.
    """
    names = (SENTENCEPIECE_FILE, WORDPIECE_FILE, JSON_FILE)
    found = [*filter(file_exists, (os.path.join(directory, name) for name in names))]
    if found != [os.path.join(directory, JSON_FILE)]:
        return found
    try:
        content = read_content(found[0])
        if is_wordpiece(content):
            return [store_tokenizer(WORDPIECE_FILE, _lines(wordpiece_tokens(content)))]
        return [store_tokenizer(SENTENCEPIECE_FILE, sentencepiece_model(content))]
    except (ValueError, OSError) as error:
        logging.warning(
            "%s: cannot create a tokenizer. %s Pass `spm_model_file` or `vocab_file`.",
            directory,
            error,
        )
        return []


def tokens_in(path: str) -> list[str]:
    """Returns the tokens in a `tokenizer.json` by id. Raises `ValueError` if it is damaged."""
    content = read_content(path)
    if is_wordpiece(content):
        return wordpiece_tokens(content)
    return [piece for piece, _ in _pieces(content)]


def find_lower_case(directory: str) -> bool | None:
    """Returns whether the tokenizer in a directory lower-cases text, or `None` if unknown."""
    path = os.path.join(directory, CONFIG_FILE)
    values = read_content(path).value if file_exists(path) else {}
    if values.get("keep_accents") or values.get("strip_accents") is False:
        logging.warning("%s keeps accents; this package, like the original, removes them", path)
    if isinstance(values.get("do_lower_case"), bool):
        return values["do_lower_case"]
    path = os.path.join(directory, JSON_FILE)
    try:
        return lower_cases(read_content(path)) if file_exists(path) else None
    except JsonError as error:
        raise LoadError(str(error)) from error


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
        write_file(os.path.join(directory, WORDPIECE_FILE), _lines(tokenizer.tokens))
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


def _lines(tokens: list[str]) -> bytes:
    return "".join(f"{token}\n" for token in tokens).encode()


def _write_json(directory: str, name: str, values: dict[str, Any]) -> None:
    text = json.dumps(values, indent=2, ensure_ascii=False)
    write_file(os.path.join(directory, name), f"{text}\n")


def parse_model(model_proto: bytes, name: str) -> Any:
    """Returns the message of a serialized model. Raises `ValueError` if it is damaged."""
    model = _model_class()()
    try:
        model.ParseFromString(model_proto)
    except Exception as error:  # such as protobuf's DecodeError, which has no stable name
        raise UserError(f"{name} is not a SentencePiece model: {error}") from error
    return model


@cache
def _model_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="albert_tf/sentencepiece_model.proto", package=_PACKAGE, syntax="proto2"
    )
    for message, fields in _MESSAGES.items():
        described = file.message_type.add(name=message)
        for name, number, kind in fields:
            field = described.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
            if isinstance(kind, str):
                field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            else:
                field.type = kind
            if name == "type":
                field.default_value = str(NORMAL)
            if name == "pieces":
                field.label = _Field.LABEL_REPEATED
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Model"))


def sentencepiece_model(content: JsonValue) -> bytes:
    """Converts the `tokenizer.json` of an English ALBERT into a serialized SentencePiece model.

    Raises `ValueError` for other kinds of tokenizers and for invalid values.
    """
    pieces = _pieces(content)
    unk_id = content["model"]["unk_id"].whole_number(0)
    if unk_id >= len(pieces):
        raise content["model"]["unk_id"].error(f"below {len(pieces)}, the number of pieces")
    added = content.get("added_tokens")
    special = {
        token["content"].text()
        for token in (added.elements() if added else ())
        if (is_special := token.get("special")) and is_special.truth_value()
    }
    model = _model_class()()
    for i, (piece, score) in enumerate(pieces):
        kind = NORMAL
        if i == unk_id:
            kind = UNKNOWN
        elif piece in special or piece in _SPECIAL:
            kind = CONTROL
        elif score == 0:  # trained pieces have negative scores
            kind = USER_DEFINED
        restored = _penalty(piece) if score < -_PENALTY else 0.0
        model.pieces.add(piece=piece, score=score + restored, type=kind)
    places = {piece: i for i, (piece, _) in enumerate(pieces)}
    spec = model.trainer_spec
    spec.model_type, spec.vocab_size = UNIGRAM, len(pieces)
    spec.unk_id, spec.unk_piece = unk_id, pieces[unk_id][0]
    spec.pad_id, spec.pad_piece = places.get("<pad>", -1), "<pad>"
    spec.bos_id, spec.bos_piece = places.get("[CLS]", -1), "[CLS]"
    spec.eos_id, spec.eos_piece = places.get("[SEP]", -1), "[SEP]"
    charsmap = _charsmap(content)
    model.normalizer_spec.name = "user_defined" if charsmap else "identity"
    model.normalizer_spec.precompiled_charsmap = charsmap
    return model.SerializeToString()


def _pieces(content: JsonValue) -> list[tuple[str, float]]:
    """Returns the pieces of a Unigram model and their scores."""
    model = content.get("model")
    vocabulary = model and model.get("vocab")
    if vocabulary is None or not isinstance(vocabulary.value, list):
        raise UserError(f"{content.where}: its model is {_kind(content)}, not Unigram with scores.")
    pieces = []
    for entry in vocabulary.elements():
        pair = entry.elements()
        if len(pair) != 2:
            raise entry.error("a list of a piece and its score")
        pieces.append((pair[0].text(), pair[1].number()))
    return pieces


def wordpiece_tokens(content: JsonValue) -> list[str]:
    """Returns the WordPiece vocabulary in a `tokenizer.json` in the order of ids.

    Raises `ValueError` if ids are missing, or a token cannot be stored as a line of a file.
    """
    vocabulary = content["model"]["vocab"]
    ids = {i.whole_number(): token for token, i in vocabulary.members().items()}
    if sorted(ids) != list(range(len(vocabulary.members()))):
        raise vocabulary.error("tokens whose ids are unique and consecutive, starting at 0")
    tokens = [ids[i] if ids[i].split() else " " for i in range(len(ids))]  # as in a vocab.txt
    if wrong := [t for t in tokens if (t.split() or [t]) != [t] or not is_encodable(t)]:
        raise vocabulary.error(f"tokens without blanks, line ends and surrogates, not {wrong[0]!a}")
    if tokens.count(" ") > 1:
        raise vocabulary.error("a vocabulary with at most one blank token")
    return tokens


def is_wordpiece(content: JsonValue) -> bool:
    """Returns whether a `tokenizer.json` describes a WordPiece tokenizer."""
    return _kind(content) == "WordPiece"


def lower_cases(content: JsonValue) -> bool | None:
    """Returns whether a `tokenizer.json` lower-cases text, or `None` without normalization."""
    steps = _steps(content)
    if not steps:
        return None
    for step in steps:
        kind, lowercase = _type(step), step.get("lowercase")
        if kind == "Lowercase" or (
            kind == "BertNormalizer" and (lowercase is None or lowercase.truth_value())
        ):
            return True
    return False


def tokenizer_json(tokenizer: SentencePieceTokenizer) -> dict[str, Any]:
    """Returns a `tokenizer.json` that produces the same ids as a SentencePiece tokenizer.

    The only exception is that transformers recognizes special tokens in texts.
    """
    proto = parse_model(tokenizer.model_proto, next(iter(tokenizer.files), "The tokenizer"))
    vocabulary = [[piece.piece, piece.score - _penalty(piece.piece)] for piece in proto.pieces]
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


def _kind(content: JsonValue) -> str:
    """Returns the type of the model. Recognizes WordPiece in old files without a type."""
    model = content.get("model")
    if model is None:
        return "missing"
    if model.get("continuing_subword_prefix") and not model.get("merges"):
        return "WordPiece"
    return _type(model)


def _type(value: JsonValue) -> str:
    kind = value.get("type")
    return kind.text() if kind else "of no type"


def _steps(content: JsonValue) -> list[JsonValue]:
    normalizer = content.get("normalizer")
    steps = normalizer and normalizer.get("normalizers")
    return steps.elements() if steps else [normalizer] if normalizer else []


def _charsmap(content: JsonValue) -> bytes:
    for step in _steps(content):
        charsmap = step.get("precompiled_charsmap")
        if _type(step) == "Precompiled" and charsmap:
            try:
                return base64.b64decode(charsmap.text(), validate=True)
            except ValueError as error:
                raise charsmap.error("base64") from error
    return b""


def _penalty(piece: str) -> float:
    ends_in_digit_comma = len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()
    return _PENALTY if ends_in_digit_comma else 0.0


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
