"""Tokenizers equal those of the original release in all recorded cases."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from albert_tf.tokenization.loading import load_tokenizer, read_vocabulary
from albert_tf.tokenization.sentence_piece import (
    SentencePieceTokenizer,
    align_clean_text,
    clean_text,
    sentencepiece_starts_word,
)
from albert_tf.tokenization.word_piece import (
    WordPieceTokenizer,
    align_words,
    split_words,
    wordpiece_starts_word,
)

CASINGS = pytest.mark.parametrize(("casing", "lower"), [("lower", True), ("cased", False)])


@pytest.fixture(scope="module")
def folder(golden: Path) -> Path:
    return golden / "tokenizer"


@pytest.fixture(scope="module")
def cases(folder: Path) -> list[dict]:
    cases = json.loads((folder / "cases.json").read_text(encoding="utf-8"))["cases"]
    assert len(cases) == 389
    return cases


def spm(folder: Path, **settings: Any) -> SentencePieceTokenizer:
    return SentencePieceTokenizer((folder / "small_1000.model").read_bytes(), **settings)


def wordpiece(folder: Path, lower: bool) -> WordPieceTokenizer:
    tokenizer = load_tokenizer(vocab_file=folder / "vocab.txt", do_lower_case=lower)
    assert isinstance(tokenizer, WordPieceTokenizer)
    return tokenizer


def differing(
    cases: Iterable[dict], ours: Callable[[str], Any], theirs: Callable[[dict], Any]
) -> list[tuple]:
    """Returns text, our result and the original's where they differ."""
    return [
        (case["text"], ours(case["text"]), theirs(case))
        for case in cases
        if ours(case["text"]) != theirs(case)
    ]


@CASINGS
def test_clean_up(cases, casing, lower):
    key = f"preprocess_{casing}"
    kept = f"{key}_keep_space"
    assert not differing(cases, lambda t: clean_text(t, lower), lambda c: c[key])
    assert not differing(cases, lambda t: align_clean_text(t, lower).text, lambda c: c[key])
    assert not differing(cases, lambda t: clean_text(t, lower, False), lambda c: c[kept])


@CASINGS
def test_sentencepiece(folder, cases, casing, lower):
    tokenizer = spm(folder, do_lower_case=lower)
    key = f"spm_{casing}"
    assert not differing(cases, tokenizer.tokenize, lambda c: c[key]["pieces"])
    assert not differing(cases, tokenizer.encode, lambda c: c[key]["ids"])
    located = lambda text: tokenizer.encode_with_offsets(text).ids  # noqa: E731
    assert not differing(cases, located, lambda c: c[key]["ids"])
    batch = tokenizer.encode_batch([case["text"] for case in cases])
    assert batch == [case[key]["ids"] for case in cases]


def test_sentencepiece_without_clean_up(folder, cases):
    pieces = spm(folder).tokenize_clean
    assert not differing(cases, pieces, lambda c: c["spm_raw"]["pieces"])


@CASINGS
def test_wordpiece(folder, cases, casing, lower):
    tokenizer = wordpiece(folder, lower)
    key = f"wordpiece_{casing}"
    assert not differing(cases, lambda t: split_words(t, lower), lambda c: c[key]["basic"])
    aligned = lambda text: [word.text for word in align_words(text, lower)]  # noqa: E731
    assert not differing(cases, aligned, lambda c: c[key]["basic"])
    assert not differing(cases, tokenizer.tokenize, lambda c: c[key]["tokens"])
    assert not differing(cases, tokenizer.encode, lambda c: c[key]["ids"])
    located = lambda text: tokenizer.encode_with_offsets(text).ids  # noqa: E731
    assert not differing(cases, located, lambda c: c[key]["ids"])
    batch = tokenizer.encode_batch([case["text"] for case in cases])
    assert batch == [case[key]["ids"] for case in cases]


def test_odd_vocabulary(folder):
    recorded = json.loads((folder / "vocab_odd.json").read_text(encoding="utf-8"))["token_to_id"]
    tokens = read_vocabulary((folder / "vocab_odd.txt").read_bytes().decode())
    assert [[token, i] for i, token in enumerate(tokens)] == recorded
    assert load_tokenizer(vocab_file=folder / "vocab_odd.txt").tokens == tokens


@pytest.mark.parametrize(
    ("kind", "rule", "file"),
    [
        ("spm", sentencepiece_starts_word, "small_1000.model"),
        ("wordpiece", wordpiece_starts_word, "vocab.txt"),
    ],
)
def test_start_pieces(golden, folder, kind, rule, file):
    path = golden / "pretraining_data" / "start_piece.json"
    recorded = json.loads(path.read_text(encoding="utf-8"))[kind]
    assert {token: rule(token) for token in recorded} == recorded
    tokenizer = load_tokenizer(vocab_file=folder / file)
    ours = dict(zip(tokenizer.tokens, tokenizer.starts_word.tolist(), strict=True))
    assert ours == {token: recorded[token] for token in tokenizer.tokens}
