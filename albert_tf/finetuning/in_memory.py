"""Trains models on examples in memory, with the same jobs as the command line."""

import json
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from tqdm import tqdm

from albert_tf.checkpoints.loading import build_kind, open_with_tokenizer
from albert_tf.checkpoints.model_directory import read_run_config
from albert_tf.checkpoints.save import save
from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.data.arguments import check_whole_number
from albert_tf.data.errors import UserError
from albert_tf.data.parallel import hidden_progress
from albert_tf.finetuning.recipes import is_for_mini
from albert_tf.modeling.models import AlbertForClassification, AlbertForTokenClassification
from albert_tf.settings import as_type
from albert_tf.tokenization.base import Tokenizer
from albert_tf.training.run_log import result_row
from albert_tf.training.run_records import EVALUATION_KEY, Record
from albert_tf.training.settings import JobResult, OnLog

Row = Mapping[str, Any]
_CHECKED_ROWS = 200


def write_rows(path: str, rows: Iterable[Row]) -> str:
    """Writes a JSON Lines file; returns its path."""
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
    return path


def fit_rows(
    model: AlbertForClassification | AlbertForTokenClassification,
    tokenizer: Tokenizer,
    task: StoredTask,
    train: Sequence[Row],
    dev: Sequence[Row],
    run: Callable[[dict[str, Any], OnLog | None], JobResult],
    evaluate: Callable[[Sequence[Row]], object],
    output_dir: str | os.PathLike | None,
    verbose: bool,
    **settings: Any,
) -> dict[str, float]:
    """Trains a model, sets its weights and its `trained_task`, and returns its scores on `dev`.

    `train` and `dev` are the rows of `train_file` and `dev_file`; without `dev`, returns loss and
    accuracy in the last epoch of training. `run` runs the job in `output_dir`, or in a temporary
    directory if that is `None`. With `verbose`, prints a line per epoch. Without `dev`, `evaluate`
    evaluates some of the training rows, for its warnings.
    Errors in `train_batch_size` and `num_train_epochs` name the arguments of the public methods,
    `batch_size` and `epochs`. Unless `settings` contain `train_step`, the default of
    `num_train_epochs` is 3. `mini` has its own defaults, see `recipe_settings`.
    """
    check_whole_number("batch_size", settings["train_batch_size"], 1)
    epochs = settings["num_train_epochs"]
    if epochs is not None and not 0 < as_type("epochs", epochs, float) < math.inf:
        raise UserError(f"`epochs` must be above 0. Received: {epochs}")
    is_free = epochs is None and settings.get("train_step") is None
    if is_free and not is_for_mini(settings.get("recipe"), model.config):
        settings["num_train_epochs"] = 3.0
    if model.encoder.lora_rank:
        raise UserError("LoRA needs `compile` and `fit` of the Keras model, see docs/python.md.")
    with tempfile.TemporaryDirectory(prefix="albert_tf_") as folder:
        start = os.path.join(folder, "start")
        directory = os.path.join(folder, "run") if output_dir is None else os.fspath(output_dir)
        if not model.has_new_head and model.trained_task is None:
            model.set_origin(model.tokenizer, task)
        # Without a trained head, only the encoder is saved, and the job initializes the head.
        save(model.encoder if model.has_new_head else model, start, tokenizer=tokenizer)
        os.makedirs(directory, exist_ok=True)
        steps_per_epoch = -(-len(train) // settings["train_batch_size"])
        if StoredTask.read(directory) is None:
            task.write(directory)  # otherwise, the job would sort the labels
        job_settings = {
            "train_file": write_rows(os.path.join(folder, "train.jsonl"), train),
            "dev_file": write_rows(os.path.join(folder, "dev.jsonl"), dev) if dev else None,
            "init_checkpoint": start,
            "output_dir": directory,
            "do_train": True,
            "do_eval": bool(dev),
            # Without evaluations, checkpoints only serve to resume. An epoch may be a single step.
            "save_checkpoints_steps": steps_per_epoch * (1 if dev else -(-100 // steps_per_epoch)),
            "log_steps": steps_per_epoch,
        }
        on_log = partial(_print_epoch, directory) if verbose else None
        with hidden_progress(not verbose):
            result = run({**job_settings, **settings}, on_log)
            stored = open_with_tokenizer(directory, "output_dir")
            trained = build_kind(stored, type(model), "a trained model")
            model.set_weights(trained.get_weights())
            model.set_origin(model.tokenizer, trained.trained_task)
            if not dev:
                evaluate(train[:: -(-len(train) // _CHECKED_ROWS)])
    last: Record = next((r for r in result.history[::-1] if r["phase"] == "train"), {})
    return result.scores or {name: last[name] for name in ("loss", "accuracy") if name in last}


def _print_epoch(output_dir: str, record: Record) -> None:
    """Prints loss and score of a record of a run. Long sentences are several training examples."""
    config = read_run_config(output_dir)
    steps = -(-config["input"]["examples"] // config["trainer"]["train_batch_size"])  # per epoch
    label = "epoch" if record["phase"] == "train" else "validation"
    epochs = [n / steps for n in (record["step"], config["optimizer"]["num_train_steps"])]
    metric = (config[EVALUATION_KEY] or {}).get("metric", "")
    tqdm.write(result_row(f"{label} {epochs[0]:.3g}/{epochs[1]:.3g}", record, metric))
