"""Profiles of training steps, for TensorBoard."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf
from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.training.run_log import TENSORBOARD_FOLDER

_NEVER = sys.maxsize  # no run has this step


class StepProfiler:
    """Records a profile of the steps `first` to `last` under `tensorboard/plugins/profile`.

    The first step of a run is 1. Errors are logged as warnings.
    """

    def __init__(self, output_dir: str, first: int = _NEVER, last: int = _NEVER) -> None:
        self.first = first
        self.last = last
        self._directory = os.path.join(output_dir, TENSORBOARD_FOLDER)
        self._is_recording = False
        self._is_done = False

    @contextmanager
    def steps(self, first: int, count: int = 1) -> Iterator[None]:
        """Context manager for `count` steps, from `first` on. Records them if one is selected."""
        if not (self._is_recording or self._is_done) and first + count > self.first:
            self._start(first)
        if self._is_recording:
            with tf.profiler.experimental.Trace("train", step_num=first, _r=1):
                yield
        else:
            yield
        if first + count > self.last:
            self.close()

    def _start(self, step: int) -> None:
        if step > self.last:
            self._is_done = True
            logging.info("Nothing is profiled: `profile_steps` ends before step %d", step)
            return
        tf.test.experimental.sync_devices()  # earlier steps may still be running
        try:
            tf.profiler.experimental.start(self._directory)
            self._is_recording = True
        except (OSError, tf.errors.OpError) as error:
            self._is_done = True
            logging.warning("Steps cannot be profiled: %s", error)

    def close(self) -> None:
        """Writes the profile, if steps were recorded."""
        if not self._is_recording:
            return
        self._is_recording, self._is_done = False, True
        try:
            tf.test.experimental.sync_devices()
            tf.profiler.experimental.stop()
            logging.info("Wrote the profile of training steps to %s", self._directory)
        except (OSError, tf.errors.OpError) as error:
            logging.warning("The profile of training steps cannot be written: %s", error)


def create_profiler(profile_steps: str | None, output_dir: str, num_steps: int) -> StepProfiler:
    """Creates the profiler for `profile_steps`="first,last". If `None`, nothing is recorded.

    Raises ValueError if it is malformed, or not in the `num_steps` steps of the run.
    """
    if profile_steps is None:
        return StepProfiler(output_dir)
    match = re.fullmatch(r" *([0-9]{1,18}) *, *([0-9]{1,18}) *", profile_steps)
    first, last = map(int, match.groups()) if match else (0, 0)
    if not 1 <= first <= last <= num_steps:
        raise UserError(
            "`profile_steps` must be the first and the last step to profile, such as 100,110, in "
            f"1..{num_steps}. Received: {profile_steps!r}"
        )
    return StepProfiler(output_dir, first, last)
