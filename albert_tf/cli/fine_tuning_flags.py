"""The flags that the commands for fine-tuning share beside those of `cli/flags.py`."""

from __future__ import annotations

from absl import flags, logging

from albert_tf.cli.flags import define_weight_flags
from albert_tf.config import AlbertConfig
from albert_tf.model_source import ModelSource, model_source
from albert_tf.recipes import recipe_for, size_of, version_of

# What a recipe settles, by the names of the flags.
_RECIPE_FLAGS = (
    "learning_rate",
    "train_batch_size",
    "train_step",
    "warmup_step",
    "max_seq_length",
    "save_checkpoints_steps",
    "encoder_dropout_prob",
    "classifier_dropout_prob",
    "optimizer",
)


def define_fine_tuning_model_flags() -> None:
    """The model to fine-tune, from wherever it comes, and its dropout."""
    flags.DEFINE_string(
        "albert_config_file",
        None,
        "Configuration of the model (albert_config.json); without it, that of the hub module, or "
        "the one beside --init_checkpoint or in --output_dir.",
    )
    flags.DEFINE_string(
        "albert_hub_module_handle",
        None,
        "Model to start from: directory or URL of a TF-Hub module, or a directory with "
        "albert_config.json, tokenizer and checkpoint. --spm_model_file=from_tf_hub takes its "
        "tokenizer.",
    )
    define_weight_flags()
    flags.DEFINE_bool(
        "do_lower_case",
        True,
        "Lower-case the texts. Where it is not given, what the model says of itself counts.",
    )
    flags.DEFINE_float(
        "encoder_dropout_prob",
        None,
        "Dropout inside the encoder while training, of hidden states and attention; without it, "
        "as the configuration says.",
    )


def model_source_from_flags(values: flags.FlagValues, fallback: str | None = None) -> ModelSource:
    """Finds the model that the flags of `define_fine_tuning_model_flags` name.

    Args:
        values: the flags, --output_dir among them.
        fallback: a checkpoint to take the model from where --init_checkpoint is not given.

    Raises:
        ValueError: no model, or parts that do not fit each other.
    """
    return model_source(
        albert_config_file=values.albert_config_file,
        albert_hub_module_handle=values.albert_hub_module_handle,
        init_checkpoint=fallback if values.init_checkpoint is None else values.init_checkpoint,
        spm_model_file=values.spm_model_file,
        vocab_file=values.vocab_file,
        do_lower_case=values.do_lower_case if values["do_lower_case"].present else None,
        output_dir=values.output_dir,
    )


def with_dropout(config: AlbertConfig, dropout_prob: float | None) -> AlbertConfig:
    """Returns the configuration with --encoder_dropout_prob in it, if that is given."""
    if dropout_prob is None:
        return config
    check_rate(dropout_prob, "--encoder_dropout_prob")
    return config.replace(
        hidden_dropout_prob=dropout_prob, attention_probs_dropout_prob=dropout_prob
    )


def check_rate(value: float, flag: str) -> None:
    """Raises ValueError unless the value is a dropout rate."""
    if not 0 <= value < 1:
        raise ValueError(f"{flag} must be a rate in [0, 1). Received: {value}")


def define_recipe_flag() -> None:
    """Published settings."""
    flags.DEFINE_enum(
        "recipe",
        "none",
        ["none", "auto", "v1", "v2"],
        "Take the published settings of the task for all flags that are not given. auto: those for "
        "the version that the model's configuration looks like.",
    )


def apply_recipe(values: flags.FlagValues, task_name: str, config: AlbertConfig) -> None:
    """Gives flags that were not given the values of the recipe, and says so.

    Raises:
        ValueError: there is no recipe for the task.
    """
    if values.recipe == "none":
        return
    version = version_of(config) if values.recipe == "auto" else values.recipe
    recipe = recipe_for(task_name, size_of(config), version)
    taken = {}
    for name in _RECIPE_FLAGS:
        if not values[name].present:
            taken[name] = getattr(recipe, name)
    if "max_seq_length" in taken:
        taken["max_seq_length"] = min(taken["max_seq_length"], config.max_position_embeddings)
    for name, value in taken.items():
        values[name].value = value
    settings = " ".join(f"--{name}={value}" for name, value in taken.items())
    logging.info("--recipe=%s (%s): %s", values.recipe, recipe.source, settings)
    if recipe.init_from and values.do_train:
        logging.info(
            "The published runs of this task started from a model fine-tuned on %s: give one as "
            "--init_checkpoint",
            recipe.init_from,
        )
