"""Schemes of labels, and the entities that labels stand for."""

import random

import pytest

from albert_tf.token_classification.labels import (
    Entity,
    Sentence,
    entities,
    labels_of,
    recognize_scheme,
    scheme_of,
    split_label,
)


def sentences(*texts: str) -> list[Sentence]:
    """Sentences with these labels, in a file with a blank line behind each."""
    found, line = [], 1
    for text in texts:
        labels = tuple(text.split())
        lines = range(line, line + len(labels))
        found.append(Sentence(f"t.conll:{line}", ("w",) * len(labels), labels, lines=lines))
        line += len(labels) + 1
    return found


@pytest.mark.parametrize(
    ("scheme", "texts"),
    [
        ("plain", ["DET NOUN PUNCT"]),
        ("plain", ["O O", "O"]),
        ("plain", ["NN -LRB- I PRP$"]),
        ("plain", ["E-mail O Phone"]),
        ("plain", ["B M E S"]),  # Chinese words
        ("IOB1", ["I-PER I-PER O", "I-LOC B-LOC"]),
        ("IOB1", ["O I-PER I-LOC"]),
        ("IOB2", ["O B-PER I-PER O", "B-LOC B-LOC"]),
        ("IOB2", ["B-NP I-NP B-VP"]),
        ("IOB2", ["B-PER I-LOC O"]),  # I- behind another type
        ("IOB2", ["B I O"]),
        ("IOB2", ["B-geo-loc I-geo-loc"]),
        ("IOBES", ["S-PER O B-LOC I-LOC E-LOC"]),
        ("IOBES", ["O S-PER O"]),
        ("IOBES", ["B E O S"]),
        ("IOBES", ["S-PER O I-LOC E-LOC O E-LOC"]),  # begun without B-
    ],
)
def test_schemes_are_recognized(scheme, texts):
    assert recognize_scheme(sentences(*texts)) == scheme


def test_sentences_without_labels_have_no_scheme_of_their_own():
    unlabelled = Sentence("t.conll:1", ("a", "b"))
    assert recognize_scheme([unlabelled, *sentences("I-PER O")]) == "IOB1"


@pytest.mark.parametrize("names", [("O", "B-X", "L-X", "U-X"), ("B-X", "PAD"), ("B-X", "B-")])
def test_models_whose_labels_are_of_two_schemes_are_refused(names):
    with pytest.raises(ValueError, match=f"two schemes: .*'{names[-1]}' are neither O"):
        scheme_of(names)


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        (["O B-PER O", "O NOUN"], ["'B-PER' (t.conll:2)", "'NOUN' (t.conll:6)"]),
        (["B-PER", "O I-PER"], ["'B-PER' (t.conll:1)", "'I-PER' (t.conll:4)"]),
        (["B-PER I-PER O S-LOC"], ["'I-PER' (t.conll:2)", "'S-LOC' (t.conll:4)"]),
        (["B-PER I-PER", "E-LOC"], ["'I-PER' (t.conll:2)", "'E-LOC' (t.conll:4)"]),
        (["B-PER L-PER U-LOC"], ["'B-PER' (t.conll:1)", "'L-PER' (t.conll:2)", "BILOU"]),
        (["B-PER B-"], ["'B-PER' (t.conll:1)", "'B-' (t.conll:2)"]),
    ],
)
def test_labels_of_two_schemes_are_refused_with_their_lines(texts, named):
    with pytest.raises(ValueError, match="two schemes") as error:
        recognize_scheme(sentences(*texts))
    assert all(part in str(error.value) for part in named)


@pytest.mark.parametrize("texts", [["O B-", "I-"], ["I- O"], ["O S-"]])
def test_labels_without_a_type_are_refused(texts):
    with pytest.raises(ValueError, match=r"'[BIS]-' \(t\.conll:\d\) has no type"):
        recognize_scheme(sentences(*texts))


