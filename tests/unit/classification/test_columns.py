"""Which columns a command means whose model was trained on files of other columns."""

import pytest

from albert_tf.checkpoints.trained_task import TrainedTask
from albert_tf.classification.run import ClassifierJob, ClassifierSettings
from albert_tf.data.text_examples import Labels
from albert_tf.training.settings import resolve

DEFAULTS = {"text_a_column": "text_a", "text_b_column": None, "label_column": "label"}
NUMBERED = {"text_a_column": "0", "text_b_column": None, "label_column": "1"}
NAMED = {"text_a_column": "question", "text_b_column": "answer", "label_column": "fits"}


@pytest.mark.parametrize(
    ("trained", "given", "expected"),
    [
        (DEFAULTS, {}, DEFAULTS),
        (NUMBERED, {}, NUMBERED),
        (NAMED, {"label_column": "y"}, {**NAMED, "label_column": "y"}),
        (NUMBERED, {"text_a_column": "3"}, {**NUMBERED, "text_a_column": "3"}),
        # The other file has names where the model's has numbers, and the other way round.
        (NUMBERED, {"text_a_column": "text"}, {**DEFAULTS, "text_a_column": "text"}),
        (NAMED, {"text_a_column": "0"}, {**DEFAULTS, "text_a_column": "0"}),
        (NAMED, {"text_b_column": ""}, {**NAMED, "text_b_column": ""}),
    ],
)
def test_columns_are_those_given_and_else_those_of_the_model(trained, given, expected):
    settings = ClassifierSettings(output_dir="out", **given)
    task = TrainedTask("custom", Labels(("a", "b")), False, trained)
    settings = resolve(settings, ClassifierJob.trained_settings(settings, task))
    assert {name: getattr(settings, name) for name in expected} == expected
