"""What a user sets of a fine-tuning, and what it means: model, task and settings, checked."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, TypeVar

import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.directory_lock import TRAINING, check_unlocked
from albert_tf.checkpoints.formats import find_weights, trained_task
from albert_tf.checkpoints.load_weights import open_checkpoint
from albert_tf.checkpoints.model_directory import LOWER_CASE_KEY, ModelDirectory
from albert_tf.checkpoints.model_source import (
    ModelSettings,
    ModelSource,
    resolve_model,
    warn_of_random_weights,
)
from albert_tf.checkpoints.trained_task import QUESTION_TASKS, TrainedTask, described
from albert_tf.checkpoints.training_directory import CHOICES, TrainingDirectory
from albert_tf.config import FREEZES, VERSION_KEY, AlbertConfig, FineTuningOptimizerConfig
from albert_tf.data.files import check_file, check_folder, real_name
from albert_tf.data.sequences import PADDINGS
from albert_tf.finetuning.recipes import RECIPES, recipe_for, size_of, version_of
from albert_tf.serving.saved_model import TEXT_FOLDER
from albert_tf.training.distribution import is_tpu
from albert_tf.training.settings import TrainingSettings, limited, missing, unless_given

CHECKPOINT_FLAG = "--checkpoint"

_HEAD_VARIABLES = ("output_weights", "output_bias")

# By what variable of its own a head is known that is not one of a classifier.
_SPAN_HEADS = {"squad1.1": "cls/squad/output_weights", "squad2.0": "answer_class/dense_1/kernel"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningSettings(TrainingSettings):
    """Settings of the commands that fine-tune; see `TrainingSettings`."""

    do_train: bool = False
    do_predict: bool = False
    recipe: str = limited("none", choices=RECIPES)
    checkpoint: str | None = None
    predict_batch_size: int = limited(8, at_least=1)
    export_dir: str | None = None
    export_text_model: bool = False
    early_stopping: int | None = limited(None, at_least=1)
    freeze: str | None = limited(None, choices=FREEZES)
    padding: str = limited("longest", choices=PADDINGS)
    max_seq_length: int = unless_given(512)
    albert_hub_module_handle: str | None = None
    do_lower_case: bool | None = unless_given(None)
    encoder_dropout_prob: float | None = unless_given(None)
    train_batch_size: int = unless_given(32)
    save_checkpoints_steps: int = unless_given(1000)
    optimizer: str = unless_given(FineTuningOptimizerConfig.optimizer)
    learning_rate: float = unless_given(FineTuningOptimizerConfig.learning_rate)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepSettings(FineTuningSettings):
    """The same of commands that have a development set and a number of training steps."""

    do_eval: bool = False
    eval_batch_size: int = limited(8, at_least=1)
    train_step: int = unless_given(FineTuningOptimizerConfig.num_train_steps)
    warmup_step: int = unless_given(FineTuningOptimizerConfig.num_warmup_steps)


S = TypeVar("S", bound=FineTuningSettings)


def check_output(settings: FineTuningSettings, export_folder: str, *, writes: bool) -> None:
    """Raises ValueError, which names the flag, unless all that comes last can be written.

    Args:
        settings: what is to be done.
        export_folder: of --export_dir, where models of token ids lie.
        writes: whether anything is written into --output_dir.
    """
    if settings.export_text_model and not settings.export_dir:
        raise ValueError("--export_text_model needs --export_dir, the directory to write it below.")
    if settings.export_dir:
        names = filter(None, (export_folder, TEXT_FOLDER if settings.export_text_model else ""))
        for path in (settings.export_dir, *(os.path.join(settings.export_dir, n) for n in names)):
            check_folder(path, "--export_dir")
    if writes:
        check_folder(settings.output_dir, "--output_dir")
        if settings.do_train:
            check_unlocked(settings.output_dir, TRAINING)


def check_answers(path: str | None, read: str | None, read_flag: str) -> None:
    """Raises ValueError unless --predict_output_file can be written, and without overwriting.

    Args:
        path: --predict_output_file.
        read: the file that is answered; without one there is nothing to write.
        read_flag: its flag.
    """
    if not path:
        return
    check_file(path, "--predict_output_file")
    if not read:
        raise ValueError(
            f"--predict_output_file={path} is for the answers to {read_flag}, which is not given."
        )
    if real_name(path) == real_name(read):
        raise ValueError(
            f"--predict_output_file would overwrite {read_flag}: {read}. Use another name."
        )


def check_rate(value: float, flag: str) -> None:
    """Raises ValueError unless the value is a dropout rate."""
    if not 0 <= value < 1:
        raise ValueError(f"{flag} must be a rate in [0, 1). Received: {value}")


def resolve_padding(settings: S, strategy: tf.distribute.Strategy) -> S:
    """Changes --padding where a TPU would compile anew for batch after batch."""
    if not is_tpu(strategy) or settings.padding != "longest":
        return settings
    logging.info(
        "using --padding=buckets instead of longest, because a TPU compiles once per length; "
        "--padding=max compiles only once"
    )
    return dataclasses.replace(settings, padding="buckets")


def checkpoint_elsewhere(settings: FineTuningSettings) -> str | None:
    """Returns the prefix of the trained model that a path names, where nothing is to be trained.

    Raises:
        ValueError: there is none; or, beside a training, --checkpoint is none of --output_dir.
    """
    path = None if settings.checkpoint in CHOICES else settings.checkpoint
    if not settings.do_train:
        if path:
            return find_weights(path, CHECKPOINT_FLAG)
        return find_weights(settings.init_checkpoint) if settings.init_checkpoint else None
    # It could turn out to be missing, or another model, only after the training.
    own = os.path.abspath(settings.output_dir)
    if path and own not in (os.path.abspath(path), os.path.dirname(os.path.abspath(path))):
        raise ValueError(
            f"With --do_train, {CHECKPOINT_FLAG} must be one of {', '.join(CHOICES)} or a "
            f"checkpoint in --output_dir {settings.output_dir!r}; to start from another, pass "
            f"--init_checkpoint. Received: {path!r}"
        )
    return None


def trained_task_of(
    settings: FineTuningSettings, elsewhere: str | None
) -> tuple[TrainedTask | None, str]:
    """Returns what the model was trained for, None where nothing says it, and where that is said.

    What --output_dir says counts first, then what `checkpoint_elsewhere` found.
    """
    own = TrainedTask.read(settings.output_dir)
    if own is None and elsewhere:
        name = str(getattr(settings, "task_name", None) or "").lower()
        return trained_task(elsewhere, name), os.path.dirname(elsewhere)
    return own, settings.output_dir


def find_model(settings: FineTuningSettings, fallback: str | None) -> ModelSource:
    """Finds the model that the settings name; `fallback` takes the place of --init_checkpoint.

    Raises:
        ValueError: no model, or parts that do not fit each other.
    """
    fields = dataclasses.fields(ModelSettings)
    said = {field.name: getattr(settings, field.name, None) for field in fields}
    if said["init_checkpoint"] is None:
        said["init_checkpoint"] = fallback
    source = resolve_model(ModelSettings(**said))
    # The model keeps what its text went through, even where nothing had said it.
    extra = {**source.config.extra, LOWER_CASE_KEY: source.required_tokenizer.do_lower_case}
    warn_of_random_weights(source, settings.output_dir)
    return dataclasses.replace(source, config=source.config.replace(extra=extra))


def model_directory(settings: FineTuningSettings, source: ModelSource) -> ModelDirectory:
    """Returns --output_dir as the directory of the model, with the dropout of the settings.

    Raises:
        ValueError: it belongs to another model, or --max_seq_length is longer than its positions.
    """
    config, rate = source.config, settings.encoder_dropout_prob
    if rate is not None:
        check_rate(rate, "--encoder_dropout_prob")
        config = config.replace(
            hidden_dropout_prob=rate,
            attention_probs_dropout_prob=rate,
            extra={**config.extra, VERSION_KEY: version_of(config)},
        )
    config.check_sequence_length(settings.max_seq_length, "--max_seq_length")
    return ModelDirectory(settings.output_dir, config, source.config_file or "", source.tokenizer)


def prepare_output(directory: ModelDirectory, task: TrainedTask, *, is_training: bool) -> None:
    """Makes --output_dir the directory of the model and its task; what a training wrote stays."""
    if is_training:
        directory.write()
    else:
        directory.write_if_absent()
    if is_training or TrainedTask.read(directory.path) is None:
        task.write(directory.path)


def recipe_settings(
    settings: FineTuningSettings, known: Mapping[str, Any], task_name: str, config: AlbertConfig
) -> dict[str, Any]:
    """Returns what the recipe settles, by name, but for what was given or `known`; says so.

    Raises:
        ValueError: there is no recipe for the task.
    """
    if settings.recipe == "none":
        return {}
    version = version_of(config) if settings.recipe == "auto" else settings.recipe
    recipe = recipe_for(task_name, size_of(config), version)
    offered = {
        **vars(recipe),
        "max_seq_length": min(recipe.max_seq_length, config.max_position_embeddings),
        "dropout_prob": recipe.classifier_dropout_prob,
    }
    wanted = [name for name in missing(settings) if known.get(name) is None]
    taken = {name: offered[name] for name in wanted if name in offered}
    logging.info(
        "--recipe=%s (%s): %s",
        settings.recipe,
        recipe.source,
        " ".join(f"--{name}={value}" for name, value in taken.items()),
    )
    if recipe.init_from and settings.do_train:
        logging.info(
            "The published runs of this task started from a model fine-tuned on %s: pass one as "
            "--init_checkpoint",
            recipe.init_from,
        )
    return taken


def check_head_in(directory: str, task: TrainedTask) -> None:
    """Refuses to train in the directory of a pretrained model, whose best would be replaced.

    Args:
        directory: without a `labels.json`; that of a run of the original release has none.
        task: to be trained.

    Raises:
        ValueError: its newest checkpoint has no head for this task.
    """
    run = TrainingDirectory(directory)
    prefix = run.newest() or run.best()
    if not prefix:
        return
    _, shapes = open_checkpoint(prefix)
    if task.name in _SPAN_HEADS:
        has_head = _SPAN_HEADS[task.name] in shapes
    else:
        has_head = list(shapes.get(_HEAD_VARIABLES[0], ()))[:1] == [task.labels.num_outputs]
    if not has_head:
        what = f"these labels, {described(task.labels)}"
        raise ValueError(
            f"{directory!r} belongs to another model: {os.path.basename(prefix)} in it has no "
            f"head for {task.name if task.name in QUESTION_TASKS else what}. Use a new "
            "--output_dir; to start from that model, pass it as --init_checkpoint."
        )


def fresh_head(task: TrainedTask, checkpoint: str) -> dict[str, str]:
    """Returns the variables of the head that a training must not take from a checkpoint.

    A head answers one task. Its shape may fit another: most tasks have two labels. Where nothing
    says which task it was, a head that fits is taken, as the original release does. Each name has
    a reason, for `load_weights`.
    """
    there = trained_task(checkpoint, task.name)
    if there is None or (there.name, there.labels) == (task.name, task.labels):
        return {}
    _, shapes = open_checkpoint(checkpoint)
    reason = f"of the task {there.name}"
    return {name: reason for name in _HEAD_VARIABLES if name in shapes}
