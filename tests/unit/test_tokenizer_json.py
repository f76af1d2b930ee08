"""Tests for converting SentencePiece models to `tokenizer.json`."""

import pytest

from albert_tf.checkpoints.formats.huggingface.sentencepiece_messages import parse_model
from albert_tf.checkpoints.formats.huggingface.tokenizer_writing import tokenizer_json


def test_pieces_with_digit_and_comma_have_a_penalty(tokenizer):
    scores = dict(tokenizer_json(tokenizer)["model"]["vocab"])
    punished = [piece for piece, score in scores.items() if score < -50]
    assert punished
    assert all(piece[-1] == "," and piece[-2].isdigit() for piece in punished)


def test_other_files_are_rejected():
    with pytest.raises(ValueError, match=r"^spm\.model "):
        parse_model(b"\xff\xff no model", "spm.model")
