"""What `run_pretraining.py --dry_run` prints: records, training, evaluation."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from albert_tf.data.batching import EXAMPLE_WEIGHTS, evaluation_batches
from albert_tf.data.record_count import RecordCount, count_or_estimate
from albert_tf.data.records import FeatureSpec, explain_read_errors
from albert_tf.evaluation import Evaluator, load_complete
from albert_tf.tasks.pretraining import PretrainingTask
from albert_tf.text_layout import Block, byte_text, count_text
from albert_tf.training.plan import TrainingPlan
from albert_tf.training.trainer import Trainer

_READ_SECONDS = 5.0
_READ_TOGETHER = 256
_BATCHES_AHEAD = 2  # batches of records that the input holds besides its shuffle buffer


def training_plan(
    task: PretrainingTask, trainer: Trainer, evaluator: Evaluator | None, last_evaluated: int
) -> dict[str, Block]:
    """Blocks of a training.

    Args:
        task: its files are those that are counted.
        trainer: initialized.
        evaluator: None where checkpoints are not evaluated.
        last_evaluated: step of the last evaluation, -1 where there was none.

    Raises:
        RecordError: a file of records is cut short.
    """
    records = count_or_estimate(task.train_files, skip_damaged=task.skip_damaged_records)
    held = task.shuffle_buffer_size + _BATCHES_AHEAD * trainer.config.train_batch_size
    plan = TrainingPlan(
        trainer,
        records.number,
        records.is_exact,
        max_seq_length=task.max_seq_length,
        max_predictions_per_seq=task.max_predictions_per_seq,
        keeps_best=evaluator is not None,
        position_bytes=round(held * records.bytes_each),
    )
    blocks = {"Records": _records(task, records), **plan.blocks()}
    if evaluator is not None:
        each: Block = {"evaluated": f"{len(plan.checkpoint_steps):,} checkpoints, when written"}
        each |= plan.missed_evaluation(last_evaluated)
        blocks["Evaluation"] = {**each, **_evaluation(task, evaluator)}
    return blocks


def evaluation_plan(
    task: PretrainingTask, evaluator: Evaluator, prefixes: Iterable[str]
) -> dict[str, Block]:
    """Blocks of an evaluation without training.

    Args:
        task: its files to evaluate on are counted.
        evaluator: its model takes the weights.
        prefixes: checkpoints that will be evaluated; each is loaded, as a check.

    Raises:
        LoadError: a checkpoint is damaged, or does not hold the whole model.
        RecordError: a file of records is cut short.
    """
    steps: Block = {
        prefix: f"step {load_complete(evaluator.model, prefix):,}" for prefix in prefixes
    }
    return {
        "Checkpoints to evaluate": steps or {"none yet": "--watch_secs will wait for them"},
        "Evaluation": _evaluation(task, evaluator),
    }


def _records(task: PretrainingTask, records: RecordCount) -> Block:
    masking = "when they were made" if task.masking is None else "while training"
    return {
        "files": f"{len(task.train_files):,}, {byte_text(records.num_bytes)}",
        "records": count_text(records.number, records.is_exact),
        "read and checked": _read(task.train_files, task.specs, records, task.skip_damaged_records),
        "sequences of": f"{task.max_seq_length:,} positions",
        "predictions": f"up to {task.max_predictions_per_seq:,} in a sequence, masked {masking}",
        "sentence loss": task.sentence_loss,
    }


def _evaluation(task: PretrainingTask, evaluator: Evaluator) -> Block:
    records = count_or_estimate(task.eval_files)
    size, most = evaluator.batch_size, evaluator.max_batches
    batches = -(-records.number // size)
    used = batches if most is None else min(batches, most)
    return {
        "files": f"{len(task.eval_files):,}, {byte_text(records.num_bytes)}",
        "records": count_text(records.number, records.is_exact),
        "read and checked": _read(task.eval_files, task.eval_specs, records),
        "of them evaluated": count_text(min(records.number, used * size), records.is_exact),
        "batches": f"{used:,} of {size:,} examples",
    }


def _read(
    files: Sequence[str],
    specs: Sequence[FeatureSpec],
    records: RecordCount,
    skip_damaged: bool = False,
) -> str:
    """Reads records for a few seconds, as training does; says how far that went.

    Raises:
        RecordError: a record cannot be read.
    """
    if skip_damaged:
        return "the first of each file (--skip_damaged_records)"
    deadline, number = time.monotonic() + _READ_SECONDS, 0
    with explain_read_errors(files, specs):
        for batch in evaluation_batches(files, specs, _READ_TOGETHER):
            number += len(batch[EXAMPLE_WEIGHTS])
            if time.monotonic() > deadline and number < records.number:
                return f"the first {number:,}, and the first of each file"
    return "all"
