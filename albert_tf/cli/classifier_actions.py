"""What `run_classifier` does: trains, evaluates, predicts and exports as its flags say."""

from __future__ import annotations

import keras
import tensorflow as tf
from absl import flags

from albert_tf.checkpoints.directory_lock import EVALUATION
from albert_tf.checkpoints.training_directory import TrainingDirectory
from albert_tf.cli.classifier_job import (
    Job,
    job_from_flags,
)
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
from albert_tf.cli.flags import (
    optimizer_config_from_flags,
    trainer_config_from_flags,
)
from albert_tf.cli.run_classifier import FEATURE_FILES
from albert_tf.config import FineTuningOptimizerConfig
from albert_tf.data.text_examples import TRAIN
from albert_tf.distribution import is_chief, is_tpu
from albert_tf.evaluation import BestCheckpoint
from albert_tf.export.classification import export_classifier
from albert_tf.export.text_classification import export_text_classifier
from albert_tf.fine_tuning import flow as fine_tuning
from albert_tf.fine_tuning.classification import ClassificationRun, RunSettings
from albert_tf.precision import build_model
from albert_tf.prediction.texts import check_file
from albert_tf.tasks.classification import ClassificationTask
from albert_tf.training.trainer import Trainer
from albert_tf.training.workers import wait_for_workers


def run() -> None:
    """Does what the flags say; everything is checked before the first file is written."""
    values = flags.FLAGS
    _check_flags(values)
    strategy = strategy_from_flags(values)
    settle_padding(values, strategy)
    job = job_from_flags(values)
    if values.predict_file:
        check_file(values.predict_file, bool(job.task.is_pair))
    training = ClassificationTask(
        job.directory.config,
        job.data.labels,
        max_seq_length=values.max_seq_length,
        classifier_dropout_prob=values.classifier_dropout_prob,
        padding=values.padding,
        use_one_hot_embeddings=is_tpu(strategy),
    )
    trainer = None
    if values.do_train:
        optimizer_config = optimizer_config_from_flags(values, FineTuningOptimizerConfig)
        trainer = Trainer(training, trainer_config_from_flags(values), optimizer_config, strategy)
        model = trainer.model
    else:
        model = build_model(training.build_model, values.precision, strategy)
    classification = _classification(values, job, model, strategy)
    if trainer:
        _train(values, job, trainer, training, classification)
    elif values.do_eval and is_chief(strategy):
        _evaluate(values, job, classification)
    is_applied = values.do_predict or values.predict_file or values.export_dir
    if is_dry_run(values):  # what is to be applied may not be there yet
        is_applied = is_applied and not (values.do_train or values.do_eval)
    if is_applied and is_chief(strategy):
        _apply(values, job, classification)
    wait_for_workers(strategy)


def _check_flags(values: flags.FlagValues) -> None:
    check_device_flags(values)
    check_export_flags(values)
    check_results_flags(values, ["predict_output_file"])
    check_answer_flags(values, "predict_file")
    log_unneeded(values, FEATURE_FILES)
    check_rate(values.classifier_dropout_prob, "--classifier_dropout_prob")
    actions = ("do_train", "do_eval", "do_predict", "predict_file", "export_dir")
    if not any(values[name].value for name in actions):
        raise ValueError(
            "Nothing to do: give --do_train, --do_eval, --do_predict, --predict_file or "
            "--export_dir."
        )


def _classification(
    values: flags.FlagValues, job: Job, model: keras.Model, strategy: tf.distribute.Strategy
) -> ClassificationRun:
    settings = RunSettings(
        output_dir=values.output_dir,
        max_seq_length=values.max_seq_length,
        eval_batch_size=values.eval_batch_size,
        predict_batch_size=values.predict_batch_size,
        padding=values.padding,
    )
    return ClassificationRun(job.data, job.source.required_tokenizer, model, strategy, settings)


def _train(
    values: flags.FlagValues,
    job: Job,
    trainer: Trainer,
    training: ClassificationTask,
    classification: ClassificationRun,
) -> None:
    """Trains; with --do_eval every checkpoint is evaluated and the best one kept."""
    training.train = classification.features(TRAIN)

    def prepare() -> None:
        if trainer.is_chief:
            prepare_output(job.directory, job.task, is_training=True)

    fine_tuning.train(
        trainer,
        start_from_flags(values, job.source, job.task),
        job.data.best_metric,
        prepare,
        classification.evaluation if values.do_eval else None,
        {
            "task": job.task.to_dict(),
            "classifier_dropout_prob": values.classifier_dropout_prob,
        },
        dry_run=is_dry_run(values),
    )


def _to_evaluate(values: flags.FlagValues, job: Job) -> tuple[list[str], bool]:
    """Prefixes of the finished checkpoints to evaluate, and whether the best of them is kept."""
    # Scores on other data, MNLI's mismatched set say, do not tell which checkpoint is the best.
    is_own_task = job.own is None or job.own.name == job.task.name
    choice = values.checkpoint or ("all" if is_own_task else None)
    prefixes = fine_tuning.checkpoints_to_evaluate(
        values.output_dir, choice, values.init_checkpoint
    )
    return prefixes, choice == "all" and is_own_task


def _evaluate(values: flags.FlagValues, job: Job, classification: ClassificationRun) -> None:
    """Evaluates finished checkpoints; of all those in the output directory the best is kept."""
    directory = TrainingDirectory(values.output_dir)
    dry_run = is_dry_run(values)
    with directory.locked(EVALUATION, dry_run=dry_run):
        best = BestCheckpoint(directory, job.data.best_metric)
        prefixes, keeps_best = _to_evaluate(values, job)
        fine_tuning.evaluate(
            directory,
            classification.model,
            prefixes,
            lambda: prepare_output(job.directory, job.task, is_training=False),
            lambda: classification.evaluation(best, keeps_best=keeps_best),
            dry_run=dry_run,
        )


def _apply(values: flags.FlagValues, job: Job, classification: ClassificationRun) -> None:
    """Predicts and exports with one checkpoint."""
    # What a training started from is no candidate any more.
    other = None if values.do_train else values.init_checkpoint
    fine_tuning.load_chosen(classification.model, values.output_dir, values.checkpoint, other)
    if is_dry_run(values):
        return
    if values.do_predict:
        prepare_output(job.directory, job.task, is_training=False)
        classification.predict()
    if values.predict_file:
        classification.predict_file(
            values.predict_file, bool(job.task.is_pair), values.predict_output_file
        )
    if values.export_text_model:
        export_text_classifier(
            classification.model,
            job.data.labels,
            job.source.required_tokenizer,
            values.export_dir,
            values.max_seq_length,
            bool(job.task.is_pair),
            values.threshold_to_export,
        )
    if values.export_dir:
        export_classifier(
            classification.model,
            job.data.labels,
            values.export_dir,
            values.max_seq_length,
            values.threshold_to_export,
        )
