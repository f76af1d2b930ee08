"""The plan of `run_classifier`, as `--dry_run` prints it."""

from __future__ import annotations

import keras
from absl import flags

from albert_tf.cli.classifier_job import Job
from albert_tf.cli.fine_tuning_plan import (
    ToTrain,
    applied_text,
    files_block,
    finished_blocks,
    output_names,
    tokenizer_block,
)
from albert_tf.data.text_examples import DEV, TEST
from albert_tf.fine_tuning.files import (
    CONFUSION_MATRIX_FILE,
    SUBMIT_RESULTS_FILE,
    TEST_RESULTS_FILE,
)
from albert_tf.fine_tuning.plan import text_block
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
    blocks: dict[str, Block] = {"Task": _task(job)}
    for split in job.data.splits:
        blocks[f"Data: {split}"] = text_block(
            job.data.file(split),
            job.data.read(split),
            job.data.labels,
            job.source.required_tokenizer,
            values.max_seq_length,
        )
    blocks["Tokenizer"] = tokenizer_block(job.source, job.directory)
    prefixes, keeps_best = to_evaluate
    if to_train:
        blocks |= to_train.blocks(values.max_seq_length)
    else:
        blocks |= finished_blocks(model, prefixes, evaluated_text(job) if prefixes else "")
    if values.do_predict or values.predict_file or values.export_dir:
        blocks["Applying"] = _applied(values, job, applied_text(values, model, prefixes))
    names = output_names(values, job.directory, is_evaluated=values.do_eval, keeps_best=keeps_best)
    if values.do_eval and not job.data.labels.is_regression:
        names.append(CONFUSION_MATRIX_FILE)
    if values.do_predict:
        names += [TEST_RESULTS_FILE, SUBMIT_RESULTS_FILE]
        names += [job.data.submission_file] if job.data.submission_file else []
    elsewhere = {"predict_output_file": values.predict_output_file}
    blocks["Files"] = files_block(values, names, elsewhere)
    return blocks


def evaluated_text(job: Job) -> str:
    """What checkpoints are evaluated on."""
    return f"{len(job.data.read(DEV)):,} examples of {job.data.file(DEV)}"


def _task(job: Job) -> Block:
    labels = job.data.labels
    return {
        "name": job.task.name,
        "predicts": "a number" if labels.is_regression else f"one of {len(labels.names)} labels",
        "texts": "pairs" if job.task.is_pair else "single",
    }


def _applied(values: flags.FlagValues, job: Job, checkpoint: str) -> Block:
    block: Block = {"checkpoint": checkpoint}
    if values.do_predict:
        block["predicts"] = f"{len(job.data.read(TEST)):,} examples of {job.data.file(TEST)}"
    if values.predict_file:
        block["answers"] = values.predict_file
    if values.export_dir:
        block["exports to"] = values.export_dir
    return block
