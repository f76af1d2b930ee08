"""The flow of every fine-tuning: check, train, evaluate every checkpoint, keep the best, apply it.

What is trained, scored and written is the job's affair; here is the order in which things happen.
Nothing is written before everything that can be checked has been checked.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Generic

import keras
import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.directory_lock import EVALUATION
from albert_tf.checkpoints.model_directory import ModelDirectory
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.trained_task import TrainedTask
from albert_tf.checkpoints.training_directory import (
    TrainingDirectory,
    choose_checkpoint,
    choose_checkpoints,
)
from albert_tf.config import AlbertConfig, FineTuningOptimizerConfig, OptimizerConfig
from albert_tf.finetuning.predictor import Predictor
from albert_tf.finetuning.setup import (
    CHECKPOINT_FLAG,
    S,
    check_head_in,
    check_output,
    check_rate,
    checkpoint_elsewhere,
    find_model,
    fresh_head,
    model_directory,
    prepare_output,
    recipe_settings,
    resolve_padding,
    trained_task_of,
)
from albert_tf.finetuning.task import InMemoryTask, num_padded_lengths
from albert_tf.training.distribution import (
    check_devices,
    is_chief,
    is_tpu,
    strategy_of,
    with_xla,
)
from albert_tf.training.evaluation import (
    BestCheckpoint,
    EvaluationResults,
    evaluate_checkpoints,
    load_complete,
    scored_result,
    should_stop_early,
    train_and_evaluate,
)
from albert_tf.training.job_result import EvaluationLog, JobResult, OnLog
from albert_tf.training.plan import TrainingPlan
from albert_tf.training.precision import build_model
from albert_tf.training.process_state import process_state_kept
from albert_tf.training.profiler import profiler_of
from albert_tf.training.run_log import RunLog
from albert_tf.training.settings import resolve
from albert_tf.training.trainer import Trainer
from albert_tf.training.workers import wait_for_workers

_WRITING = ("do_train", "do_eval", "do_predict")  # actions whose results go to --output_dir


class Job(ABC, Generic[S]):
    """What one kind of fine-tuning does its own way; `run` calls the methods in their order here.

    Args:
        settings: complete, but for what the constructor settles by the data.
        name: see `task_name`.
        trained: what the model was trained for; None where nothing says it.
        source: the model to start from.

    The constructor reads and checks the data, without making features, and sets:

    Attributes:
        task: what the model is to do.
        best_metric: the score that the best checkpoint has the highest of.
        evaluates: whether checkpoints are scored.

        outputs: of the model, that are evaluated and applied.
        results: takes the scores; there before checkpoints are evaluated.
        scores_of_answers: set by `apply` where the right answers are known.
    """

    ACTIONS: ClassVar[tuple[str, ...]] = ("do_train", "do_eval", "do_predict", "export_dir")
    DROPOUT: ClassVar[str] = "dropout_prob"  # the rate of the head
    EVALUATING: ClassVar[str] = "--do_eval"  # what lets a training evaluate its checkpoints
    EXPORT_FOLDER: ClassVar[str] = ""  # of --export_dir, for models of token ids
    RESULTS: ClassVar[type[EvaluationResults]] = EvaluationResults

    task: TrainedTask
    best_metric: str
    evaluates: bool
    outputs: Sequence[str] = ("logits",)
    model: keras.Model
    strategy: tf.distribute.Strategy
    results: EvaluationResults
    scores_of_answers: Mapping[str, float] = MappingProxyType({})

    @classmethod
    def check(cls, settings: S) -> None:
        """Raises ValueError where settings are wrong, whatever the model and the data."""
        rate = getattr(settings, cls.DROPOUT)
        if rate is not None:
            check_rate(rate, f"--{cls.DROPOUT}")

    @classmethod
    @abstractmethod
    def task_name(cls, settings: S, trained: TrainedTask | None) -> str:
        """Returns what the task is called in `labels.json` and in recipes."""

    @classmethod
    def trained_settings(cls, settings: S, trained: TrainedTask) -> dict[str, Any]:
        """Returns the settings of the trained model; they count where none were given."""
        return {**trained.settings, "max_seq_length": trained.max_seq_length}

    def __init__(
        self, settings: S, name: str, trained: TrainedTask | None, source: ModelSource
    ) -> None:
        self.settings = settings
        self.name = name
        self.trained = trained
        self.source = source
        self.tokenizer = source.required_tokenizer
        self._predictors: dict[int, Predictor] = {}  # by batch size; each traces the model once

    @abstractmethod
    def make_task(self, config: AlbertConfig, *, use_one_hot_embeddings: bool) -> InMemoryTask:
        """Makes the features of all data that was read, and returns what is to be trained."""

    def optimizer_config(self) -> OptimizerConfig:
        """Returns the update rule, the learning rate and the steps."""
        steps: Any = self.settings
        return self.settings.optimizer_config(
            FineTuningOptimizerConfig, steps.train_step, steps.warmup_step
        )

    def use(self, model: keras.Model, strategy: tf.distribute.Strategy) -> None:
        """Takes the model to evaluate and apply, its weights not loaded, before any writing."""
        self.model = model
        self.strategy = strategy

    @abstractmethod
    def evaluate(self) -> Mapping[str, float]:
        """Returns the scores of the model as it is."""

    def record(
        self, step: int, results: Mapping[str, float], best: BestCheckpoint, *, keeps_best: bool
    ) -> None:
        """Keeps the results of the checkpoint of a step, and if it may be and is, as the best."""
        self.results.append(step, results, best.value)
        if keeps_best:
            best.offer(step, results, self.model)

    @abstractmethod
    def apply(self, step: int) -> None:
        """Predicts and exports with the model as it is, from the checkpoint of a step."""

    def predictor(self, batch_size: int) -> Predictor:
        """Returns what runs the model over sequences; `batch_size` of the longest are a batch."""
        if batch_size not in self._predictors:
            settings = self.settings
            self._predictors[batch_size] = Predictor(
                self.model,
                self.strategy,
                outputs=self.outputs,
                max_seq_length=settings.max_seq_length,
                tokens_per_batch=batch_size * settings.max_seq_length,
                padding=settings.padding,
                jit_compile=settings.xla,
            )
        return self._predictors[batch_size]


@process_state_kept()
def run(kind: type[Job[S]], settings: S, on_log: OnLog | None = None) -> JobResult:
    """Does what the settings say; everything is checked before the first file is written.

    Args:
        kind: the job.
        settings: what is to be done.
        on_log: called by the chief with each record, see `JobResult.history`, as it is logged. An
            error in it ends the job; what was saved stays.

    Raises:
        ValueError: something is missing, wrong, or does not belong to the rest; names the flag.
        DirectoryLockedError: another run uses --output_dir.
        TrainingInterrupted, KeyboardInterrupt: a signal asked for the end; see `Trainer.train`.
    """
    check_devices(settings)
    actions = [name for name in kind.ACTIONS if getattr(settings, name)]
    check_output(settings, kind.EXPORT_FOLDER, writes=not set(actions).isdisjoint(_WRITING))
    kind.check(settings)
    if not actions:
        flags = [f"--{name}" for name in kind.ACTIONS]
        raise ValueError(f"Nothing to do: pass {', '.join(flags[:-1])} or {flags[-1]}.")
    strategy = strategy_of(settings)
    job, directory, is_own = _open(kind, resolve_padding(settings, strategy))
    settings = job.settings
    if settings.do_train and settings.early_stopping and not job.evaluates:
        raise ValueError(
            f"--early_stopping={settings.early_stopping} counts evaluations during the training, "
            f"of which there are none: it needs {kind.EVALUATING}."
        )
    trainer_config = settings.trainer_config()
    task = job.make_task(directory.config, use_one_hot_embeddings=is_tpu(strategy))
    trainer = None
    if settings.do_train:
        config = job.optimizer_config()
        profiler = profiler_of(
            settings.profile_steps,
            settings.output_dir,
            config.num_train_steps,
            records=is_chief(strategy),
        )
        trainer = Trainer(task, trainer_config, config, strategy, profiler)
    job.use(
        trainer.model
        if trainer
        else build_model(task.build_model, settings.precision, strategy, jit_compile=settings.xla),
        strategy,
    )
    result = JobResult(settings.output_dir)
    if trainer:
        result = _train(job, trainer, task, directory, on_log)
    elif job.evaluates and is_chief(strategy):
        result = _evaluate(job, directory, on_log, is_own=is_own)
    is_applied = not {*actions} <= {"do_train", "do_eval"}
    if settings.dry_run:  # what is to be applied may not be there yet
        is_applied = is_applied and not (settings.do_train or job.evaluates)
    if is_applied and is_chief(strategy):
        result = _apply(job, directory, result, on_log)
    wait_for_workers(strategy)
    if settings.dry_run or not is_chief(strategy):
        return JobResult(settings.output_dir)
    best = TrainingDirectory(settings.output_dir).best()
    return dataclasses.replace(result, best_checkpoint=best)


def _open(kind: type[Job[S]], settings: S) -> tuple[Job[S], ModelDirectory, bool]:
    """Finds and reads everything the settings name, and checks that it fits together.

    Returns the job, --output_dir, and whether the model in it was trained for the very task, so
    that scores tell which checkpoint is the best.
    """
    elsewhere = checkpoint_elsewhere(settings)
    trained, where = trained_task_of(settings, elsewhere)
    name = kind.task_name(settings, trained)
    if trained:
        trained.check_name(name, where, is_training=settings.do_train)
    source = find_model(settings, elsewhere)
    known = kind.trained_settings(settings, trained) if trained else {}
    recipe = recipe_settings(settings, known, name, source.config)
    given = settings.xla  # None still means that nobody has decided it
    settings = dataclasses.replace(resolve(settings, known, recipe), xla=given)
    settings = with_xla(settings, num_padded_lengths(settings.max_seq_length, settings.padding))
    directory = model_directory(settings, source)
    job = kind(settings, name, trained, source)
    if trained:
        trained.check_answers(job.task, where)
    elif settings.do_train:
        check_head_in(settings.output_dir, job.task)
    is_own = trained is None or where != settings.output_dir or trained.name == name
    return job, directory, is_own


def _train(
    job: Job[S],
    trainer: Trainer,
    task: InMemoryTask,
    directory: ModelDirectory,
    on_log: OnLog | None,
) -> JobResult:
    """Trains, or goes on with a training that ended early; evaluates every checkpoint."""
    settings, start = job.settings, job.source.checkpoint
    with trainer.locked(evaluates=job.evaluates, dry_run=settings.dry_run):
        trainer.initialize(
            start,
            init_from_group0=settings.init_from_group0,
            allow_partial=settings.allow_partial_checkpoint,
            skip=fresh_head(job.task, start) if start else None,
        )
        best = BestCheckpoint(trainer.directory, job.best_metric)
        trained_on = task.describe_input()
        if trainer.is_chief:
            TrainingPlan(
                trainer,
                trained_on["examples"],
                sequences_per_example=task.sequences_per_example,
                keeps_best=job.evaluates,
            ).log()
        if job.evaluates and trainer.is_chief:
            job.results = job.RESULTS(settings.output_dir, trainer.step)
        if settings.dry_run:
            return JobResult(settings.output_dir)
        if trainer.is_chief:
            prepare_output(directory, job.task, is_training=True)
        log = RunLog(
            settings.output_dir,
            trainer.optimizer_config.num_train_steps,
            trainer.step,
            write=trainer.is_chief,
            on_log=on_log,
        )
        log.write_config(
            {
                "model": trainer.model.config.to_dict(),
                "task": job.task.to_dict(),
                job.DROPOUT: getattr(settings, job.DROPOUT),
                "class_weights": getattr(settings, "class_weights", None),
                "trainer": dataclasses.asdict(trainer.config),
                "optimizer": dataclasses.asdict(trainer.optimizer_config),
                "input": trained_on,
            }
        )
        should_stop = None
        if patience := settings.early_stopping:
            should_stop = partial(should_stop_early, log, job.best_metric, patience)
        try:
            if job.evaluates and trainer.is_chief:
                record = partial(job.record, best=best, keeps_best=True)
                train_and_evaluate(trainer, log, job.evaluate, record, best.last_step, should_stop)
            else:
                trainer.train(log, should_stop=should_stop)
        finally:
            log.close()
    result = JobResult(settings.output_dir, history=log.records)
    if job.evaluates:
        result = scored_result(best, log.records, log.reported)
    return result if result.scores else dataclasses.replace(result, step=trainer.step)


def _evaluate(
    job: Job[S], directory: ModelDirectory, on_log: OnLog | None, *, is_own: bool
) -> JobResult:
    """Evaluates finished checkpoints; of all those in the output directory the best is kept."""
    settings = job.settings
    training = TrainingDirectory(settings.output_dir)
    with training.locked(EVALUATION, dry_run=settings.dry_run):
        best = BestCheckpoint(training, job.best_metric)
        choice = settings.checkpoint or ("all" if is_own else None)
        if choice == "all":
            init = settings.init_checkpoint
            prefixes = list(choose_checkpoints(training, choice, init, flag=CHECKPOINT_FLAG))
        else:
            prefixes = [_chosen(job, choice)]
        load_complete(job.model, prefixes[0])
        if settings.dry_run:
            return JobResult(settings.output_dir)
        prepare_output(directory, job.task, is_training=False)
        job.results = job.RESULTS(settings.output_dir)
        log = EvaluationLog(on_log)
        record = partial(job.record, best=best, keeps_best=is_own and choice == "all")
        evaluate_checkpoints(prefixes, job.model, log, job.evaluate, record)
    return scored_result(best, log.reported, log.reported)


def _chosen(job: Job[S], choice: str | None) -> str:
    """The prefix of the checkpoint to apply: the chosen one, else the best, else the newest."""
    settings = job.settings
    # What a training started from is no candidate any more.
    other = None if settings.do_train else settings.init_checkpoint
    directory = TrainingDirectory(settings.output_dir)
    return choose_checkpoint(directory, choice, other, flag=CHECKPOINT_FLAG)


def _apply(
    job: Job[S], directory: ModelDirectory, result: JobResult, on_log: OnLog | None
) -> JobResult:
    """Predicts and exports with one checkpoint; adds its scores where nothing was evaluated."""
    settings = job.settings
    prefix = _chosen(job, settings.checkpoint)
    step = load_complete(job.model, prefix)
    logging.info("Applying %s, step %d", prefix, step)
    if settings.dry_run:
        return result
    if settings.do_predict and not (settings.do_train or job.evaluates):
        prepare_output(directory, job.task, is_training=False)
    job.apply(step)
    if result.scores:
        return result
    log = EvaluationLog(on_log)
    if scores := {name: float(value) for name, value in job.scores_of_answers.items()}:
        log.evaluation(step, scores)
    history = [*result.history, *log.reported]
    return dataclasses.replace(result, step=step, scores=scores, history=history)
