"""What the flags of `run_race` mean: the questions with options and the model, all checked."""

from __future__ import annotations

import dataclasses

from absl import flags

from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.cli.fine_tuning_job import (
    apply_recipe,
    checkpoint_elsewhere,
    model_directory_from_flags,
    model_source_from_flags,
    take_trained_settings,
    trained_task_from_flags,
)
from albert_tf.data.choice_features import ChoiceFeatures, choice_features
from albert_tf.data.choices import ChoiceExample, read_choices
from albert_tf.data.race import chosen_levels, read_race
from albert_tf.data.text_examples import DEV, TEST, TRAIN
from albert_tf.fine_tuning.start import check_head_in
from albert_tf.model_files.directory import ModelDirectory
from albert_tf.model_files.trained_task import MULTIPLE_CHOICE, TrainedTask

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
