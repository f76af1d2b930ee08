"""Record files that change while they are read, or between two starts of a run."""

import json
import os
import re
import shutil
from functools import partial
from itertools import islice
from pathlib import Path

import pytest
import tensorflow as tf

from albert_tf.data.tfrecord import FeatureSpec, RecordError
from albert_tf.pretraining.batching import evaluation_batches, file_ends, training_batches
from albert_tf.pretraining.record_checks import explain_read_errors
from albert_tf.pretraining.record_facts import digest
from albert_tf.pretraining.run import run_pretraining
from albert_tf.pretraining.settings import PretrainingSettings
from albert_tf.training.trainer import input_positions
from tests.pretraining_run import PretrainingRun
from tests.small_records import pretraining_columns, write_records
from tests.small_training import skip_steps

SPECS = (FeatureSpec("input_ids", "int64", 11),)
COUNTS = (5, 7, 0)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Returns paths with characters of patterns."""
    (folder := tmp_path / "[of the *]").mkdir()
    return [
        str(write_records(folder / f"part-{seed}", pretraining_columns(count, seed)))
        for seed, count in enumerate(COUNTS)
    ]


CHANGES = {
    "emptied": lambda path: path.write_bytes(b""),
    "ends after a record": lambda path: write_records(path, pretraining_columns(4, 1)),
    "ends in a record": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "twice as long": lambda path: path.write_bytes(path.read_bytes() * 2),
    "same size": lambda path: path.write_bytes(path.read_bytes()[:-3] + b"new"),
    "removed": lambda path: path.unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("is_training", [True, False])
def test_reading_ends_with_an_error(files, change, is_training):
    ends = file_ends(files)
    if is_training:
        batches = islice(training_batches(files, SPECS, 2, seed=1, shuffle_buffer_size=2), 21)
        next(batches)
    else:
        batches = evaluation_batches(files, SPECS, 2, ends=ends)
        assert sum(len(batch["input_ids"]) for batch in batches) == sum(COUNTS)
    CHANGES[change](Path(files[1]))
    name = re.escape(files[1])
    with (
        pytest.raises(RecordError, match=f"^{name} (was changed|can no longer be read)"),
        explain_read_errors([(path, SPECS) for path in files], ends),
    ):
        list(batches)


def test_an_empty_file_that_gets_records_is_an_error(files):
    batches = training_batches(files, SPECS, 2, seed=1, shuffle_buffer_size=2)
    shutil.copy(files[0], files[2])
    with pytest.raises(tf.errors.InvalidArgumentError, match=re.escape(files[2])):
        list(islice(batches, 20))


def test_a_position_in_another_file_is_an_error(tmp_path):
    columns = pretraining_columns(9, 1, vocabulary=1000)  # records of different lengths
    path = write_records(tmp_path / "file", columns)
    make = partial(training_batches, [str(path)], SPECS, 2, seed=1, shuffle_buffer_size=2)
    batches = make()
    next(batches)
    tf.train.Checkpoint(**input_positions(batches)).write(str(tmp_path / "position"))
    write_records(path, {name: values[::-1] for name, values in columns.items()})
    batches = make()
    tf.train.Checkpoint(**input_positions(batches)).read(str(tmp_path / "position"))
    with (
        pytest.raises(RecordError, match="a file was replaced"),
        explain_read_errors([(str(path), SPECS)]),
    ):
        list(islice(batches, 9))


def test_the_digest_covers_parts_of_large_files(tmp_path):
    path = tmp_path / "large"
    sizes = (0, 1, 99, 1 << 17, 3 << 20)
    seen = set()
    for size in sizes:
        path.write_bytes(bytes(size))
        seen.add(digest(str(path)))
    data = bytearray(3 << 20)
    for place in (0, len(data) // 7 * 3, len(data) - 1):  # the start, between, the end
        data[place] = 1
        path.write_bytes(data)
        seen.add(digest(str(path)))
    assert len(seen) == len(sizes) + 3


def test_a_resumed_run_reads_replaced_records_from_the_start(tmp_path, caplog, monkeypatch):
    """The replaced file has the same size; the position in the old file has no meaning in it."""
    skip_steps(monkeypatch)
    run = PretrainingRun(tmp_path)
    first, *_ = run.files

    def order_seed(step):
        settings = {**run.flags(num_train_steps=step, seed=5), "eval_input_file": None}
        run_pretraining(PretrainingSettings(**settings))
        return json.loads((run.output / f"train_state/{step}.json").read_text())["order_seed"]

    assert [order_seed(1), order_seed(2)] == [5, 5]
    assert "The input has changed" not in caplog.text
    size, columns = first.stat().st_size, pretraining_columns(7, seed=0)
    write_records(first, {name: values[::-1] for name, values in columns.items()})
    assert first.stat().st_size == size
    # The new order keeps its seed when it is resumed.
    assert [order_seed(3), order_seed(4)] == [5 + 2, 5 + 2]
    [message] = [text for text in caplog.messages if "The input has changed" in text]
    assert f"digests.{first} is " in message
    assert str(run.files[1]) not in message


@pytest.mark.slow
def test_emptying_all_files_ends_a_run(tmp_path):
    """Without an error, reading would continue forever, and no signal would end the run."""
    run = PretrainingRun(tmp_path)
    running = run.start(num_train_steps=100_000)
    while not (run.output / "model.ckpt-10.index").exists():
        assert running.is_running(), running.printed()
    for path in run.files:
        os.truncate(path, 0)
    result = running.wait()
    assert result.code == 1
    assert "was changed while it was in use" in result.output
    assert "Traceback" not in result.output
    steps = [int(path.stem.split("-")[1]) for path in run.output.glob("model.ckpt-*.index")]
    assert max(run.metrics()) == max(steps)
