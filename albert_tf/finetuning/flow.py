"""The steps of every fine-tuning run: prepare, train, evaluate, keep the best checkpoint, apply it.

All checks run before the first file is written.
"""

import dataclasses
import os
from contextlib import closing
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.formats import open_weights, stored_task
from albert_tf.checkpoints.model_choice import choose_model
from albert_tf.checkpoints.model_directory import LOWER_CASE_KEY, ModelDirectory
from albert_tf.checkpoints.stored_heads import CLASSIFIER, has_head
from albert_tf.checkpoints.stored_model import StoredModel
from albert_tf.checkpoints.stored_task import (
    QUESTION_TASKS,
    StoredTask,
    described,
    warn_of_another_length,
)
from albert_tf.config import AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.data.files import check_folder
from albert_tf.finetuning.job import Job, RunContext, S
from albert_tf.finetuning.recipes import recipe_settings, with_dropout
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.finetuning.task import InMemoryTask, num_padded_lengths
from albert_tf.serving.saved_model import TEXT_FOLDER
from albert_tf.settings import missing, resolve
from albert_tf.training.cluster import Workers
from albert_tf.training.directory_lock import EVALUATION, TRAINING, check_unlocked, locked
from albert_tf.training.evaluation import (
    BestCheckpoint,
    comparable_evaluation,
    load_complete,
    loaded_checkpoints,
    scored_result,
    should_stop_early,
)
from albert_tf.training.interruption import raise_if_interrupted
from albert_tf.training.process_state import process_state_kept
from albert_tf.training.run import (
    finish,
    locked_output,
    log_plan,
    start_log,
    training_result,
)
from albert_tf.training.run_log import EvaluationLog
from albert_tf.training.run_records import EVALUATION_KEY, new_record, write_evaluation
from albert_tf.training.settings import JobResult, OnLog
from albert_tf.training.step import build_model
from albert_tf.training.strategies import is_tpu, strategy_of, with_xla
from albert_tf.training.trainer import Trainer
from albert_tf.training.training_directory import (
    CHOICES,
    TrainingDirectory,
    choose_checkpoint,
    choose_checkpoints,
)


@process_state_kept()
def run(kind: type[Job[S]], settings: S, on_log: OnLog | None = None) -> JobResult:
    """Runs a job; see `run_classification` for the arguments and errors."""
    context = prepare(kind, settings)
    settings, strategy = context.settings, context.strategy
    trainer_config = settings.trainer_config()
    job = kind(context)
    _check_data(job)
    task = job.make_task()
    result = JobResult(settings.output_dir)
    if settings.do_train:
        trainer = Trainer(
            task,
            trainer_config,
            job.optimizer_config(task.num_examples),
            strategy,
            settings.profile_steps,
        )
        job.use(trainer.model)
        result = _train(job, trainer, task, on_log)
    else:
        job.use(build_model(task.build_model, settings.precision, strategy))
        if job.evaluates and Workers(strategy).is_chief:
            result = _evaluate(job, on_log)
    # In a dry run, the checkpoint to apply may not exist yet.
    is_created = settings.dry_run and (settings.do_train or job.evaluates)
    is_applied = {*_actions(kind, settings)} - {"do_train", "do_eval"} and not is_created
    if is_applied and Workers(strategy).is_chief:
        result = _apply(job, result, on_log)
    return finish(result, strategy, dry_run=settings.dry_run)


def prepare(kind: type[Job[S]], settings: S) -> RunContext[S]:
    """Resolves the settings; raises ValueError if they are invalid or do not match the model."""
    _check_settings(kind, settings)
    strategy = strategy_of(settings)
    output = TrainingDirectory(settings.output_dir)
    checkpoint = _checkpoint_elsewhere(settings)
    trained, trained_in = _trained_task(kind, settings, checkpoint)
    task_name = kind.task_name(settings, trained)
    if trained:
        trained.check_name(task_name, trained_in, is_training=settings.do_train)
    source = _choose_model(settings, checkpoint, output)
    settings = _resolve(kind, settings, strategy, trained, task_name, source.required_config)
    return RunContext(
        settings=settings,
        strategy=strategy,
        tokenizer=source.required_tokenizer,
        checkpoint=source.checkpoint or None,
        output=output,
        model_directory=ModelDirectory(
            output.path, _model_config(source, settings), source.required_tokenizer
        ),
        task_name=task_name,
        trained=trained,
        trained_in=trained_in,
    )


def _trained_task(
    kind: type[Job[S]], settings: S, checkpoint: str | None
) -> tuple[StoredTask | None, str]:
    """Returns the task of the trained model, if it is known, and the directory of the model."""
    trained = StoredTask.read(settings.output_dir)
    if trained is not None or not checkpoint:
        return trained, settings.output_dir
    wanted = str(getattr(settings, "task_name", None) or kind.TASK).lower()
    return stored_task(checkpoint, wanted), os.path.dirname(checkpoint)


