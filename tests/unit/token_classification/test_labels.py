"""Schemes of labels, entities and scores, compared with seqeval and conlleval.pl."""

import json
from pathlib import Path

import pytest

from albert_tf.token_classification.labels import (
    Entity,
    Sentence,
    best_metric,
    entities,
    recognize_scheme,
    scheme_of,
    scores,
)

# Random, often invalid, labels with the entities of seqeval 1.2.2 and the counts of the script of
# CoNLL, version 2004-01-26, which does not support IOBES.
CASES = json.loads(Path(__file__).with_name("conlleval.json").read_text("utf-8"))


def sentences(*texts: str) -> list[Sentence]:
    """Returns sentences with these labels, if any, separated by blank lines in a file."""
    found, line = [], 1
    for text in texts:
        labels = tuple(text.split()) or None
        words = ("w",) * len(labels or "a")
        lines = range(line, line + len(words))
        found.append(Sentence(f"t.conll:{line}", words, labels, lines=lines))
        line += len(words) + 1
    return found


UNKNOWN = "are read as plain classes, not as entities"  # logged
SCHEMES = [
    (["DET NOUN PUNCT"], "plain", ""),
    (["NN -LRB- I PRP$"], "plain", ""),
    (["E-mail O Phone"], "plain", ""),
    (["B M E S"], "IOBES", ""),  # Chinese words
    (["B L U O"], "IOBES", ""),
    (["B E S"], "IOBES", ""),
    (["I I O"], "plain", ""),  # membrane proteins: classes, as below
    (["E S O", "S O"], "plain", ""),
    (["I O M"], "plain", ""),
    (["B U M"], "plain", ""),
    (["I-PER I-PER O", "I-LOC B-LOC"], "IOB1", ""),
    (["", "I-PER O"], "IOB1", ""),
    (["O B-PER I-PER O", "B-LOC B-LOC"], "IOB2", ""),
    (["B-PER I-LOC O"], "IOB2", ""),  # I- after another type
    (["B I O"], "IOB2", ""),
    (["B-geo-loc I-geo-loc"], "IOB2", ""),
    (["S-PER O B-LOC I-LOC E-LOC"], "IOBES", ""),
    (["B E O S"], "IOBES", ""),
    (["S-PER O I-LOC E-LOC O E-LOC"], "IOBES", ""),  # without B-
    (["B-PER L-PER U-LOC O"], "IOBES", ""),  # BILOU
    (["B-PER M-PER E-PER S-LOC O"], "IOBES", ""),  # BMES
    (["b-PER i-PER o"], "IOB2", ""),
    (["B_PER I_PER O"], "IOB2", ""),
    (["B/PER I/PER O"], "IOB2", ""),
    (["PER-B PER-I O"], "IOB2", ""),
    (["NOUN_S VERB PUNCT"], "plain", ""),
    (["(PERSON* *) * (ORG)"], "plain", UNKNOWN),
    (["PER-B PER-I LOC-B x"], "plain", UNKNOWN),
    (["O B-PER O", "O NOUN"], ["'NOUN' (t.conll:6)"], ""),
    (["B-PER", "O I-PER"], ["'B-PER' (t.conll:1)", "'I-PER' (t.conll:4)"], ""),
    (["B-PER I-PER O S-LOC"], ["'I-PER' (t.conll:2)", "'S-LOC' (t.conll:4)"], ""),
    (["B-PER B-"], ["'B-' (t.conll:2)"], ""),
]


@pytest.mark.parametrize(("texts", "outcome", "warning"), SCHEMES)
def test_schemes_are_recognized(texts, outcome, warning, caplog):
    """Errors name the labels in two schemes, and their lines."""
    if isinstance(outcome, str):
        assert recognize_scheme(sentences(*texts)) == outcome
        assert warning in caplog.text
    else:
        with pytest.raises(ValueError, match="one scheme") as error:
            recognize_scheme(sentences(*texts))
        assert all(part in str(error.value) for part in outcome)


def test_words_without_labels_do_not_hide_the_scheme():
    labels = ("", "B-PER", "", "I-PER", "", "O", "I-PER")
    assert recognize_scheme([Sentence("t", ("w",) * 7, labels)]) == "IOB1"
    assert recognize_scheme([Sentence("t", ("w",) * 6, labels[:6])]) == "IOB2"


@pytest.mark.parametrize(
    ("names", "given", "scheme"),
    [
        ("I O", "IOB1", "IOB1"),
        ("b m e s", "BMES", "IOBES"),
        ("B-PER O", "plain", "plain"),
        ("B-PER U-PER L-PER O", "BILOU", "IOBES"),
    ],
)
def test_a_given_scheme_is_not_detected(names, given, scheme):
    assert recognize_scheme(sentences(names), given) == scheme
    assert (scheme_of(names.split(), given) == "plain") is (scheme == "plain")
    with pytest.raises(ValueError, match="as `label_scheme` requires"):
        recognize_scheme(sentences("DET NOUN"), "IOB2")


