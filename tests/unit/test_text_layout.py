"""How numbers and blocks are shown."""

import pytest

from albert_tf.text_layout import byte_text, count_text, rows, time_text


def test_a_block_has_a_title_and_two_columns():
    lines = list(rows("Model", {"layers": 12000, "is small": True, "x" * 31: "y"}))
    assert lines == [
        "",
        "Model",
        f"  {'layers':30}12,000",
        f"  {'is small':30}True",
        f"  {'x' * 31}  y",
    ]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1 KB"),
        (999_600, "1 MB"),
        (12_345_678, "12.3 MB"),
    ],
)
def test_bytes_have_three_digits(number, text):
    assert byte_text(number) == text


@pytest.mark.parametrize(
    ("number", "is_exact", "text"),
    [
        (1234, True, "1,234"),
        (1234, False, "about 1,230"),
        (987, False, "about 987"),
        (54_321_000, False, "about 54,300,000"),
    ],
)
def test_estimates_are_told_from_counts(number, is_exact, text):
    assert count_text(number, is_exact) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "about 1 s"), (119, "about 119 s"), (150, "about 2.5 min"), (2e6, "about 23 days")],
)
def test_times_are_in_the_unit_that_suits_them(seconds, text):
    assert time_text(seconds) == text
