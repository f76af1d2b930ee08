"""Which columns a command means whose model was trained on files of other columns."""

import pytest
from absl import flags

from albert_tf.checkpoints.trained_task import TrainedTask
from albert_tf.classification.run import columns_from_flags
from albert_tf.data.text_examples import Labels

DEFAULTS = {"text_a_column": "text_a", "text_b_column": None, "label_column": "label"}
NUMBERED = {"text_a_column": "0", "text_b_column": None, "label_column": "1"}
NAMED = {"text_a_column": "question", "text_b_column": "answer", "label_column": "fits"}


def columns(trained, *arguments):
    values = flags.FlagValues()
    for name, default in DEFAULTS.items():
        flags.DEFINE_string(name, default, "A column.", flag_values=values)
    values(["program", *arguments])
    task = trained and TrainedTask("custom", Labels(("a", "b")), False, trained)
    return columns_from_flags(values, task)


@pytest.mark.parametrize(
    ("trained", "arguments", "expected"),
    [
        (None, (), DEFAULTS),
        (NUMBERED, (), NUMBERED),
        (NAMED, ("--label_column=y",), {**NAMED, "label_column": "y"}),
        (NUMBERED, ("--text_a_column=3",), {**NUMBERED, "text_a_column": "3"}),
        # The other file has names where the model's has numbers, and the other way round.
        (NUMBERED, ("--text_a_column=text",), {**DEFAULTS, "text_a_column": "text"}),
        (NAMED, ("--text_a_column=0",), {**DEFAULTS, "text_a_column": "0"}),
        (NAMED, ("--text_b_column=",), {**NAMED, "text_b_column": ""}),
    ],
)
def test_columns_are_those_given_and_else_those_of_the_model(trained, arguments, expected):
    assert columns(trained, *arguments) == expected
