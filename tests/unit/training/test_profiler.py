"""Profiles of training steps."""

import logging

import pytest
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from albert_tf.training.profiler import StepProfiler, create_profiler

PATTERN = "tensorboard/plugins/profile/*/*.xplane.pb"


def recorded_steps(folder):
    """Returns the numbers of the recorded steps."""
    (path,) = folder.glob(PATTERN)
    space = xplane_pb2.XSpace.FromString(path.read_bytes())
    return sorted(
        stat.int64_value
        for plane in space.planes
        for line in plane.lines
        for event in line.events
        if plane.event_metadata[event.metadata_id].name.startswith("train")
        for stat in event.stats
        if plane.stat_metadata[stat.metadata_id].name == "step_num"
    )


def train(profiler, steps, together=1):
    step = tf.function(lambda x: x @ x)
    for number in steps:
        with profiler.steps(number, together):
            step(tf.ones([2, 2]))


def test_selected_steps_are_recorded_once(tmp_path):
    profiler = StepProfiler(str(tmp_path), 3, 4)
    train(profiler, [1, 2, 3, 4, 5, 3, 4])
    profiler.close()
    assert recorded_steps(tmp_path) == [3, 4]


def test_interrupted_run_writes_the_profile(tmp_path):
    profiler = StepProfiler(str(tmp_path), 3, 9)
    train(profiler, [2, 3])
    with pytest.raises(KeyboardInterrupt), profiler.steps(4):
        raise KeyboardInterrupt
    profiler.close()
    assert recorded_steps(tmp_path) == [3, 4]


def test_steps_of_one_call_are_recorded_together(tmp_path):
    train(StepProfiler(str(tmp_path), 8, 9), [1, 6, 11], together=5)
    assert recorded_steps(tmp_path) == [6]


def test_run_resumed_after_the_range_logs_once(tmp_path, caplog):
    profiler = StepProfiler(str(tmp_path), 3, 4)
    with caplog.at_level(logging.INFO, "absl"):
        train(profiler, [5, 6])
    profiler.close()
    assert caplog.text.count("Nothing is profiled") == 1
    assert not list(tmp_path.iterdir())


def test_errors_while_recording_are_warnings(tmp_path, caplog):
    other = StepProfiler(str(tmp_path / "other"), 1, 9)
    train(other, [1])
    profiler = StepProfiler(str(tmp_path / "this"), 1, 9)
    train(profiler, [1, 2])
    profiler.close()
    other.close()
    assert caplog.text.count("cannot be profiled") == 1


def test_profile_steps_is_validated(tmp_path):
    train(create_profiler(None, str(tmp_path), 9), [1, 2])
    assert not list(tmp_path.iterdir())
    profiler = create_profiler("2, 9", str(tmp_path), 9)
    assert (profiler.first, profiler.last) == (2, 9)
    for text in ("", "5", "0,3", "5,4", "5,10", "1,2,3", "a,b", "1,²"):
        with pytest.raises(ValueError, match="`profile_steps`"):
            create_profiler(text, str(tmp_path), 9)
