"""Reads and writes directories of Hugging Face's transformers.

    config.json, model.safetensors (or shards, or pytorch_model.bin), spiece.model or vocab.txt

transformers is not needed, and PyTorch only to read `pytorch_model.bin`.
"""

import dataclasses
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from absl import logging

from albert_tf.checkpoints import model_directory
from albert_tf.checkpoints.errors import LoadError
from albert_tf.checkpoints.facts import Meeting, config_facts, settle
from albert_tf.checkpoints.formats.huggingface.tensors import (
    SAFETENSORS,
    WEIGHTS_FILES,
    open_tensors,
    read_content,
)
from albert_tf.checkpoints.formats.huggingface.tokenizer import read_tokenizer
from albert_tf.checkpoints.formats.huggingface.tokenizer_writing import library_ids as library_ids
from albert_tf.checkpoints.formats.huggingface.tokenizer_writing import write_tokenizer
from albert_tf.checkpoints.formats.huggingface.weights import (
    open_weights,
    unsupported_names,
    write_weights,
)
from albert_tf.checkpoints.report import next_step
from albert_tf.checkpoints.stored_heads import (
    CLASSIFIER,
    SENTENCE_ORDER_HEAD,
    SPAN_HEADS,
    head_in,
)
from albert_tf.checkpoints.stored_model import StoredModel, Weights
from albert_tf.checkpoints.stored_task import (
    LABELS_FILE,
    MULTIPLE_CHOICE,
    SQUAD_TASKS,
    TOKENS,
    UNCLEAR,
    UNNAMED,
    StoredTask,
)
from albert_tf.config import EXACT_GELU, TRANSFORMERS_KEYS, VERSION_KEY, AlbertConfig, require_keys
from albert_tf.data.errors import UserError
from albert_tf.data.files import file_exists, write_file
from albert_tf.data.strict_json import JsonValue, is_number, read_json, shown
from albert_tf.glue import GLUE_TASKS, glue_task_name
from albert_tf.labels import Labels, numbered_labels
from albert_tf.modeling import models

CONFIG_FILE = "config.json"
_KEYS_OF_CONFIG = (*TRANSFORMERS_KEYS, "num_hidden_groups")

