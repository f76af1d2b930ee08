"""What the flags of `run_classifier` mean: the task, its texts and the model, read and checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

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
from albert_tf.data.custom import CustomData
from albert_tf.data.glue import GlueData
from albert_tf.data.glue_tasks import GLUE_TASKS, glue_task_name
from albert_tf.data.tables import is_column_number
from albert_tf.data.text_examples import DEV, TEST, TRAIN, TextData
from albert_tf.data.text_features import check_room
from albert_tf.fine_tuning.classification import LoadedData
from albert_tf.fine_tuning.start import check_head_in
from albert_tf.model_files.directory import ModelDirectory
from albert_tf.model_files.trained_task import TrainedTask


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
