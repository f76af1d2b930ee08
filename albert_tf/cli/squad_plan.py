"""The plan of `run_squad`, as `--dry_run` prints it."""

from __future__ import annotations

import os

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
from albert_tf.cli.squad_job import Job, Questions
from albert_tf.data.squad_features import cut_questions
from albert_tf.export.litert import ORIGINAL_FILE as LITERT_FILE
from albert_tf.export.spans import FOLDER
from albert_tf.fine_tuning.plan import evaluation_files, squad_block
from albert_tf.fine_tuning.squad_files import NBEST_FILE, NULL_ODDS_FILE, PREDICTIONS_FILE
from albert_tf.metrics.squad import has_references
from albert_tf.text_layout import Block


def plan_blocks(
    values: flags.FlagValues,
    job: Job,
    model: keras.Model,
    to_train: ToTrain | None,
    to_evaluate: list[str],
) -> dict[str, Block]:
    """Checks what only the work itself would find, and says what it would be.

    Args:
        values: the flags.
        job: what they mean.
        model: of the task.
        to_train: None where nothing is trained.
        to_evaluate: prefixes of finished checkpoints.

    Raises:
        ValueError: something is wrong.
    """
    blocks: dict[str, Block] = {"Task": {"name": job.task.name, **job.task.settings}}
    for split, questions in (("train", job.train), ("predict", job.predict)):
        if questions:
            blocks[f"Data: {split}"] = _data(values, job, questions)
    blocks["Tokenizer"] = tokenizer_block(job.source, job.directory)
    if to_train:
        blocks |= to_train.blocks(values.max_seq_length)
        blocks["Training"]["an example is"] = "a window"
        blocks["Training"]["--num_train_epochs"] = _epochs(values, job)
    else:
        blocks |= finished_blocks(model, to_evaluate, evaluated_text(job))
    if values.do_predict or values.predict_json or values.export_dir:
        applied: Block = {"checkpoint": applied_text(values, model, to_evaluate)}
        if job.predict:
            applied["answers"] = evaluated_text(job)
        if values.predict_json:
            applied["answers too"] = values.predict_json
        blocks["Applying"] = applied
    blocks["Files"] = _files(values, job, to_train, to_evaluate)
    return blocks


def evaluated_text(job: Job) -> str:
    """What is answered."""
    data = job.predict.data if job.predict else None
    return f"{len(data.questions):,} questions of {data.path}" if data else ""


def _data(values: flags.FlagValues, job: Job, questions: Questions) -> Block:
    data, features = questions.data, questions.features
    cut = cut_questions(data, features, job.source.required_tokenizer, values.max_query_length)
    return squad_block(data, features, job.version, len(cut))


def _epochs(values: flags.FlagValues, job: Job) -> str:
    number = len(job.train.data.questions) if job.train else 0
    return f"{values.num_train_epochs:g} of {number:,} questions, as the original counts"


def _files(
    values: flags.FlagValues, job: Job, to_train: ToTrain | None, to_evaluate: list[str]
) -> Block:
    is_evaluated = to_train.is_evaluated if to_train else bool(to_evaluate)
    names = output_names(values, job.directory, is_evaluated=is_evaluated, keeps_best=True)
    if job.predict and not (values.do_train or is_evaluated):
        is_scored = has_references(job.predict.data.questions, job.version)
        names += evaluation_files(keeps_best=False) if is_scored else []
    if values.do_predict:
        names += [PREDICTIONS_FILE, NBEST_FILE, *([NULL_ODDS_FILE] if job.version == 2 else [])]
    elsewhere = {"predict_output_file": values.predict_output_file}
    block = files_block(values, names, elsewhere, export_folder=FOLDER)
    if values.export_dir and job.version == 1 and values.export_tflite:
        block["--export_tflite"] = os.path.join(values.export_dir, LITERT_FILE)
    return block
