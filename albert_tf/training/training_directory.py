"""The output directory of a training run: its checkpoints, and the state that resuming needs.

`model.ckpt-<step>` contains weights, moments and step by the original release's names. The position
in the input is stored in the directory `train_state`: `<step>.*` for the chief, and
`<step>.<worker>.*` for other workers. The original ignores this directory.

The order of writing is: train states, their description `<step>.json`, checkpoint, and the file
`checkpoint`, which contains the name of the newest checkpoint. Until the last file is written, the
new files are ignored, so a run can be killed at any time.
"""

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.errors import DamagedError, LoadError, SaveError
from albert_tf.checkpoints.facts import Meeting, changed_settings, settle
from albert_tf.checkpoints.formats.choose import open_weights
from albert_tf.checkpoints.formats.original import (
    BEST,
    CHECKPOINT,
    DATA_SUFFIX,
    best_prefix,
    name_newest,
    named_checkpoint,
    new_checkpoint,
    slot_variables,
    write_checkpoint,
)
from albert_tf.checkpoints.stored_model import GLOBAL_STEP, READ_ERRORS
from albert_tf.data.errors import UserError
from albert_tf.data.files import (
    advice_on,
    folder_names,
    open_binary,
    reason_of,
    remove,
    remove_leftovers,
    sync,
    write_file,
)
from albert_tf.data.strict_json import JsonValue, read_json
from albert_tf.modeling.original_names import original_names
from albert_tf.training.run_records import METRICS_FILE

CHOICES = ("all", "best", "newest")  # names of checkpoints; any other value is a path
_POLL_SECONDS = 2.0
TRAIN_STATE = "train_state"
# Keys of `<step>.json`. The checksums prevent crashes of TensorFlow on damaged train states.
_STATES, _CHECKSUM, _ITERATORS = "states", "sha256", "iterators"
DIGESTS = "digests"  # of input files by path


