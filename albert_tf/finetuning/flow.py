"""The steps of every fine-tuning run: prepare, train, evaluate, keep the best checkpoint, apply it.

All checks run before the first file is written.
"""

import dataclasses
from contextlib import closing
from typing import Any

from absl import logging

from albert_tf.checkpoints.facts import Meeting, compare
from albert_tf.checkpoints.formats.choose import open_weights, stored_task
from albert_tf.checkpoints.stored_heads import CLASSIFIER, check_head
from albert_tf.checkpoints.stored_model import StoredModel
from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.data.errors import UserError
from albert_tf.data.log_file import write_log_to
from albert_tf.finetuning.job import InMemory, Job, S
from albert_tf.finetuning.metrics import warn_of_constant
from albert_tf.finetuning.objective import InMemoryTask
from albert_tf.finetuning.prepare import actions, prepare
from albert_tf.training.cluster import Workers
from albert_tf.training.directory_lock import EVALUATION, locked
from albert_tf.training.evaluation import (
    comparable_evaluation,
    load_complete,
    loaded_checkpoints,
    scored_result,
    should_stop_early,
)
from albert_tf.training.interruption import raise_if_interrupted
from albert_tf.training.process_state import process_state_kept
from albert_tf.training.run import finish, locked_output, log_plan, start_log, training_result
from albert_tf.training.run_log import EvaluationLog
from albert_tf.training.run_records import EVALUATION_KEY, new_record, write_evaluation
from albert_tf.training.settings import JobResult, OnLog
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
    context = prepare(kind, settings, in_memory)
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
    for name in ("early_stopping", "best_metric"):
        value = getattr(settings, name)
        if settings.do_train and value and not job.evaluates:
            raise UserError(
                f"`{name}`={value} needs evaluations during training. Add {job.EVALUATING}."
            )


def check_head_in(directory: TrainingDirectory, task: StoredTask) -> None:
    """Raises ValueError if the newest checkpoint of a directory has no head for the task."""
    if prefix := directory.newest() or directory.best():
        check_head(prefix, open_weights(prefix).shapes, task, Meeting.RESUME)


def fresh_head(task: StoredTask, checkpoint: str | StoredModel) -> dict[str, str]:
    """Returns the variables that must not be loaded, with the reason.

    They belong to a head that was trained for another task, or for numbers of another unit. As in
    the original release, a head of the same shape is loaded if its task is unknown.
    """
    stored = stored_task(checkpoint, task.name)
    name = checkpoint.path if isinstance(checkpoint, StoredModel) else checkpoint
    sources = {name: stored.facts, "this run": task.facts} if stored else {}
    found = compare(sources, Meeting.GIVEN)
    changed = [one.text for one in found if one.name in ("task", "labels", "scale")]
    weights = open_weights(checkpoint) if changed else {}
    head = (name for name in (CLASSIFIER, "output_bias") if name in weights)
    return dict.fromkeys(head, "; ".join(changed))


def _write_output(job: Job[S]) -> None:
    """Writes model and task to `output_dir`. Without training, existing files are kept."""
    directory = job.context.model_directory
    if job.settings.do_train:
        directory.write()
    else:
        directory.write_if_absent()
    write_log_to(directory.path)
    if job.settings.do_train or StoredTask.read(directory.path) is None:
        job.task.write(directory.path)


def _train(job: Job[S], trainer: Trainer, task: InMemoryTask, on_log: OnLog | None) -> JobResult:
    """Starts or resumes training, and evaluates every checkpoint on the chief."""
    settings, checkpoint, evaluates = job.settings, job.context.checkpoint, job.evaluates
    with locked_output(trainer, evaluates=evaluates, dry_run=settings.dry_run):
        trainer.initialize(
            checkpoint.weights if isinstance(checkpoint, StoredModel) else checkpoint,
            init_from_group0=settings.init_from_group0,
            allow_partial=settings.allow_partial_checkpoint,
            skip=fresh_head(job.task, checkpoint) if checkpoint else None,
        )
        best = job.best_checkpoint()
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
                    log.evaluation(step, results, is_best=best.is_better(step, results))
                    job.record(step, results, best, keeps_best=True)
                if settings.early_stopping and step < trainer.last_step:
                    stops = should_stop_early(log.records, best, settings.early_stopping)
                    if trainer.workers.any(stops):
                        raise_if_interrupted()
                        break
    warn_of_constant(*job.evaluated, job.task.labels)
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
        best = job.best_checkpoint()
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
        warn_of_constant(*job.evaluated, job.task.labels)
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
