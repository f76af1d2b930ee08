"""The steps of every fine-tuning run: prepare, train, evaluate, keep the best checkpoint, apply it.

All checks run before the first file is written.
"""

import dataclasses

from absl import logging

from albert_tf.checkpoints.facts import Meeting
from albert_tf.checkpoints.formats.choose import open_weights
from albert_tf.checkpoints.stored_heads import check_head
from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.data.errors import UserError
from albert_tf.finetuning.job import InMemory, Job, S
from albert_tf.finetuning.metrics import warn_of_constant
from albert_tf.finetuning.prepare import actions, prepare
from albert_tf.training.cluster import Workers
from albert_tf.training.directory_lock import EVALUATION, locked
from albert_tf.training.evaluation import load_complete
from albert_tf.training.process_state import process_state_kept
from albert_tf.training.run import evaluate_checkpoints, finish, train
from albert_tf.training.run_records import new_record
from albert_tf.training.settings import JobResult, OnLog, check_arguments
from albert_tf.training.step import build_model
from albert_tf.training.trainer import Trainer
from albert_tf.training.training_directory import (
    TrainingDirectory,
    choose_checkpoint,
    choose_checkpoints,
)


@process_state_kept()
def run(
    kind: type[Job[S]],
    settings: S,
    on_log: OnLog | None = None,
    in_memory: InMemory | None = None,
) -> JobResult:
    """Runs a job; see `run_classification` for the arguments and errors."""
    check_arguments(settings, kind.SETTINGS, on_log)
    context = prepare(kind, settings, in_memory)
    settings, strategy = context.settings, context.strategy
    job = kind(context)
    _check_data(job)
    task = job.make_task()
    result = JobResult(settings.output_dir)
    if settings.do_train:
        optimizer_config = job.optimizer_config(task.num_examples)
        profile = settings.profile_steps
        trainer = Trainer(task, settings.trainer_config(), optimizer_config, strategy, profile)
        job.use(trainer.model)
        result = train(job, trainer, task.num_examples, on_log)
    else:
        job.use(build_model(task.build_model, settings.precision, strategy))
        if job.evaluates and Workers(strategy).is_chief:
            result = _evaluate(job, on_log)
    warn_of_constant(*job.evaluated, job.task.labels)
    # In a dry run, the checkpoint to apply may not exist yet.
    is_created = settings.dry_run and (settings.do_train or job.evaluates)
    is_applied = {*actions(kind, settings)} - {"do_train", "do_eval"} and not is_created
    if is_applied and Workers(strategy).is_chief:
        result = _apply(job, result, on_log)
    return finish(result, strategy, dry_run=settings.dry_run)


def _check_data(job: Job[S]) -> None:
    """Raises ValueError if the data do not match the trained model or the output directory."""
    context, settings = job.context, job.settings
    if context.trained:
        context.trained.check_answers(job.task, context.trained_in)
    if settings.do_train:
        check_head_in(context.output, job.task)
    needed = "`validation_data`" if context.examples else job.EVALUATING
    for name in ("early_stopping", "best_metric"):
        value = getattr(settings, name)
        if settings.do_train and value and not job.evaluates:
            raise UserError(f"`{name}`={value} needs evaluations during training. Add {needed}.")


def check_head_in(directory: TrainingDirectory, task: StoredTask) -> None:
    """Raises ValueError if the newest checkpoint of a directory has no head for the task."""
    if prefix := directory.newest() or directory.best():
        advice = "Use a new `output_dir`. To start from that model, pass it as `init_checkpoint`."
        check_head(prefix, open_weights(prefix).shapes, task, Meeting.RESUME, advice)


def _evaluate(job: Job[S], on_log: OnLog | None) -> JobResult:
    """Evaluates existing checkpoints. If all in `output_dir` are evaluated, the best is kept."""
    context, settings = job.context, job.settings
    with locked(settings.output_dir, EVALUATION, dry_run=settings.dry_run):
        choice = settings.checkpoint or ("all" if context.is_from_this_run else None)
        if choice == "all":
            init = settings.init_checkpoint
            prefixes = list(choose_checkpoints(context.output, choice, init, name="checkpoint"))
        else:
            prefixes = [_chosen(job, choice)]
        load_complete(job.model, prefixes[0])
        if settings.dry_run:
            return JobResult(settings.output_dir)
        job.write_output()
        keeps_best = context.is_from_this_run and choice == "all"
        return evaluate_checkpoints(job, prefixes, on_log, keeps_best=keeps_best)


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
        job.write_output()
    job.apply(step)
    if result.scores:
        return result
    history = list(result.history)
    if scores := {name: float(value) for name, value in job.scores_of_answers.items()}:
        history.append(new_record("eval", step, scores))
        if on_log:
            on_log(dict(history[-1]))
    return dataclasses.replace(result, step=step, scores=scores, history=history)