@pytest.mark.parametrize("names", [("B-X", "PAD"), ("B-X", "B-")])
def test_labels_of_a_model_in_two_schemes_are_rejected(names):
    with pytest.raises(ValueError, match=f"two schemes: .*'{names[-1]}' must be O"):
        scheme_of(names)


@pytest.mark.parametrize(
    ("scheme", "right", "slip", "named"),
    [
        ("IOB2", "B-PER O O", "O I-PER O", "'I-PER' (t.conll:398), 'I-PER' (t.conll:402)"),
        ("IOB1", "I-PER O O", "O B-PER O", "'B-PER' (t.conll:398), 'B-PER' (t.conll:402)"),
        ("IOBES", "S-PER O O", "O B-PER O", "'B-PER' (t.conll:398), 'B-PER' (t.conll:402)"),
        ("IOB2", "B-PER O O", "O S-PER O", "'S-PER' (t.conll:398), 'S-PER' (t.conll:402)"),
    ],
)
def test_one_percent_of_the_words_may_violate_the_scheme(scheme, right, slip, named, caplog):
    assert recognize_scheme(sentences(*[right] * 99, slip, slip)) == scheme
    assert (
        f"words=2 of 303 violate the scheme of the labels and are read as in conlleval: {named}"
        in (caplog.text)
    )
    with pytest.raises(ValueError, match="two schemes"):
        recognize_scheme(sentences(*[right] * 99, *[slip] * 4))


@pytest.mark.parametrize(
    ("scheme", "labels", "expected"),
    [
        ("IOBES", "b-A L-A U-B", [("A", 0, 2), ("B", 2, 3)]),
        ("IOB2", "A-B A-I O B_b", [("A", 0, 2), ("b", 3, 4)]),
        ("IOB2", "B I O I", [("", 0, 2), ("", 3, 4)]),
        ("plain", "NOUN NOUN O B-A", [("NOUN", 0, 1), ("NOUN", 1, 2), ("B-A", 3, 4)]),
        ("IOB2", "", []),
    ],
)
def test_entities(scheme, labels, expected):
    assert entities(labels.split(), scheme) == [Entity(*entity) for entity in expected]


def split(case: dict) -> tuple[list[list[str]], list[list[str]]]:
    return [s.split() for s in case["gold"]], [s.split() for s in case["predicted"]]


@pytest.mark.parametrize("case", CASES)
def test_entities_equal_those_of_seqeval(case):
    _, predicted = split(case)
    found = [[list(entity) for entity in entities(s, case["scheme"])] for s in predicted]
    assert found == case["seqeval"]


@pytest.mark.parametrize("case", [case for case in CASES if "conlleval" in case])
def test_scores_equal_those_of_conlleval(case):
    gold, predicted = split(case)
    expected = case["conlleval"]
    found = scores(gold, predicted, case["scheme"])
    wanted, guessed, right = expected["counts"]
    assert found["precision"] == pytest.approx(right / guessed, abs=1e-12)
    assert found["recall"] == pytest.approx(right / wanted, abs=1e-12)
    names = ["eval_accuracy", "precision", "recall", "f1"]
    # conlleval prints percentages with two decimals.
    for name, percentage in zip(names, expected["total"], strict=True):
        assert 100 * found[name] == pytest.approx(percentage, abs=0.005001)
    for kind, percentages in expected["types"].items():
        for name, percentage in zip(names[1:], percentages, strict=True):
            assert 100 * found[f"{name}_{kind}"] == pytest.approx(percentage, abs=0.005001)
    assert len(found) == 4 + 3 * len(expected["types"])


def test_scores_of_plain_labels():
    found = scores(iter([["N", "V", "N"], ["O"]]), iter([["N", "N", "N"], ["O"]]), "plain")
    expected = {
        "eval_accuracy": 3 / 4,
        **{"precision_N": 2 / 3, "recall_N": 1.0, "f1_N": 4 / 5},
        **{"precision_O": 1.0, "recall_O": 1.0, "f1_O": 1.0},
        **{"precision_V": 0.0, "recall_V": 0.0, "f1_V": 0.0},
    }
    assert found == pytest.approx(expected, abs=1e-12)
    assert [best_metric(scheme) for scheme in ("plain", "IOB2")] == ["eval_accuracy", "f1"]


def test_scores_without_entities():
    found = scores([["O", "O"]], [["O", "O"]], "IOB2")
    assert found == {"eval_accuracy": 1.0, "precision": 0.0, "recall": 0.0, "f1": 0.0}
    assert set(scores([["B", "I"]], [["B", "O"]], "IOB2")) == set(found)


@pytest.mark.parametrize(
    ("gold", "predicted"), [([["O"]], []), ([["O"]], [["O", "O"]]), ([["O", "O"]], [[]])]
)
def test_missing_predictions_are_rejected(gold, predicted):
    with pytest.raises(ValueError, match="zip"):
        scores(gold, predicted, "IOB2")
