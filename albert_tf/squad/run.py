"""What `run_squad` does: trains, evaluates, answers and exports as its flags say."""

from __future__ import annotations

import dataclasses
import math
import os

import keras
import tensorflow as tf
from absl import flags, logging

from albert_tf.checkpoints.directory_lock import EVALUATION
from albert_tf.checkpoints.model_directory import ModelDirectory
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.trained_task import SQUAD_TASKS, THRESHOLD, TrainedTask
from albert_tf.checkpoints.training_directory import TrainingDirectory
from albert_tf.cli.devices import check_device_flags, strategy_from_flags
from albert_tf.cli.dry_run import is_dry_run
from albert_tf.cli.flags import optimizer_config_from_flags, trainer_config_from_flags
from albert_tf.config import OptimizerConfig, SquadOptimizerConfig
from albert_tf.data.jobs import available_cores
from albert_tf.finetuning import flow
from albert_tf.finetuning.predictor import Predictor
from albert_tf.finetuning.setup import (
    apply_recipe,
    check_answer_flags,
    check_export_flags,
    check_rate,
    check_results_flags,
    checkpoint_elsewhere,
    model_directory_from_flags,
    model_source_from_flags,
    prepare_output,
    resolve_padding,
    start_from_flags,
    take_trained_settings,
    trained_task_from_flags,
)
from albert_tf.finetuning.start import check_head_in
from albert_tf.serving.litert import ORIGINAL_FILE as LITERT_FILE
from albert_tf.serving.litert import LiteRTExport
from albert_tf.squad.answers import OUTPUTS, AnswerSettings, check_sizes
from albert_tf.squad.ask import QuestionAnswerer, answer_file, check_questions
from albert_tf.squad.data import SquadData, read_squad
from albert_tf.squad.evaluation import (
    SquadRun,
    SquadSettings,
    best_metric,
    threshold_without_references,
)
from albert_tf.squad.export import FOLDER as SPANS_FOLDER
from albert_tf.squad.export import export_spans, export_text_spans
from albert_tf.squad.features import SquadFeatures, check_lengths, squad_features
from albert_tf.squad.metrics import has_references
from albert_tf.squad.task import SquadTask
from albert_tf.tokenization.base import Tokenizer
from albert_tf.training.distribution import is_chief, is_tpu
from albert_tf.training.evaluation import BestCheckpoint
from albert_tf.training.precision import build_model
from albert_tf.training.trainer import Trainer
from albert_tf.training.workers import wait_for_workers

# What a model that is applied must share with its training, by version of SQuAD.
_KEPT_FLAGS = {
    1: ("doc_stride", "max_query_length"),
    2: ("doc_stride", "max_query_length", "start_n_top", "end_n_top"),
}

_MANY_WINDOWS = 1.5  # windows a question from which on a pass over the questions misleads
_QUESTIONS_A_PROCESS = 25_000  # fewer are not worth starting another process for


@dataclasses.dataclass(frozen=True)
class Questions:
    """A file of questions and their windows."""

    data: SquadData
    features: SquadFeatures


@dataclasses.dataclass(frozen=True)
class Job:
    """What the flags mean.

    Attributes:
        version: 1 or 2, of SQuAD.
        task: what the model is to do.
        source: the model to start from.
        directory: --output_dir.
        threshold: null odds that an earlier evaluation found best; None if there was none.
        train: --train_file, where it is trained on.
        predict: --predict_file, where it is answered.
    """

    version: int
    task: TrainedTask
    source: ModelSource
    directory: ModelDirectory
    threshold: float | None
    train: Questions | None
    predict: Questions | None


