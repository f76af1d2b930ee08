"""Which records a pretraining reads, how it masks plain ones, and what it refuses."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data.tfrecord import RecordError, frame_records
from albert_tf.pretraining.batching import check_sentence_pairs
from albert_tf.pretraining.instances import PREDICTION_FEATURES
from albert_tf.pretraining.masking import MaskingSettings, OnlineMasking
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.training.task import input_positions
from tests.small_model import small_config
from tests.small_records import (
    LENGTH,
    PREDICTIONS,
    damage_record,
    plain_columns,
    pretraining_columns,
    write_records,
)

MASKING = OnlineMasking(MaskingSettings(0.3, PREDICTIONS), mask_id=4, vocab_size=31)
COUNT = 12


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Records of each kind; `zeros` has features of predictions in which there are none."""
    folder = tmp_path_factory.mktemp("records")
    zeros = pretraining_columns(COUNT, seed=1)
    for name in PREDICTION_FEATURES:
        zeros[name] *= 0
    stripped = plain_columns(COUNT, seed=1)
    stripped["input_ids"][2, 1] = MASKING.mask_id
    rare = pretraining_columns(COUNT, seed=1)
    rare["masked_lm_weights"][0] = 0
    kinds = {
        "masked": pretraining_columns(COUNT, seed=1),
        "plain": plain_columns(COUNT, seed=1),
        "zeros": zeros,
        "masked_without_predictions": stripped,
        "masked_but_the_first": rare,
    }
    return {name: str(write_records(folder / name, columns)) for name, columns in kinds.items()}


def task_on(train=(), evaluate=(), masking=MASKING):
    return PretrainingTask(
        small_config(),
        train_files=train,
        eval_files=evaluate,
        max_seq_length=LENGTH,
        max_predictions_per_seq=PREDICTIONS,
        shuffle_buffer_size=5,
        masking=masking,
    )


def examples(batches):
    """Rows of all batches, one bytes object each."""
    rows = [
        b"".join(batch[name][row].numpy().tobytes() for name in sorted(batch))
        for batch in batches
        for row in range(len(batch["input_ids"]))
    ]
    return np.array(rows, object)


@pytest.mark.parametrize("kind", ["plain", "zeros"])
def test_masked_batches_hold_what_masked_records_give(files, kind):
    ours = next(task_on([files[kind]]).train_dataset(6, seed=3))
    theirs = next(task_on([files["masked"]], masking=None).train_dataset(6, seed=3))
    assert {k: (v.shape, v.dtype) for k, v in ours.items()} == {
        k: (v.shape, v.dtype) for k, v in theirs.items()
    }
    assert (ours["masked_lm_weights"].numpy().sum(axis=1) > 0).all()


def test_masks_depend_on_seed_pass_and_example_not_on_batches(files):
    tf.random.set_seed(5)  # the trainer sets it; it decides the order too
    task = task_on([files["plain"]])
    rows = examples(islice(task.train_dataset(4, seed=3), 6))
    again = islice(task.train_dataset(8, seed=3), 3)
    assert (examples(again) == rows).all()
    first, second = set(rows[:COUNT]), set(rows[COUNT:])
    assert len(first) == COUNT
    assert len(first & second) < COUNT / 3  # a short example may be masked alike twice
    assert len(first & set(examples(islice(task.train_dataset(4, seed=4), 3)))) < COUNT / 3


def test_a_restored_input_draws_the_masks_of_the_unbroken_one(files, tmp_path):
    def begin():
        return task_on([files["plain"]]).train_dataset(5, seed=3)

    unbroken = begin()
    next(unbroken)
    saved = tf.train.Checkpoint(**input_positions(unbroken)).write(str(tmp_path / "position"))
    restored = begin()
    tf.train.Checkpoint(**input_positions(restored)).read(saved).assert_consumed()
    for _ in range(3):
        assert (examples([next(restored)]) == examples([next(unbroken)])).all()


def test_evaluation_masks_the_same_way_every_time(files):
    rows = examples(task_on([], [files["plain"]]).eval_dataset(5))
    assert len(rows) == COUNT
    other = task_on([files["plain"]], [files["plain"]])
    assert (examples(other.eval_dataset(12)) == rows).all()


def test_evaluation_takes_masked_records_beside_plain_ones(files):
    task = task_on([files["plain"]], [files["masked"]])
    without = task_on([], [files["masked"]], masking=None)
    assert (examples(task.eval_dataset(5)) == examples(without.eval_dataset(5))).all()
    with pytest.raises(RecordError, match=r"masked records and .*plain ones"):
        task_on([], [files["plain"], files["masked"]])


