"""Runs all stages from raw text to an exported model: `pretrain`.

When a stage is complete, its settings and results are written to `finished/`, and later starts skip
it. So a killed run continues with the stage that was interrupted.
"""

import glob
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from absl import logging

from albert_tf.checkpoints.model_directory import make_output_dir
from albert_tf.config import AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.data.files import (
    check_folder,
    file_exists,
    folder_names,
    real_name,
    write_file,
)
from albert_tf.data.log_file import collected_log, write_log_to
from albert_tf.data.parallel import hidden_progress, progress_bar
from albert_tf.data.strict_json import read_json
from albert_tf.tools.model_card import describe_plan, write_card
from albert_tf.tools.pretrain_plan import (
    Planner,
    comparable,
    device_settings,
    extended_plan,
    few_layers,
)
from albert_tf.tools.pretrain_settings import PretrainSettings
from albert_tf.tools.pretrain_stages import TRAINING, Row, execute
from albert_tf.training.cluster import cluster_from_environment, wait_while
from albert_tf.training.directory_lock import TRAINING as LOCK
from albert_tf.training.directory_lock import locked
from albert_tf.training.settings import JobResult, check_arguments

_PLAN_FILE = "plan.json"


def pretrain(settings: PretrainSettings) -> JobResult:
    """Trains a model on raw text, evaluates it on held-out text and exports it.

    docs/own_language.md describes the stages and the files in `output_dir`. An interrupted run is
    continued by its plan.

    Returns:
        The result of the evaluation. After a dry run, only `output_dir`.

    Raises:
        TypeError: `settings` is not a `PretrainSettings`.
        ValueError: there is too little text or time, the text is damaged or in another script, or
            the directory contains other files or a run with other settings.
        OSError: a file cannot be read or written.
    """
    check_arguments(settings, PretrainSettings)
    start, run, cluster = time.monotonic(), settings.output_dir, cluster_from_environment()
    is_chief = cluster is None or cluster.index == 0
    if cluster and len(cluster.workers) > 1 and not settings.num_train_steps:
        raise UserError(
            "Several workers need `num_train_steps`, because their speed is not measured."
        )
    check_folder(run)
    with locked(run, LOCK, dry_run=settings.dry_run) if is_chief else nullcontext():
        plan = _plan(settings, start) if is_chief or settings.dry_run else {}
        if settings.dry_run:
            print("\n".join(describe_plan(plan, "about ")))
            return JobResult(run)
        if is_chief:
            make_output_dir(run)
            _write_json(run, _PLAN_FILE, plan)
            known = _results(run, plan)
            done = sum(row["seconds"] for row in plan["stages"] if row["name"] in known)
            print("\n".join(describe_plan(plan, done=done)), flush=True)
            config = AlbertConfig.from_dict(plan["config"])
            config.to_json_file(os.path.join(run, "albert_config.json"))
            few_layers(config).to_json_file(os.path.join(run, "few_layers.json"))
        else:
            plan = _wait_for(run, _PLAN_FILE, comparable(settings))
        results = _run_stages(plan, settings, is_chief=is_chief)
        evaluated = results["evaluation"]
        if is_chief:
            print("\n".join(write_card(run, plan, evaluated["scores"])))
    return JobResult(run, evaluated["step"], evaluated["scores"])


def _plan(settings: PretrainSettings, start: float) -> dict[str, Any]:
    """Returns the plan in the directory, which more hours extend, or a new plan."""
    run, wanted = settings.output_dir, comparable(settings)
    if not (stored := _read_json(run, _PLAN_FILE)):
        others = [name for name in folder_names(run) if not name.startswith(".")]
        if others:
            raise UserError(
                "`output_dir` must be empty or contain a run of pretrain. It contains "
                f"{others[0]!r}. Use another directory."
            )
        matches = [path for one in settings.text.split(",") for path in glob.glob(one.strip())]
        for folder in filter(os.path.isdir, matches):
            if os.path.join(real_name(run), "").startswith(os.path.join(real_name(folder), "")):
                raise UserError(
                    f"`output_dir` is in {folder}, whose files `text` contains. Use another "
                    "directory."
                )
        with _quiet(), tempfile.TemporaryDirectory() as folder:
            return Planner(settings, folder).plan(start)
    known = stored["settings"]
    more = {n for n in ("hours", "num_train_steps") if n in known and wanted.get(n, 0) > known[n]}
    changes = [
        f"`{name}` is {known.get(name)} in the plan in {run}, but {wanted.get(name)} in this run"
        for name in sorted({*known, *wanted} - more)
        if known.get(name) != wanted.get(name)
    ]
    if changes:
        raise UserError(f"{'; '.join(changes)}. Use the same settings, or a new `output_dir`.")
    return extended_plan(stored, wanted)


