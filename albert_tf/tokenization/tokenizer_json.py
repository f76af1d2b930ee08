"""`tokenizer.json`, in which the `tokenizers` library keeps what a tokenizer does.

It says the same as a SentencePiece model or a vocabulary, so it is turned into one of these, and
made from one. Vocabulary ids stay as they are.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.sentence_piece import WORD_START, SentencePieceTokenizer
from albert_tf.tokenization.sentencepiece_proto import (
    CONTROL,
    NORMAL,
    UNIGRAM,
    UNKNOWN,
    USER_DEFINED,
    new_model,
    parse_model,
)

# transformers takes this from the scores of pieces like "9,": they are then never used whole, which
# comes down to the original's rule of taking them apart.
_PENALTY = 100.0
_SPECIAL = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")


def sentencepiece_model(values: Mapping[str, Any]) -> bytes:
    """Turns the `tokenizer.json` of an English ALBERT into a serialized SentencePiece model.

    Args:
        values: content of the file.

    Raises:
        ValueError: it describes a tokenizer of another kind.
    """
    model = values.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(model, dict) or not isinstance(vocabulary, list):
        raise ValueError(f"its model is {_kind(values)}, not Unigram with scores")
    made, unk_id = new_model(), int(model["unk_id"])
    special = {
        str(token["content"])
        for token in values.get("added_tokens") or ()
        if isinstance(token, dict) and token.get("special")
    }
    for i, (piece, score) in enumerate(vocabulary):
        kind = NORMAL
        if i == unk_id:
            kind = UNKNOWN
        elif piece in special or piece in _SPECIAL:
            kind = CONTROL
        elif score == 0:  # the logarithm of no trained piece's probability
            kind = USER_DEFINED
        made.pieces.add(piece=piece, score=_unpunished(piece, score), type=kind)
    made.trainer_spec.model_type = UNIGRAM
    made.trainer_spec.vocab_size = len(vocabulary)
    _set_special_ids(made.trainer_spec, [piece for piece, _ in vocabulary], unk_id)
    charsmap = _charsmap(values)
    made.normalizer_spec.name = "user_defined" if charsmap else "identity"
    made.normalizer_spec.precompiled_charsmap = charsmap
    return made.SerializeToString()


def wordpiece_tokens(values: Mapping[str, Any]) -> list[str]:
    """Returns the vocabulary in a `tokenizer.json` of WordPiece, the place being the id.

    Raises:
        ValueError: it describes a tokenizer of another kind, or ids are missing.
    """
    model = values.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(vocabulary, dict) or _kind(values) != "WordPiece":
        raise ValueError(f"its model is {_kind(values)}, not WordPiece")
    ids = {int(i): str(token) for token, i in vocabulary.items()}
    if sorted(ids) != list(range(len(vocabulary))):
        raise ValueError("its ids are not the numbers from 0 on")
    return [ids[i] for i in range(len(ids))]


def is_wordpiece(values: Mapping[str, Any]) -> bool:
    """Whether a `tokenizer.json` says of itself that it is of WordPiece."""
    return _kind(values) == "WordPiece"


def lower_cases(values: Mapping[str, Any]) -> bool | None:
    """Whether a `tokenizer.json` lower-cases, None where it does not clean texts at all."""
    steps = list(_steps(values))
    if not steps:
        return None
    return any(
        step.get("type") == "Lowercase"
        or (step.get("type") == "BertNormalizer" and step.get("lowercase", True))
        for step in steps
    )


def tokenizer_json(tokenizer: SentencePieceTokenizer) -> dict[str, Any]:
    """Returns the `tokenizer.json` that gives a SentencePiece tokenizer's ids on ordinary text.

    Special tokens are found in texts there, as users of transformers expect; here they are not.
    """
    proto = parse_model(tokenizer.model_proto)
    vocabulary = [[piece.piece, _punished(piece.piece, piece.score)] for piece in proto.pieces]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": list(_added_tokens(tokenizer)),
        "normalizer": {
            "type": "Sequence",
            "normalizers": list(_normalizers(tokenizer, proto.normalizer_spec)),
        },
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "WhitespaceSplit"}, _metaspace()],
        },
        "post_processor": _template(tokenizer),
        "decoder": _metaspace(),
        "model": {
            "type": "Unigram",
            "unk_id": tokenizer.unk_id,
            "vocab": vocabulary,
            "byte_fallback": False,
        },
    }


def _kind(values: Mapping[str, Any]) -> str:
    """The kind of model; old files do not name it."""
    model = values.get("model")
    if not isinstance(model, dict):
        return "missing"
    if "continuing_subword_prefix" in model and "merges" not in model:
        return "WordPiece"
    return str(model.get("type"))


def _steps(values: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    normalizer = values.get("normalizer") or {}
    for step in normalizer.get("normalizers", [normalizer] if normalizer else []):
        if isinstance(step, dict):
            yield step


def _charsmap(values: Mapping[str, Any]) -> bytes:
    for step in _steps(values):
        if step.get("type") == "Precompiled" and step.get("precompiled_charsmap"):
            return base64.b64decode(step["precompiled_charsmap"])
    return b""


def _set_special_ids(spec: Any, pieces: list[str], unk_id: int) -> None:
    """Names the special pieces as a model does that was trained for ALBERT."""
    places = {piece: i for i, piece in enumerate(pieces)}
    spec.unk_id, spec.unk_piece = unk_id, pieces[unk_id]
    spec.pad_id, spec.pad_piece = places.get("<pad>", -1), "<pad>"
    spec.bos_id, spec.bos_piece = places.get("[CLS]", -1), "[CLS]"
    spec.eos_id, spec.eos_piece = places.get("[SEP]", -1), "[SEP]"


def _ends_in_digit_comma(piece: str) -> bool:
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def _punished(piece: str, score: float) -> float:
    return score - _PENALTY if _ends_in_digit_comma(piece) else score


def _unpunished(piece: str, score: float) -> float:
    is_punished = _ends_in_digit_comma(piece) and score < -_PENALTY
    return score + _PENALTY if is_punished else score


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


def _normalizers(tokenizer: Tokenizer, spec: Any) -> Iterator[dict[str, Any]]:
    yield {"type": "NFKD"}
    yield {"type": "StripAccents"}
    if tokenizer.do_lower_case:
        yield {"type": "Lowercase"}
    if spec.precompiled_charsmap:
        charsmap = base64.b64encode(spec.precompiled_charsmap).decode()
        yield {"type": "Precompiled", "precompiled_charsmap": charsmap}


def _metaspace() -> dict[str, Any]:
    return {
        "type": "Metaspace",
        "replacement": WORD_START,
        "prepend_scheme": "always",
        "split": True,
    }


def _template(tokenizer: Tokenizer) -> dict[str, Any]:
    """[CLS] A [SEP], and [CLS] A [SEP] B [SEP] with segment 1 for B and the mark after it."""
    names = {name: tokenizer.tokens[i] for name, i in _marks(tokenizer).items()}
    cls_a, sep_a = ({"SpecialToken": {"id": names[n], "type_id": 0}} for n in ("cls", "sep"))
    text_a = {"Sequence": {"id": "A", "type_id": 0}}
    text_b = {"Sequence": {"id": "B", "type_id": 1}}
    sep_b = {"SpecialToken": {"id": names["sep"], "type_id": 1}}
    return {
        "type": "TemplateProcessing",
        "single": [cls_a, text_a, sep_a],
        "pair": [cls_a, text_a, sep_a, text_b, sep_b],
        "special_tokens": {
            names[name]: {"id": names[name], "ids": [i], "tokens": [names[name]]}
            for name, i in _marks(tokenizer).items()
        },
    }


def _marks(tokenizer: Tokenizer) -> dict[str, int]:
    return {"cls": tokenizer.cls_id, "sep": tokenizer.sep_id}
