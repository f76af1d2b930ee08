"""Settings of the commands that train: flags, types, limits and sources of values."""

import inspect
import math
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from albert_tf.classification.settings import ClassificationSettings
from albert_tf.cli import run_squad, run_squad_v1
from albert_tf.config import AlbertConfig
from albert_tf.finetuning.in_memory import fit_rows
from albert_tf.finetuning.job import Job
from albert_tf.finetuning.recipes import recipe_settings
from albert_tf.multiple_choice.run import run_multiple_choice
from albert_tf.multiple_choice.settings import MultipleChoiceSettings
from albert_tf.settings import missing, resolve
from albert_tf.squad.settings import SquadSettings
from albert_tf.token_classification.settings import TokenClassificationSettings
from tests.command_flags import flags_of

# Settings that may stay `None`.
DECIDED_LATER = {"do_lower_case", "num_tpu_cores", "iterations_per_loop"}


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("do_train", 1, "bool"),
        ("train_batch_size", True, "int"),
        ("learning_rate", "1e-4", "float"),
    ],
)
def test_values_of_another_type_are_rejected(name, value, expected):
    with pytest.raises(TypeError, match=f"`{name}` must be of type {expected}. Received: "):
        ClassificationSettings(**{"output_dir": "out", name: value})


def test_unknown_settings_are_rejected():
    with pytest.raises(TypeError, match="train_batch_sise"):
        ClassificationSettings(output_dir="out", train_batch_sise=3)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (ClassificationSettings, "padding", "shortest"),
        (SquadSettings, "num_workers", -1),
    ],
)
def test_values_out_of_range_are_rejected(kind, name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be .*Received: {value!r}"):
        kind(output_dir="out", **{name: value})


def test_paths_and_numbers_are_converted():
    settings = ClassificationSettings(
        output_dir=Path("out"),
        train_file=Path("a") / "b.csv",
        train_batch_size=np.int64(3),
        learning_rate=1,
        do_train=np.bool_(True),
        max_seq_length=None,
    )
    names = ("output_dir", "train_file", "train_batch_size", "learning_rate", "do_train")
    values = [getattr(settings, name) for name in names]
    assert values == ["out", os.path.join("a", "b.csv"), 3, 1.0, True]
    assert [type(value) for value in values] == [str, str, int, float, bool]
    assert "max_seq_length" in missing(settings)


def test_signatures_show_types_and_defaults():
    parameters = inspect.signature(SquadSettings).parameters
    assert [str(parameters[name]) for name in ("output_dir", "doc_stride", "squad_version")] == [
        "output_dir: str",
        "doc_stride: int = 128",
        "squad_version: int | None = None",
    ]


def test_flags_that_are_not_given_leave_settings_unset():
    with flags_of("run_squad") as values:
        values(["run_squad", "--output_dir=out", "--doc_stride=7", "--nouse_tpu"])
        settings = run_squad.FLAGS.settings()
    assert settings == SquadSettings(output_dir="out", doc_stride=7)
    assert missing(settings).keys() >= {"max_seq_length", "learning_rate", "max_query_length"}
    with flags_of("run_squad_v1") as values:
        values(["run_squad_v1", "--output_dir=out"])
        assert run_squad_v1.FLAGS.settings().squad_version == 1


def test_given_values_precede_the_trained_model_the_recipe_and_the_default(caplog):
    caplog.set_level("INFO", logger="absl")
    settings = SquadSettings(output_dir="out", learning_rate=1e-3)
    known = {"max_seq_length": 200, "doc_stride": None}
    config = AlbertConfig(vocab_size=100, max_position_embeddings=300)
    wanted = [name for name in missing(settings) if known.get(name) is None]
    recipe = recipe_settings("v2", "squad2.0", config, wanted, is_training=True)
    resolved = resolve(settings, known, recipe)
    assert not set(missing(resolved)) - DECIDED_LATER
    assert (resolved.learning_rate, resolved.max_seq_length) == (1e-3, 200)
    assert (resolved.train_batch_size, resolved.dropout_prob, resolved.doc_stride) == (48, 0.1, 128)
    assert "`train_batch_size`=48" in caplog.text
    assert "`max_seq_length`" not in caplog.text
    all_settings = recipe_settings("v2", "squad2.0", config, missing(settings), is_training=True)
    assert resolve(settings, all_settings).max_seq_length == 300


@pytest.mark.parametrize(
    "kind", [ClassificationSettings, TokenClassificationSettings, MultipleChoiceSettings]
)
def test_epochs_are_converted_to_steps(kind):
    settings = kind(
        output_dir="unused", num_train_epochs=2.5, train_batch_size=4, warmup_proportion=0.3
    )
    job = SimpleNamespace(settings=resolve(settings))
    config = Job.optimizer_config(job, num_examples=21)  # 6 batches per epoch
    assert (config.num_train_steps, config.num_warmup_steps) == (15, 4)
    job = SimpleNamespace(settings=resolve(kind(output_dir="unused", train_step=7, warmup_step=2)))
    config = Job.optimizer_config(job, num_examples=21)
    assert (config.num_train_steps, config.num_warmup_steps) == (7, 2)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"num_train_epochs": 2, "train_step": 5}, "`num_train_epochs` or `train_step`"),
        ({"num_train_epochs": 0}, "`num_train_epochs`"),
        ({"warmup_proportion": 1.5}, "`warmup_proportion`"),
    ],
)
def test_contradicting_steps_are_rejected(given, named):
    with pytest.raises(ValueError, match=named):
        run_multiple_choice(MultipleChoiceSettings(output_dir="unused", **given))


@pytest.mark.parametrize(
    ("epochs", "error"), [(0, ValueError), (math.inf, ValueError), ("2", TypeError)]
)
def test_errors_of_fit_name_its_argument(epochs, error):
    with pytest.raises(error, match=r"^`epochs` must be"):
        fit_rows(None, None, None, [], [], None, None, train_batch_size=8, num_train_epochs=epochs)
