"""What counts as prose in a documentation text, and what falls away."""

import pytest

from albert_tf.data.prose import clauses, prose_sentences


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


MORE = " and then goes on in plain words until the end."


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("Use :class:`~os.PathLike` for all" + MORE, "Use os.PathLike for all" + MORE),
        ("Use ``f()`` and *never* a **loop**" + MORE, "Use f() and never a loop" + MORE),
        ('Setting it to "None" is an error.', "Setting it to None is an error."),
        ('A "file like object" is an object.', 'A "file like object" is an object.'),
        ("It is not safe [2]. Use `the other one` here.", "It is not safe."),
        ("The object’s value is the “same”.", 'The object\'s value is the "same".'),
        ("Consider the structure of a file::", "Consider the structure of a file:"),
        ("It takes *args" + MORE, "It takes *args" + MORE),
    ],
)
def test_markup_is_removed(written, plain):
    assert prose_sentences(written)[0] == plain


def test_sentences_are_split_at_their_ends_only():
    text = (
        "Many types, e.g. Lists or i.e. Tuples, can do all of this and a lot more besides, "
        "and some of them could do so since version 3.10.2 of the language came out. "
        "Is this by J. Smith a question? (It is in brackets.) What an end this is!"
    )
    assert prose_sentences(text) == [
        "Many types, e.g. Lists or i.e. Tuples, can do all of this and a lot more besides, "
        "and some of them could do so since version 3.10.2 of the language came out.",
        "Is this by J. Smith a question?",
        "(It is in brackets.)",
        "What an end this is!",
    ]


@pytest.mark.parametrize(
    ("sentence", "parts"),
    [
        ("The first is a name, and the second is a place.", 2),
        ("The first, the second and the third, are all of them here: no, not all of it.", 3),
        ("It is so, too.", 1),
        ("No comma stands in this one.", 1),
        ("It is 1,000 of them; that is the number; it is not more.", 3),
    ],
)
def test_clauses_have_four_words_at_least_and_lose_nothing(sentence, parts):
    found = clauses(sentence)
    assert len(found) == parts
    assert " ".join(found) == sentence
    assert min(len(clause.split()) for clause in found) >= 4
