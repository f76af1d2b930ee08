"""Counting records, and estimating those there is no time to count."""

import itertools

import pytest

from albert_tf.data.record_count import count_or_estimate
from albert_tf.data.tfrecord import RecordError, frame_records


def write(path, lengths):
    path.write_bytes(b"".join(frame_records([bytes(length) for length in lengths])))
    return str(path)


def ticking(step=1.0):
    """A clock that is looked at once a second."""
    times = itertools.count(0.0, step)
    return lambda: next(times)


@pytest.fixture
def files(tmp_path):
    lengths = {"a": [100] * 7, "b": [], "c": range(50, 64), "d": [200] * 5}
    return [write(tmp_path / name, sizes) for name, sizes in lengths.items()]


def test_counts_all_there_is_time_for(files, tmp_path):
    count = count_or_estimate(files)
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert (count.number, count.is_exact, count.num_bytes) == (26, True, size)
    assert count.bytes_each == size / 26


def test_the_size_of_those_counted_stands_for_the_others(files):
    count = count_or_estimate(files, seconds=3.5, clock=ticking())
    # Four of the first file were counted: 116 bytes each.
    assert (count.number, count.is_exact) == (round(count.num_bytes / 116), False)


def test_the_last_record_is_no_estimate(files):
    late = count_or_estimate(files, seconds=25.5, clock=ticking())
    assert (late.number, late.is_exact) == (26, True)
    assert not count_or_estimate(files, seconds=24.5, clock=ticking()).is_exact


def test_a_file_that_is_cut_short_is_named_or_left_out(files, tmp_path):
    data = (tmp_path / "c").read_bytes()
    (tmp_path / "c").write_bytes(data[:-20])
    with pytest.raises(RecordError, match=r"/c, record 14: the file ends inside this record"):
        count_or_estimate(files)
    assert count_or_estimate(files, skip_damaged=True).number == 25
