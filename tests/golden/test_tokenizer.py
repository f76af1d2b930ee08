"""Tokenizers equal those of the original release in all recorded cases."""

import pytest

from albert_tf.tokenization.loading import read_vocabulary, tokenizer_from_files
from albert_tf.tokenization.sentence_piece import (
    align_clean_text,
    clean_text,
    sentencepiece_starts_word,
)
from albert_tf.tokenization.word_piece import align_words, split_words, wordpiece_starts_word
from tests.golden.reference import DATA, read_json, tokenizer_named

FOLDER = DATA / "tokenizer"
CASES = read_json(FOLDER / "cases.json")["cases"]
CASINGS = pytest.mark.parametrize(("casing", "lower"), [("lower", True), ("cased", False)])


def assert_same(ours, theirs):
    """Compares a function of a text with recorded results, in all cases."""
    different = [
        (case["text"], ours(case["text"]), theirs(case))
        for case in CASES
        if ours(case["text"]) != theirs(case)
    ]
    assert different == []


def test_number_of_recorded_cases():
    assert len(CASES) == 389


@CASINGS
def test_clean_up(casing, lower):
    key = f"preprocess_{casing}"
    assert_same(lambda text: clean_text(text, lower), lambda case: case[key])
    assert_same(lambda text: align_clean_text(text, lower)[0], lambda case: case[key])
    kept = f"{key}_keep_space"
    assert_same(lambda text: clean_text(text, lower, False), lambda case: case[kept])


def assert_same_ids(tokenizer, key):
    assert_same(tokenizer.encode, lambda case: case[key]["ids"])
    assert_same(lambda text: tokenizer.encode_with_offsets(text).ids, lambda case: case[key]["ids"])
    batch = tokenizer.encode_batch([case["text"] for case in CASES])
    assert batch == [case[key]["ids"] for case in CASES]


@CASINGS
def test_sentencepiece(casing, lower):
    tokenizer, key = tokenizer_named("spm", lower), f"spm_{casing}"
    assert_same(tokenizer.tokenize, lambda case: case[key]["pieces"])
    assert_same_ids(tokenizer, key)


def test_sentencepiece_without_clean_up():
    assert_same(tokenizer_named("spm").tokenize_clean, lambda case: case["spm_raw"]["pieces"])


@CASINGS
def test_wordpiece(casing, lower):
    tokenizer, key = tokenizer_named("wordpiece", lower), f"wordpiece_{casing}"
    assert_same(lambda text: split_words(text, lower), lambda case: case[key]["basic"])
    assert_same(
        lambda text: [word.text for word in align_words(text, lower)],
        lambda case: case[key]["basic"],
    )
    assert_same(tokenizer.tokenize, lambda case: case[key]["tokens"])
    assert_same_ids(tokenizer, key)


def test_vocabulary_with_unusual_lines():
    recorded = read_json(FOLDER / "vocab_odd.json")["token_to_id"]
    tokens = read_vocabulary((FOLDER / "vocab_odd.txt").read_bytes().decode())
    assert [[token, i] for i, token in enumerate(tokens)] == recorded
    assert tokenizer_from_files(vocab_file=FOLDER / "vocab_odd.txt").tokens == tokens


@pytest.mark.parametrize(
    ("kind", "rule"), [("spm", sentencepiece_starts_word), ("wordpiece", wordpiece_starts_word)]
)
def test_starts_of_words(kind, rule):
    recorded = read_json(DATA / "pretraining_data" / "start_piece.json")[kind]
    assert {token: rule(token) for token in recorded} == recorded
    tokenizer = tokenizer_named(kind)
    ours = dict(zip(tokenizer.tokens, tokenizer.starts_word.tolist(), strict=True))
    assert ours == {token: recorded[token] for token in tokenizer.tokens}