def _run_stages(
    plan: Mapping[str, Any], settings: PretrainSettings, *, is_chief: bool
) -> dict[str, dict[str, Any]]:
    """Runs the stages that are not complete. Returns the results of all stages by name."""
    run, rows, devices = settings.output_dir, plan["stages"], device_settings(settings)
    results = _results(run, plan)
    with progress_bar(
        total=sum(row["seconds"] for row in rows),
        initial=sum(row["seconds"] for row in rows if row["name"] in results),
        bar_format="{percentage:3.0f}%  {desc}  {remaining} left",
        smoothing=0,  # the pace of all stages of this start
        mininterval=0.5 if sys.stderr.isatty() else 30.0,
        disable=not is_chief,
    ) as bar:
        for number, row in enumerate(rows):
            if row["name"] in results:
                continue
            before, seconds = bar.n, row["seconds"]
            bar.set_description_str(row["name"])

            def show(record: Mapping[str, Any], row: Row = row, start: float = before) -> None:
                part = record["step"] / row["settings"].get("num_train_steps", 1)
                accuracy = record.get("masked_lm_accuracy", 0)
                bar.set_description_str(f"{row['name']}, accuracy {accuracy:.1%}", False)
                bar.update(start + part * row["seconds"] - bar.n)

            if is_chief or row["command"] == TRAINING:
                with _quiet(), _log_to(run, row):
                    results[row["name"]] = execute(row, run, devices, show)
            if is_chief:
                finished = {"settings": row["settings"], "result": results[row["name"]]}
                _write_json(run, _file_name(number, row), finished)
            else:
                _wait_for(run, _file_name(number, row), row["settings"])
            bar.update(before + seconds - bar.n)
    return _results(run, plan)


def _file_name(number: int, row: Row) -> str:
    return f"finished/{number:02d}-{row['command']}.json"


def _results(run: str, plan: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the results of the stages that are complete, by name."""
    rows = [(row, _read_json(run, _file_name(n, row))) for n, row in enumerate(plan["stages"])]
    return {
        row["name"]: finished["result"]
        for row, finished in rows
        if finished.get("settings") == row["settings"]
    }


def _read_json(run: str, name: str) -> dict[str, Any]:
    path = os.path.join(run, name)
    return read_json(path, path) if file_exists(path) else {}


def _write_json(run: str, name: str, content: Mapping[str, Any]) -> None:
    if content != _read_json(run, name):
        write_file(os.path.join(run, name), json.dumps(content, indent=1) + "\n")


def _wait_for(run: str, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Waits until the first worker has written a file for these settings."""
    wait = f"the first worker to write {os.path.join(run, name)}. If it has ended, end this worker."
    wait_while(lambda: wait * (_read_json(run, name).get("settings") != settings))
    return _read_json(run, name)


@contextmanager
def _quiet() -> Iterator[None]:
    """Context manager that shows only warnings and errors of a stage, unless --verbosity=1."""
    level = logging.get_verbosity()
    logging.set_verbosity(logging.WARNING if level == logging.INFO else level)
    try:
        with hidden_progress(True):
            yield
    finally:
        logging.set_verbosity(level)


@contextmanager
def _log_to(run: str, row: Row) -> Iterator[None]:
    """Context manager that appends the log of a stage to `log.txt`; a training has its own."""
    with nullcontext() if row["command"] == TRAINING else collected_log():
        write_log_to(run)  # from here on, also if the stage fails
        yield
