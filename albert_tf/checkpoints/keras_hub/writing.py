"""Writing presets that KerasHub's `from_preset` takes."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from albert_tf.checkpoints.keras_hub import descriptions
from albert_tf.checkpoints.keras_hub.layout import (
    CLASSIFIER,
    MASKED_LM,
    PROJECTION,
    Entry,
    backbone_entries,
    classifier_entries,
    masked_lm_entries,
)
from albert_tf.checkpoints.keras_hub.preset import (
    CONFIG_FILE,
    METADATA_FILE,
    PREPROCESSOR_FILE,
    TASK_FILE,
    TASK_WEIGHTS_FILE,
    TOKENIZER_FILE,
    VOCABULARY_FILE,
    WEIGHTS_FILE,
    WORDPIECE_FILE,
)
from albert_tf.checkpoints.keras_hub.weights import write_weights
from albert_tf.config import AlbertConfig
from albert_tf.data.files import write_then_rename
from albert_tf.tokenization import SentencePieceTokenizer

if TYPE_CHECKING:
    from albert_tf.model_files.contents import ModelContents
    from albert_tf.tokenization import Tokenizer

_LEARNING_RATES = {descriptions.MASKED_LM: 5e-5, descriptions.CLASSIFIER: 1e-5}  # KerasHub's


def left_out(contents: ModelContents) -> list[str]:
    """Returns the names of the weights that the preset does not hold, and warns of what changes.

    Args:
        contents: the model.

    Raises:
        ValueError: see `write`.
    """
    held = _held(contents)
    _warn_of_dropout(contents.config)
    _warn_of_tokenizer(contents.tokenizer)
    return _left_out(contents, held)


def write(directory: str, contents: ModelContents) -> list[str]:
    """Writes a preset: the model KerasHub's `from_preset` gives computes what the source does.

    A model with a classifier becomes an `AlbertTextClassifier`, another one with a masked-LM head
    an `AlbertMaskedLM`, one without heads a backbone: a preset has one task. A head with one output
    (regression, multiple choice) is a classifier of one class.

    Args:
        directory: exists, and is empty.
        contents: the model.

    Returns:
        Names of weights that the preset does not hold.

    Raises:
        ValueError: KerasHub has no such model; nothing is written.
    """
    config, held = contents.config, _held(contents)
    task, head, backbone, weights = held.task, held.head, held.backbone, held.weights
    has_tokenizer = _write_vocabulary(directory, contents.tokenizer)
    if task:
        _write_task(directory, task, contents, has_tokenizer)
        path = os.path.join(directory, TASK_WEIGHTS_FILE)
        write_weights(path, head, weights, learning_rate=_LEARNING_RATES[task])
    if contents.task is not None:
        contents.task.write(directory)
    num_parameters = sum(int(np.prod(entry.shape)) for entry in backbone)
    metadata = descriptions.metadata(config, contents.do_lower_case, num_parameters)
    _write_json(directory, METADATA_FILE, metadata)
    write_weights(os.path.join(directory, WEIGHTS_FILE), backbone, weights)
    _write_json(directory, CONFIG_FILE, descriptions.backbone_description(config))
    return _left_out(contents, held)


@dataclasses.dataclass(frozen=True)
class _Held:
    """What a preset holds of a model.

    Attributes:
        task: the task it is of, "" for none.
        head: the weights of its head.
        backbone: those of the encoder.
        weights: the values of both.
    """

    task: str
    head: list[Entry]
    backbone: list[Entry]
    weights: dict[str, np.ndarray]


def _held(contents: ModelContents) -> _Held:
    """Finds what goes into the preset; refuses what KerasHub has no model for."""
    config, weights = contents.config, dict(contents.weights)
    _check_config(config)
    task, head = _task_of(config, weights)
    if not config.projects_embeddings:
        weights[f"{PROJECTION}/kernel"] = np.eye(config.hidden_size, dtype=np.float32)
        weights[f"{PROJECTION}/bias"] = np.zeros(config.hidden_size, np.float32)
    backbone = backbone_entries(config)
    _check_weights([*backbone, *head], weights)
    return _Held(task, head, backbone, weights)


def _left_out(contents: ModelContents, held: _Held) -> list[str]:
    names = {entry.name for entry in (*held.backbone, *held.head)}
    return sorted(name for name in contents.weights if name not in names)


def _write_task(directory: str, task: str, contents: ModelContents, has_tokenizer: bool) -> None:
    """Writes what a head needs beside its weights."""
    config, preprocessor, num_labels = contents.config, None, None
    if has_tokenizer:
        length = contents.task.max_seq_length if contents.task else None
        preprocessor = descriptions.preprocessor_description(
            task, length or min(512, config.max_position_embeddings)
        )
        _write_json(directory, PREPROCESSOR_FILE, preprocessor)
    if task == descriptions.CLASSIFIER:
        num_labels = len(contents.weights[CLASSIFIER[0]])
    description = descriptions.task_description(task, config, preprocessor, num_labels)
    _write_json(directory, TASK_FILE, description)


def _check_config(config: AlbertConfig) -> None:
    """Refuses what KerasHub's class cannot be."""
    if config.hidden_act.lower() != "gelu":
        raise ValueError(
            "KerasHub's ALBERT always computes 'gelu' (the tanh approximation). This model's "
            f"hidden_act is {config.hidden_act!r}, so it cannot be written for KerasHub."
        )
    if config.parameter_sharing not in ("all", "none"):
        raise ValueError(
            "KerasHub's ALBERT shares whole blocks. This model's parameter_sharing is "
            f"{config.parameter_sharing!r}, so it cannot be written for KerasHub."
        )
    descriptions.check_groups(config)


