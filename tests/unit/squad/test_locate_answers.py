"""Locating answers whose position is missing or incorrect."""

import unicodedata

import pytest

from albert_tf.squad.locate_answers import locate_answer

ONLY = "no answer_start; using the only occurrence"
FIRST = "no answer_start and several occurrences: ambiguous, using the first"
NEAREST = "an incorrect answer_start and several occurrences: ambiguous, using the nearest"
CORRECTED = "an incorrect answer_start, corrected"
FORM = "an answer that differs in case or form from the context, corrected"
NO_RETURNS = "characters without carriage returns"
PART = "an answer that only occurs as a part of a longer word or number"


def counting(unit):
    return f"an answer_start that counts {unit}, converted"


def decomposed(text):
    return unicodedata.normalize("NFD", text)


AUTHOR = "The theory of the author is that he left in 1889 at the age of 8."
BEIJING = "\u5317\u4eac\u5f88\u5927\u3002\U0001f600\u5317\u4eac\u5965\u8fd0\u4f1a"
SEOUL = "\uc11c\uc6b8"
KOREAN = f"\ub300{SEOUL}, {SEOUL}\uc5d0"


@pytest.mark.parametrize(
    ("context", "text", "start", "span", "remarks"),
    [
        (AUTHOR, "The", 0, (0, 3), []),
        (AUTHOR, "he", 1, (1, 3), []),  # the given position is kept
        (AUTHOR, "he", -1, (33, 35), [ONLY]),
        (AUTHOR, "he", 0, (33, 35), [CORRECTED]),
        (AUTHOR, "8", -1, (63, 64), [ONLY]),
        ("He left the hut.", "he", 3, (0, 2), [CORRECTED, FORM]),
        ("It costs 3.5 or 1,300 or 3 euros.", "3", -1, (25, 26), [ONLY]),
        ("A Parisian", "Paris", 0, (2, 7), [CORRECTED, PART]),
        ("the \u0915\u092e\u0932 is", "\u0915\u092e\u0932", 0, (4, 7), [CORRECTED]),
        ("\u0915\u093e", "\u0915", -1, (0, 1), [ONLY, PART]),  # without its vowel sign
        ("Tejo and Tejo", "Tejo", -1, (0, 4), [FIRST]),
        ("Tejo, and the Tejo", "Tejo", 20, (14, 18), [NEAREST]),
        ("Tejo, and the Tejo", "Tejo", 15, (14, 18), [CORRECTED]),
        ("Tejo, and the Tejo", " Tejo ", 13, (14, 18), [CORRECTED]),
        (BEIJING, BEIJING[6:8], 19, (6, 8), [counting("bytes")]),
        (BEIJING, BEIJING[6:8], 7, (6, 8), [counting("UTF-16 units")]),
        ("a\r\nb\r\nTejo Tejo", "Tejo", 9, (11, 15), [counting(NO_RETURNS)]),
        (KOREAN, SEOUL, -1, (5, 7), [ONLY, PART]),  # a suffix is more likely than a prefix
        (f"{SEOUL} {SEOUL}", decomposed(SEOUL), 6, (3, 5), [counting("NFD characters"), FORM]),
        (decomposed(KOREAN), SEOUL, 5, (9, 14), [counting("NFC characters"), FORM, PART]),
        ("It\u2019s  \u201cbig\u201d", "it's \"big\"", 0, (0, 11), [FORM]),
        ("\uff12\uff10\uff10\uff18\u5e74", "2008", 0, (0, 4), [FORM]),
        ("a so\u00adft word", "soft", 2, (2, 7), [FORM]),
    ],
)  # fmt: skip
def test_the_most_likely_occurrence_is_used(context, text, start, span, remarks):
    assert locate_answer(context, text, start) == (span, remarks)


@pytest.mark.parametrize(
    ("context", "text"), [("", "a"), ("The Tejo", "Ebro"), ("caf\u00e9", "cafes")]
)
def test_missing_answers(context, text):
    assert locate_answer(context, text, 0) is None
    assert locate_answer(context, text, -1) is None


@pytest.mark.parametrize("part", [SEOUL, " \n", "\u00e9\u2019"])
def test_long_answers_take_little_time(part):
    assert locate_answer(f"a{part * 3000}", f"a{part * 50}x", 0) is None
