"""What `run_race` does: trains, evaluates, predicts and exports as its flags say."""

from __future__ import annotations

import dataclasses

import tensorflow as tf
from absl import flags

from albert_tf.checkpoints.directory_lock import EVALUATION
from albert_tf.checkpoints.model_directory import ModelDirectory
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.trained_task import MULTIPLE_CHOICE, TrainedTask
from albert_tf.checkpoints.training_directory import TrainingDirectory
from albert_tf.cli.devices import check_device_flags, strategy_from_flags
from albert_tf.cli.dry_run import is_dry_run
from albert_tf.cli.flags import optimizer_config_from_flags, trainer_config_from_flags
from albert_tf.config import FineTuningOptimizerConfig
from albert_tf.data.text_examples import DEV, TEST, TRAIN
from albert_tf.finetuning import flow
from albert_tf.finetuning.setup import (
    apply_recipe,
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
from albert_tf.modeling.models import AlbertForMultipleChoice
from albert_tf.multiple_choice.data import ChoiceExample, read_choices
from albert_tf.multiple_choice.evaluation import BEST_METRIC, ChoiceRun, ChoiceSettings
from albert_tf.multiple_choice.export import export_choice, export_text_choice
from albert_tf.multiple_choice.features import ChoiceFeatures, choice_features
from albert_tf.multiple_choice.race import chosen_levels, read_race
from albert_tf.multiple_choice.task import MultipleChoiceTask
from albert_tf.training.distribution import is_chief, is_tpu
from albert_tf.training.evaluation import BestCheckpoint
from albert_tf.training.precision import build_model
from albert_tf.training.trainer import Trainer
from albert_tf.training.workers import wait_for_workers

# What wants each split.
ACTIONS = {TRAIN: "do_train", DEV: "do_eval", TEST: "do_predict"}


@dataclasses.dataclass(frozen=True)
class Job:
    """What the flags mean.

    Attributes:
        task: what the model is to do.
        source: the model to start from.
        directory: --output_dir.
        features: of the splits that are wanted.
    """

    task: TrainedTask
    source: ModelSource
    directory: ModelDirectory
    features: dict[str, ChoiceFeatures]


def job_from_flags(values: flags.FlagValues) -> Job:
    """Finds and reads everything the flags name, and checks that it fits together.

    A recipe and a trained model settle flags that were not given.

    Raises:
        ValueError: something is missing, wrong, or does not belong to the rest; names the flag.
    """
    if values.task_name.lower() != MULTIPLE_CHOICE:
        raise ValueError(
            f"--task_name must be {MULTIPLE_CHOICE}, with questions of your own (--train_choices "
            f"and the like) as well. Received: {values.task_name!r}"
        )
    elsewhere = checkpoint_elsewhere(values)
    trained, where = trained_task_from_flags(values, elsewhere)
    if trained:
        trained.check_name(MULTIPLE_CHOICE, where, is_training=values.do_train)
    source = model_source_from_flags(values, fallback=elsewhere)
    apply_recipe(values, MULTIPLE_CHOICE, source.config)
    if trained:
        settings = {**trained.settings, "max_seq_length": trained.max_seq_length}
        take_trained_settings(values, settings)
    directory = model_directory_from_flags(values, source)
    task = TrainedTask(
        MULTIPLE_CHOICE,
        max_seq_length=values.max_seq_length,
        settings={"max_qa_length": values.max_qa_length},
    )
    if values.do_train and trained is None:
        check_head_in(values.output_dir, task)
    examples = {
        split: _examples(values, split)
        for split, action in ACTIONS.items()
        if getattr(values, action)
    }
    features = {
        split: choice_features(
            found,
            source.required_tokenizer,
            max_seq_length=values.max_seq_length,
            max_qa_length=values.max_qa_length,
        )
        for split, found in examples.items()
    }
    return Job(task, source, directory, features)


def _examples(values: flags.FlagValues, split: str) -> list[ChoiceExample]:
    """Reads a split, of one's own if it is given, else of RACE."""
    flag = f"{split}_choices"
    path = getattr(values, flag)
    if path:
        return read_choices(path, split=split, flag=f"--{flag}")
    action = ACTIONS[split]
    if not values.data_dir:
        default = " (set unless --no" + action + " is given)" if values[action].default else ""
        raise ValueError(f"--{action}{default} needs --data_dir, or --{flag} for data of your own.")
    levels = chosen_levels(values.high_only, values.middle_only)
    return read_race(values.data_dir, split, levels=levels)


def run() -> None:
    """Does what the flags say; everything is checked before the first file is written."""
    values = flags.FLAGS
    check_device_flags(values)
    check_export_flags(values)
    check_results_flags(values)
    check_rate(values.dropout_prob, "--dropout_prob")
    if not (values.do_train or values.do_eval or values.do_predict or values.export_dir):
        raise ValueError("Nothing to do: give --do_train, --do_eval, --do_predict or --export_dir.")
    strategy = strategy_from_flags(values)
    resolve_padding(values, strategy)
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
    flow.train(
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
    prefixes = flow.checkpoints_to_evaluate(values.output_dir, wanted, values.init_checkpoint)
    return prefixes, wanted == "all"


def _evaluate(values: flags.FlagValues, job: Job, choice: ChoiceRun) -> None:
    """Evaluates finished checkpoints; of all those in the output directory the best is kept."""
    directory = TrainingDirectory(values.output_dir)
    dry_run = is_dry_run(values)
    with directory.locked(EVALUATION, dry_run=dry_run):
        best = BestCheckpoint(directory, BEST_METRIC)
        prefixes, keeps_best = _to_evaluate(values)
        flow.evaluate(
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
    step = flow.load_chosen(choice.model, values.output_dir, values.checkpoint, other)
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
