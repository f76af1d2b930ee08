"""The base of the classes that apply, evaluate, train and save fine-tuned models."""

import dataclasses
import inspect
import math
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar

from tqdm import tqdm

from albert_tf.checkpoints.model_directory import read_run_config
from albert_tf.checkpoints.pickling import Picklable
from albert_tf.checkpoints.save import save
from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.data.arguments import check_choice, check_whole_number
from albert_tf.data.errors import UserError
from albert_tf.data.parallel import hidden_progress
from albert_tf.data.splits import DEV, TRAIN
from albert_tf.finetuning.flow import run
from albert_tf.finetuning.job import InMemory, Job
from albert_tf.finetuning.predictor import Predictor
from albert_tf.finetuning.recipes import is_for_mini
from albert_tf.finetuning.start import Start
from albert_tf.settings import as_type
from albert_tf.tokenization.base import Tokenizer
from albert_tf.training.evaluation import load_complete
from albert_tf.training.run_log import result_row
from albert_tf.training.run_records import EVALUATION_KEY, Record
from albert_tf.training.training_directory import TrainingDirectory

_NAMES = {TRAIN: "the training data", DEV: "the validation data"}  # instead of files
_CHECKED_EXAMPLES = 200


class FineTuned(Picklable, ABC):
    """A model of one task. Subclasses set the attributes, and check the examples."""

    STATE: ClassVar[tuple[str, ...]] = ("_start", "_has_new_head")
    JOB: ClassVar[type[Job]]
    _examples: Callable[..., list[Any]]  # takes columns, and checks them
    model: Any
    tokenizer: Tokenizer
    _predictor: Predictor
    _start: Start | None = None  # set by the first `fit`

    @abstractmethod
    def _task(self, known: StoredTask | None = None) -> StoredTask:
        """Returns the task, with what is `known` about the weights."""

    @abstractmethod
    def _scores(self, examples: Sequence[Any]) -> dict[str, float]:
        """Returns the scores of the job's evaluation, and logs its warnings."""

    @property
    def _has_new_head(self) -> bool:
        return bool(self.model.has_new_head)

    @_has_new_head.setter
    def _has_new_head(self, value: bool) -> None:
        self.model.has_new_head = value

    def save(self, directory: str | os.PathLike, *, overwrite: bool = False) -> None:
        """Writes a directory that `load` and all commands can read; see `albert_tf.save`."""
        model = self.model
        if model.trained_task is None:  # stores the labels
            model.set_origin(model.tokenizer, self._task(), has_new_head=model.has_new_head)
        save(model, directory, tokenizer=self.tokenizer, overwrite=overwrite)

    def _validation_examples(self, data: Any) -> list[Any]:
        """Returns the examples of `validation_data`. `None` contains none."""
        if data is None:
            return []
        columns, signature = tuple(data), inspect.signature(self._examples)
        try:
            signature.bind(*columns)
        except TypeError as error:
            raise TypeError(
                f"validation_data must be ({', '.join(signature.parameters)}). Received: "
                f"{len(columns)} values"
            ) from error
        return self._examples(*columns)

    def _fit(
        self,
        train: Sequence[Any],
        dev: Sequence[Any],
        task_changes: Mapping[str, Any] = MappingProxyType({}),
        *,
        warm_start: bool,
        epochs: float | None,
        batch_size: int,
        output_dir: str | os.PathLike | None,
        verbose: bool,
        **settings: Any,
    ) -> dict[str, float]:
        """Trains the model, sets its `trained_task`, and returns its scores on `dev`.

        `task_changes` are fields of the task. Without `dev`, returns loss and accuracy in the last
        epoch of training. With `verbose`, prints a line per epoch.
        """
        check_whole_number("batch_size", batch_size, 1)
        check_choice("warm_start", warm_start)
        model, job = self.model, self.JOB
        if model.encoder.lora_rank:
            raise UserError(
                "LoRA needs `compile` and `fit` of the Keras model, see docs/python.md."
            )
        self._start = self._start or Start(model)
        start = Start(model, is_warm=True) if warm_start else self._start
        task = dataclasses.replace(self._task(start.task), **task_changes)
        stored = start.stored_model(model, self.tokenizer, task)
        examples = {_NAMES[split]: rows for split, rows in ((TRAIN, train), (DEV, dev)) if rows}
        for split, name in _NAMES.items():
            action, file = job.SPLITS[split]
            if given := settings.keys() & {action, file}:
                raise TypeError(f"`fit` has no setting `{min(given)}`: its arguments are the data.")
            settings |= {action: name in examples, file: name}
        length = self._predictor.max_seq_length
        if (given := settings.get("max_seq_length", length)) != length:
            raise UserError(
                f"`max_seq_length`={given} must be passed when the model is loaded. It is {length}."
            )
        steps_per_epoch = -(-len(train) // batch_size)
        settings = {
            # Without evaluations, checkpoints only serve to resume. An epoch may be a single step.
            "save_checkpoints_steps": steps_per_epoch * (1 if dev else -(-100 // steps_per_epoch)),
            "log_steps": steps_per_epoch,
            "num_train_epochs": self._num_epochs(epochs, settings),
            "train_batch_size": batch_size,
            **settings,
        }
        total = settings["num_train_epochs"]
        with tempfile.TemporaryDirectory(prefix="albert_tf_") as folder:
            directory = folder if output_dir is None else os.fspath(output_dir)
            with hidden_progress(not verbose):
                result = run(
                    job,
                    job.SETTINGS(output_dir=directory, **settings),
                    partial(_print_epoch, directory, total) if verbose else None,
                    InMemory(stored, task, examples),
                )
                trained = TrainingDirectory(directory)
                load_complete(model, trained.best() or trained.newest() or directory)
                model.set_origin(model.tokenizer, StoredTask.read(directory))
                if not dev:  # for its warnings
                    self._scores(train[:: -(-len(train) // _CHECKED_EXAMPLES)])
        last: Record = next((r for r in result.history[::-1] if r["phase"] == "train"), {})
        return result.scores or {name: last[name] for name in ("loss", "accuracy") if name in last}

    def _num_epochs(self, epochs: Any, settings: dict[str, Any]) -> float | None:
        """Returns the setting `num_train_epochs`; `None` if steps or the recipe replace it."""
        if epochs is not None:
            if not 0 < as_type("epochs", epochs, float) < math.inf:
                raise UserError(f"`epochs` must be above 0. Received: {epochs}")
            return epochs
        has_recipe = is_for_mini(settings.get("recipe"), self.model.config)
        return None if has_recipe or settings.get("train_step") is not None else 3.0


def _print_epoch(output_dir: str, epochs: float | None, record: Record) -> None:
    """Prints loss and score of a record of a run. The number of steps determines unset epochs."""
    config = read_run_config(output_dir)
    num_steps = config["optimizer"]["num_train_steps"]
    if epochs is None:  # long texts may be several training examples
        batch_size = config["trainer"]["train_batch_size"]
        epochs = num_steps / -(-config["input"]["examples"] // batch_size)
    label = "epoch" if record["phase"] == "train" else "validation"
    metric = (config[EVALUATION_KEY] or {}).get("metric", "")
    now = epochs * record["step"] / num_steps
    tqdm.write(result_row(f"{label} {now:.3g}/{epochs:.3g}", record, metric))