# The tanh approximation, which the original calls "gelu", has several names. "gelu" is exact.
_TANH_GELU = "gelu_new"
_ACTIVATIONS = {
    "gelu": EXACT_GELU,
    "gelu_python": EXACT_GELU,
    _TANH_GELU: "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_python_tanh": "gelu",
    "gelu_fast": "gelu",
    "gelu_accurate": "gelu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
_SAME_NAMES = tuple(
    field.name
    for field in dataclasses.fields(AlbertConfig)
    if field.name not in ("hidden_act", "parameter_sharing", "extra")
)

# The values of all original models, and the defaults of transformers.
_FIXED: Mapping[str, Any] = {
    "layer_norm_eps": 1e-12,
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "quantization_config": None,
    "pruned_heads": {},
}
_KEYS_OF_ORIGINAL = ("net_structure_type", "down_scale_factor")  # ignored by transformers

_DROPOUT, _USUAL_DROPOUT = "classifier_dropout_prob", 0.1  # only used by transformers
_MULTI_LABEL = "multi_label_classification"
_THRESHOLD_KEY = "multi_label_threshold"  # only used by this package
_TASK_KEY = "finetuning_task"
_CLASSIFICATION = "AlbertForSequenceClassification"
_TOKENS = "AlbertForTokenClassification"
_CHOICE = "AlbertForMultipleChoice"
_QUESTIONS = "AlbertForQuestionAnswering"
_ARCHITECTURES: Mapping[type, str] = {
    models.AlbertForClassification: _CLASSIFICATION,
    models.AlbertForTokenClassification: _TOKENS,
    models.AlbertForMultipleChoice: _CHOICE,
    models.AlbertForQuestionAnswering: _QUESTIONS,
}
# Names of tasks in `labels.json` by architecture.
_TASKS = {
    _QUESTIONS: tuple(SQUAD_TASKS.values()),
    _CHOICE: (MULTIPLE_CHOICE,),
    _TOKENS: (TOKENS,),
}


def is_here(path: str) -> bool:
    """Returns whether a directory contains a `config.json` of transformers, or its weights."""
    try:
        values = read_content(os.path.join(path, CONFIG_FILE)).value
    except LoadError:  # missing or damaged
        return any(file_exists(os.path.join(path, name)) for name in WEIGHTS_FILES)
    return any(key in values for key in _KEYS_OF_CONFIG)


def read(path: str) -> StoredModel:
    """Finds the parts of a model; see `FormatModule`."""
    names = (CONFIG_FILE, model_directory.CONFIG_FILE)  # the latter after converting only weights
    name = next((name for name in names if file_exists(os.path.join(path, name))), None)
    config_file, where = os.path.join(path, name or ""), f"{path}: {name}"
    values = read_content(config_file).value if name else {}
    found = [name for name in WEIGHTS_FILES if file_exists(os.path.join(path, name))]
    if not found:
        raise LoadError(
            f"{path} is an incomplete model: it contains a {CONFIG_FILE}, but no weights. Expected "
            f"one of {', '.join(WEIGHTS_FILES)}. {next_step(path)}"
        )
    config = _albert_config(values, where) if name == CONFIG_FILE else None
    if name == model_directory.CONFIG_FILE:
        config = read_config(config_file)
    checkpoint = os.path.join(path, found[0])
    tensors = open_tensors(checkpoint)  # detects damaged files early
    open_file = cache(partial(open_weights, checkpoint, tensors))
    task, stated = StoredTask.read(path), _stored_task(values, open_file, where)
    if task is not None and values:
        _check_same_task(task, path, values, where)
    tokenizer = read_tokenizer(path)
    if not tokenizer.source:
        files = model_directory.find_tokenizer_files(path)
        tokenizer = dataclasses.replace(tokenizer, files=files)
    return StoredModel(
        checkpoint=checkpoint,
        config=config,
        config_file=config_file if config else None,
        stored_tokenizer=tokenizer,
        do_lower_case=tokenizer.do_lower_case,
        keep_accents=tokenizer.keep_accents,
        task=task or stated,
        open_weights=open_file,
    )


def unsupported_weights(stored: StoredModel) -> list[str]:
    """Returns the names of unsupported weights: the head of SQuAD 2.0 and optimizer slots."""
    _check_can_be_written(stored.required_config)
    return unsupported_names(stored.weights)


def write(directory: str, stored: StoredModel) -> None:
    """Writes a model and tokenizer that `from_pretrained` of transformers loads.

    All heads that transformers supports are stored, not only the head of the class in
    `config.json`. The task is also stored in `labels.json`, which transformers ignores.
    """
    config = stored.required_config
    _check_can_be_written(config)
    text = json.dumps(config_json(stored), indent=2) + "\n"
    write_file(os.path.join(directory, CONFIG_FILE), text)
    if stored.tokenizer is not None:
        write_tokenizer(directory, stored.tokenizer, config)
    if stored.task is not None:
        stored.task.write(directory)
    write_weights(os.path.join(directory, SAFETENSORS), stored.weights)


def _architecture_of(values: Mapping[str, Any]) -> str | None:
    """Returns the class that stored the model, as the PyTorch class, or `None`."""
    names = values.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    return re.sub("^(TF|Flax)", "", name) if isinstance(name, str) else None


def _text_task(values: Mapping[str, Any]) -> str:
    """Returns the GLUE task in a `config.json`, otherwise `UNNAMED`."""
    try:
        return glue_task_name(str(values.get(_TASK_KEY)))
    except ValueError:
        return UNNAMED


def read_config(path: str) -> AlbertConfig:
    """Reads the configuration in a `config.json` of transformers or an `albert_config.json`."""
    values = read_json(path, repr(path)) if file_exists(path) else None
    if isinstance(values, dict) and any(key in values for key in TRANSFORMERS_KEYS):
        return _albert_config(values, path, is_separate=True)
    return model_directory.read_config(path)


def stated_config(path: str) -> dict[str, Any]:
    """Returns the facts in a configuration file of this package or of transformers.

    There are none if the file is missing, damaged, or of another program.
    """
    try:
        values = read_content(path).value
        is_theirs = os.path.basename(path) == CONFIG_FILE
        config = _albert_config(values, path) if is_theirs else AlbertConfig.from_dict(values)
    except ValueError:
        return {}
    return {name: value for name, value in config_facts(config).items() if name in values}


def _albert_config(
    values: Mapping[str, Any], where: str, is_separate: bool = False
) -> AlbertConfig:
    kind = values.get("model_type")
    is_early = kind is None and "num_hidden_groups" in values  # the first models had no type
    if kind != "albert" and not is_early:
        raise LoadError(
            f"{where} does not describe an ALBERT model: model_type must be 'albert'. Received: "
            f"{shown(kind)} ({_architecture_of(values)})"
        )
    for name, expected in _FIXED.items():
        if values.get(name, expected) not in (expected, None):
            raise LoadError(
                f"{where}: {name} must be {expected!r}, as in the original. Received: "
                f"{shown(values[name])}. The model computes other outputs and cannot be loaded."
            )
    known: dict[str, Any] = {"vocab_size": 30000}
    known |= {name: values[name] for name in _SAME_NAMES if name in values}
    extra = {name: values[name] for name in (_DROPOUT, VERSION_KEY) if name in values}
    if extra.get(_DROPOUT) == _USUAL_DROPOUT:
        del extra[_DROPOUT]
    activation = _activation(values.get("hidden_act", _TANH_GELU), where)
    if activation == EXACT_GELU and (is_separate or any(k in values for k in _KEYS_OF_ORIGINAL)):
        logging.warning(
            "%s: 'gelu' is read as the exact GELU, as in transformers. In the original, 'gelu' is "
            "the tanh approximation. If the model was trained with the original, replace 'gelu' "
            "with 'gelu_new' in a copy of the file.",
            where,
        )
    try:
        require_keys(known)
        config = AlbertConfig(**known, hidden_act=activation, extra=extra)
        _check_groups(config)
    except ValueError as error:
        raise LoadError(f"{where}: {error}") from error
    return config


def _activation(name: Any, where: str) -> str:
    if isinstance(name, str) and name in _ACTIVATIONS:
        return _ACTIVATIONS[name]
    raise LoadError(
        f"{where}: hidden_act {shown(name)} is not one of {', '.join(map(repr, _ACTIVATIONS))}."
    )


def _check_groups(config: AlbertConfig) -> None:
    """Rejects sizes for which transformers distributes the layers differently over the groups."""
    layers, groups = config.num_hidden_layers, config.num_hidden_groups
    if any(int(i / (layers / groups)) != config.group_of_layer(i) for i in range(layers)):
        raise UserError(
            f"transformers distributes {layers} layers (num_hidden_layers) differently over "
            f"{groups} groups (num_hidden_groups), so the outputs would be different."
        )


def _check_can_be_written(config: AlbertConfig) -> None:
    """Raises `ValueError` if transformers does not support the model."""
    if config.parameter_sharing not in ("all", "none"):
        raise UserError(
            "Hugging Face's format supports parameter_sharing 'all' and 'none'. Received: "
            f"{config.parameter_sharing!r}. Use `format`=original."
        )
    _check_groups(config)


def config_json(stored: StoredModel) -> dict[str, Any]:
    """Returns the content of `config.json`."""
    config, tokenizer = stored.required_config, stored.tokenizer
    architecture = _choose_architecture(stored)
    activation = config.hidden_act.lower() or "linear"
    is_half = any(value.dtype == np.float16 for value in stored.weights.values())
    return {
        "architectures": [architecture],
        "model_type": "albert",
        **{name: getattr(config, name) for name in _SAME_NAMES},
        "hidden_act": {"gelu": _TANH_GELU, EXACT_GELU: "gelu"}.get(activation, activation),
        "layer_norm_eps": _FIXED["layer_norm_eps"],
        "position_embedding_type": _FIXED["position_embedding_type"],
        _DROPOUT: config.extra.get(_DROPOUT, _USUAL_DROPOUT),
        **{key: config.extra[key] for key in (VERSION_KEY,) if key in config.extra},
        "tie_word_embeddings": True,
        "pad_token_id": tokenizer.pad_id if tokenizer else 0,
        "bos_token_id": tokenizer.cls_id if tokenizer else 2,
        "eos_token_id": tokenizer.sep_id if tokenizer else 3,
        **(_labels(stored) if architecture in (_CLASSIFICATION, _TOKENS) else {}),
        # By default, transformers computes in the stored type.
        **({"dtype": "float32"} if is_half else {}),
    }


def _choose_architecture(stored: StoredModel) -> str:
    """Returns the class of transformers for the task of the model."""
    shapes = stored.weights.shapes
    model_class = head_in(shapes, stored.task).model_class
    if model_class is models.AlbertForPretraining:
        has_order = f"{SENTENCE_ORDER_HEAD}output_weights" in shapes
        return "AlbertForPreTraining" if has_order else "AlbertForMaskedLM"
    return _ARCHITECTURES.get(model_class, "AlbertModel")


def _labels(stored: StoredModel) -> dict[str, Any]:
    task, number = stored.task, len(stored.weights[CLASSIFIER])
    labels = task.labels if task else Labels(numbered_labels(number) if number > 1 else ())
    names = labels.names if len(labels.names) == number else numbered_labels(number)
    return {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
        "problem_type": _problem_type(labels),
        **({_THRESHOLD_KEY: labels.threshold} if labels.multi_label else {}),
        **({_TASK_KEY: task.name} if task else {}),
    }


def _problem_type(labels: Labels) -> str:
    if labels.multi_label:
        return _MULTI_LABEL
    return "regression" if labels.is_regression else "single_label_classification"


def _stored_task(
    values: Mapping[str, Any], open_file: Callable[[], Weights], where: str
) -> StoredTask | None:
    """Returns the task in a `config.json`, or `None` if it is unknown.

    The class of transformers determines the task. A classifier of another class is `UNCLEAR`.
    """
    architecture = _architecture_of(values)
    if architecture in (_QUESTIONS, _CHOICE):
        return StoredTask(_TASKS[architecture][0])
    if architecture == _CLASSIFICATION:
        return _task_of_texts(values, where)
    if architecture == _TOKENS:
        return StoredTask(TOKENS, _unique_labels(_label_names(values, where)), False)
    shapes = open_file().shapes
    if CLASSIFIER not in shapes or SPAN_HEADS[SQUAD_TASKS[1]] in shapes:
        return None
    names = _label_names(values, where)
    if names == numbered_labels(2):  # the default of all models
        names = numbered_labels(shapes[CLASSIFIER][0])
    return StoredTask(UNCLEAR, _unique_labels(names), None)


def _unique_labels(names: Sequence[str]) -> Labels:
    """Returns labels; numbers replace names of which two are equal. One label is a score."""
    names = names if len({*names}) == len(names) else numbered_labels(len(names))
    return Labels(tuple(names) if len(names) > 1 else ())


def _task_of_texts(values: Mapping[str, Any], where: str) -> StoredTask | None:
    """Returns the task of a text classifier; `None` for default or equal labels.

    `is_pair` is only known for GLUE tasks.
    """
    names, kind, name = _label_names(values, where), values.get("problem_type"), _text_task(values)
    if kind == _MULTI_LABEL:  # also with default labels
        threshold = values.get(_THRESHOLD_KEY, Labels.threshold)
        try:
            return StoredTask(UNNAMED, Labels(names, True, threshold), None)
        except (TypeError, ValueError) as error:
            raise LoadError(f"{where}: {_MULTI_LABEL}: {error}") from error
    is_pair = len(GLUE_TASKS[name].text_names) == 2 if name in GLUE_TASKS else None
    if len(names) == 1:
        return StoredTask(name, Labels(), is_pair)
    is_default = all(label.startswith("LABEL_") for label in names)
    if kind == "regression" or is_default or len({*names}) < len(names):
        return None
    return StoredTask(name, Labels(names), is_pair)


def _check_same_task(task: StoredTask, path: str, values: Mapping[str, Any], where: str) -> None:
    """Rejects a `labels.json` of another task, because a `config.json` was changed later."""
    architecture, kind = _architecture_of(values), values.get("problem_type")
    by_task = {name: class_name for class_name, names in _TASKS.items() for name in names}
    ours: dict[str, Any] = {"architecture": by_task.get(task.name, _CLASSIFICATION)}
    known = _ARCHITECTURES.values()
    theirs: dict[str, Any] = {"architecture": architecture if architecture in known else None}
    if ours == theirs and architecture in (_TOKENS, _CLASSIFICATION):
        labels, names = task.labels, _label_names(values, where)
        ours |= {"num_labels": labels.num_outputs, "labels": labels.names or None}
        ours["problem_type"] = _problem_type(labels)
        is_default = names == numbered_labels(len(names))
        theirs |= {"num_labels": len(names), "labels": None if is_default else names}
        theirs["problem_type"] = kind
    settle({os.path.join(path, LABELS_FILE): ours, where: theirs}, Meeting.LOAD)


def _label_names(values: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Returns the labels in the order of their ids. By default, transformers has two labels."""
    names = values.get("id2label")
    if not isinstance(names, dict) or not names:
        return numbered_labels(1 if values.get("num_labels") == 1 else 2)
    given = JsonValue(names, where, "id2label")
    ids = list(map(str, range(len(names))))
    if names.keys() != {*ids}:
        raise given.error(f"an object with the ids from 0 to {len(names) - 1}")
    found = (given[i] for i in ids)
    labels = tuple(str(v.value) if is_number(v.value) else v.text() for v in found)
    inverse = values.get("label2id")
    inverse = inverse if isinstance(inverse, dict) else {}
    ids_of = {name: str(i) for name, i in inverse.items() if name in labels}
    own = {n: i if str(names.get(i)) == n else str(labels.index(n)) for n, i in ids_of.items()}
    sources = {f"{where}: id2label": own, "label2id": ids_of}
    facts = {w: {f"labels.{n}": i for n, i in ids.items()} for w, ids in sources.items()}
    settle(facts, Meeting.LOAD)
    return labels
