"""A profile of some training steps, which TensorBoard's profile plugin shows."""

from __future__ import annotations

import os
import re
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.training.run_log import TENSORBOARD_FOLDER


class StepProfiler:
    """Records a profile of some steps under `tensorboard/plugins/profile` of a run.

    What fails while it records is a warning: no training ends because of its profile.

    Args:
        output_dir: directory of the run.
        first: the first step to record; steps count from 1, as in the log.
        last: the last step to record.
    """

    def __init__(self, output_dir: str, first: int, last: int) -> None:
        self.first = first
        self.last = last
        self._directory = os.path.join(output_dir, TENSORBOARD_FOLDER)
        self._is_recording = False
        self._is_done = False
        self._trace: Any = None  # that of the running step

    def before_step(self, step: int, num_steps: int = 1) -> None:
        """Begins to record where `step`, or one of the `num_steps` that run with it, is wanted."""
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
        """Writes the profile after the last step that is wanted."""
        self._end_trace()
        if self._is_recording and step >= self.last:
            self.close()

    def close(self) -> None:
        """Writes what was recorded so far, if anything: the run may have been interrupted."""
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
    """Returns what --profile_steps="first,last" asks for.

    None where it was not given, or where this process, not being the chief, `records` nothing.

    Raises:
        ValueError: it is malformed, or not within the `num_steps` steps of the run.
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
