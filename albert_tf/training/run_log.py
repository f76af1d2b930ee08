"""The log of a run.

The output directory contains `run_config.json` (settings, versions, devices, command line),
`metrics.jsonl` (one JSON object per line), `tensorboard/` and `training_curves.png`. The terminal
shows one `key=value` line per interval and a progress bar. If a run resumes from a step or rolls
back to it, later records are removed.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.data.files import raise_write_errors, write_then_rename
from albert_tf.data.jobs import progress_bar
from albert_tf.data.strict_json import parse_json
from albert_tf.training.curves import draw_curves
from albert_tf.training.distribution import device_names
from albert_tf.training.run_records import (
    METRICS_FILE,
    RUN_CONFIG_FILE,
    Record,
    iso_time,
    new_record,
    read_records,
    read_run_config,
    to_line,
)
from albert_tf.training.settings import OnLog
from albert_tf.version import __version__

CURVES_FILE = "training_curves.png"
TENSORBOARD_FOLDER = "tensorboard"
_SECONDS_BETWEEN_PICTURES = 30.0  # drawing takes as long as some evaluations


class RunLog:
    """The log of one run.

    Args:
        output_dir: directory of the run; created if missing.
        total_steps: step at which training ends.
        start_step: finished steps of the checkpoint the run resumes from.
        write: whether to write and show anything; False on all workers except the chief.
        on_log: called with each record after it is written; an error in it ends the run.
        clock: returns the time in seconds since 1970.
    """

    def __init__(
        self,
        output_dir: str,
        total_steps: int,
        start_step: int = 0,
        *,
        write: bool = True,
        on_log: OnLog | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._output_dir = output_dir
        self._total_steps = total_steps
        self._write = write
        self._on_log = on_log
        self._clock = clock
        self._interval_step = start_step
        self._interval_start = clock()
        self._drawn_at = clock()
        self._writers: dict[str, tf.summary.SummaryWriter] = {}
        self._records: dict[tuple[str, int], Record] = {}
        self.reported: list[Record] = []
        if write:
            with raise_write_errors(output_dir):
                tf.io.gfile.makedirs(output_dir)
            self._forget_after(start_step)
        self._bar = progress_bar(
            total=total_steps, initial=start_step, unit="step", hidden=not write
        )

    @property
    def records(self) -> list[Record]:
        """The records of the whole run, as in `metrics.jsonl`."""
        return list(self._records.values())

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Writes `run_config.json`: `config`, versions, devices and command line of this start.

        Logs a warning for every setting in which a resumed run differs from its last start. The
        file of a finished run is kept, because it describes the weights.
        """
        if not self._write:
            return
        step = self._interval_step
        if step:  # not a new run
            before = _leaves(read_run_config(self._output_dir))
            now = _leaves(parse_json(json.dumps(config, default=str), "config"))
            changes = {
                name: (before[name], value)
                for name, value in now.items()
                if name in before and before[name] != value
            }
            if step >= self._total_steps and changes:
                values = (f"{n} is {a!r:.80}, not {b!r:.80}" for n, (a, b) in changes.items())
                logging.warning(
                    "Nothing is trained: the run in %s has reached step %d of %d. These settings "
                    "have no effect: %s. Use another output_dir, or train more steps",
                    self._output_dir,
                    step,
                    self._total_steps,
                    "; ".join(values),
                )
                return
            text = "%s changes at step %d: %.80r until now, %.80r from now on"
            for name, (old, new) in changes.items():
                logging.warning(text, name, step, old, new)
        content = {
            "time": iso_time(self._clock()),
            "start_step": self._interval_step,
            "command_line": sys.argv,
            "versions": {
                "albert_tf": __version__,
                "python": platform.python_version(),
                "tensorflow": tf.__version__,
                "keras": keras.__version__,
            },
            "devices": device_names(),
            "config": config,
        }
        self._replace_file(RUN_CONFIG_FILE, json.dumps(content, indent=2, default=str) + "\n")

    def advance(self, step: int) -> None:
        """Moves the progress bar to `step` finished steps."""
        self._bar.update(step - self._bar.n)

    def train(self, step: int, metrics: Mapping[str, float], count: int) -> None:
        """Reports `metrics` of the `count` examples trained on since the last report, up to `step`.

        Adds the rates `examples_per_second` and `steps_per_second`, which exclude the time in
        `pause`. The terminal also shows `seconds_left`.
        """
        if not self._write:
            return
        seconds = max(self._clock() - self._interval_start, 1e-9)
        steps_per_second = (step - self._interval_step) / seconds
        rates = {"examples_per_second": count / seconds, "steps_per_second": steps_per_second}
        self._interval_step, self._interval_start = step, self._clock()
        self.advance(step)
        losses = {name: value for name, value in metrics.items() if name == "loss"}
        self._bar.set_postfix({**losses, "examples/s": count / seconds}, refresh=False)
        left = (self._total_steps - step) / steps_per_second if steps_per_second else math.inf
        self._report("train", step, {**metrics, **rates}, {"seconds_left": left})

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Reports an evaluation after `step` steps; redraws the curves from time to time."""
        if not self._write:
            return
        self._report("eval", step, metrics)
        if self._clock() - self._drawn_at >= _SECONDS_BETWEEN_PICTURES:
            self._draw_curves()

    def roll_back(self, step: int, metrics: Mapping[str, float]) -> None:
        """Removes all records after `step`; reports `metrics` with the phase "roll_back"."""
        if not self._write:
            return
        self._close_writers()
        self._forget_after(step)
        self._bar.n = step
        self._interval_step, self._interval_start = step, self._clock()
        self._report("roll_back", step, metrics)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Context manager that excludes its time from the rates of training."""
        start = self._clock()
        try:
            yield
        finally:
            self._interval_start += self._clock() - start

    def close(self) -> None:
        """Draws the curves and closes all files. Write errors are logged as warnings."""
        self._bar.close()
        try:
            self._close_writers()
            # Do not recreate a directory that was removed.
            if self._records and tf.io.gfile.exists(self._path(METRICS_FILE)):
                self._draw_curves()
        except (OSError, tf.errors.OpError) as error:
            logging.warning("The curves of the run cannot be written: %s", error)

    def _close_writers(self) -> None:
        for phase, writer in self._writers.items():
            with raise_write_errors(self._path(TENSORBOARD_FOLDER, phase)):
                writer.close()
        self._writers.clear()

    def _report(
        self,
        phase: str,
        step: int,
        metrics: Mapping[str, float],
        shown_only: Mapping[str, float] | None = None,
    ) -> None:
        record = new_record(phase, step, metrics, self._clock())
        values = _metrics(record)
        self._log_line(phase, step, {**values, **(shown_only or {})})
        is_repeated = (phase, step) in self._records
        self._records[phase, step] = record
        self.reported.append(record)
        if is_repeated:
            self._rewrite_metrics()
        else:
            path = self._path(METRICS_FILE)
            with raise_write_errors(path), tf.io.gfile.GFile(path, "a") as file:
                file.write(to_line(record))
        self._write_summaries(phase, step, values)
        if self._on_log:
            self._on_log(dict(record))

    def _log_line(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        pairs = " ".join(f"{name}={value:.6g}" for name, value in values.items())
        self._bar.clear()  # or the line would be appended to the bar
        logging.info("phase=%s step=%d/%d %s", phase, step, self._total_steps, pairs)
        self._bar.refresh()

    def _write_summaries(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        folder = self._path(TENSORBOARD_FOLDER, phase)
        with raise_write_errors(folder):
            if phase not in self._writers:
                self._writers[phase] = tf.summary.create_file_writer(folder)
            with self._writers[phase].as_default(step=step):
                for name, value in values.items():
                    tf.summary.scalar(name, value)
            self._writers[phase].flush()

    def _forget_after(self, step: int) -> None:
        """Reads the records of earlier starts up to `step`, and removes later ones."""
        path = self._path(METRICS_FILE)
        if not tf.io.gfile.exists(path):
            return
        found = read_records(path, copy_to=f"{path}.damaged")
        records = [record for record in found if record["step"] <= step]
        self._records = {(record["phase"], record["step"]): record for record in records}
        self._rewrite_metrics()
        # Event files cannot be truncated, so they are written again.
        for phase in {phase for phase, _ in self._records} | {"train", "eval"}:
            folder = self._path(TENSORBOARD_FOLDER, phase)
            if tf.io.gfile.exists(folder):
                with raise_write_errors(folder):
                    tf.io.gfile.rmtree(folder)
        for record in records:
            self._write_summaries(record["phase"], record["step"], _metrics(record))

    def _rewrite_metrics(self) -> None:
        self._replace_file(METRICS_FILE, "".join(map(to_line, self._records.values())))

    def _draw_curves(self) -> None:
        self._replace_file(CURVES_FILE, draw_curves(self.records))
        self._drawn_at = self._clock()

    def _replace_file(self, name: str, content: str | bytes) -> None:
        with write_then_rename(self._path(name)) as file:
            file.write(content.encode() if isinstance(content, str) else content)

    def _path(self, *names: str) -> str:
        return os.path.join(self._output_dir, *names)


def _leaves(config: Mapping[str, Any]) -> dict[str, Any]:
    """Flattens nested settings: {"optimizer": {"beta_1": b}} -> {"optimizer.beta_1": b}."""
    leaves = {}
    for name, value in config.items():
        below = _leaves(value) if isinstance(value, dict) else {"": value}
        leaves.update({f"{name}.{key}".rstrip("."): leaf for key, leaf in below.items()})
    return leaves


def _metrics(record: Record) -> dict[str, float]:
    return {key: value for key, value in record.items() if isinstance(value, float)}


class EvaluationLog:
    """The log of evaluations without training: passes records to `on_log` and keeps them."""

    def __init__(self, on_log: OnLog | None = None) -> None:
        self.reported: list[Record] = []
        self._on_log = on_log

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Reports the scores of the weights after `step` steps."""
        self.reported.append(new_record("eval", step, metrics, time.time()))
        if self._on_log:
            self._on_log(dict(self.reported[-1]))


class StepProfiler:
    """Profiles the steps `first` to `last`, counted from 1, under `tensorboard/plugins/profile`.

    Errors while recording are logged as warnings and do not end the training.
    """

    def __init__(self, output_dir: str, first: int, last: int) -> None:
        self.first = first
        self.last = last
        self._directory = os.path.join(output_dir, TENSORBOARD_FOLDER)
        self._is_recording = False
        self._is_done = False
        self._trace: Any = None  # of the running step

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
            tf.test.experimental.sync_devices()  # earlier steps may still be running
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
