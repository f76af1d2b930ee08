"""What lies at a path, told to people: a model of any format, its parts, and a sign of life."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from albert_tf.checkpoints.archives import is_indirect
from albert_tf.checkpoints.formats import recognise
from albert_tf.checkpoints.original import (
    GLOBAL_STEP,
    SLOT_NAMES,
    open_checkpoint,
    read_variables,
)
from albert_tf.checkpoints.report import LoadError, LoadReport
from albert_tf.checkpoints.shipped import HINT
from albert_tf.checkpoints.stored_model import StoredModel
from albert_tf.checkpoints.training_directory import TrainingDirectory
from albert_tf.config import PRESETS, AlbertConfig
from albert_tf.inspection.files import (
    describe_file,
    describe_saved_model,
    find_saved_model,
    tokenizer_facts,
)
from albert_tf.inspection.sign_of_life import sign_of_life
from albert_tf.loading import build_model, read_contents
from albert_tf.model_files.contents import ModelContents
from albert_tf.model_files.directory import essential_differences
from albert_tf.model_files.trained_task import TrainedTask
from albert_tf.parameter_counts import parameter_counts
from albert_tf.text_layout import rows

FLAG = "PATH"
_KINDS = {
    "original": "a release directory, or one of a training, with checkpoints of the original",
    "huggingface": "a Hugging Face directory",
    "keras_hub": "a KerasHub preset",
    "tf2_hub": "the weights of a TF2 SavedModel, such as a TF-Hub encoder",
    "tf1_hub": "a TF-Hub module of TF1",
}
_HEADS = {
    "cls/predictions/output_bias": "masked LM",
    "cls/seq_relationship/output_weights": "sentence order",
    "cls/squad/output_weights": "answer spans (SQuAD 1.1)",
    "answer_class/dense_1/kernel": "answer spans or none (SQuAD 2.0)",
}
_SHOWN_NAMES = 6


def describe(path: str) -> Iterator[str]:
    """Yields lines on what lies at a path, the surest first.

    Args:
        path: a model of any format, see `albert_tf.load`; a SavedModel of a task; a LiteRT model;
            a file of records, a tokenizer, or a configuration.

    Raises:
        ValueError: there is nothing, or what is there cannot be read; what can be is yielded first.
    """
    if not (is_indirect(path) or tf.io.gfile.exists(path) or tf.io.gfile.exists(f"{path}.index")):
        raise ValueError(f"There is nothing at {path!r}. {HINT}")
    saved_model = find_saved_model(path)
    if saved_model is not None:
        yield from _describe_saved_model(saved_model)
    elif not (is_indirect(path) or tf.io.gfile.isdir(path)) and tf.io.gfile.exists(path):
        yield from describe_file(path) or _describe_weights(path)
    else:
        yield from _describe_model(path)


def _describe_saved_model(path: str) -> Iterator[str]:
    """What can be asked of it, and, where it has the weights of an ALBERT, what they are."""
    yield from describe_saved_model(path)
    try:
        stored = recognise(path, FLAG)
    except LoadError as error:
        yield ""
        yield f"No command can start from it: {error}"
        return
    yield ""
    yield from _describe_stored(path, stored)


def _describe_weights(path: str) -> Iterator[str]:
    """A file that is told by its name alone; most files are none of a model."""
    try:
        yield from _describe_model(path)
    except LoadError as error:
        raise LoadError(
            f"{path!r} is neither a file of a model nor of records, nor a tokenizer, configuration "
            f"or LiteRT model, or it is damaged: {error}"
        ) from error


def _describe_model(path: str) -> Iterator[str]:
    yield from _describe_stored(path, recognise(path, FLAG))


def _describe_stored(path: str, stored: StoredModel) -> Iterator[str]:
    yield f"{path}: {_KINDS.get(stored.format, stored.format)} ({stored.format})"
    yield from rows("Weights", _weights(stored))
    if stored.config is None:
        yield from rows("Configuration", {"none": "--albert_config_file has to say what it is"})
        return
    yield from rows(f"Configuration ({stored.config_file})", _configuration(stored.config))
    contents, report = read_contents(path, FLAG)
    model = build_model(contents)
    yield from rows(f"Parameters of {type(model).__name__}", _parameters(contents))
    yield from rows("Loaded", _loaded(report))
    if contents.task is not None:
        yield from rows("Task", _task(contents.task))
    yield from rows("Tokenizer", describe_tokenizer(contents))
    yield ""
    yield "Sign of life"
    for line in sign_of_life(model, contents):
        yield f"  {line}"


def _weights(stored: StoredModel) -> dict[str, object]:
    """What the file of weights holds, by its own account."""
    reader, shapes = open_checkpoint(stored.checkpoint)
    slots = [name for name in shapes if name.rsplit("/", 1)[-1] in SLOT_NAMES]
    found: dict[str, object] = {"file": stored.checkpoint}
    if stored.format == "original":
        run = TrainingDirectory(os.path.dirname(stored.checkpoint))
        prefixes = filter(None, [*run.checkpoints(), run.best()])
        found["of the checkpoints"] = ", ".join(map(os.path.basename, prefixes))
    weights = set(shapes) - set(slots) - {GLOBAL_STEP}
    found["variables"] = len(weights)
    found["numbers in them"] = sum(_size(shapes[name]) for name in weights)
    found["optimizer slots"] = f"{len(slots)} variables" if slots else "none"
    if GLOBAL_STEP in shapes:
        step = read_variables(reader, stored.checkpoint, [GLOBAL_STEP])[GLOBAL_STEP]
        found["step"] = int(step)
    found["heads"] = ", ".join(heads(shapes)) or "none"
    return found


def _size(shape: Iterable[int]) -> int:
    return int(np.prod(list(shape), dtype=np.int64))


def heads(shapes: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """Yields what the heads among weights are for.

    Args:
        shapes: of the weights, by the original's names.
    """
    names = {name.removeprefix("module/"): shape for name, shape in shapes.items()}
    yield from (head for name, head in _HEADS.items() if name in names)
    if "output_weights" in names:
        outputs = names["output_weights"][0]
        yield "one score for a text, or for an option" if outputs == 1 else f"{outputs} classes"


def _configuration(config: AlbertConfig) -> dict[str, object]:
    values = config.to_dict()
    values["is that of"] = ", ".join(_presets(config)) or "no released model"
    return values


def _presets(config: AlbertConfig) -> list[str]:
    """Names of the released models that have the same shapes and the same arithmetic."""
    presets = ((name, AlbertConfig.from_preset(name)) for name in PRESETS)
    return [name for name, preset in presets if not essential_differences(preset, config)]


def _parameters(contents: ModelContents) -> dict[str, object]:
    counts = dataclasses.asdict(parameter_counts(contents.config))
    heads = ("masked_lm_head", "sentence_head")
    values: dict[str, object] = {
        name.replace("_", " "): count for name, count in counts.items() if name not in heads
    }
    encoder = sum(count for name, count in counts.items() if name not in heads)
    total = sum(
        value.size
        for name, value in contents.weights.items()
        if name.rsplit("/", 1)[-1] not in SLOT_NAMES
    )
    return {**values, "encoder": encoder, "heads": total - encoder, "all": total}


def _loaded(report: LoadReport) -> dict[str, object]:
    ignored = [n for n in report.ignored if n.rsplit("/", 1)[-1] not in SLOT_NAMES]
    found: dict[str, object] = {"variables restored": len(report.mapped)}
    for name, names in (("ignored", ignored), ("missing, used by nothing", report.missing)):
        if names:
            more = f", and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
            found[name] = ", ".join(sorted(names)[:_SHOWN_NAMES]) + more
    return found


def _task(task: TrainedTask) -> dict[str, object]:
    values = {"name": task.name, "max_seq_length": task.max_seq_length or "not known"}
    if task.labels.names:
        values["labels"] = ", ".join(task.labels.names)
    texts = {True: "pairs", False: "single", None: "not known"}[task.is_pair]
    return {**values, "texts": texts, **task.settings}


def describe_tokenizer(contents: ModelContents) -> dict[str, object]:
    """Returns what can be told of a model's tokenizer, by name."""
    if contents.tokenizer is None:
        return {"kind": "none: give --spm_model_file or --vocab_file to the commands"}
    return {**tokenizer_facts(contents.tokenizer), "lower-cases": contents.do_lower_case}
