"""What counts as prose in a documentation text, and what falls away."""

import pytest

from albert_tf.data.prose import prose_sentences


def test_wrapped_lines_become_one_sentence_and_paragraphs_stay_apart():
    text = """Opens the file that
        was named on the command-
        line.

        It is closed at the end of
        the block
        """
    # The second paragraph has no full stop: nothing says that it is a sentence.
    assert prose_sentences(text) == ["Opens the file that was named on the command-line."]


@pytest.mark.parametrize(
    "noise",
    [
        "The heading of a section.\n=========================",
        ">>> print('This is the result of a call.')\nThis is the result of a call.",
        ".. note:: This is the name of a directive.",
        ":param name: This is the name of a field.",
        "sorted(iterable, key=None, reverse=False) -> list.",
        'comp_operator ::= "<" | ">" | "==" | "is" ["not"].',
        "for i in range(10): print(i) if i == the.index else (a, b).",
        "Too short this.",
        "The end has no stop",
        "the beginning is not a capital.",
        "Apples pears plums cherries grapes.",
    ],
)
def test_noise_is_dropped_and_its_neighbours_stay(noise):
    before = "This sentence stands before it."
    after = "This sentence stands after it."
    assert prose_sentences(f"{before}\n\n{noise}\n\n{after}") == [before, after]


def test_each_list_item_is_a_paragraph_of_its_own():
    text = """Three things are needed:
    * The first is a name.
    - The second is a
      place.
    1. The third is time."""
    assert prose_sentences(text) == [
        "Three things are needed:",
        "The first is a name.",
        "The second is a place.",
        "The third is time.",
    ]


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("Use :class:`~os.PathLike` for all of it.", "Use os.PathLike for all of it."),
        ("Use ``with open()`` and *never* a **loop**.", "Use with open() and never a loop."),
        ('Setting it to "None" is an error.', "Setting it to None is an error."),
        ('A "file like object" is an object.', 'A "file like object" is an object.'),
        ("It is not safe [2]. Use `the other one` here.", "It is not safe."),
        ("The object’s value is the “same”.", 'The object\'s value is the "same".'),
        ("Consider the structure of a file::", "Consider the structure of a file:"),
        ("It takes *args and **kwargs as they are.", "It takes *args and **kwargs as they are."),
    ],
)
def test_markup_is_removed(written, plain):
    assert prose_sentences(written)[0] == plain


def test_sentences_are_split_at_their_ends_only():
    text = (
        "Many types, e.g. Lists or i.e. Tuples, can do it since version 3.10.2 of it. "
        "Is this by J. Smith a question? (It is in brackets.) What an end this is!"
    )
    assert prose_sentences(text) == [
        "Many types, e.g. Lists or i.e. Tuples, can do it since version 3.10.2 of it.",
        "Is this by J. Smith a question?",
        "(It is in brackets.)",
        "What an end this is!",
    ]
