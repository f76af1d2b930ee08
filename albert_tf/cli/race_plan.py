"""The plan of `run_race`, as `--dry_run` prints it."""

from __future__ import annotations

import keras
from absl import flags

from albert_tf.cli.fine_tuning_plan import (
    ToTrain,
    applied_text,
    files_block,
    finished_blocks,
    output_names,
    tokenizer_block,
)
from albert_tf.cli.race_job import Job
from albert_tf.data.text_examples import DEV, TEST
from albert_tf.fine_tuning.choice_files import PREDICT_RESULTS_FILE, PREDICTIONS_FILE
from albert_tf.fine_tuning.plan import choice_block
from albert_tf.text_layout import Block


def plan_blocks(
    values: flags.FlagValues,
    job: Job,
    model: keras.Model,
    to_train: ToTrain | None,
    to_evaluate: tuple[list[str], bool],
) -> dict[str, Block]:
    """Checks what only the work itself would find, and says what it would be.

    Args:
        values: the flags.
        job: what they mean.
        model: of the task.
        to_train: None where nothing is trained.
        to_evaluate: prefixes of finished checkpoints, and whether the best of them is kept.

    Raises:
        ValueError: something is wrong.
    """
    blocks: dict[str, Block] = {"Task": {"name": job.task.name, **job.task.settings}}
    for split, features in job.features.items():
        path = values[f"{split}_choices"].value or values.data_dir
        blocks[f"Data: {split}"] = choice_block(path, features)
    blocks["Tokenizer"] = tokenizer_block(job.source, job.directory)
    prefixes, keeps_best = to_evaluate
    if to_train:
        blocks |= to_train.blocks(values.max_seq_length)
    else:
        blocks |= finished_blocks(model, prefixes, questions_text(job, DEV))
    if values.do_predict or values.export_dir:
        applied: Block = {"checkpoint": applied_text(values, model, prefixes)}
        if values.do_predict:
            applied["predicts"] = questions_text(job, TEST)
        blocks["Applying"] = applied
    names = output_names(values, job.directory, is_evaluated=values.do_eval, keeps_best=keeps_best)
    if values.do_predict:
        names.append(PREDICTIONS_FILE)
        names += [PREDICT_RESULTS_FILE] if job.features[TEST].label_ids is not None else []
    blocks["Files"] = files_block(values, names, {})
    return blocks


def questions_text(job: Job, split: str) -> str:
    """How many questions a split has."""
    return f"{len(job.features[split]):,} questions" if split in job.features else ""
