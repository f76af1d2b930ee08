"""The preparation of a fine-tuning run: settings, devices, task and model."""

import dataclasses
import os

import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.formats.choose import open_weights, stored_task
from albert_tf.checkpoints.model_choice import choose_model
from albert_tf.checkpoints.model_directory import ModelDirectory, with_rules
from albert_tf.checkpoints.stored_model import StoredModel
from albert_tf.checkpoints.stored_task import StoredTask, warn_of_another_length
from albert_tf.config import AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.data.files import check_folder
from albert_tf.finetuning.batches import num_padded_lengths
from albert_tf.finetuning.job import InMemory, Job, RunContext, S
from albert_tf.finetuning.recipes import is_for_mini, recipe_settings, with_dropout
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.serving.saved_model import TEXT_FOLDER
from albert_tf.settings import missing, resolve
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.library import require_own_rules
from albert_tf.tokenization.piece_counts import warn_of_unreachable_pieces
from albert_tf.training.directory_lock import TRAINING, check_unlocked
from albert_tf.training.strategies import is_tpu, strategy_of, with_xla
from albert_tf.training.training_directory import CHOICES, TrainingDirectory


def prepare(kind: type[Job[S]], settings: S, in_memory: InMemory | None = None) -> RunContext[S]:
    """Resolves the settings; raises ValueError if they are invalid or do not match the model."""
    _check_settings(kind, settings)
    strategy = strategy_of(settings)
    output = TrainingDirectory(settings.output_dir)
    checkpoint = _checkpoint_elsewhere(settings)
    trained, trained_in = _trained_task(kind, settings, checkpoint, in_memory)
    task_name = in_memory.task.name if in_memory else kind.task_name(settings, trained)
    if trained:
        trained.check_name(task_name, trained_in, is_training=settings.do_train)
        if in_memory:
            trained.check_answers(in_memory.task, trained_in)
    start: str | StoredModel | None = settings.init_checkpoint
    if start is None:
        start = in_memory.start if in_memory else checkpoint
    source = _choose_model(settings, start)
    tokenizer = source.required_tokenizer
    if settings.export_text_model:
        require_own_rules(tokenizer, "`export_text_model`")
    warn_of_unreachable_pieces(tokenizer)
    initial = source if source.open_weights else None
    if not (initial or output.newest() or output.best()):
        logging.warning(
            "RANDOM WEIGHTS: neither `init_checkpoint` nor `albert_hub_module_handle` is given. "
            "All weights are trained from scratch, which gives poor results unless the data set "
            "is very large."
        )
    is_free = not (settings.num_train_epochs or getattr(settings, "train_step", None))
    chooses_steps = is_free and is_for_mini(settings.recipe, source.required_config)
    given_warmup = getattr(settings, "warmup_step", None)
    settings = _resolve(kind, settings, strategy, trained, task_name, source.required_config)
    config = _model_config(source.required_config, tokenizer, settings)
    return RunContext(
        settings=settings,
        strategy=strategy,
        tokenizer=tokenizer,
        initial=initial,
        output=output,
        model_directory=ModelDirectory(output.path, config, tokenizer),
        task_name=task_name,
        trained=trained,
        trained_in=trained_in,
        chooses_steps=chooses_steps,
        given_warmup=given_warmup,
        examples=in_memory.examples if in_memory else {},
    )


def _trained_task(
    kind: type[Job[S]], settings: S, checkpoint: str | None, in_memory: InMemory | None
) -> tuple[StoredTask | None, str]:
    """Returns the task of the trained model, if it is known, and the directory of the model."""
    trained = StoredTask.read(settings.output_dir)
    if trained is None and in_memory:
        trained = in_memory.task
    if trained is not None or not checkpoint:
        return trained, settings.output_dir
    wanted = str(getattr(settings, "task_name", None) or kind.TASK).lower()
    return stored_task(checkpoint, wanted), os.path.dirname(checkpoint)


