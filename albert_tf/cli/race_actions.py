"""What `run_race` does: trains, evaluates, predicts and exports as its flags say."""

from __future__ import annotations

import tensorflow as tf
from absl import flags

from albert_tf.checkpoints.directory_lock import EVALUATION
from albert_tf.checkpoints.training_directory import TrainingDirectory
from albert_tf.cli.devices import (
    check_device_flags,
    strategy_from_flags,
)
from albert_tf.cli.dry_run import is_dry_run
from albert_tf.cli.fine_tuning_job import (
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
from albert_tf.cli.race_job import Job, job_from_flags
from albert_tf.cli.run_race import FEATURE_FILES
from albert_tf.config import FineTuningOptimizerConfig
from albert_tf.data.text_examples import TRAIN
from albert_tf.distribution import is_chief, is_tpu
from albert_tf.evaluation import BestCheckpoint
from albert_tf.export.choice import export_choice
from albert_tf.export.text_choice import export_text_choice
from albert_tf.fine_tuning import flow as fine_tuning
from albert_tf.fine_tuning.multiple_choice import BEST_METRIC, ChoiceRun, ChoiceSettings
from albert_tf.models import AlbertForMultipleChoice
from albert_tf.precision import build_model
from albert_tf.tasks.multiple_choice import MultipleChoiceTask
from albert_tf.training.trainer import Trainer
from albert_tf.training.workers import wait_for_workers


def run() -> None:
    """Does what the flags say; everything is checked before the first file is written."""
    values = flags.FLAGS
    check_device_flags(values)
    check_export_flags(values)
    check_results_flags(values)
    log_unneeded(values, FEATURE_FILES)
    check_rate(values.dropout_prob, "--dropout_prob")
    if not (values.do_train or values.do_eval or values.do_predict or values.export_dir):
        raise ValueError("Nothing to do: give --do_train, --do_eval, --do_predict or --export_dir.")
    strategy = strategy_from_flags(values)
    settle_padding(values, strategy)
    job = job_from_flags(values)
    training = MultipleChoiceTask(
        job.directory.config,
        job.features.get(TRAIN),
        max_seq_length=values.max_seq_length,
        dropout_prob=values.dropout_prob,
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
    choice = _choice_run(values, job, model, strategy)
    if trainer:
        _train(values, job, trainer, choice)
    elif values.do_eval and is_chief(strategy):
        _evaluate(values, job, choice)
    is_applied = values.do_predict or values.export_dir
    if is_dry_run(values):  # what is to be applied may not be there yet
        is_applied = is_applied and not (values.do_train or values.do_eval)
    if is_applied and is_chief(strategy):
        _apply(values, job, choice)
    wait_for_workers(strategy)


def _choice_run(
    values: flags.FlagValues,
    job: Job,
    model: AlbertForMultipleChoice,
    strategy: tf.distribute.Strategy,
) -> ChoiceRun:
    settings = ChoiceSettings(
        output_dir=values.output_dir,
        max_seq_length=values.max_seq_length,
        eval_batch_size=values.eval_batch_size,
        predict_batch_size=values.predict_batch_size,
        padding=values.padding,
    )
    return ChoiceRun(job.features, model, strategy, settings)


def _train(values: flags.FlagValues, job: Job, trainer: Trainer, choice: ChoiceRun) -> None:
    """Trains; with --do_eval every checkpoint is evaluated and the best one kept."""
    fine_tuning.train(
        trainer,
        start_from_flags(values, job.source, job.task),
        BEST_METRIC,
        lambda: _prepare(values, job) if trainer.is_chief else None,
        choice.evaluation if values.do_eval else None,
        {"task": job.task.to_dict(), "dropout_prob": values.dropout_prob},
        sequences_per_example=job.features[TRAIN].num_choices,
        dry_run=is_dry_run(values),
    )


def _to_evaluate(values: flags.FlagValues) -> tuple[list[str], bool]:
    """Prefixes of the finished checkpoints to evaluate, and whether the best of them is kept."""
    wanted = values.checkpoint or "all"
    prefixes = fine_tuning.checkpoints_to_evaluate(
        values.output_dir, wanted, values.init_checkpoint
    )
    return prefixes, wanted == "all"


def _evaluate(values: flags.FlagValues, job: Job, choice: ChoiceRun) -> None:
    """Evaluates finished checkpoints; of all those in the output directory the best is kept."""
    directory = TrainingDirectory(values.output_dir)
    dry_run = is_dry_run(values)
    with directory.locked(EVALUATION, dry_run=dry_run):
        best = BestCheckpoint(directory, BEST_METRIC)
        prefixes, keeps_best = _to_evaluate(values)
        fine_tuning.evaluate(
            directory,
            choice.model,
            prefixes,
            lambda: _prepare(values, job),
            lambda: choice.evaluation(best, keeps_best=keeps_best),
            dry_run=dry_run,
        )


def _apply(values: flags.FlagValues, job: Job, choice: ChoiceRun) -> None:
    """Predicts and exports with one checkpoint."""
    # What a training started from is no candidate any more.
    other = None if values.do_train else values.init_checkpoint
    step = fine_tuning.load_chosen(choice.model, values.output_dir, values.checkpoint, other)
    if is_dry_run(values):
        return
    if values.do_predict:
        if not (values.do_train or values.do_eval):
            _prepare(values, job)
        best = BestCheckpoint(TrainingDirectory(values.output_dir), BEST_METRIC)
        choice.predict(step, best.value)
    if values.export_text_model:
        export_text_choice(
            choice.model,
            job.source.required_tokenizer,
            values.export_dir,
            values.max_seq_length,
            values.max_qa_length,
        )
    if values.export_dir:
        export_choice(choice.model, values.export_dir)


def _prepare(values: flags.FlagValues, job: Job) -> None:
    """Makes --output_dir that of the job."""
    prepare_output(job.directory, job.task, is_training=values.do_train)
