"""Which checkpoints a user means: the newest, the best, all of a directory, or one by its path."""

from __future__ import annotations

import time
from collections.abc import Iterator

import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.formats import find_weights
from albert_tf.checkpoints.training_directory import TrainingDirectory

CHOICES = ("all", "best", "newest")  # anything else is a path
_POLL_SECONDS = 2.0


def choose_checkpoints(
    directory: TrainingDirectory,
    choice: str,
    init_checkpoint: str | None = None,
    *,
    flag: str,
    last_step: int = -1,
    watch_secs: float = 0.0,
) -> Iterator[str]:
    """Finds the finished checkpoints to evaluate.

    Args:
        directory: where the run keeps its checkpoints.
        choice: "newest", "best" or "all" of the directory, or the path of a checkpoint.
        init_checkpoint: taken where the directory has no such checkpoint.
        flag: what `choice` came from, for messages.
        last_step: "all" ends with the checkpoint of this step.
        watch_secs: "all" waits so many seconds after the last new checkpoint for a further one.

    Returns:
        Prefixes, oldest first.

    Raises:
        ValueError: there is none.
    """
    newest, best = directory.newest(), directory.best()
    is_all = choice == "all" and bool(newest or watch_secs > 0)
    wanted = {"newest": newest, "best": best, "all": best}.get(choice, choice)
    if init_checkpoint and (is_all or wanted):
        logging.warning(
            "--init_checkpoint=%s is not evaluated: %s=%s means %s. To evaluate it, pass it as %s.",
            init_checkpoint,
            flag,
            choice,
            f"the checkpoints of {directory.path}" if is_all else wanted,
            flag,
        )
    if is_all:
        return _all_checkpoints(directory, flag, last_step, watch_secs)
    path = wanted or init_checkpoint
    if not path:
        raise ValueError(
            f"--output_dir {directory.path!r} has no checkpoint for {flag}={choice}. Train first, "
            f"or pass --init_checkpoint or the path of a checkpoint as {flag}."
        )
    return iter([find_weights(path, flag if wanted else "--init_checkpoint")])


def choose_checkpoint(
    directory: TrainingDirectory,
    choice: str | None,
    init_checkpoint: str | None = None,
    *,
    flag: str,
) -> str:
    """Finds the checkpoint to predict with: the chosen one, else the best, else the newest.

    Args:
        directory: where the run keeps its checkpoints.
        choice: see `choose_checkpoints`; of all, one is taken as without a choice.
        init_checkpoint: taken where the directory has none.
        flag: what `choice` came from, for messages.

    Returns:
        Its prefix.

    Raises:
        ValueError: there is none.
    """
    if choice is None or choice == "all":
        choice = "best"
        if directory.best() is None and directory.newest() is not None:
            choice = "newest"
            logging.warning(
                "%s has no best checkpoint because none was evaluated: using the newest one",
                directory.path,
            )
    return next(choose_checkpoints(directory, choice, init_checkpoint, flag=flag))


def _all_checkpoints(
    directory: TrainingDirectory, flag: str, last_step: int, watch_secs: float
) -> Iterator[str]:
    """Every checkpoint of the directory once; stops `watch_secs` after the last new one."""
    seen: set[str] = set()
    deadline = time.monotonic() + watch_secs
    while True:
        new = [prefix for prefix in directory.checkpoints() if prefix not in seen]
        for prefix in new:
            seen.add(prefix)
            if tf.io.gfile.exists(prefix + ".index"):  # a training run removes old ones meanwhile
                yield prefix
        if new:
            deadline = time.monotonic() + watch_secs
        if any(prefix.endswith(f"-{last_step}") for prefix in seen) or time.monotonic() >= deadline:
            break
        time.sleep(_POLL_SECONDS)
    if not seen:
        raise ValueError(f"--output_dir {directory.path!r} has no checkpoint for {flag}=all.")