def job_from_flags(values: flags.FlagValues) -> Job:
    """Finds and reads everything the flags name, and checks that it fits together.

    A recipe and a trained model settle flags that were not given.

    Raises:
        ValueError: something is missing, wrong, or does not belong to the rest; names the flag.
    """
    elsewhere = checkpoint_elsewhere(values)
    trained, where = trained_task_from_flags(values, elsewhere)
    version = _version(values, trained)
    if version == 1 and values[THRESHOLD].present:
        logging.warning("--%s does nothing: SQuAD 1.1 answers every question", THRESHOLD)
    name = SQUAD_TASKS[version]
    settings: dict[str, float] = {}
    if trained:
        trained.check_name(name, where, is_training=values.do_train)
        settings.update(trained.settings)
    threshold = settings.pop(THRESHOLD, None)
    source = model_source_from_flags(values, fallback=elsewhere)
    apply_recipe(values, name, source.config)
    if trained:
        take_trained_settings(values, {**settings, "max_seq_length": trained.max_seq_length})
    directory = model_directory_from_flags(values, source)
    settings = {flag: getattr(values, flag) for flag in _KEPT_FLAGS[version]}
    if threshold is not None:
        settings[THRESHOLD] = threshold
    task = TrainedTask(name, max_seq_length=values.max_seq_length, settings=settings)
    if values.do_train and trained is None:
        check_head_in(values.output_dir, task)
    if values.predict_json or values.export_text_model:
        check_lengths(values.max_seq_length, values.doc_stride, values.max_query_length)
    train, predict = _questions(values, version, source.required_tokenizer)
    return Job(version, task, source, directory, threshold, train, predict)


def _version(values: flags.FlagValues, trained: TrainedTask | None) -> int:
    of_model = [
        version for version, name in SQUAD_TASKS.items() if trained and trained.name == name
    ]
    version = values.squad_version or next(iter(of_model), None)
    if version is None:
        of_other = f"a model of another task, {trained.name!r}" if trained else ""
        raise ValueError(
            f"--squad_version is needed: {values.output_dir!r} holds "
            f"{of_other or 'no model that says what it was trained for'}. Give 1 (every question "
            "has an answer) or 2 (some have none)."
        )
    if version not in SQUAD_TASKS:
        raise ValueError(f"--squad_version must be 1 or 2. Received: {version}")
    return version


def _questions(
    values: flags.FlagValues, version: int, tokenizer: Tokenizer
) -> tuple[Questions | None, Questions | None]:
    """What to train on and what to answer; both files are read before features are made."""
    wanted = (
        ("--train_file", values.train_file, values.do_train),
        ("--predict_file", values.predict_file, values.do_predict),
    )
    for flag, path, is_wanted in wanted:
        if is_wanted and not path:
            raise ValueError(f"{'--do_train' if values.do_train else '--do_predict'} needs {flag}.")
    data = [
        read_squad(path, version=version, is_training=flag == "--train_file", flag=flag)
        if is_wanted
        else None
        for flag, path, is_wanted in wanted
    ]
    if data[1] and values.checkpoint == "all" and not has_references(data[1].questions, version):
        raise ValueError(
            f"--checkpoint=all chooses among checkpoints, but --predict_file {data[1].path} has no "
            "answers to score them by. Give best, newest or a path."
        )
    return _with_features(values, data[0], tokenizer, True), _with_features(
        values, data[1], tokenizer, False
    )