class TrainingDirectory:
    """The checkpoints of one run.

    Only the newest `keep_checkpoint_max` checkpoints are kept; 0 keeps all of them. The directory
    is created when the first checkpoint is written.
    """

    def __init__(self, path: str, keep_checkpoint_max: int = 5) -> None:
        self.path = path
        self.keep_checkpoint_max = keep_checkpoint_max
        self._train_states = os.path.join(path, TRAIN_STATE)
        self._damaged: set[str] = set()  # prefixes that `restore_newest` skipped

    def checkpoints(self) -> list[str]:
        """Returns the prefixes of complete step checkpoints, oldest first."""
        steps = {
            int(match.group(1))
            for name in folder_names(self.path)
            if (match := re.fullmatch(rf"{CHECKPOINT}-([0-9]+)\.index", name))
        }
        newest = self._committed_step()
        prefixes = (self._prefix(s) for s in sorted(steps) if newest is None or s <= newest)
        return [prefix for prefix in prefixes if prefix not in self._damaged]

    def newest(self) -> str | None:
        """Returns the prefix of the newest checkpoint, or `None`."""
        return next(reversed(self.checkpoints()), None)

    def best(self) -> str | None:
        """Returns the prefix of the best checkpoint, or `None`."""
        prefix = best_prefix(self.path)
        return prefix if tf.io.gfile.exists(prefix + ".index") else None

    def _prefix(self, step: int) -> str:
        return os.path.join(self.path, f"{CHECKPOINT}-{step}")

    def _committed_step(self) -> int | None:
        """Returns the step in the file `checkpoint` if its checkpoint exists."""
        step = self._named_step()
        if step is None or not tf.io.gfile.exists(self._prefix(step) + ".index"):
            return None
        return step

    def _named_step(self) -> int | None:
        name = named_checkpoint(self.path)
        match = name and re.fullmatch(rf"{CHECKPOINT}-([0-9]{{1,18}})", name)
        return int(match[1]) if match else None

    def save(
        self,
        step: int,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        positions: Mapping[str, Any] | None,
        input_description: Mapping[str, Any],
        other_positions: Sequence[Mapping[str, Any]] = (),
    ) -> str:
        """Writes everything that resuming needs; returns the checkpoint's prefix.

        `positions` are the `tf.data` iterators of the input by name. If `None`, a resumed run reads
        its input from the start. `input_description` is JSON that identifies the input, and
        `other_positions` are the results of `saved_positions` for the other workers. Raises
        `SaveError` if the checkpoint cannot be written.
        """
        prefix = self._prefix(step)
        with self._raise_save_errors(step):
            tf.io.gfile.makedirs(self._train_states)
            if positions is not None:
                # Without the JSON file, a train state is ignored.
                states = [self._write_positions(step, 0, positions), *other_positions]
                known = [{key: state[key] for key in (_CHECKSUM, _ITERATORS)} for state in states]
                self._write_description(step, 0, {**input_description, _STATES: known})
            variables = {**original_names(model), **slot_variables(model, optimizer)}
            write_checkpoint(prefix, variables, step)
            sync(os.path.join(self.path, METRICS_FILE))
            kept = [p for p in self.checkpoints() if p != prefix] + [prefix]
            if self.keep_checkpoint_max:
                kept = kept[-self.keep_checkpoint_max :]
            name_newest(self.path, [os.path.basename(prefix) for prefix in kept])
            for folder in (self._train_states, self.path):
                sync(folder)
        self._damaged.discard(prefix)
        self._remove_all_but(kept)
        return prefix

    @contextmanager
    def _raise_save_errors(self, step: int) -> Iterator[None]:
        try:
            yield
        except (OSError, UserError, tf.errors.OpError) as error:
            raise SaveError(
                f"Step {step} could not be saved in {self.path!r}: {reason_of(error)}. The newest "
                f"checkpoint is {self.newest()}. {advice_on(error)}. `keep_checkpoint_max` limits "
                "the number of checkpoints."
            ) from error

    def save_positions(self, step: int, worker: int, positions: Mapping[str, Any]) -> None:
        """Writes the train state of a worker other than the chief, which calls `save` afterwards.

        `worker` is at least 1. Raises `SaveError` if the state cannot be written.
        """
        with self._raise_save_errors(step):
            tf.io.gfile.makedirs(self._train_states)
            state = self._write_positions(step, worker, positions)
            self._write_description(step, worker, state)

    def saved_positions(self, step: int, worker: int) -> dict[str, Any]:
        """Returns the JSON that `save_positions` wrote for a worker, to be passed to `save`.

        Raises `SaveError` if the file cannot be read.
        """
        path = self._train_state(step, worker) + ".json"
        with self._raise_save_errors(step):
            content: dict[str, Any] = read_json(path, repr(path))
        return content

    def _write_positions(
        self, step: int, worker: int, positions: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Writes a train state; returns its entry in `<step>.json`: checksum and iterator names."""
        state = self._train_state(step, worker)
        with new_checkpoint(state) as temporary:
            tf.train.Checkpoint(**positions).write(temporary)
        return {_CHECKSUM: _checksum(state), _ITERATORS: list(positions)}

    def _write_description(self, step: int, worker: int, content: Mapping[str, Any]) -> None:
        write_file(self._train_state(step, worker) + ".json", json.dumps(content, indent=2))

    def _remove_all_but(self, kept: list[str]) -> None:
        """Removes incomplete files, and checkpoints and train states that are not in `kept`."""
        steps = {prefix.rsplit("-", 1)[1] for prefix in kept}
        for folder, name in ((self.path, f"{CHECKPOINT}-"), (self._train_states, "")):
            remove_leftovers(folder)
            pattern = re.compile(rf"{name}(\d+)\.(?!tmp-)")
            stale = [
                name
                for name in folder_names(folder)
                if (match := pattern.match(name)) and match.group(1) not in steps
            ]
            # Index files first: without them, readers ignore the other files.
            for name in sorted(stale, key=lambda name: not name.endswith(".index")):
                remove(os.path.join(folder, name))
        for prefix in sorted(self._damaged):
            logging.info("Removed %s, which was damaged: a newer checkpoint is complete", prefix)
        self._damaged.clear()

    def restore_newest(
        self, model: keras.Model, optimizer: keras.optimizers.Optimizer
    ) -> tuple[str, int] | None:
        """Restores the newest checkpoint; skips damaged checkpoints with a warning.

        Returns the checkpoint's prefix and its step, or `None` if there is no checkpoint. Raises
        `DamagedError` if all checkpoints are damaged, `ValueError` if a checkpoint does not fit.
        """
        named = self._named_step()
        if named is not None and self._committed_step() is None:
            logging.warning("%s is skipped: its index file is missing", self._prefix(named))
        damages: list[str] = []
        for prefix in reversed(self.checkpoints()):
            try:
                description = self.input_description(prefix) or {}
                for state, _, expected in self._states(prefix, description):
                    if _checksum(state) != expected:
                        raise DamagedError(f"{state!r} is damaged: its checksum differs.")
                return prefix, self.restore(prefix, model, optimizer)
            except DamagedError as error:
                damages.append(str(error))
            logging.warning("%s is skipped, and the previous one is used: %s", prefix, damages[-1])
            self._damaged.add(prefix)
        if damages:
            self._damaged.clear()
            raise DamagedError(
                f"All checkpoints in `output_dir` {self.path!r} are damaged. To start from "
                "scratch, use a new `output_dir`. " + " ".join(damages)
            )
        return None

    def restore(
        self, prefix: str, model: keras.Model, optimizer: keras.optimizers.Optimizer
    ) -> int:
        """Fills model and optimizer from a step checkpoint, and returns its step.

        Raises `ValueError` if the checkpoint is damaged, or does not fit the model or optimizer.
        """
        weights = open_weights(prefix)
        variables = {**original_names(model), **slot_variables(model, optimizer)}
        shapes = {name: list(v.shape) for name, v in variables.items()} | {GLOBAL_STEP: []}
        stored = {f"shape.{name}": weights.shapes.get(name, "missing") for name in shapes}
        wanted = {f"shape.{name}": shape for name, shape in shapes.items()}
        advice = "Use a new `output_dir`, and the checkpoint as `init_checkpoint`."
        settle({prefix: stored, "this run": wanted}, Meeting.RESUME, advice=advice)
        values = {name: weights[name] for name in variables}
        for name, variable in variables.items():
            variable.assign(values[name])
        step = weights.global_step
        optimizer.iterations.assign(step)
        return step

    def input_description(self, prefix: str) -> dict[str, Any] | None:
        """Returns the `input_description` of `save`, or `None` if no position was saved."""
        path = self._train_state(_step_of(prefix)) + ".json"
        if not tf.io.gfile.exists(path):
            return None
        try:
            content = JsonValue(read_json(path, repr(path)), repr(path))
            content[_STATES].elements()
        except ValueError as error:
            raise DamagedError(str(error)) from error
        return content.value

    def _train_state(self, step: int | str, worker: int = 0) -> str:
        return os.path.join(self._train_states, f"{step}.{worker}" if worker else str(step))

    def _states(
        self, prefix: str, description: Mapping[str, Any]
    ) -> Iterator[tuple[str, list[str], str]]:
        """Yields prefix, names of the iterators and checksum of each train state."""
        for worker, state in enumerate(description.get(_STATES, [])):
            path = self._train_state(_step_of(prefix), worker)
            yield path, state[_ITERATORS], state[_CHECKSUM]

    def restore_input(
        self, prefix: str, positions: Mapping[str, Any], input_description: Mapping[str, Any]
    ) -> bool:
        """Moves new iterators to the saved position; returns whether they were moved.

        If no position was saved or the input has changed, a warning is logged instead. `positions`
        are new iterators by name, for some or all of the saved iterators. Raises `LoadError` if the
        position cannot be read.
        """
        stored = self.input_description(prefix)
        if stored is None:
            logging.warning("%s has no input position: reading the input from the start", prefix)
            return False
        unknown = dict.fromkeys(input_description.keys() - {DIGESTS}, "unknown")
        inputs = {prefix: {**unknown, **stored}, "this run": input_description}
        if changed := changed_settings(inputs, Meeting.RESUME):
            logging.warning(
                "The input has changed since %s was saved, so it is read from the start: %s",
                prefix,
                "; ".join(changed),
            )
            return False
        pending = dict(positions)
        for state, names, _ in self._states(prefix, stored):
            found = {name: pending.pop(name) for name in names if name in pending}
            if not found:
                continue
            try:
                status = tf.train.Checkpoint(**found).read(state)
                status.assert_existing_objects_matched().expect_partial()
            except READ_ERRORS as error:
                raise LoadError(
                    f"{state!r} cannot be read: {reason_of(error)}. If it is damaged, remove "
                    f"{self._train_state(_step_of(prefix))}.json to read the input from the start."
                ) from error
        assert not pending, pending
        return True

    def save_best(self, step: int, model: keras.Model) -> None:
        """Writes the weights as `model.ckpt-best`, replacing an earlier best checkpoint."""
        write_checkpoint(os.path.join(self.path, BEST), original_names(model), step)


def _step_of(prefix: str) -> str:
    return prefix.rsplit("-", 1)[1]


def _checksum(prefix: str) -> str:
    """Returns the SHA-256 of the files of a checkpoint."""
    digest = hashlib.sha256()
    try:
        for suffix in (".index", DATA_SUFFIX):
            with open_binary(prefix + suffix, "rb") as file:
                while block := file.read(1 << 20):  # shuffle buffers may be large
                    digest.update(block)
    except (FileNotFoundError, tf.errors.NotFoundError) as error:
        raise DamagedError(f"{prefix!r} is damaged: a file is missing.") from error
    return digest.hexdigest()


def choose_checkpoints(
    directory: TrainingDirectory,
    choice: str,
    init_checkpoint: str | None = None,
    *,
    name: str,
    last_step: int = -1,
    watch_secs: float = 0.0,
) -> Iterator[str]:
    """Finds the checkpoints to evaluate, oldest first.

    Args:
        directory: the directory of the run.
        choice: "newest", "best" or "all" of the directory, or the path of a checkpoint.
        init_checkpoint: used if the directory has no such checkpoint. If both have none,
            `ValueError` is raised.
        name: the argument that contains `choice`, for messages.
        last_step: "all" ends with the checkpoint of this step.
        watch_secs: number of seconds that "all" waits for the next checkpoint.
    """
    newest, best = directory.newest(), directory.best()
    is_all = choice == "all" and bool(newest or watch_secs > 0)
    wanted = {"newest": newest, "best": best, "all": best}.get(choice, choice)
    if init_checkpoint and (is_all or wanted):
        logging.warning(
            "%s is not evaluated: %s=%s means %s. To evaluate it, pass it as %s.",
            init_checkpoint,
            name,
            choice,
            f"the checkpoints of {directory.path}" if is_all else wanted,
            name,
        )
    if is_all:
        return _all_checkpoints(directory, name, last_step, watch_secs)
    path = wanted or init_checkpoint
    if not path:
        raise UserError(
            f"{directory.path!r} has no checkpoint for `{name}`={choice}. Train first with "
            f"`do_train`, or pass the path of a trained checkpoint as `{name}`."
        )
    return iter([open_weights(path).source])


def choose_checkpoint(
    directory: TrainingDirectory,
    choice: str | None,
    init_checkpoint: str | None = None,
    *,
    name: str,
) -> str:
    """Finds the checkpoint to predict with; see `choose_checkpoints`.

    If `choice` is `None` or "all", the best checkpoint is used, or the newest if there is no best.
    """
    if choice is None or choice == "all":
        choice = "best"
        if directory.best() is None and directory.newest() is not None:
            choice = "newest"
            logging.warning(
                "%s has no best checkpoint because no checkpoint was evaluated: using the newest",
                directory.path,
            )
    return next(choose_checkpoints(directory, choice, init_checkpoint, name=name))


def _all_checkpoints(
    directory: TrainingDirectory, name: str, last_step: int, watch_secs: float
) -> Iterator[str]:
    """Yields every checkpoint of the directory once."""
    seen: set[str] = set()
    deadline = time.monotonic() + watch_secs
    while True:
        new = [prefix for prefix in directory.checkpoints() if prefix not in seen]
        for prefix in new:
            seen.add(prefix)
            if tf.io.gfile.exists(prefix + ".index"):  # a training run may have removed it
                yield prefix
        if new:
            deadline = time.monotonic() + watch_secs
        if any(prefix.endswith(f"-{last_step}") for prefix in seen) or time.monotonic() >= deadline:
            break
        time.sleep(_POLL_SECONDS)
    if not seen:
        raise UserError(f"{directory.path!r} has no checkpoint for `{name}`=all.")
