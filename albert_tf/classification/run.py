"""What `run_classifier` does: trains, evaluates, predicts and exports as its flags say."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf
from absl import flags

from albert_tf.checkpoints.directory_lock import EVALUATION
from albert_tf.checkpoints.model_directory import ModelDirectory
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.trained_task import TrainedTask
from albert_tf.checkpoints.training_directory import TrainingDirectory
from albert_tf.classification.custom import CustomData
from albert_tf.classification.evaluation import ClassificationRun, LoadedData, RunSettings
from albert_tf.classification.export import export_classifier, export_text_classifier
from albert_tf.classification.features import check_room
from albert_tf.classification.glue import GlueData
from albert_tf.classification.predict_texts import check_file
from albert_tf.classification.task import ClassificationTask
from albert_tf.cli.devices import check_device_flags, strategy_from_flags
from albert_tf.cli.dry_run import is_dry_run
from albert_tf.cli.flags import optimizer_config_from_flags, trainer_config_from_flags
from albert_tf.config import FineTuningOptimizerConfig
from albert_tf.data.glue_tasks import GLUE_TASKS, glue_task_name
from albert_tf.data.tables import is_column_number
from albert_tf.data.text_examples import DEV, TEST, TRAIN, TextData
from albert_tf.finetuning import flow
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
from albert_tf.training.distribution import is_chief, is_tpu
from albert_tf.training.evaluation import BestCheckpoint
from albert_tf.training.precision import build_model
from albert_tf.training.trainer import Trainer
from albert_tf.training.workers import wait_for_workers


@dataclasses.dataclass(frozen=True)
class Job:
    """What the flags mean.

    Attributes:
        task: what is asked for.
        own: what the model in --output_dir was trained for, if there is one.
        data: the texts.
        source: the model to start from.
        directory: --output_dir.
    """

    task: TrainedTask
    own: TrainedTask | None
    data: LoadedData
    source: ModelSource
    directory: ModelDirectory


def job_from_flags(values: flags.FlagValues) -> Job:
    """Finds and reads everything the flags name, and checks that it fits together.

    A recipe settles the flags that were not given.

    Raises:
        ValueError: something is missing, wrong, or does not belong to the rest; names the flag.
    """
    elsewhere = checkpoint_elsewhere(values)
    trained, where = trained_task_from_flags(values, elsewhere)
    own = trained if where == values.output_dir else None
    name = _task_name(values, trained)
    if trained:
        trained.check_name(name, where, is_training=values.do_train)
    source = model_source_from_flags(values, fallback=elsewhere)
    apply_recipe(values, name, source.config)
    if trained:
        take_trained_settings(values, {"max_seq_length": trained.max_seq_length})
    directory = model_directory_from_flags(values, source)
    columns = columns_from_flags(values, trained) if name == CustomData.name else {}
    splits = {TRAIN: values.do_train, DEV: values.do_eval, TEST: values.do_predict}
    wanted = [split for split, is_wanted in splits.items() if is_wanted]
    data = LoadedData(_data(values, name, columns, trained, wanted), wanted)
    is_pair = data.is_pair()
    if is_pair is None and trained:
        is_pair = trained.is_pair
    if is_pair is None:
        has_two = name in GLUE_TASKS and len(GLUE_TASKS[name].text_names) == 2
        is_pair = has_two or bool(columns.get("text_b_column"))
    check_room(is_pair, values.max_seq_length)
    task = TrainedTask(data.name, data.labels, is_pair, columns, values.max_seq_length)
    if trained:
        trained.check_answers(task, where)
    elif values.do_train:
        check_head_in(values.output_dir, task)
    return Job(task, own, data, source, directory)


def _task_name(values: flags.FlagValues, trained: TrainedTask | None) -> str:
    name = values.task_name or (trained.name if trained else "")
    if not name:
        raise ValueError(
            f"--task_name is needed: {values.output_dir!r} holds no model that says what it was "
            "trained for. Give a task of GLUE, or custom for files of your own."
        )
    return name.lower() if name.lower() == CustomData.name else glue_task_name(name)


def columns_from_flags(
    values: flags.FlagValues, trained: TrainedTask | None
) -> dict[str, str | None]:
    """Returns the columns of a user's files, by flag.

    Those not given are the model's, unless its files had numbers for columns and these have names,
    or the other way round.

    Args:
        values: with the three flags of columns.
        trained: what the model was trained for, if there is one.
    """
    names = ("text_a_column", "text_b_column", "label_column")
    given = {name: values[name].value for name in names if values[name].present}
    known = dict(trained.columns) if trained else {}
    if any(
        is_column_number(new) != is_column_number(known.get("text_a_column") or "")
        for new in given.values()
        if new
    ):
        known = {}
    return {name: given.get(name, known.get(name, values[name].default)) for name in names}


def _data(
    values: flags.FlagValues,
    name: str,
    columns: Mapping[str, Any],
    trained: TrainedTask | None,
    wanted: Sequence[str],
) -> TextData:
    """The source of texts."""
    if name != CustomData.name:
        if wanted and not values.data_dir:
            raise ValueError(f"--task_name={name} needs --data_dir, GLUE's download.")
        return GlueData(name, values.data_dir or "")
    is_regression = values.regression
    if trained and not values["regression"].present:
        is_regression = trained.labels.is_regression
    return CustomData(
        values.train_file,
        values.dev_file,
        values.test_file,
        **columns,
        regression=is_regression,
        labels=trained.labels if trained else None,
    )


def run() -> None:
    """Does what the flags say; everything is checked before the first file is written."""
    values = flags.FLAGS
    _check_flags(values)
    strategy = strategy_from_flags(values)
    resolve_padding(values, strategy)
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

    flow.train(
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
    prefixes = flow.checkpoints_to_evaluate(values.output_dir, choice, values.init_checkpoint)
    return prefixes, choice == "all" and is_own_task


def _evaluate(values: flags.FlagValues, job: Job, classification: ClassificationRun) -> None:
    """Evaluates finished checkpoints; of all those in the output directory the best is kept."""
    directory = TrainingDirectory(values.output_dir)
    dry_run = is_dry_run(values)
    with directory.locked(EVALUATION, dry_run=dry_run):
        best = BestCheckpoint(directory, job.data.best_metric)
        prefixes, keeps_best = _to_evaluate(values, job)
        flow.evaluate(
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
    flow.load_chosen(classification.model, values.output_dir, values.checkpoint, other)
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
