"""The log of a run, in the terminal and in the output directory.

The output directory contains `run_config.json` (settings, versions, devices, oneDNN, command line),
`metrics.jsonl` (one JSON object per line), `tensorboard/` and `training_curves.png`. If a run
resumes from a step, later records are removed.
"""

import dataclasses
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf
from absl import logging
from tensorflow.python.util._pywrap_util_port import IsMklEnabled  # there is no public API
from tqdm import tqdm

from albert_tf.checkpoints.facts import Meeting, changed_settings
from albert_tf.checkpoints.model_directory import RUN_CONFIG_FILE, read_run_config
from albert_tf.data.errors import without_secrets
from albert_tf.data.files import raise_write_errors, write_file
from albert_tf.data.log_file import COLUMNS
from albert_tf.data.parallel import progress_bar
from albert_tf.training.curves import draw_curves
from albert_tf.training.run_records import (
    METRICS_FILE,
    Record,
    iso_time,
    new_record,
    read_records,
    to_line,
)
from albert_tf.training.settings import OnLog
from albert_tf.training.strategies import device_names
from albert_tf.version import __version__

CURVES_FILE = "training_curves.png"
TENSORBOARD_FOLDER = "tensorboard"
_SECONDS_BETWEEN_PICTURES = 30.0  # drawing is slow
_TIMED_SECONDS = 1.0
_LABELS = {"train": "step", "eval": "eval"}  # by phase


@dataclasses.dataclass(eq=False)
class RunLog:
    """The log of one run, which creates `output_dir` if it is missing."""

    output_dir: str
    total_steps: int  # step at which training ends
    start_step: int = 0  # step from which the run resumes
    metric: str = ""  # the score that selects the best checkpoint, which the terminal shows first
    _: dataclasses.KW_ONLY
    write: bool = True  # whether to write and show anything; only on the chief
    on_log: OnLog | None = None  # called with each record after it is written
    clock: Callable[[], float] = time.monotonic  # for rates; unlike the time, never set back

    def __post_init__(self) -> None:
        self._interval_step = self.start_step
        self._interval_start = self._drawn_at = self.clock()
        self._writers: dict[str, tf.summary.SummaryWriter] = {}
        self._records: dict[tuple[str, int], Record] = {}
        self.reported: list[Record] = []
        self._config: Mapping[str, Any] = {}
        self._timed_from: tuple[int, float] | None = None
        self._is_timed = False
        if self.write:
            with raise_write_errors(self.output_dir):
                tf.io.gfile.makedirs(self.output_dir)
            self._forget_after(self.start_step)
        self._bar = progress_bar(
            total=self.total_steps, initial=self.start_step, unit="step", hidden=not self.write
        )

    @property
    def records(self) -> list[Record]:
        """The records of the whole run, as in `metrics.jsonl`."""
        return list(self._records.values())

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Writes `run_config.json`: `config`, versions, devices and command line of this start.

        Logs a warning for every setting that a resumed run changes. If settings have changed but
        the run is already finished, the file is kept, because it contains the settings of the
        trained weights.
        """
        if not self.write:
            return
        step = self._interval_step
        if step:  # not a new run
            run = os.path.join(self.output_dir, RUN_CONFIG_FILE)
            settings = {run: read_run_config(self.output_dir), "this run": config}
            changes = changed_settings(settings, Meeting.RESUME)
            if step >= self.total_steps and changes:
                logging.warning(
                    "Nothing is trained, because the run in %s is finished. These settings have no "
                    "effect: %s. Use another `output_dir`, or train more steps",
                    self.output_dir,
                    "; ".join(changes),
                )
                return
            for change in changes:
                logging.warning("Changed at step %d: %s", step, change)
        self._config = config
        content = {
            "time": iso_time(),
            "start_step": self._interval_step,
            "command_line": [*map(without_secrets, sys.argv)],
            "versions": {
                "albert_tf": __version__,
                "python": platform.python_version(),
                "tensorflow": tf.__version__,
                "keras": keras.__version__,
            },
            "devices": device_names(),
            "onednn": IsMklEnabled(),
            "config": config,
        }
        write_file(self._path(RUN_CONFIG_FILE), json.dumps(content, indent=2, default=str) + "\n")

    def advance(self, step: int, results: Any = ()) -> None:
        """Moves the progress bar to `step` finished steps.

        After the first steps, logs their duration and the remaining time, unless `train` does so
        earlier. `results` are the tensors of the last step, which may still be running.
        """
        self._bar.update(step - self._bar.n)
        if self._is_timed or not self.write:
            return
        for tensor in tf.nest.flatten(results):
            tensor.numpy()
        if self._timed_from is None:  # the first step is slower
            self._timed_from = step, self.clock()
        elif (seconds := self.clock() - self._timed_from[1]) >= _TIMED_SECONDS:
            self._is_timed = True
            rate = seconds / (step - self._timed_from[0])
            self._bar.clear()
            place, left = (step, self.total_steps), rate * (self.total_steps - step)
            logging.info(
                "step %d/%d   %.3g s per step   %s left", *place, rate, tqdm.format_interval(left)
            )

    def train(self, step: int, metrics: Mapping[str, float], count: int) -> None:
        """Reports the `metrics` of the last `count` training examples, up to `step`.

        Adds `examples_per_second` and `steps_per_second`, which exclude the time in `pause`. The
        terminal also shows `seconds_left`.
        """
        if not self.write:
            return
        seconds = max(self.clock() - self._interval_start, 1e-9)
        steps_per_second = (step - self._interval_step) / seconds
        rates = {"examples_per_second": count / seconds, "steps_per_second": steps_per_second}
        self._interval_step, self._interval_start = step, self.clock()
        self._is_timed = True
        self.advance(step)
        losses = {name: value for name, value in metrics.items() if name == "loss"}
        self._bar.set_postfix({**losses, "examples/s": count / seconds}, refresh=False)
        left = (self.total_steps - step) / max(steps_per_second, 1e-9)
        ending = f"{count / seconds:.1f} examples/s   {tqdm.format_interval(left)} left"
        self._report("train", step, {**metrics, **rates}, ending)

    def evaluation(self, step: int, metrics: Mapping[str, float], *, is_best: bool = False) -> None:
        """Reports an evaluation after `step` steps. Updates the curves at most every 30 seconds."""
        if not self.write:
            return
        self._report("eval", step, metrics, "best" * is_best)
        if self.clock() - self._drawn_at >= _SECONDS_BETWEEN_PICTURES:
            self._draw_curves()

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Context manager that excludes its time from the rates of training."""
        start = self.clock()
        try:
            yield
        finally:
            self._interval_start += self.clock() - start

    def close(self) -> None:
        """Draws the curves and closes all files. Write errors are logged as warnings."""
        self._bar.close()
        try:
            for phase, writer in self._writers.items():
                with raise_write_errors(self._path(TENSORBOARD_FOLDER, phase)):
                    writer.close()
            self._writers.clear()
            # The directory may have been removed.
            if self.reported and tf.io.gfile.exists(self._path(METRICS_FILE)):
                self._draw_curves()
        except (OSError, tf.errors.OpError) as error:
            logging.warning("The curves of the run cannot be written: %s", error)

    def _report(self, phase: str, step: int, metrics: Mapping[str, float], ending: str) -> None:
        record = new_record(phase, step, metrics)
        self._bar.clear()  # otherwise the line is appended to the bar
        start = f"{_LABELS[phase]} {step:>{len(str(self.total_steps))}}/{self.total_steps}"
        logging.info(result_row(start, record, self.metric, ending))
        self._bar.refresh()
        is_repeated = (phase, step) in self._records
        self._records[phase, step] = record
        self.reported.append(record)
        if is_repeated:
            self._replace_metrics()
        else:
            path = self._path(METRICS_FILE)
            with raise_write_errors(path), tf.io.gfile.GFile(path, "a") as file:
                file.write(to_line(record))
        self._write_summaries(phase, step, _metrics(record))
        if self.on_log:
            self.on_log(dict(record))

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
        """Reads the records of earlier starts up to `step`, and removes later records."""
        path = self._path(METRICS_FILE)
        if not tf.io.gfile.exists(path):
            return
        records = [record for record in read_records(path) if record["step"] <= step]
        self._records = {(record["phase"], record["step"]): record for record in records}
        self._replace_metrics()
        # Event files cannot be truncated, so they are written again.
        for phase in _LABELS:
            folder = self._path(TENSORBOARD_FOLDER, phase)
            if tf.io.gfile.exists(folder):
                with raise_write_errors(folder):
                    tf.io.gfile.rmtree(folder)
        for record in records:
            self._write_summaries(record["phase"], record["step"], _metrics(record))

    def _replace_metrics(self) -> None:
        write_file(self._path(METRICS_FILE), "".join(map(to_line, self._records.values())))

    def _draw_curves(self) -> None:
        name = os.path.basename(os.path.abspath(self.output_dir))
        write_file(self._path(CURVES_FILE), draw_curves(self.records, name, self._config))
        self._drawn_at = self.clock()

    def _path(self, *names: str) -> str:
        return os.path.join(self.output_dir, *names)


