"""Settings of fine-tuning: sources of values, epochs and steps."""

from types import SimpleNamespace

import pytest

from albert_tf.classification.settings import ClassificationSettings
from albert_tf.config import AlbertConfig
from albert_tf.finetuning.job import Job
from albert_tf.finetuning.recipes import recipe_settings
from albert_tf.multiple_choice.run import run_multiple_choice
from albert_tf.multiple_choice.settings import MultipleChoiceSettings
from albert_tf.settings import missing, resolve
from albert_tf.squad.settings import SquadSettings
from albert_tf.token_classification.settings import TokenClassificationSettings

# Settings that may stay `None`.
DECIDED_LATER = {"do_lower_case", "keep_accents", "num_tpu_cores", "iterations_per_loop"}


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


def test_only_models_of_the_size_of_mini_have_a_recipe_by_default():
    config = AlbertConfig(vocab_size=100, hidden_size=18, num_attention_heads=6)
    mini = config.replace(hidden_size=384, num_hidden_layers=4, intermediate_size=1536)
    names = ["learning_rate", "max_seq_length"]
    for task in ("sts-b", "custom"):  # the second has no published recipe
        for recipe in (None, "auto"):
            chosen = recipe_settings(recipe, task, mini, names, is_training=True)
            assert chosen == {"learning_rate": 1e-4}
        assert not recipe_settings(None, task, mini, names, is_training=False)
        assert not recipe_settings("none", task, mini, names, is_training=True)
        assert not recipe_settings(None, task, config, names, is_training=True)
    assert len(recipe_settings("v2", "sts-b", mini, names, is_training=True)) == 2


@pytest.mark.parametrize(
    "kind", [ClassificationSettings, TokenClassificationSettings, MultipleChoiceSettings]
)
def test_epochs_are_converted_to_steps(kind):
    settings = kind(
        output_dir="unused", num_train_epochs=2.5, train_batch_size=4, warmup_proportion=0.3
    )
    context = SimpleNamespace(chooses_steps=False, given_warmup=None, task_name="tokens")
    job = SimpleNamespace(settings=resolve(settings), context=context)
    config = Job.optimizer_config(job, num_examples=21)  # 6 batches per epoch
    assert (config.num_train_steps, config.num_warmup_steps) == (15, 4)
    job.settings = resolve(kind(output_dir="unused", train_step=7, warmup_step=2))
    config = Job.optimizer_config(job, num_examples=21)
    assert (config.num_train_steps, config.num_warmup_steps) == (7, 2)
    context.chooses_steps = True  # the recipe of `mini`
    config = Job.optimizer_config(job, num_examples=801)  # 26 batches of 32 per epoch
    assert (config.num_train_steps, config.num_warmup_steps) == (156, 15)
    context.given_warmup = 0
    assert Job.optimizer_config(job, num_examples=801).num_warmup_steps == 0


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"num_train_epochs": 2, "train_step": 5}, "`num_train_epochs` or `train_step`"),
        ({"num_train_epochs": 2, "warmup_step": 0}, "`num_train_epochs` or `warmup_step`"),
    ],
)
def test_contradicting_steps_are_rejected(given, named):
    with pytest.raises(ValueError, match=named):
        run_multiple_choice(MultipleChoiceSettings(output_dir="unused", **given))
