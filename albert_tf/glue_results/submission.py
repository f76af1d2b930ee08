"""The zip file GLUE's server takes: the test predictions of one run of every task."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence

from absl import logging

from albert_tf.data.files import file_exists, open_binary, write_then_rename
from albert_tf.data.glue_tasks import GLUE_TASKS
from albert_tf.glue_results.runs import GlueRun

_HEADER = b"index\tprediction"
# Test rows of GLUE's download; the server refuses files of another length.
TEST_ROWS: Mapping[str, int] = {
    "cola": 1063,
    "mnli": 9796,
    "mismnli": 9847,
    "mrpc": 1725,
    "rte": 3000,
    "sst-2": 1821,
    "sts-b": 1379,
    "qqp": 390965,
    "qnli": 5463,
    "wnli": 146,
    "ax": 1104,
}
# One model answers these three sets, so their files come from runs of one seed.
_MNLI_TASKS = ("mismnli", "ax")


def choose_files(runs: Sequence[GlueRun]) -> dict[str, str]:
    """Chooses the predictions to submit: those of the seed with the best development score.

    Args:
        runs: of any tasks and seeds.

    Returns:
        Paths by task; tasks without predictions are not in it.
    """
    candidates = [run for run in runs if file_exists(_predictions(run))]
    chosen: dict[str, GlueRun] = {}
    for task in GLUE_TASKS:
        if task not in _MNLI_TASKS:
            of_task = [run for run in candidates if run.task == task]
            if of_task:
                chosen[task] = max(of_task, key=lambda run: (run.score, -run.seed))
    if "mnli" in chosen:
        seed = chosen["mnli"].seed
        chosen |= {r.task: r for r in candidates if r.task in _MNLI_TASKS and r.seed == seed}
    return {task: _predictions(run) for task, run in chosen.items()}


def _predictions(run: GlueRun) -> str:
    return os.path.join(run.path, GLUE_TASKS[run.task].submission_file)


def write_submission(path: str, files: Mapping[str, str], *, allow_missing: bool = False) -> None:
    """Writes the zip; the same predictions give the same bytes.

    Args:
        path: where to.
        files: predictions by task, see `choose_files`.
        allow_missing: write what there is.

    Raises:
        ValueError: predictions of a task are missing, or a file is no predictions.
    """
    missing = [task for task in GLUE_TASKS if task not in files]
    if missing:
        names = ", ".join(f"{GLUE_TASKS[task].submission_file} ({task})" for task in missing)
        if not files or not allow_missing:
            raise ValueError(
                f"--submission: GLUE's server wants the predictions of all tasks, and these are "
                f"missing: {names}. Run these tasks, or give --allow_missing to zip the others."
            )
        logging.warning("The submission lacks %s: GLUE's server will refuse it as it is", names)
    contents = {task: _read_predictions(task, source) for task, source in files.items()}
    with write_then_rename(path) as file, zipfile.ZipFile(file, "w") as archive:
        for task in sorted(contents, key=lambda task: GLUE_TASKS[task].submission_file):
            # A ZipInfo of our own has no time and no rights of the file it came from.
            info = zipfile.ZipInfo(GLUE_TASKS[task].submission_file)
            info.external_attr = 0o644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, contents[task])


def _read_predictions(task: str, path: str) -> bytes:
    with open_binary(path, "rb") as file:
        content = file.read()
    lines = content.splitlines()
    if not lines or lines[0] != _HEADER:
        raise ValueError(
            f"{path} is no file of predictions: its first line should be {_HEADER.decode()!r}. "
            f"Received: {lines[0][:80].decode(errors='replace') if lines else ''!r}"
        )
    rows = len(lines) - 1
    if rows != TEST_ROWS[task]:
        expected = TEST_ROWS[task]
        logging.warning("%s has %d rows; GLUE's test file of %s has %d", path, rows, task, expected)
    return content
