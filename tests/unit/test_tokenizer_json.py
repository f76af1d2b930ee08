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
from albert_tf.checkpoints.huggingface.tokenizer import sentencepiece_model
from albert_tf.checkpoints.huggingface.tokenizer_writing import tokenizer_json


def test_converted_models_are_equal(tokenizer):
    written = json.loads(json.dumps(tokenizer_json(tokenizer)))
    made = sentencepiece_model(written)
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


def test_other_files_are_rejected():
    with pytest.raises(ValueError, match=r"^spm\.model "):
        parse_model(b"\xff\xff no model", "spm.model")