def _choose_model(
    settings: FineTuningSettings, checkpoint: str | None, output: TrainingDirectory
) -> StoredModel:
    """Chooses configuration, tokenizer and initial weights; warns if there are no weights."""
    init = settings.init_checkpoint
    source = choose_model(
        albert_config_file=settings.albert_config_file,
        albert_hub_module_handle=settings.albert_hub_module_handle,
        init_checkpoint=checkpoint if init is None else init,
        output_dir=settings.output_dir,
        spm_model_file=settings.spm_model_file,
        vocab_file=settings.vocab_file,
        do_lower_case=settings.do_lower_case,
    )
    _ = source.required_tokenizer
    if not (source.checkpoint or output.newest() or output.best()):
        logging.warning(
            "RANDOM WEIGHTS: neither `init_checkpoint` nor `albert_hub_module_handle` is given. "
            "All weights are trained from scratch, which gives poor results unless the data set "
            "is very large."
        )
    return source


def _resolve(
    kind: type[Job[S]],
    settings: S,
    strategy: tf.distribute.Strategy,
    trained: StoredTask | None,
    task_name: str,
    config: AlbertConfig,
) -> S:
    """Sets unset values to those of the trained model, the recipe or the defaults."""
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


def _model_config(source: StoredModel, settings: FineTuningSettings) -> AlbertConfig:
    """Returns the configuration of the trained model."""
    # The model stores `do_lower_case`, so that later commands tokenize in the same way.
    config, lower_case = source.required_config, source.required_tokenizer.do_lower_case
    config = config.replace(extra={**config.extra, LOWER_CASE_KEY: lower_case})
    if settings.encoder_dropout_prob is not None:
        config = with_dropout(config, settings.encoder_dropout_prob)
    config.check_sequence_length(settings.max_seq_length)
    return config


def _actions(kind: type[Job[S]], settings: S) -> list[str]:
    return [name for name in kind.ACTIONS if getattr(settings, name)]


def _check_settings(kind: type[Job[S]], settings: S) -> None:
    """Raises ValueError unless all outputs can be written and the settings are valid."""
    if settings.export_text_model and not settings.export_dir:
        raise UserError("`export_text_model` needs `export_dir`, the directory for exports.")
    if settings.export_dir:
        names = filter(None, (kind.EXPORT_FOLDER, TEXT_FOLDER * settings.export_text_model))
        for path in (settings.export_dir, *(os.path.join(settings.export_dir, n) for n in names)):
            check_folder(path)
    if {*_actions(kind, settings)} & {"do_train", "do_eval", "do_predict"}:
        check_folder(settings.output_dir)
        if settings.do_train:
            check_unlocked(settings.output_dir, TRAINING)
    kind.check(settings)
    if not _actions(kind, settings):
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


def _check_data(job: Job[S]) -> None:
    """Raises ValueError if the data do not match the trained model or the output directory."""
    context, settings = job.context, job.settings
    if context.trained:
        context.trained.check_answers(job.task, context.trained_in)
    if settings.do_train:
        check_head_in(context.output, job.task)
    if settings.do_train and settings.early_stopping and not job.evaluates:
        raise UserError(
            f"`early_stopping`={settings.early_stopping} needs evaluations during training. "
            f"Add {job.EVALUATING}."
        )


def check_head_in(directory: TrainingDirectory, task: StoredTask) -> None:
    """Raises ValueError if the newest checkpoint of a directory has no head for the task."""
    prefix = directory.newest() or directory.best()
    if not prefix:
        return
    if not has_head(open_weights(prefix).shapes, task):
        labels = f"these labels, {described(task.labels)}"
        raise UserError(
            f"{directory.path!r} belongs to another model: its checkpoint "
            f"{os.path.basename(prefix)} has no head for "
            f"{task.name if task.name in QUESTION_TASKS else labels}. Use a new `output_dir`. "
            "To start from that model, pass it as `init_checkpoint`."
        )


def fresh_head(task: StoredTask, checkpoint: str) -> dict[str, str]:
    """Returns the variables that must not be loaded, with the reason.

    They belong to a head that was trained for another task. As in the original release, a head of
    the same shape is loaded if its task is unknown.
    """
    stored = stored_task(checkpoint, task.name)
    if stored is None or (stored.name, stored.labels) == (task.name, task.labels):
        return {}
    weights = open_weights(checkpoint)
    reason = f"of the task {stored.name}"
    return {name: reason for name in (CLASSIFIER, "output_bias") if name in weights}


def _write_output(job: Job[S]) -> None:
    """Writes model and task to `output_dir`. Without training, existing files are kept."""
    directory = job.context.model_directory
    if job.settings.do_train:
        directory.write()
    else:
        directory.write_if_absent()
    if job.settings.do_train or StoredTask.read(directory.path) is None:
        job.task.write(directory.path)


