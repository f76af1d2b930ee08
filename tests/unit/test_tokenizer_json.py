"""`tokenizer.json` made from SentencePiece models, and these made from it again."""

import json

import pytest

from albert_tf.tokenization import SentencePieceTokenizer, load_tokenizer
from albert_tf.tokenization.sentencepiece_proto import (
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    parse_model,
)
from albert_tf.tokenization.tokenizer_json import (
    lower_cases,
    sentencepiece_model,
    tokenizer_json,
    wordpiece_tokens,
)


@pytest.fixture(scope="module")
def tokenizer(golden) -> SentencePieceTokenizer:
    return load_tokenizer(spm_model_file=golden / "tokenizer" / "small_1000.model")


def test_a_model_made_again_is_the_same(tokenizer, golden):
    written = json.loads(json.dumps(tokenizer_json(tokenizer)))
    made = sentencepiece_model(written)
    before, after = parse_model(tokenizer.model_proto), parse_model(made)
    assert [(p.piece, p.score, p.type) for p in after.pieces] == [
        (p.piece, p.score, p.type) for p in before.pieces
    ]
    assert {p.type for p in after.pieces} == {NORMAL, UNKNOWN, CONTROL, USER_DEFINED}
    charsmap = before.normalizer_spec.precompiled_charsmap
    assert charsmap
    assert after.normalizer_spec.precompiled_charsmap == charsmap
    again = SentencePieceTokenizer(made, tokenizer.do_lower_case)
    cases = json.loads((golden / "tokenizer" / "cases.json").read_text())
    texts = [text for text in _strings(cases) if text]
    assert len(texts) > 50
    assert again.encode_batch(texts) == tokenizer.encode_batch(texts)


def _strings(value) -> list[str]:
    """All strings in what a JSON file holds, which are texts and pieces of all kinds."""
    if isinstance(value, str):
        return [value] if value.isprintable() else []
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in inner for text in _strings(part)]


def test_pieces_like_9_comma_are_never_the_best(tokenizer):
    scores = dict(tokenizer_json(tokenizer)["model"]["vocab"])
    punished = [piece for piece, score in scores.items() if score < -50]
    assert punished
    assert all(piece[-1] == "," and piece[-2].isdigit() for piece in punished)


def test_lower_casing_is_told(tokenizer, golden):
    assert lower_cases(tokenizer_json(tokenizer)) is True
    cased = load_tokenizer(spm_model_file=tokenizer.files[0], do_lower_case=False)
    assert lower_cases(tokenizer_json(cased)) is False
    assert lower_cases({"normalizer": None}) is None
    assert lower_cases({"normalizer": {"type": "BertNormalizer", "lowercase": False}}) is False


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "its model is missing, not Unigram"),
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}, "its model is BPE"),
    ],
)
def test_other_kinds_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        sentencepiece_model(values)


def test_a_vocabulary_needs_all_ids():
    model = {"type": "WordPiece", "vocab": {"b": 1, "a": 0}}
    assert wordpiece_tokens({"model": model}) == ["a", "b"]
    with pytest.raises(ValueError, match="numbers from 0 on"):
        wordpiece_tokens({"model": {**model, "vocab": {"b": 2, "a": 0}}})


def test_what_is_no_model_is_refused():
    with pytest.raises(ValueError, match="not a SentencePiece model"):
        parse_model(b"\xff\xff no model")