@pytest.mark.parametrize("kind", ["masked", "masked_without_predictions", "masked_but_the_first"])
def test_masked_records_are_not_masked_again(files, kind):
    with pytest.raises(RecordError, match=rf"{files[kind]}: .* masked when .*`masked_lm_prob`"):
        task_on([files["plain"], files[kind]])


@pytest.mark.parametrize("kind", ["plain", "zeros"])
def test_plain_records_need_masking(files, kind):
    with pytest.raises(RecordError, match=rf"{files[kind]}: .* plain.*`masked_lm_prob`"):
        task_on([files["masked"], files[kind]], masking=None)
    with pytest.raises(RecordError, match=files[kind]):
        task_on([files["masked"]], [files[kind]], masking=None)


def test_records_of_something_else_are_named(tmp_path):
    path = write_records(tmp_path / "other", {"input_ids": np.ones((3, LENGTH), int)})
    for masking in (None, MASKING):
        with pytest.raises(RecordError, match="'input_mask' is missing"):
            task_on([str(path)], masking=masking)


@pytest.mark.parametrize("damaged", ["training", "evaluation"])
def test_damaged_records_are_named_whichever_input_has_them(tmp_path, damaged):
    """Training reads word starts here, evaluation predictions."""
    train = write_records(tmp_path / "training", plain_columns(40, seed=2))
    evaluate = write_records(tmp_path / "evaluation", pretraining_columns(40, seed=3))
    task = task_on([str(train)], [str(evaluate)])
    damage_record(tmp_path / damaged, number=25)
    batches = task.eval_dataset(8)
    if damaged == "training":
        batches = islice(task.train_dataset(8, seed=1), 5)
    with (
        pytest.raises(RecordError, match=f"{damaged}, record 25: the checksum"),
        task.explain_read_errors(),
    ):
        list(batches)


def test_a_stream_of_damaged_files_alone_is_an_error(tmp_path):
    """It would be read for ever."""
    paths = [write_records(tmp_path / str(n), plain_columns(COUNT, seed=1)) for n in range(4)]
    damage_record(paths[1], number=1)
    settings = {"max_seq_length": LENGTH, "skip_damaged_records": True, "masking": MASKING}
    task = PretrainingTask(small_config(), train_files=[*map(str, paths)], **settings)
    task.check_workers(1, 1)
    with pytest.raises(RecordError, match=f"stream 1 of 4 .*: {paths[1]}. Omit"):
        task.check_workers(8, 2)
    with pytest.raises(ValueError, match="3 workers cannot share"):
        task.check_workers(12, 3)
    whole = paths[0].read_bytes()
    paths[1].write_bytes(frame_records([b"\xff" * 40])[0] + whole)  # does not parse, and goes on
    PretrainingTask(small_config(), train_files=[*map(str, paths)], **settings).check_workers(8, 2)


def test_the_description_of_the_input_holds_the_masking(files):
    described = task_on([files["plain"]]).describe_input()
    assert described["masking"]["settings"]["masked_lm_prob"] == 0.3
    assert described["masking"]["mask_id"] == 4
    assert "masking" not in task_on([files["masked"]], masking=None).describe_input()


@pytest.fixture
def pairs_and_runs(tmp_path: Path) -> list[str]:
    """Pairs, single runs, and no record at all."""
    columns = pretraining_columns(3, seed=1)
    single = {**columns, "segment_ids": np.zeros_like(columns["segment_ids"])}
    nothing = {name: values[:0] for name, values in columns.items()}
    return [
        str(write_records(tmp_path / name, columns))
        for name, columns in (("pairs", columns), ("single", single), ("nothing", nothing))
    ]


@pytest.mark.parametrize("loss", ["sop", "nsp"])
def test_a_loss_of_pairs_refuses_single_runs(pairs_and_runs, loss):
    pairs, single, nothing = pairs_and_runs
    check_sentence_pairs([pairs, nothing], loss)
    with pytest.raises(RecordError, match=f"^{single} .*`sentence_loss`={loss}"):
        check_sentence_pairs(pairs_and_runs, loss)
    check_sentence_pairs(pairs_and_runs, "none")


@pytest.mark.parametrize("payload", [b"", b"\xff" * 40])
def test_a_first_record_that_cannot_be_read_is_named(tmp_path, payload):
    path = tmp_path / "bad"
    path.write_bytes(b"".join(frame_records([payload])))
    with pytest.raises(RecordError, match="bad, record 1"):
        check_sentence_pairs([str(path)], "sop")
