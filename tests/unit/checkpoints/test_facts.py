"""Tests for `settle`: what a contradiction of each kind causes where sources meet."""

import pytest

from albert_tf.checkpoints.errors import LoadError
from albert_tf.checkpoints.facts import (
    ANY,
    Kind,
    Meeting,
    changed_settings,
    contradictions,
    settle,
    stated,
)
from albert_tf.data.errors import UserError
from albert_tf.data.tfrecord import RecordError
from albert_tf.labels import Labels

# A fact of each kind, and two values that contradict each other.
VALUES = {
    Kind.SHAPE: ("hidden_size", 12, 20),
    Kind.OUTPUT: ("hidden_act", "gelu", "relu"),
    Kind.EMBEDDING: ("num_tokens", 31, 32),
    Kind.VOCABULARY: ("vocabulary", "3554d2", "b8a1e3"),
    Kind.IDS: ("keep_accents", False, True),
    Kind.CASE: ("do_lower_case", True, False),
    Kind.HEAD: ("labels", Labels(("no", "yes")), Labels(("yes", "no"))),
    Kind.LOSS: ("sentence_loss", "sop", "nsp"),
    Kind.UNIT: ("scale", (2.0, 1.0), (2000.0, 1000.0)),
    Kind.LENGTH: ("max_seq_length", 9, 7),
    Kind.SCORES: ("evaluation.digest", "e1", "e2"),
    Kind.TRAINING: ("optimizer.learning_rate", 0.5, 0.25),
}
K = Kind
MODEL, TEXTS = {K.SHAPE, K.OUTPUT}, {K.VOCABULARY, K.IDS, K.CASE}
HEADS = {K.HEAD, K.LOSS}
# The kinds that are an error, and the kinds that are a warning.
OUTCOMES = {
    Meeting.LOAD: (MODEL | TEXTS | HEADS | {K.EMBEDDING, K.UNIT}, {K.LENGTH}),
    Meeting.FORMAT: (set(), {K.IDS, K.CASE}),
    Meeting.RELEASE: (set(), MODEL),
    Meeting.GIVEN: (
        {K.EMBEDDING, K.IDS} | HEADS,
        MODEL | {K.VOCABULARY, K.CASE, K.UNIT, K.LENGTH},
    ),
    Meeting.RESUME: (
        MODEL | TEXTS | HEADS | {K.EMBEDDING},
        {K.UNIT, K.LENGTH, K.SCORES, K.TRAINING},
    ),
    Meeting.EVALUATE: (set(), {K.LOSS, K.SCORES}),
    Meeting.RECORDS: (TEXTS | {K.LOSS}, set()),
    Meeting.WORKERS: ({K.TRAINING}, set()),
}
ERRORS = {Meeting.LOAD: LoadError, Meeting.RECORDS: RecordError}


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("meeting", Meeting)
def test_kinds_and_meetings(meeting, kind, warnings):
    name, one, other = VALUES[kind]
    sources = stated(name, {"a/first": one, "b/second": other})
    errors, logged = OUTCOMES[meeting]
    messages = warnings
    if kind in errors:
        with pytest.raises(ERRORS.get(meeting, UserError)) as raised:
            settle(sources, meeting)
        messages = [str(raised.value)]
    else:
        assert settle(sources, meeting) == {name: one}
    assert len(messages) == (kind in errors | logged)
    for part in (f"{name} is ", " in a/first, ", " in b/second: ", kind.value, meeting.value):
        assert all(part in message for message in messages)


@pytest.mark.parametrize("kind", Kind)
def test_strict_sources_reject_replaced_parts(kind):
    """`do_lower_case` can always be given."""
    name, one, other = VALUES[kind]
    sources = stated(name, {"a": one, "b": other})
    for strict in ({"a"}, {"b"}, {"a", "b"}):
        found = contradictions(sources, Meeting.GIVEN, strict)
        is_error = kind in OUTCOMES[Meeting.GIVEN][0] | MODEL | {K.VOCABULARY}
        assert any(one.is_error for one in found) == is_error


def test_first_known_values_are_returned(warnings):
    sources = {
        "arguments": {"do_lower_case": None, "keep_accents": None},
        "model": {"do_lower_case": False, "hidden_size": 12},
        "run": {"keep_accents": True, "hidden_size": 12, "max_seq_length": None},
    }
    facts = {"do_lower_case": False, "keep_accents": True, "hidden_size": 12}
    assert settle(sources, Meeting.RESUME) == {**facts, "max_seq_length": None}
    assert warnings == []


def test_one_message_reports_all_contradictions(warnings):
    first = {"hidden_act": "gelu", "num_attention_heads": 3, "max_seq_length": 9}
    second = {"hidden_act": "relu", "num_attention_heads": 6, "max_seq_length": 7}
    sources = {"a": first, "b": second}
    assert settle(sources, Meeting.GIVEN)["hidden_act"] == "gelu"
    (warning,) = warnings
    assert warning.count(" in b") == 3
    assert Kind.OUTPUT.value in warning
    assert Kind.LENGTH.value in warning
    with pytest.raises(LoadError, match="hidden_act is 'gelu' in a, 'relu' in b; num_att") as error:
        settle(sources, Meeting.LOAD)
    assert "max_seq_length" not in str(error.value), "it would only be a warning"


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("num_tokens", 31, 31),
        ("num_tokens", 31, 30),
        ("scale", (2.0, 1.0), (4.0, 3.0)),
        ("sentence_loss", ANY, "nsp"),
        ("head", ["masked LM", "3 classes"], ["3 classes"]),
    ],
)
def test_values_that_agree(name, one, other, warnings):
    settle(stated(name, {"a": one, "b": other}), Meeting.RESUME)
    assert warnings == []


def test_settings_are_compared_as_in_files():
    stored = {"optimizer": {"betas": [0.9, 0.99], "clip": None}, "seed": 3}
    settings = {"optimizer": {"betas": (0.9, 0.99), "clip": 1.0, "new": 5}, "seed": 3}
    (change,) = changed_settings({"file": stored, "now": settings}, Meeting.RESUME)
    assert change == "optimizer.clip is 'null' in file, 1.0 in now"
