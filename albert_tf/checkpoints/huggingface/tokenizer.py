"""Reads the tokenizer in a Hugging Face directory.

English models have a `spiece.model`, Chinese models a `vocab.txt`. Transformers 5 saves only a
`tokenizer.json`, from which one of these files is created with the same ids.
"""

import base64
import os

from absl import logging

from albert_tf.checkpoints.huggingface.sentencepiece_messages import (
    CONTROL,
    NORMAL,
    PENALTY,
    UNIGRAM,
    UNKNOWN,
    USER_DEFINED,
    model_class,
    penalty,
)
from albert_tf.checkpoints.huggingface.weights import read_content
from albert_tf.checkpoints.names import store_tokenizer
from albert_tf.checkpoints.report import LoadError
from albert_tf.data.errors import UserError
from albert_tf.data.files import file_exists
from albert_tf.data.strict_json import JsonError, JsonValue, is_encodable

SENTENCEPIECE_FILE = "spiece.model"
WORDPIECE_FILE = "vocab.txt"
JSON_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"

_SPECIAL = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")


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
            return [store_tokenizer(WORDPIECE_FILE, vocabulary_lines(wordpiece_tokens(content)))]
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


def vocabulary_lines(tokens: list[str]) -> bytes:
    """Returns the content of a `vocab.txt`."""
    return "".join(f"{token}\n" for token in tokens).encode()


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
    model = model_class()()
    for i, (piece, score) in enumerate(pieces):
        kind = NORMAL
        if i == unk_id:
            kind = UNKNOWN
        elif piece in special or piece in _SPECIAL:
            kind = CONTROL
        elif score == 0:  # trained pieces have negative scores
            kind = USER_DEFINED
        restored = penalty(piece) if score < -PENALTY else 0.0
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
