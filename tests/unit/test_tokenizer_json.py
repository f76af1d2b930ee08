"""Tests for converting SentencePiece models to `tokenizer.json` and back."""

import json

import pytest

from albert_tf.checkpoints.huggingface.sentencepiece_messages import (
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    parse_model,
)
from albert_tf.checkpoints.huggingface.tokenizer import (
    lower_cases,
    sentencepiece_model,
    wordpiece_tokens,
)
from albert_tf.checkpoints.huggingface.tokenizer_writing import tokenizer_json
from albert_tf.data.strict_json import JsonError, JsonValue
from albert_tf.tokenization.loading import tokenizer_from_files


def content(values) -> JsonValue:
    return JsonValue(values, "tokenizer.json")


def test_converted_models_are_equal(tokenizer):
    written = json.loads(json.dumps(tokenizer_json(tokenizer)))
    made = sentencepiece_model(content(written))
    before, after = parse_model(tokenizer.model_proto, "before"), parse_model(made, "after")
    assert [(p.piece, p.score, p.type) for p in after.pieces] == [
        (p.piece, p.score, p.type) for p in before.pieces
    ]
    assert {p.type for p in after.pieces} == {NORMAL, UNKNOWN, CONTROL, USER_DEFINED}
    charsmap = before.normalizer_spec.precompiled_charsmap
    assert charsmap
    assert after.normalizer_spec.precompiled_charsmap == charsmap


def test_pieces_with_digit_and_comma_have_a_penalty(tokenizer):
    scores = dict(tokenizer_json(tokenizer)["model"]["vocab"])
    punished = [piece for piece, score in scores.items() if score < -50]
    assert punished
    assert all(piece[-1] == "," and piece[-2].isdigit() for piece in punished)


def test_lower_casing_is_detected(tokenizer):
    assert lower_cases(content(tokenizer_json(tokenizer))) is True
    cased = tokenizer_from_files(spm_model_file=tokenizer.files[0], do_lower_case=False)
    assert lower_cases(content(tokenizer_json(cased))) is False
    assert lower_cases(content({"normalizer": None})) is False
    bert = {"type": "BertNormalizer"}
    assert lower_cases(content({"normalizer": bert})) is True
    assert lower_cases(content({"normalizer": {**bert, "lowercase": False}})) is False


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "its model is missing, not Unigram"),
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}, "its model is BPE"),
    ],
)
def test_other_tokenizers_are_rejected(values, message):
    with pytest.raises(ValueError, match=message):
        sentencepiece_model(content(values))


def test_invalid_vocabularies_are_rejected():
    model = {"type": "WordPiece", "vocab": {"b": 1, "a": 0}}
    assert wordpiece_tokens(content({"model": model})) == ["a", "b"]
    for vocabulary in (
        {"b": 2, "a": 0},
        {"b": "1", "a": 0},
        {"b c": 1, "a": 0},
        ["b", "a"],
        None,
    ):
        with pytest.raises(ValueError, match=r"tokenizer\.json: model\.vocab"):
            wordpiece_tokens(content({"model": {**model, "vocab": vocabulary}}))


UNIGRAM_MODEL = {"type": "Unigram", "unk_id": 1, "vocab": [["<pad>", 0], ["<unk>", 0], ["a", -2]]}


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"model": {**UNIGRAM_MODEL, "unk_id": 3}}, "model.unk_id"),
        ({"model": {**UNIGRAM_MODEL, "vocab": [["a"]]}}, "model.vocab[0]"),
        ({"model": {**UNIGRAM_MODEL, "vocab": [["a", "-1"]]}}, "model.vocab[0][1]"),
        ({"added_tokens": [{"id": 1}]}, "added_tokens[0].content"),
        ({"normalizer": {"normalizers": [3]}}, "normalizer.normalizers[0]"),
        (
            {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "ab$"}},
            "normalizer.precompiled_charsmap",
        ),
    ],
)
def test_errors_contain_the_keys(change, key):
    assert sentencepiece_model(content({"model": UNIGRAM_MODEL}))
    with pytest.raises(JsonError) as raised:
        sentencepiece_model(content({"model": UNIGRAM_MODEL, **change}))
    assert str(raised.value).startswith(f"tokenizer.json: {key} ")


def test_other_files_are_rejected():
    with pytest.raises(ValueError, match=r"^spm\.model "):
        parse_model(b"\xff\xff no model", "spm.model")
