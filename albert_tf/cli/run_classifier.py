"""Fine-tunes and applies a classifier of texts: GLUE's tasks, your own files."""

from __future__ import annotations

import math

import keras
import tensorflow as tf
from absl import flags

from albert_tf.checkpoints.training_directory import TrainingDirectory
from albert_tf.cli.classifier_job import (
    Job,
    define_data_flags,
    job_from_flags,
)
from albert_tf.cli.fine_tuning_flags import (
    check_export_flags,
    check_rate,
    define_checkpoint_flag,
    define_export_flags,
    define_fine_tuning_model_flags,
    define_padding_flag,
    define_recipe_flag,
    prepare_output,
    settle_padding,
    start_from_flags,
)
from albert_tf.cli.flags import (
    check_device_flags,
    define_device_flags,
    define_optimizer_flags,
    define_trainer_flags,
    optimizer_config_from_flags,
    run_command,
    strategy_from_flags,
    trainer_config_from_flags,
)
from albert_tf.config import FineTuningOptimizerConfig, TrainerConfig
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


def define_flags() -> None:
    """Defines the flags of this command."""
    define_data_flags()
    flags.DEFINE_bool("do_train", False, "Train.")
    flags.DEFINE_bool(
        "do_eval",
        False,
        "Evaluate on the development set and keep the best checkpoint as model.ckpt-best: at every "
        "saved step while training, or --checkpoint without training.",
    )
    flags.DEFINE_bool("do_predict", False, "Predict the test set into test_results.tsv.")
    flags.DEFINE_string(
        "predict_file",
        None,
        "Texts to predict, one a line, the two of a pair with a tab between them; - is the "
        "standard input.",
    )
    flags.DEFINE_string(
        "predict_output_file", None, "What --predict_file gives, if not to the standard output."
    )
    define_checkpoint_flag("all are evaluated, and the best predicts")
    define_export_flags()
    flags.DEFINE_float(
        "threshold_to_export",
        math.nan,
        "A number the exported model hands out as the output threshold.",
    )
    flags.DEFINE_integer(
        "max_seq_length",
        512,
        "Longest sequence, in tokens. Where it is not given, a trained model's own counts.",
    )
    define_padding_flag()
    flags.DEFINE_integer(
        "eval_batch_size",
        8,
        "Examples of an evaluation batch at --max_seq_length; more of shorter ones.",
        lower_bound=1,
    )
    flags.DEFINE_integer("predict_batch_size", 8, "The same for predicting.", lower_bound=1)
    flags.DEFINE_float("classifier_dropout_prob", 0.1, "Dropout of what the head is given.")
    flags.DEFINE_string(
        "cached_dir", None, "Keep the features of the data there, as records the original reads."
    )
    define_recipe_flag()
    define_trainer_flags(TrainerConfig("-", train_batch_size=32, save_checkpoints_steps=1000))
    define_fine_tuning_model_flags()
    define_optimizer_flags(FineTuningOptimizerConfig())
    define_device_flags()


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
    if values.do_train:
        optimizer_config = optimizer_config_from_flags(values, FineTuningOptimizerConfig)
        trainer = Trainer(training, trainer_config_from_flags(values), optimizer_config, strategy)
        classification = _classification(values, job, trainer.model, strategy)
        _train(values, job, trainer, training, classification)
    else:
        model = build_model(training.build_model, values.precision, strategy)
        classification = _classification(values, job, model, strategy)
        if values.do_eval and is_chief(strategy):
            _evaluate(values, job, classification)
    is_applied = values.do_predict or values.predict_file or values.export_dir
    if is_applied and is_chief(strategy):
        _apply(values, job, classification)
    wait_for_workers(strategy)


def _check_flags(values: flags.FlagValues) -> None:
    check_device_flags(values)
    check_export_flags(values)
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
        cache_dir=values.cached_dir if is_chief(strategy) else None,
        max_seq_length=values.max_seq_length,
        eval_batch_size=values.eval_batch_size,
        predict_batch_size=values.predict_batch_size,
        padding=values.padding,
    )
    return ClassificationRun(job.data, job.source.tokenizer, model, strategy, settings)


def _train(
    values: flags.FlagValues,
    job: Job,
    trainer: Trainer,
    training: ClassificationTask,
    classification: ClassificationRun,
) -> None:
    """Trains; with --do_eval every checkpoint is evaluated and the best one kept."""

    def prepare() -> None:
        if trainer.is_chief:
            prepare_output(job.directory, job.task, is_training=True)
        # Only now: features may be written to a cache.
        training.train = classification.features(TRAIN)

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
    )


def _evaluate(values: flags.FlagValues, job: Job, classification: ClassificationRun) -> None:
    """Evaluates finished checkpoints; of all those in the output directory the best is kept."""
    # Scores on other data, MNLI's mismatched set say, do not tell which checkpoint is the best.
    is_own_task = job.own is None or job.own.name == job.task.name
    choice = values.checkpoint or ("all" if is_own_task else None)
    best = BestCheckpoint(TrainingDirectory(values.output_dir), job.data.best_metric)
    keeps_best = choice == "all" and is_own_task
    fine_tuning.evaluate(
        classification.model,
        fine_tuning.checkpoints_to_evaluate(values.output_dir, choice, values.init_checkpoint),
        lambda: prepare_output(job.directory, job.task, is_training=False),
        lambda: classification.evaluation(best, keeps_best=keeps_best),
    )


def _apply(values: flags.FlagValues, job: Job, classification: ClassificationRun) -> None:
    """Predicts and exports with one checkpoint."""
    # What a training started from is no candidate any more.
    other = None if values.do_train else values.init_checkpoint
    fine_tuning.load_chosen(classification.model, values.output_dir, values.checkpoint, other)
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
            job.source.tokenizer,
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


def main() -> None:
    """Runs the command."""
    run_command(define_flags, run)


if __name__ == "__main__":
    main()