def _warn_of_dropout(config: AlbertConfig) -> None:
    hidden, attention = config.hidden_dropout_prob, config.attention_probs_dropout_prob
    if hidden != attention:
        logging.warning(
            "KerasHub has one rate of dropout: training there uses hidden_dropout_prob %s for the "
            "attention probabilities as well, which have %s here",
            hidden,
            attention,
        )


def _task_of(config: AlbertConfig, weights: dict[str, np.ndarray]) -> tuple[str, list[Entry]]:
    """The task the preset is of, "" for none, and the weights of its head."""
    if CLASSIFIER[0] in weights:
        num_labels = len(weights[CLASSIFIER[0]])
        return descriptions.CLASSIFIER, classifier_entries(config, num_labels)
    if f"{MASKED_LM}/output_bias" in weights:
        return descriptions.MASKED_LM, masked_lm_entries(config)
    return "", []


def _check_weights(entries: list[Entry], weights: dict[str, np.ndarray]) -> None:
    for entry in entries:
        if entry.name not in weights:
            raise ValueError(f"The model cannot be written for KerasHub: it lacks {entry.name!r}.")
        shape = np.shape(weights[entry.name])
        if shape != entry.shape:
            raise ValueError(
                f"The model contradicts its configuration: {entry.name!r} is {list(shape)}, and "
                f"{list(entry.shape)} by the configuration."
            )


def _write_vocabulary(directory: str, tokenizer: Tokenizer | None) -> bool:
    """Writes the vocabulary; returns whether KerasHub can use it."""
    if tokenizer is None:
        return False
    content = "".join(f"{t}\n" for t in tokenizer.tokens).encode()
    if isinstance(tokenizer, SentencePieceTokenizer):
        content = tokenizer.model_proto
    with write_then_rename(os.path.join(directory, _vocabulary_name(tokenizer))) as file:
        file.write(content)
    is_usable = _is_usable(tokenizer)
    if is_usable:
        _write_json(directory, TOKENIZER_FILE, descriptions.tokenizer_description())
    return is_usable


def _vocabulary_name(tokenizer: Tokenizer) -> str:
    is_sentencepiece = isinstance(tokenizer, SentencePieceTokenizer)
    return VOCABULARY_FILE if is_sentencepiece else WORDPIECE_FILE


def _is_usable(tokenizer: Tokenizer) -> bool:
    return isinstance(tokenizer, SentencePieceTokenizer) and "<pad>" in tokenizer.tokens


def _warn_of_tokenizer(tokenizer: Tokenizer | None) -> None:
    if tokenizer is not None and not _is_usable(tokenizer):
        logging.warning(
            "KerasHub's AlbertTokenizer needs a SentencePiece model with '<pad>': the vocabulary "
            "goes into the preset (%s), but KerasHub does not use it",
            _vocabulary_name(tokenizer),
        )


def _write_json(directory: str, name: str, content: dict[str, Any]) -> None:
    with write_then_rename(os.path.join(directory, name)) as file:
        file.write(json.dumps(content, indent=4).encode())
