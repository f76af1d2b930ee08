"""Profiles some training steps for TensorBoard's profile plugin."""

from __future__ import annotations

import os
import re
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.training.run_log import TENSORBOARD_FOLDER


class StepProfiler:
    """Profiles the steps `first` to `last` under `tensorboard/plugins/profile` of a run.

    Steps count from 1, as in the log. Errors while recording are logged as warnings and do not end
    the training.
    """

    def __init__(self, output_dir: str, first: int, last: int) -> None:
        self.first = first
        self.last = last
        self._directory = os.path.join(output_dir, TENSORBOARD_FOLDER)
        self._is_recording = False
        self._is_done = False
        self._trace: Any = None  # that of the running step

    def before_step(self, step: int, num_steps: int = 1) -> None:
        """Starts recording if `step` or one of the `num_steps` that run with it is selected."""
        if step > self.last and not (self._is_recording or self._is_done):
            self._is_done = True
            logging.info(
                "Nothing is profiled: training resumes at step %d, after --profile_steps=%d,%d",
                step,
                self.first,
                self.last,
            )
        if not (self._is_recording or self._is_done) and step + num_steps > self.first:
            tf.test.experimental.sync_devices()  # the steps before may still be at work
            try:
                tf.profiler.experimental.start(self._directory)
                self._is_recording = True
            except (OSError, tf.errors.OpError) as error:
                self._is_done = True
                logging.warning("Steps cannot be profiled: %s", error)
        if self._is_recording:
            self._trace = tf.profiler.experimental.Trace("train", step_num=step, _r=1)
            self._trace.__enter__()

    def after_step(self, step: int) -> None:
        """Writes the profile after the last selected step."""
        self._end_trace()
        if self._is_recording and step >= self.last:
            self.close()

    def close(self) -> None:
        """Writes the profile of an interrupted run."""
        self._end_trace()
        if not self._is_recording:
            return
        self._is_recording, self._is_done = False, True
        try:
            tf.test.experimental.sync_devices()
            tf.profiler.experimental.stop()
            logging.info("Wrote the profile of training steps to %s", self._directory)
        except (OSError, tf.errors.OpError) as error:
            logging.warning("The profile of training steps cannot be written: %s", error)

    def _end_trace(self) -> None:
        if self._trace is not None:
            self._trace.__exit__(None, None, None)
            self._trace = None


def profiler_of(
    profile_steps: str | None, output_dir: str, num_steps: int, *, records: bool = True
) -> StepProfiler | None:
    """Returns the profiler for --profile_steps="first,last".

    Returns `None` without `profile_steps`, or if this process `records` nothing. Raises ValueError
    if they are malformed, or not within the `num_steps` steps of the run.
    """
    if profile_steps is None:
        return None
    match = re.fullmatch(r" *([0-9]{1,18}) *, *([0-9]{1,18}) *", profile_steps)
    first, last = map(int, match.groups()) if match else (0, 0)
    if not 1 <= first <= last <= num_steps:
        raise UserError(
            "`profile_steps` must be the first and the last step to profile, such as 100,110, of "
            f"the steps 1 to {num_steps} of the run. Received: {profile_steps!r}"
        )
    return StepProfiler(output_dir, first, last) if records else None