def _choose_model(settings: FineTuningSettings, start: str | StoredModel | None) -> StoredModel:
    """Chooses configuration, tokenizer and initial weights."""
    return choose_model(
        albert_config_file=settings.albert_config_file,
        albert_hub_module_handle=settings.albert_hub_module_handle,
        init_checkpoint=start,
        output_dir=settings.output_dir,
        spm_model_file=settings.spm_model_file,
        vocab_file=settings.vocab_file,
        **settings.rules(),
    )


def _resolve(
    kind: type[Job[S]],
    settings: S,
    strategy: tf.distribute.Strategy,
    trained: StoredTask | None,
    task_name: str,
    config: AlbertConfig,
) -> S:
    """Fills unset settings from the trained model, the recipe or the defaults, in this order."""
    if not settings.do_train:
        warn_of_another_length(trained, settings.max_seq_length)
    known = kind.trained_settings(settings, trained) if trained else {}
    unset = [name for name in missing(settings) if known.get(name) is None]
    recipe = recipe_settings(
        settings.recipe, task_name, config, unset, is_training=settings.do_train
    )
    is_compiled = settings.xla  # may be `None`, which `with_xla` replaces below
    settings = dataclasses.replace(resolve(settings, known, recipe), xla=is_compiled)
    if is_tpu(strategy) and settings.padding == "longest":
        logging.info(
            "Using `padding`=buckets instead of longest, because a TPU compiles once per length. "
            "`padding`=max compiles only once."
        )
        settings = dataclasses.replace(settings, padding="buckets")
    return with_xla(settings, num_padded_lengths(settings.max_seq_length, settings.padding))


def _model_config(
    config: AlbertConfig, tokenizer: Tokenizer, settings: FineTuningSettings
) -> AlbertConfig:
    """Returns the configuration of the model that is trained."""
    # The model stores these settings, so that later commands tokenize in the same way.
    config = with_rules(config, tokenizer.rules)
    if settings.encoder_dropout_prob is not None:
        config = with_dropout(config, settings.encoder_dropout_prob)
    config.check_sequence_length(settings.max_seq_length)
    return config


def actions(kind: type[Job[S]], settings: S) -> list[str]:
    """Returns the names of the settings that select what a run does."""
    return [name for name in kind.ACTIONS if getattr(settings, name)]


def _check_settings(kind: type[Job[S]], settings: S) -> None:
    """Raises ValueError unless all outputs can be written and the settings are valid."""
    if settings.export_text_model and not settings.export_dir:
        raise UserError("`export_text_model` needs `export_dir`, the directory for exports.")
    if settings.export_dir:
        names = filter(None, (kind.EXPORT_FOLDER, TEXT_FOLDER * settings.export_text_model))
        for path in (settings.export_dir, *(os.path.join(settings.export_dir, n) for n in names)):
            check_folder(path)
    if {*actions(kind, settings)} & {"do_train", "do_eval", "do_predict"}:
        check_folder(settings.output_dir)
        if settings.do_train:
            check_unlocked(settings.output_dir, TRAINING)
    kind.check(settings)
    if not actions(kind, settings):
        flags = [f"`{name}`" for name in kind.ACTIONS]
        raise UserError(f"Nothing to do: pass {', '.join(flags[:-1])} or {flags[-1]}.")


def _checkpoint_elsewhere(settings: FineTuningSettings) -> str | None:
    """Returns the prefix of the checkpoint to apply; `None` if it will be in `output_dir`."""
    path = None if settings.checkpoint in CHOICES else settings.checkpoint
    if not settings.do_train:
        path = path or settings.init_checkpoint
        return open_weights(path).source if path else None
    # Otherwise, a wrong path would be detected only after training.
    own = os.path.abspath(settings.output_dir)
    if path and own not in (os.path.abspath(path), os.path.dirname(os.path.abspath(path))):
        raise UserError(
            f"With `do_train`, `checkpoint` must be one of {', '.join(CHOICES)} or a "
            f"checkpoint in `output_dir` {settings.output_dir!r}. To start from another "
            f"checkpoint, pass `init_checkpoint`. Received: {path!r}"
        )
    return None
