"""What the flags that all jobs share mean: model, task and settings, checked."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import flags, logging

from albert_tf.checkpoints.choice import CHOICES
from albert_tf.checkpoints.directory_lock import EVALUATION, check_unlocked
from albert_tf.checkpoints.formats import find_weights, trained_task
from albert_tf.checkpoints.model_directory import LOWER_CASE_KEY, ModelDirectory
from albert_tf.checkpoints.model_source import (
    ModelSettings,
    ModelSource,
    resolve_model,
    warn_of_random_weights,
)
from albert_tf.checkpoints.trained_task import TrainedTask
from albert_tf.config import AlbertConfig
from albert_tf.data.files import check_file, check_folder, real_name
from albert_tf.finetuning.flow import CHECKPOINT_FLAG
from albert_tf.finetuning.recipes import recipe_for, size_of, version_of
from albert_tf.finetuning.start import Start, fresh_head
from albert_tf.serving.saved_model import TEXT_FOLDER
from albert_tf.training.distribution import is_tpu
from albert_tf.training.trainer import check_training_folder

# What a recipe settles, by the names of the flags: its own names, or another.
_RECIPE_FLAGS = {
    "learning_rate": "learning_rate",
    "train_batch_size": "train_batch_size",
    "train_step": "train_step",
    "warmup_step": "warmup_step",
    "num_train_epochs": "num_train_epochs",
    "warmup_proportion": "warmup_proportion",
    "max_seq_length": "max_seq_length",
    "save_checkpoints_steps": "save_checkpoints_steps",
    "encoder_dropout_prob": "encoder_dropout_prob",
    "classifier_dropout_prob": "classifier_dropout_prob",
    "dropout_prob": "classifier_dropout_prob",
    "optimizer": "optimizer",
}


def check_export_flags(values: flags.FlagValues, folder: str = "") -> None:
    """Makes sure that there is a place for what is to be exported.

    Args:
        values: with --export_dir.
        folder: of --export_dir, where models of token ids lie.

    Raises:
        ValueError: there is none.
    """
    if values.export_text_model and not values.export_dir:
        raise ValueError("--export_text_model needs --export_dir, the directory to write it below.")
    if values.export_dir:
        names = filter(None, (folder, TEXT_FOLDER if values.export_text_model else ""))
        for path in (values.export_dir, *(os.path.join(values.export_dir, name) for name in names)):
            check_folder(path, "--export_dir")


def check_results_flags(values: flags.FlagValues, files: Sequence[str] = ()) -> None:
    """Makes sure that what comes last can be written.

    Args:
        values: with --output_dir.
        files: flags that name files to write.

    Raises:
        DirectoryLockedError: another run writes there.
        ValueError: nothing can be written there; names the flag.
    """
    if any(getattr(values, name, False) for name in ("do_train", "do_eval", "do_predict")):
        check = check_training_folder if values.do_train else check_folder
        check(values.output_dir, "--output_dir")
        if getattr(values, "do_eval", False) and not values.do_train:
            check_unlocked(values.output_dir, EVALUATION)
    for name in files:
        if path := getattr(values, name):
            check_file(path, f"--{name}")


def check_answer_flags(values: flags.FlagValues, read_flag: str) -> None:
    """Makes sure that --predict_output_file gets something, and not in the place of what is read.

    Args:
        values: the flags.
        read_flag: name of the flag whose file is answered.

    Raises:
        ValueError: nothing is answered, or the answers would replace what they answer.
    """
    path, read = values.predict_output_file, values[read_flag].value
    if not path:
        return
    if not read:
        raise ValueError(
            f"--predict_output_file={path} is for the answers to --{read_flag}, which is not given."
        )
    if real_name(path) == real_name(read):
        raise ValueError(
            f"--predict_output_file would overwrite --{read_flag}: {read}. Give another name."
        )


def resolve_padding(values: flags.FlagValues, strategy: tf.distribute.Strategy) -> None:
    """Changes --padding where a TPU would compile anew for batch after batch."""
    if is_tpu(strategy) and values.padding == "longest":
        logging.info(
            "--padding=longest becomes buckets: a TPU compiles for every length. --padding=max "
            "compiles once."
        )
        values["padding"].value = "buckets"


def checkpoint_elsewhere(values: flags.FlagValues) -> str | None:
    """Returns the prefix of the trained model that a path names, where nothing is to be trained.

    Raises:
        ValueError: there is none; or, beside a training, --checkpoint is none of --output_dir.
    """
    path = None if values.checkpoint in CHOICES else values.checkpoint
    if values.do_train:
        _check_own_checkpoint(path, values.output_dir)
        return None
    if path:
        return find_weights(path, CHECKPOINT_FLAG)
    return find_weights(values.init_checkpoint) if values.init_checkpoint else None


def _check_own_checkpoint(path: str | None, output_dir: str) -> None:
    """Refuses what could turn out to be missing, or another model, only after the training."""
    own = os.path.abspath(output_dir)
    if path and own not in (os.path.abspath(path), os.path.dirname(os.path.abspath(path))):
        raise ValueError(
            f"With --do_train, {CHECKPOINT_FLAG} must be one of {', '.join(CHOICES)} or a "
            f"checkpoint in --output_dir {output_dir!r}; to start from another, give "
            f"--init_checkpoint. Received: {path!r}"
        )


def trained_task_from_flags(
    values: flags.FlagValues, elsewhere: str | None
) -> tuple[TrainedTask | None, str]:
    """Returns what the model was trained for, None where nothing says it, and where that is said.

    Args:
        values: with --output_dir, which counts first.
        elsewhere: see `checkpoint_elsewhere`.
    """
    own = TrainedTask.read(values.output_dir)
    if own is None and elsewhere:
        name = str(values.task_name or "").lower() if "task_name" in values else ""
        return trained_task(elsewhere, name), os.path.dirname(elsewhere)
    return own, values.output_dir


def take_trained_settings(values: flags.FlagValues, settings: Mapping[str, Any]) -> None:
    """Gives flags that were not given the values of the trained model, where it has them."""
    for name, value in settings.items():
        if name in values and value is not None and not values[name].present:
            values[name].value = value


def model_directory_from_flags(values: flags.FlagValues, source: ModelSource) -> ModelDirectory:
    """Returns --output_dir as the directory of the model, with the dropout that the flags say.

    Raises:
        ValueError: it belongs to another model, or --max_seq_length is longer than its positions.
    """
    config = with_dropout(source.config, values.encoder_dropout_prob)
    config.check_sequence_length(values.max_seq_length, "--max_seq_length")
    return ModelDirectory(values.output_dir, config, source.config_file or "", source.tokenizer)


def start_from_flags(values: flags.FlagValues, source: ModelSource, task: TrainedTask) -> Start:
    """Returns what a fresh run starts from: the weights of the model, without a foreign head."""
    return Start(
        source.checkpoint,
        fresh_head(task, source.checkpoint) if source.checkpoint else None,
        values.init_from_group0,
        values.allow_partial_checkpoint,
    )


def prepare_output(directory: ModelDirectory, task: TrainedTask, *, is_training: bool) -> None:
    """Makes --output_dir the directory of the model and its task; what a training wrote stays.

    Args:
        directory: --output_dir.
        task: what the model does.
        is_training: whether this run trains.
    """
    if is_training:
        directory.write()
    else:
        directory.write_if_absent()
    if is_training or TrainedTask.read(directory.path) is None:
        task.write(directory.path)


def model_source_from_flags(values: flags.FlagValues, fallback: str | None = None) -> ModelSource:
    """Finds the model that the flags of `define_fine_tuning_model_flags` name.

    Args:
        values: the flags, --output_dir among them.
        fallback: a checkpoint to take the model from where --init_checkpoint is not given.

    Raises:
        ValueError: no model, or parts that do not fit each other.
    """
    source = resolve_model(
        ModelSettings(
            albert_config_file=values.albert_config_file,
            albert_hub_module_handle=values.albert_hub_module_handle,
            init_checkpoint=fallback if values.init_checkpoint is None else values.init_checkpoint,
            spm_model_file=values.spm_model_file,
            vocab_file=values.vocab_file,
            do_lower_case=values.do_lower_case if values["do_lower_case"].present else None,
            output_dir=values.output_dir,
        )
    )
    # The model keeps what its text went through, even where nothing had said it.
    extra = {**source.config.extra, LOWER_CASE_KEY: source.required_tokenizer.do_lower_case}
    warn_of_random_weights(source, values.output_dir)
    return dataclasses.replace(source, config=source.config.replace(extra=extra))


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
    for name, setting in _RECIPE_FLAGS.items():
        if name in values and not values[name].present:
            taken[name] = getattr(recipe, setting)
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