def _train(job: Job[S], trainer: Trainer, task: InMemoryTask, on_log: OnLog | None) -> JobResult:
    """Starts or resumes training, and evaluates every checkpoint on the chief."""
    settings, checkpoint, evaluates = job.settings, job.context.checkpoint, job.evaluates
    with locked_output(trainer, evaluates=evaluates, dry_run=settings.dry_run):
        trainer.initialize(
            checkpoint,
            init_from_group0=settings.init_from_group0,
            allow_partial=settings.allow_partial_checkpoint,
            skip=fresh_head(job.task, checkpoint) if checkpoint else None,
        )
        best = BestCheckpoint(trainer.directory, job.best_metric)
        log_plan(trainer, task.num_examples)
        if settings.dry_run:
            return JobResult(settings.output_dir)
        if trainer.is_chief:
            _write_output(job)
            if evaluates:
                job.results = job.RESULTS(settings.output_dir, trainer.step)
        last_evaluated = best.last_step
        with (
            closing(start_log(trainer, best, _run_config(job, trainer, task), on_log)) as log,
            closing(trainer.checkpoints(log)) as checkpoints,
        ):
            for step in checkpoints:
                is_evaluated = trainer.is_checkpoint(step) and step != last_evaluated
                if evaluates and trainer.is_chief and is_evaluated:
                    results = job.evaluate()
                    log.evaluation(step, results)
                    job.record(step, results, best, keeps_best=True)
                if settings.early_stopping and step < trainer.last_step:
                    stops = should_stop_early(log.records, best, settings.early_stopping)
                    if trainer.workers.any(stops):
                        raise_if_interrupted()
                        break
    return training_result(trainer, log, best if evaluates else None)


def _run_config(job: Job[S], trainer: Trainer, task: InMemoryTask) -> dict[str, Any]:
    """Returns the settings of a run for `run_config.json`."""
    return {
        "model": trainer.model.config.to_dict(),
        "task": job.task.to_dict(),
        job.DROPOUT: getattr(job.settings, job.DROPOUT),
        "class_weights": getattr(job.settings, "class_weights", None),
        "trainer": dataclasses.asdict(trainer.config),
        "optimizer": dataclasses.asdict(trainer.optimizer_config),
        "input": task.describe_input(),
        EVALUATION_KEY: job.describe_evaluation() if job.evaluates else None,
    }


def _evaluate(job: Job[S], on_log: OnLog | None) -> JobResult:
    """Evaluates existing checkpoints. If all in `output_dir` are evaluated, the best is kept."""
    context, settings = job.context, job.settings
    with locked(settings.output_dir, EVALUATION, dry_run=settings.dry_run):
        best = BestCheckpoint(context.output, job.best_metric)
        choice = settings.checkpoint or ("all" if context.is_from_this_run else None)
        if choice == "all":
            init = settings.init_checkpoint
            prefixes = list(choose_checkpoints(context.output, choice, init, name="checkpoint"))
        else:
            prefixes = [_chosen(job, choice)]
        load_complete(job.model, prefixes[0])
        if settings.dry_run:
            return JobResult(settings.output_dir)
        _write_output(job)
        job.results = job.RESULTS(settings.output_dir)
        keeps_best = context.is_from_this_run and choice == "all"
        if keeps_best:
            evaluation = comparable_evaluation(best, job.describe_evaluation())
            write_evaluation(settings.output_dir, evaluation)
        log = EvaluationLog(on_log)
        for step in loaded_checkpoints(prefixes, job.model):
            results = job.evaluate()
            log.evaluation(step, results)
            job.record(step, results, best, keeps_best=keeps_best)
        return scored_result(best, log.reported, log.reported)


def _chosen(job: Job[S], choice: str | None) -> str:
    """Returns the prefix of a checkpoint. The default is the best one, or else the newest."""
    # After training, the initial checkpoint must not be chosen.
    other = None if job.settings.do_train else job.settings.init_checkpoint
    return choose_checkpoint(job.context.output, choice, other, name="checkpoint")


def _apply(job: Job[S], result: JobResult, on_log: OnLog | None) -> JobResult:
    """Predicts and exports with one checkpoint. Adds its scores if nothing was evaluated."""
    settings = job.settings
    prefix = _chosen(job, settings.checkpoint)
    step = load_complete(job.model, prefix)
    logging.info("Applying %s, step %d", prefix, step)
    if settings.dry_run:
        return result
    if settings.do_predict and not (settings.do_train or job.evaluates):
        _write_output(job)
    job.apply(step)
    if result.scores:
        return result
    history = list(result.history)
    if scores := {name: float(value) for name, value in job.scores_of_answers.items()}:
        history.append(new_record("eval", step, scores))
        if on_log:
            on_log(dict(history[-1]))
    return dataclasses.replace(result, step=step, scores=scores, history=history)
