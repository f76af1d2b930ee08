"""Types, limits and flags of settings."""

import importlib
import inspect
import math
import os
import re
from pathlib import Path

import numpy as np
import pytest
from absl import flags

from albert_tf.pretraining.settings import PretrainingDataSettings
from albert_tf.settings import missing
from albert_tf.squad.settings import SquadSettings
from albert_tf.training.settings import OptimizerConfig
from tests.command_flags import flags_of

# For each command: a setting, a value that is out of range, and the limits in the error.
INVALID = {
    "run_classifier": [
        ("output_dir", "", "not be empty"),
        ("train_batch_size", 0, "be at least 1"),
        ("gradient_accumulation_steps", 0, "be at least 1"),
        ("keep_checkpoint_max", -1, "be at least 0"),
        ("log_steps", 0, "be at least 1"),
        ("seed", 2**31, "be in [0, 2147483648)"),
        ("precision", "float64", "be one of float32, bfloat16, float16"),
        ("optimizer", "sgd", "be one of adamw, lamb"),
        ("learning_rate", math.inf, "be a number above 0"),
        ("poly_power", -1.0, "be a number of at least 0"),
        ("start_warmup_step", -1, "be at least 0"),
        ("freeze", "head", "be one of encoder, embeddings"),
        ("padding", "shortest", "be one of longest, buckets, max"),
        ("num_train_epochs", 0.0, "be a number above 0"),
        ("warmup_proportion", 1.5, "be in [0, 1]"),
        ("encoder_dropout_prob", math.nan, "be in [0, 1)"),
        ("train_step", 0, "be at least 1"),
        ("warmup_step", -1, "be at least 0"),
        ("classifier_dropout_prob", 1.0, "be in [0, 1)"),
        ("multi_label_threshold", 0.0, "be in (0, 1)"),
    ],
    "run_squad": [("num_workers", -1, "be at least 1"), ("dropout_prob", -0.1, "be in [0, 1)")],
    "run_pretraining": [
        ("save_checkpoints_steps", -1, "be at least 1"),
        ("masked_lm_prob", 1.0, "be in [0, 1)"),
        ("max_predictions_per_seq", 0, "be at least 1"),
        ("num_train_steps", 0, "be at least 1"),
        ("num_decay_steps", 0, "be at least 1"),
    ],
    "create_pretraining_data": [
        ("ngram", 0, "be at least 1"),
        ("short_seq_prob", 1.1, "be in [0, 1]"),
        ("dupe_factor", 0, "be at least 1"),
        ("sentence_loss", "order", "be one of sop, nsp, none"),
    ],
}


def settings_from(command, given):
    """Returns the settings of a command line."""
    with flags_of(command) as values:
        values([command, *(f"--{name}={value}" for name, value in given.items())])
        return importlib.import_module(f"albert_tf.cli.{command}").main.flags.settings()


@pytest.mark.parametrize(
    ("command", "name", "value", "limits"),
    [(command, *case) for command, cases in INVALID.items() for case in cases],
)
def test_values_out_of_range_are_rejected(command, name, value, limits):
    kind = importlib.import_module(f"albert_tf.cli.{command}").main.flags.kind
    paths = {"output_dir", "input_file", "output_file"} & inspect.signature(kind).parameters.keys()
    given = {**dict.fromkeys(paths, "path"), name: value}
    message = re.escape(f"`{name}` must {limits}. Received: {value!r}")
    with pytest.raises(ValueError, match=f"^{message}$"):
        kind(**given)
    with pytest.raises((ValueError, flags.Error), match=name):
        settings_from(command, given)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("do_train", 1, "bool"),
        ("train_batch_size", True, "int"),
        ("log_steps", 1.5, "int"),
        ("learning_rate", "1e-4", "float"),
    ],
)
def test_values_of_another_type_are_rejected(name, value, expected):
    with pytest.raises(TypeError, match=f"`{name}` must be of type {expected}. Received: "):
        SquadSettings(**{"output_dir": "out", name: value})


def test_unknown_settings_are_rejected():
    with pytest.raises(TypeError, match="train_batch_sise"):
        SquadSettings(output_dir="out", train_batch_sise=3)


def test_the_decay_must_fit_after_the_warm_up():
    with pytest.raises(ValueError, match=r"`num_decay_steps` must be at most 121875, .*: 121876"):
        OptimizerConfig(num_decay_steps=121876)


def test_paths_and_numbers_are_converted():
    settings = SquadSettings(
        output_dir=Path("out"),
        train_file=Path("a") / "b.json",
        train_batch_size=np.int64(3),
        learning_rate=1,
        do_train=np.bool_(True),
        max_seq_length=None,
    )
    names = ("output_dir", "train_file", "train_batch_size", "learning_rate", "do_train")
    values = [getattr(settings, name) for name in names]
    assert values == ["out", os.path.join("a", "b.json"), 3, 1.0, True]
    assert [type(value) for value in values] == [str, str, int, float, bool]
    assert "max_seq_length" in missing(settings)


def test_signatures_show_types_and_defaults():
    parameters = inspect.signature(SquadSettings).parameters
    assert [str(parameters[name]) for name in ("output_dir", "doc_stride", "squad_version")] == [
        "output_dir: str",
        "doc_stride: int = 128",
        "squad_version: int | None = None",
    ]
    assert str(inspect.signature(PretrainingDataSettings).parameters["beam_options"]).endswith("()")


def test_flags_that_are_not_given_leave_settings_unset():
    settings = settings_from("run_squad", {"output_dir": "out", "doc_stride": 7, "use_tpu": False})
    assert settings == SquadSettings(output_dir="out", doc_stride=7)
    assert missing(settings).keys() >= {"max_seq_length", "learning_rate", "max_query_length"}
    assert settings_from("run_squad_v1", {"output_dir": "out"}).squad_version == 1
