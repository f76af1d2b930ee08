"""Answers consist of whole words, except those that are compared with the original."""

import unicodedata

import numpy as np
import pytest

from albert_tf.squad.answerer import Answerer, PlainQuestion
from albert_tf.squad.answers import AnswerSettings
from albert_tf.squad.words import whole_words
from tests.unit.squad.table_predictor import LENGTH, TablePredictor
from tests.unusual_texts import UNUSUAL_TEXTS

KOREAN = "페트로프는 NASA에서"
FAMILY = "\U0001f469\u200d\U0001f467"
THUMB = "\U0001f44d\U0001f3fd"


@pytest.mark.parametrize(
    ("text", "part", "expected"),
    [
        ("Tom Petrov's dog", "m Petrov", "Tom Petrov"),
        ("TOM’S dog", "O", "TOM"),
        ("Tom Petrov's dog", "'s do", "Petrov's dog"),
        ("His name: “Rex”, not Max.", "ex", "Rex"),
        ("not Max.", "Ma", "Max"),
        ("not Max.", "Max.", "Max."),
        ("by O'Brien", "Brien", "O'Brien"),
        ("They don’t.", "don", "don’t"),
        ("the dogs' food", "dog", "dogs"),
        ("rates of 3.5 or 4", "3", "3.5"),
        ("about $1,300, she said", "300", "1,300"),
        ("about $1,300", "$1", "$1,300"),
        ("red,green", "gree", "green"),
        ("the U.S. army", "U", "U.S"),
        ("a well-known man", "known", "known"),
        ("from 1990–1995", "95", "1995"),
        ("in the 1990s", "1990", "1990s"),
        ("李白在1990年出生。", "白", "白"),
        ("李白在1990年出生。", "90年", "1990年"),
        ("ที่กรุงเทพ", "กร", "กรุ"),  # a vowel sign belongs to its consonant
        ("हिन्दी में", "िन्द", "हिन्दी"),
        (KOREAN, "로프", "페트로프"),  # the suffix is not part of the name
        (KOREAN, "ASA", "NASA"),
        (unicodedata.normalize("NFD", "서울에"), "\u110b\u116e", "서울"),
        ("le cafe\u0301 noir", "cafe", "cafe\u0301"),
        ("می\u200cخواهم بروم", "خوا", "می\u200cخواهم"),
        (f"a {FAMILY}{THUMB}", FAMILY[2], FAMILY),
        (f"a {FAMILY}{THUMB}", THUMB[0], THUMB),
        ("I \u2764\ufe0fTom", "\u2764", "\u2764\ufe0f"),
        ("\u0301a", "a", "\u0301a"),
    ],
)
def test_parts_of_words_are_extended(text, part, expected):
    expected = unicodedata.normalize("NFD", expected) if "\u110b" in text else expected
    start = text.index(part)
    first, last = whole_words(text, start, start + len(part))
    assert text[first:last] == expected
    assert whole_words(text, first, last) == (first, last)


@pytest.mark.parametrize("version", [1, 2])
def test_all_candidates_are_whole_words(tokenizer, version):
    contexts = [*UNUSUAL_TEXTS, "Tom Petrov's unbelievable lighthousekeeper, O'Brien"]
    asked = [PlainQuestion(n, context, "Who?") for n, context in enumerate(contexts)]
    settings = AnswerSettings(version, LENGTH, max_query_length=12)
    answers = Answerer(TablePredictor(version), tokenizer, settings).answer_group(asked)
    spans = [(a.n_best, context) for a, context in zip(answers, contexts, strict=True)]
    assert np.mean([len(n_best) for n_best, _ in spans]) > 2
    for n_best, context in spans:
        for found in n_best:
            assert context[found.start : found.end] == found.text
            if found.text:
                assert whole_words(context, found.start, found.end) == (found.start, found.end)
