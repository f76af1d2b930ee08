"""Warnings of training texts that are truncated."""

import pytest

import albert_tf
from tests.choice_run import ChoiceRun
from tests.classifier_run import ClassifierRun


@pytest.mark.parametrize(
    ("kind", "settings", "job", "length"),
    [
        (ClassifierRun, albert_tf.ClassificationSettings, albert_tf.run_classification, 17),
        (ChoiceRun, albert_tf.MultipleChoiceSettings, albert_tf.run_multiple_choice, 23),
    ],
)
def test_only_truncated_training_texts_are_a_warning(
    kind, settings, job, length, tmp_path, golden, caplog
):
    flags = {"do_train": True, "do_eval": True, "max_seq_length": length, "dry_run": True}
    job(settings(**kind(tmp_path, golden).flags(**flags)))
    assert caplog.text.count(f"texts have more than `max_seq_length`={length} tokens") == 1