def _with_features(
    values: flags.FlagValues, data: SquadData | None, tokenizer: Tokenizer, is_training: bool
) -> Questions | None:
    if data is None:
        return None
    features = squad_features(
        data,
        tokenizer,
        max_seq_length=values.max_seq_length,
        doc_stride=values.doc_stride,
        max_query_length=values.max_query_length,
        is_training=is_training,
        num_workers=values.num_workers
        or min(available_cores(), 1 + len(data.questions) // _QUESTIONS_A_PROCESS),
    )
    return Questions(data, features)


def optimizer_config(values: flags.FlagValues, train: Questions) -> OptimizerConfig:
    """Turns passes over the questions into steps, and says what that means in windows.

    Raises:
        ValueError: a value is out of range, or there is no step; names the flag.
    """
    epochs, proportion = values.num_train_epochs, values.warmup_proportion
    if not 0 < epochs < float("inf"):
        raise ValueError(f"--num_train_epochs must be above 0. Received: {epochs}")
    if not 0 <= proportion <= 1:
        raise ValueError(f"--warmup_proportion must be a share, 0 to 1. Received: {proportion}")
    num_questions, num_windows = len(train.data.questions), len(train.features)
    batch_size = max(values.train_batch_size, 1)
    num_steps = int(num_questions / batch_size * epochs)
    if not num_steps:
        raise ValueError(
            f"--num_train_epochs={epochs} of {num_questions} questions are less than one batch of "
            f"--train_batch_size={batch_size}: nothing would be trained."
        )
    config = optimizer_config_from_flags(
        values, SquadOptimizerConfig, (num_steps, int(num_steps * proportion))
    )
    passes = num_steps * batch_size / num_windows
    logging.log(
        logging.WARNING if num_windows > _MANY_WINDOWS * num_questions else logging.INFO,
        "--num_train_epochs=%g counts questions, as the original does: num_train_steps=%d "
        "num_warmup_steps=%d questions=%d windows=%d, each window trained on %.2f times on average",
        epochs,
        config.num_train_steps,
        config.num_warmup_steps,
        num_questions,
        num_windows,
        passes,
    )
    return config


def predictor_from_flags(
    values: flags.FlagValues, version: int, model: keras.Model, strategy: tf.distribute.Strategy
) -> Predictor:
    """Returns what runs the model over windows."""
    return Predictor(
        model,
        strategy,
        outputs=OUTPUTS[version],
        max_seq_length=values.max_seq_length,
        tokens_per_batch=values.predict_batch_size * values.max_seq_length,
        padding=values.padding,
    )


def settings_from_flags(values: flags.FlagValues, job: Job) -> SquadSettings:
    """Returns how questions are answered."""
    return SquadSettings(
        output_dir=values.output_dir,
        version=job.version,
        n_best_size=values.n_best_size,
        max_answer_length=values.max_answer_length,
        threshold=getattr(values, THRESHOLD),
        known_threshold=job.threshold,
    )


def squad_run_from_flags(
    values: flags.FlagValues, job: Job, predictor: Predictor
) -> SquadRun | None:
    """Returns what answers --predict_file, None where that is not wanted."""
    if job.predict is None:
        return None

    def keep_threshold(threshold: float) -> None:
        kept = {**job.task.settings, THRESHOLD: threshold}
        dataclasses.replace(job.task, settings=kept).write(values.output_dir)

    settings = settings_from_flags(values, job)
    return SquadRun(job.predict.data, job.predict.features, predictor, settings, keep_threshold)


def answerer_from_flags(
    values: flags.FlagValues, job: Job, predictor: Predictor
) -> QuestionAnswerer:
    """Returns what answers --predict_json."""
    settings = answer_settings_from_flags(values, job)
    return QuestionAnswerer(job.source.required_tokenizer, predictor, settings)


def answer_settings_from_flags(values: flags.FlagValues, job: Job) -> AnswerSettings:
    """Returns how new questions are answered, by the threshold that is given or was found best."""
    settings = settings_from_flags(values, job)
    # A training of this very run may have found another threshold than the job knows.
    trained = TrainedTask.read(values.output_dir) if values.do_train else None
    if trained:
        known = trained.settings.get(THRESHOLD)
        settings = dataclasses.replace(settings, known_threshold=known)
    return AnswerSettings(
        version=job.version,
        max_seq_length=values.max_seq_length,
        doc_stride=values.doc_stride,
        max_query_length=values.max_query_length,
        n_best_size=values.n_best_size,
        max_answer_length=values.max_answer_length,
        threshold=threshold_without_references(settings),
    )


def run() -> None:
    """Does what the flags say; everything is checked before the first file is written."""
    values = flags.FLAGS
    _check_flags(values)
    strategy = strategy_from_flags(values)
    resolve_padding(values, strategy)
    job = job_from_flags(values)
    if values.predict_json:
        check_questions(values.predict_json)
    config = optimizer_config(values, job.train) if job.train else None
    training = SquadTask(
        job.directory.config,
        job.version,
        job.train.features if job.train else None,
        max_seq_length=values.max_seq_length,
        padding=values.padding,
        start_n_top=values.start_n_top,
        end_n_top=values.end_n_top,
        dropout_prob=values.dropout_prob,
        use_one_hot_embeddings=is_tpu(strategy),
    )
    trainer = None
    if config:
        trainer = Trainer(training, trainer_config_from_flags(values), config, strategy)
        model = trainer.model
    else:
        model = build_model(training.build_model, values.precision, strategy)
    predictor = predictor_from_flags(values, job.version, model, strategy)
    squad = squad_run_from_flags(values, job, predictor)
    litert = _litert_export(values, job, predictor)
    is_evaluated = squad is not None and values.checkpoint == "all"
    if trainer:
        _train(values, job, trainer, squad)
    elif is_evaluated and squad and is_chief(strategy):
        _evaluate(values, job, squad)
    is_applied = values.do_predict or values.predict_json or values.export_dir
    if is_dry_run(values):  # what is to be applied may not be there yet
        is_applied = is_applied and not (values.do_train or is_evaluated)
    if is_applied and is_chief(strategy):
        _apply(values, job, predictor, squad, litert)
    wait_for_workers(strategy)


def _check_flags(values: flags.FlagValues) -> None:
    check_device_flags(values)
    check_export_flags(values, SPANS_FOLDER)
    check_results_flags(values, ["predict_output_file"])
    check_answer_flags(values, "predict_json")
    check_sizes(values.n_best_size, values.max_answer_length)
    check_rate(values.dropout_prob, "--dropout_prob")
    if not any((values.do_train, values.do_predict, values.predict_json, values.export_dir)):
        raise ValueError(
            "Nothing to do: give --do_train, --do_predict, --predict_json or --export_dir."
        )
    for name in ("start_n_top", "end_n_top"):
        if getattr(values, name) < 1:
            raise ValueError(f"--{name} must be at least 1. Received: {getattr(values, name)}")
    threshold = getattr(values, THRESHOLD)
    if threshold is not None and math.isnan(threshold):
        raise ValueError(f"--{THRESHOLD} must be a number. Received: {threshold}")
    if values["use_einsum"].present:
        logging.info("--use_einsum changes nothing")


def _train(values: flags.FlagValues, job: Job, trainer: Trainer, squad: SquadRun | None) -> None:
    """Trains; every checkpoint is scored and the best one kept, if there is something to score."""

    def prepare() -> None:
        if trainer.is_chief:
            prepare_output(job.directory, job.task, is_training=True)

    if squad and not squad.has_references:
        logging.warning(
            "--predict_file %s has no answers: no checkpoint is evaluated while training",
            squad.data.path,
        )
    flow.train(
        trainer,
        start_from_flags(values, job.source, job.task),
        squad.best_metric if squad else best_metric([], job.version),
        prepare,
        squad.evaluation if squad and squad.has_references else None,
        {"task": job.task.to_dict(), "dropout_prob": values.dropout_prob},
        dry_run=is_dry_run(values),
    )


def _evaluate(values: flags.FlagValues, job: Job, squad: SquadRun) -> None:
    """Scores every checkpoint there is, and keeps the best."""
    directory = TrainingDirectory(values.output_dir)
    dry_run = is_dry_run(values)
    with directory.locked(EVALUATION, dry_run=dry_run):
        best = BestCheckpoint(directory, squad.best_metric)
        flow.evaluate(
            squad.predictor.model,
            flow.checkpoints_to_evaluate(values.output_dir, "all", values.init_checkpoint),
            lambda: prepare_output(job.directory, job.task, is_training=False),
            lambda: squad.evaluation(best),
            dry_run=dry_run,
        )


def _litert_export(values: flags.FlagValues, job: Job, predictor: Predictor) -> LiteRTExport | None:
    """The LiteRT file beside an export of version 1, checked; None where none is wanted."""
    if not (values.export_dir and job.version == 1 and values.export_tflite):
        return None
    path = os.path.join(values.export_dir, LITERT_FILE)
    length = values.max_seq_length
    return LiteRTExport(predictor.model, path, max_seq_length=length, flag="--export_dir")


def _apply(
    values: flags.FlagValues,
    job: Job,
    predictor: Predictor,
    squad: SquadRun | None,
    litert: LiteRTExport | None,
) -> None:
    """Answers questions and exports with one checkpoint."""
    # What a training started from is no candidate any more.
    other = None if values.do_train else values.init_checkpoint
    step = flow.load_chosen(predictor.model, values.output_dir, values.checkpoint, other)
    if is_dry_run(values):
        return
    if squad:
        if not values.do_train:
            prepare_output(job.directory, job.task, is_training=False)
        is_evaluated = values.do_train or values.checkpoint == "all"
        squad.predict(step, keeps_scores=not is_evaluated)
    if values.predict_json:
        answerer = answerer_from_flags(values, job, predictor)
        answer_file(values.predict_json, answerer, values.predict_output_file)
    if values.export_text_model:
        settings = answer_settings_from_flags(values, job)
        export_text_spans(
            predictor.model, job.source.required_tokenizer, settings, values.export_dir
        )
    if values.export_dir:
        export_spans(predictor.model, values.export_dir)
        if litert:
            litert.write()
