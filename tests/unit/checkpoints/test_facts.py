"""Tests for `settle`: what a contradiction of each kind causes where sources meet."""

import pytest

from albert_tf.checkpoints.errors import LoadError
from albert_tf.checkpoints.facts import (
    ANY,
    RULES,
    Kind,
    Meeting,
    changed_settings,
    config_facts,
    settle,
    stated,
)
from albert_tf.data.errors import UserError
from albert_tf.data.tfrecord import RecordError
from albert_tf.labels import Labels
from tests.small_model import small_config

LABELS = Labels(("no", "yes")), Labels(("yes", "no"))
ERRORS = {Meeting.LOAD: LoadError, Meeting.RECORDS: RecordError}
# A fact of each kind, two values, and the outcomes of the meetings: an error, a warning, nothing,
# or (S) a warning unless a source is strict.
KINDS = {
    # LOAD, FORMAT, RELEASE, GIVEN, RESUME, EVALUATE, RECORDS, WORKERS, ARGUMENTS
    Kind.SHAPE: ("hidden_size", 12, 20, "E-WSE----"),
    Kind.OUTPUT: ("hidden_act", "gelu", "relu", "E-WSE----"),
    Kind.EMBEDDING: ("num_tokens", 31, 32, "E--EE----"),
    Kind.VOCABULARY: ("vocabulary", "3554d2", "b8a1e3", "E--SE-E--"),
    Kind.IDS: ("keep_accents", False, True, "EW-EE-E--"),
    Kind.CASE: ("do_lower_case", True, False, "EW-WE-E--"),
    Kind.HEAD: ("labels", *LABELS, "E--EE----"),
    Kind.LOSS: ("sentence_loss", "sop", "nsp", "E--EEWE--"),
    Kind.UNIT: ("scale", (2.0, 1.0), (2000.0, 1000.0), "E--WW----"),
    Kind.LENGTH: ("max_seq_length", 9, 7, "W--WW----"),
    Kind.SCORES: ("evaluation.digest", "e1", "e2", "----WW---"),
    Kind.TRAINING: ("optimizer.learning_rate", 0.5, 0.25, "----W--EE"),
}


@pytest.mark.parametrize("strict", [(), {"a/first"}, {"b/second"}])
@pytest.mark.parametrize("kind", Kind)
def test_kinds_and_meetings(kind, strict, warnings):
    name, one, other, outcomes = KINDS[kind]
    sources = stated(name, {"a/first": one, "b/second": other})
    for meeting, outcome in zip(Meeting, outcomes, strict=True):
        warnings.clear()
        messages = warnings
        if outcome == "E" or (outcome == "S" and strict):
            with pytest.raises(ERRORS.get(meeting, UserError)) as raised:
                settle(sources, meeting, strict=strict)
            messages = [str(raised.value)]
        else:
            assert settle(sources, meeting, strict=strict) == {name: one}
        assert len(messages) == (outcome != "-")
        for part in (f"{name} is ", " in a/first, ", " in b/second: ", kind.value, meeting.value):
            assert all(part in message for message in messages)


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
    assert settle({"a": first, "b": second}, Meeting.GIVEN)["hidden_act"] == "gelu"
    (warning,) = warnings
    assert warning.count(" in b") == 3
    assert f"{Kind.OUTPUT.value} and {Kind.LENGTH.value}" in warning
    with pytest.raises(
        LoadError, match="hidden_act is 'gelu' in a, but 'relu' in b; num_att"
    ) as error:
        settle({"a": first, "b": second}, Meeting.LOAD)
    assert "max_seq_length" not in str(error.value), "it would only be a warning"


def test_values_that_agree(warnings):
    for name, one, other in (
        ("num_tokens", 31, 31),
        ("num_tokens", 31, 30),
        ("scale", (2.0, 1.0), (4.0, 3.0)),
        ("sentence_loss", ANY, "nsp"),
        ("head", ["masked LM", "3 classes"], ["3 classes"]),
    ):
        settle(stated(name, {"a": one, "b": other}), Meeting.RESUME)
    assert warnings == []


def test_values_of_configurations_have_a_kind():
    training = {"hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range"}
    assert config_facts(small_config()).keys() - RULES.keys() == training


def test_settings_are_compared_as_in_files():
    known = {"optimizer": {"betas": [0.9, 0.99], "clip": None}, "seed": 3}
    settings = {"optimizer": {"betas": (0.9, 0.99), "clip": 1.0, "new": 5}, "seed": 3}
    (change,) = changed_settings({"file": known, "now": settings}, Meeting.RESUME)
    assert change == "optimizer.clip is 'null' in file, but 1.0 in now"
