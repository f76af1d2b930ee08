"""What `run_squad` does: trains, evaluates, answers and exports as its flags say."""

from __future__ import annotations

import math
import os

from absl import flags, logging

from albert_tf.checkpoints.directory_lock import EVALUATION
from albert_tf.checkpoints.training_directory import TrainingDirectory
from albert_tf.cli.devices import (
    check_device_flags,
    strategy_from_flags,
)
from albert_tf.cli.dry_run import is_dry_run
from albert_tf.cli.fine_tuning_job import (
    check_answer_flags,
    check_export_flags,
    check_rate,
    check_results_flags,
    log_unneeded,
    prepare_output,
    settle_padding,
    start_from_flags,
)
from albert_tf.cli.flags import trainer_config_from_flags
from albert_tf.cli.run_squad import FEATURE_FILES
from albert_tf.cli.squad_job import (
    Job,
    answer_settings_from_flags,
    answerer_from_flags,
    job_from_flags,
    optimizer_config,
    predictor_from_flags,
    squad_run_from_flags,
)
from albert_tf.distribution import is_chief, is_tpu
from albert_tf.evaluation import BestCheckpoint
from albert_tf.export.litert import ORIGINAL_FILE as LITERT_FILE
from albert_tf.export.litert import LiteRTExport
from albert_tf.export.spans import FOLDER as SPANS_FOLDER
from albert_tf.export.spans import export_spans
from albert_tf.export.text_spans import export_text_spans
from albert_tf.fine_tuning import flow as fine_tuning
from albert_tf.fine_tuning.squad import SquadRun, best_metric
from albert_tf.model_files.trained_task import THRESHOLD
from albert_tf.precision import build_model
from albert_tf.prediction.questions import answer_file, check_questions
from albert_tf.prediction.sequences import Predictor
from albert_tf.prediction.squad_answers import check_sizes
from albert_tf.tasks.squad import SquadTask
from albert_tf.training.trainer import Trainer
from albert_tf.training.workers import wait_for_workers


def run() -> None:
    """Does what the flags say; everything is checked before the first file is written."""
    values = flags.FLAGS
    _check_flags(values)
    strategy = strategy_from_flags(values)
    settle_padding(values, strategy)
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
    log_unneeded(values, FEATURE_FILES)


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
    fine_tuning.train(
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
        fine_tuning.evaluate(
            directory,
            squad.predictor.model,
            fine_tuning.checkpoints_to_evaluate(values.output_dir, "all", values.init_checkpoint),
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
    step = fine_tuning.load_chosen(predictor.model, values.output_dir, values.checkpoint, other)
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