def _metrics(record: Record) -> dict[str, float]:
    return {key: value for key, value in record.items() if isinstance(value, float)}


def result_row(start: str, record: Record, metric: str, ending: str = "") -> str:
    """Returns a line with the loss, the score `metric` and all accuracies of a record.

    Accuracies are omitted if the line is longer than 100 columns.
    """
    values = {name.removeprefix("eval_"): value for name, value in _metrics(record).items()}
    accuracies = (name for name in values if "accuracy" in name)
    names = dict.fromkeys(("loss", metric.removeprefix("eval_"), *accuracies))
    parts = [f"{n.replace('_', ' ')} {values[n]:.4f}" for n in names if n in values]
    while len(line := "   ".join(filter(None, (start, *parts, ending)))) > COLUMNS and parts[2:]:
        parts.pop()
    return line


def result_lines(step: int, results: Mapping[str, float]) -> list[str]:
    """Returns lines `key = value` of the results and the step, sorted by key."""
    return [f"{key} = {value}" for key, value in sorted({**results, "global_step": step}.items())]


class EvaluationLog:
    """The log of evaluations without training, which writes no file."""

    def __init__(self, on_log: OnLog | None = None) -> None:
        self.reported: list[Record] = []
        self._on_log = on_log

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Reports an evaluation of the weights after `step` steps."""
        for line in result_lines(step, metrics):
            logging.info(line)
        self.reported.append(new_record("eval", step, metrics))
        if self._on_log:
            self._on_log(dict(self.reported[-1]))