@pytest.mark.parametrize(
    ("scheme", "labels", "expected"),
    [
        ("IOB1", "I-A I-A B-A O I-B", [("A", 0, 2), ("A", 2, 3), ("B", 4, 5)]),
        ("IOB2", "B-A I-A B-A O B-B", [("A", 0, 2), ("A", 2, 3), ("B", 4, 5)]),
        ("IOBES", "B-A E-A S-A O S-B", [("A", 0, 2), ("A", 2, 3), ("B", 4, 5)]),
        ("IOB2", "O I-A I-A", [("A", 1, 3)]),
        ("IOB2", "B-A I-B I-B", [("A", 0, 1), ("B", 1, 3)]),
        ("IOBES", "B-A I-A O I-A S-A", [("A", 0, 2), ("A", 3, 4), ("A", 4, 5)]),
        ("IOBES", "E-A E-A I-A E-A", [("A", 0, 1), ("A", 1, 2), ("A", 2, 4)]),
        ("IOBES", "B-A S-A I-A B-B", [("A", 0, 1), ("A", 1, 2), ("A", 2, 3), ("B", 3, 4)]),
        ("IOB2", "B I O I", [("", 0, 2), ("", 3, 4)]),
        ("IOB2", "B-geo-x I-geo-y", [("geo-x", 0, 1), ("geo-y", 1, 2)]),
        ("plain", "NOUN NOUN O B-A", [("NOUN", 0, 1), ("NOUN", 1, 2), ("B-A", 3, 4)]),
        ("IOB2", "", []),
    ],
)
def test_entities_broken_ones_too(scheme, labels, expected):
    assert entities(labels.split(), scheme) == [Entity(*entity) for entity in expected]


# What conlleval says of two neighbouring prefixes of one type; its later version for S.
_STARTS = "BB IB OB SB EB BS IS OS SS ES OI SI EI OE SE EE"
_ENDS = "BB BO BS IB IO IS EB EI EE EO ES SB SI SE SO SS"


def chunks(labels: list[str]) -> set[tuple[str, int, int]]:
    """Starts and ends are found by themselves, and each start gets the next end."""
    found, starts, before = set(), [], ("O", "")
    for index, label in enumerate([*labels, "O"]):
        now = (label[0], label[2:])
        both, differ = before[0] + now[0], before[1] != now[1]
        if both in _ENDS or (before[0] != "O" and differ):
            [start] = starts
            found.add((before[1], start, index))
            starts = []
        if both in _STARTS or (now[0] != "O" and differ):
            starts.append(index)
        before = now
    return found


def test_random_labels_have_the_chunks_that_conllevals_rules_give():
    rng = random.Random(7)
    for _ in range(1500):
        prefixes = rng.choice(["BI", "BIES"])
        labels = [
            "O" if rng.random() < 0.25 else f"{rng.choice(prefixes)}-{rng.choice('XXY')}"
            for _ in range(rng.randrange(12))
        ]
        found = entities(labels, "IOBES" if "E" in prefixes else "IOB2")
        assert {(kind, start, end) for kind, start, end in found} == chunks(labels)
        assert len(found) == len(chunks(labels))
        assert entities(labels_of(found, len(labels)), "IOB2") == found


@pytest.mark.parametrize(
    "wrong",
    [[("A", 0, 0)], [("A", 2, 4)], [("A", -1, 1)], [("A", 0, 2), ("B", 1, 3)], [("A", 0, 1)] * 2],
)
def test_entities_without_words_of_their_own_have_no_labels(wrong):
    with pytest.raises(ValueError, match="not overlap"):
        labels_of([Entity(*entity) for entity in wrong], 3)


def test_wrong_arguments():
    with pytest.raises(ValueError, match="scheme must be"):
        entities(["O"], "BIO")
    with pytest.raises(ValueError, match="NOUN"):
        entities(["NOUN"], "IOB2")
    assert split_label("S-a-b") == ("S", "a-b")
