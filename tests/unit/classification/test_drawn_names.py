"""Names of classes in pictures: of any length, in any script, with the fonts there are."""

from albert_tf.classification.files import drawn_names, font_families


def test_are_numbers_where_the_font_lacks_a_character():
    names = ["naïve, Жук 1", "fine 中", "$", "\U0010fffd"]
    assert drawn_names(names, ["DejaVu Sans"]) == ["naïve, Жук 1", "#1", "$", "#3"]


def test_stay_on_one_line_of_bounded_length():
    assert drawn_names(["a\tb\nc", "x" * 24, "y" * 25], ["DejaVu Sans"]) == [
        r"a\tb\nc",
        "x" * 24,
        "y" * 23 + "…",
    ]


def test_use_whichever_font_has_the_character():
    arrow = "Ж\u2900"  # DejaVu Sans has the letter only
    assert drawn_names([arrow], ["DejaVu Sans"]) == ["#0"]
    assert drawn_names([arrow], ["DejaVu Sans", "DejaVu Serif"]) == [arrow]


def test_families_begin_with_matplotlibs_own():
    assert font_families()[0] == "DejaVu Sans"
