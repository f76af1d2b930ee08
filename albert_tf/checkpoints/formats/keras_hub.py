"""Reads and writes KerasHub presets with keras-hub, an optional dependency.

A preset is a directory of JSON and HDF5 files with an `AlbertBackbone`, `AlbertMaskedLM` or
`AlbertTextClassifier`. In the masked-LM head, KerasHub's layer norm has an epsilon of 1e-5 instead
of 1e-12; otherwise the outputs are the same.
"""

import json
import os
import re
from typing import Any, TypeGuard

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.errors import LoadError
from albert_tf.checkpoints.facts import Meeting, config_facts, settle
from albert_tf.checkpoints.formats.huggingface.sentencepiece_messages import NORMAL, parse_model
from albert_tf.checkpoints.model_directory import with_vocabulary
from albert_tf.checkpoints.report import check_parameters, check_version
from albert_tf.checkpoints.stored_heads import CLASSIFIER, head_in
from albert_tf.checkpoints.stored_model import (
    StoredModel,
    StoredTokenizer,
    Weights,
    identity_projection,
    without_identity_projection,
)
from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.config import AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.data.files import (
    file_exists,
    file_size,
    folder_names,
    read_file,
    reason_of,
    write_file,
)
from albert_tf.data.strict_json import JsonValue, read_json
from albert_tf.modeling.parameter_sharing import TRANSFORMER_SCOPE
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.library import require_own_rules
from albert_tf.tokenization.sentence_piece import SentencePieceTokenizer

CONFIG_FILE = "config.json"
METADATA_FILE = "metadata.json"
TASK_FILE = "task.json"
WEIGHTS_FILES = ("model.weights.h5", "model.weights.json")  # the second is an index of shards
VOCABULARY_FILE = "assets/tokenizer/vocabulary.spm"
WORDPIECE_FILE = "assets/tokenizer/vocab.txt"  # not supported by KerasHub
_TASKS = ("AlbertMaskedLM", "AlbertTextClassifier", "AlbertClassifier")  # the third is an old name

# KerasHub's arguments by the original's keys.
_SIZES = {
    "vocab_size": "vocabulary_size",
    "embedding_size": "embedding_dim",
    "hidden_size": "hidden_dim",
    "num_hidden_layers": "num_layers",
    "num_hidden_groups": "num_groups",
    "num_attention_heads": "num_heads",
    "intermediate_size": "intermediate_dim",
    "inner_group_num": "num_inner_repetitions",
    "max_position_embeddings": "max_sequence_length",
    "type_vocab_size": "num_segments",
}

# Key in `metadata.json` for `do_lower_case` and the rest of the configuration. KerasHub ignores it.
_OUR_KEY = "albert_tf"

# KerasHub's paths of variables, or of their scopes, and the original's names.
_NAMES = {
    "token_embedding/embeddings": "bert/embeddings/word_embeddings",
    "position_embedding/embeddings": "bert/embeddings/position_embeddings",
    "segment_embedding/embeddings": "bert/embeddings/token_type_embeddings",
    "embeddings_layer_norm": "bert/embeddings/LayerNorm",
    "embedding_projection": "bert/encoder/embedding_hidden_mapping_in",
    "pooled_dense": "bert/pooler/dense",
    "mlm_head/intermediate_dense": "cls/predictions/transform/dense",
    "mlm_head/intermediate_layer_norm": "cls/predictions/transform/LayerNorm",
    "mlm_head/output_bias": "cls/predictions/output_bias",
    "logits/kernel": "output_weights",
    "logits/bias": "output_bias",
}

_BLOCK = re.compile(r"group_(\d+)_inner_layer_(\d+)/(.+)")
_NAMES_IN_BLOCK = {
    "self_attention_layer/query": "attention_1/self/query",
    "self_attention_layer/key": "attention_1/self/key",
    "self_attention_layer/value": "attention_1/self/value",
    "self_attention_layer/attention_output": "attention_1/output/dense",
    "self_attention_layer_norm": "LayerNorm",
    "feedforward_intermediate_dense": "ffn_1/intermediate/dense",
    "feedforward_output_dense": "ffn_1/intermediate/output/dense",
    "feedforward_layer_norm": "LayerNorm_1",
}


def _original_name(path: str) -> str:
    scope, names = "", _NAMES
    if match := _BLOCK.fullmatch(path):
        group, inner, path = match.groups()
        scope, names = f"{TRANSFORMER_SCOPE}group_{group}/inner_group_{inner}/", _NAMES_IN_BLOCK
    if path in names:
        return scope + names[path]
    layer, leaf = path.rsplit("/", 1)
    return f"{scope}{names[layer]}/{leaf}"


def _to_original(name: str, variable: Any) -> np.ndarray:
    """Returns a variable of KerasHub in float32 and the original's layout."""
    value = np.asarray(keras.ops.convert_to_numpy(variable), np.float32)
    if name == "output_weights":  # [H, K] in KerasHub
        return np.ascontiguousarray(value.T)
    if name.endswith("/attention_1/output/dense/kernel"):  # [N, D, H] in KerasHub
        return value.reshape(-1, value.shape[-1])
    if "/attention_1/self/" in name:  # kernels are [H, N, D] in KerasHub, biases [N, D]
        return value.reshape(len(value), -1) if name.endswith("kernel") else value.reshape(-1)
    return value


def is_here(path: str) -> bool:
    """Returns whether a directory contains weights under KerasHub's names."""
    return any(_has(path, name) for name in WEIGHTS_FILES)


def read(path: str) -> StoredModel:
    """Reads the JSON files of a preset; see `FormatModule`."""
    _library()
    try:
        config, do_lower_case = read_config(path)
    except (ValueError, OSError, tf.errors.OpError) as error:
        raise LoadError(
            f"{path} is not a usable KerasHub preset of ALBERT. {reason_of(error)}"
        ) from error
    vocabularies = [os.path.join(path, name) for name in (VOCABULARY_FILE, WORDPIECE_FILE)]
    note = ""
    if do_lower_case is None and file_exists(vocabularies[0]):
        do_lower_case, note = _choose_lower_case(path, vocabularies[0])
        logging.warning("%s", note)
    weights_files = [name for name in WEIGHTS_FILES if _has(path, name)] or WEIGHTS_FILES
    return StoredModel(
        checkpoint=os.path.join(path, weights_files[0]),
        config=config,
        config_file=os.path.join(path, CONFIG_FILE),
        stored_tokenizer=StoredTokenizer([*filter(file_exists, vocabularies)], note=note),
        do_lower_case=do_lower_case,
        task=StoredTask.read(path),
    )


def _choose_lower_case(directory: str, vocabulary: str) -> tuple[bool, str]:
    """Returns whether to lower-case texts for a preset of KerasHub, which does not, and a note."""
    pieces = parse_model(read_file(vocabulary), vocabulary).pieces
    has_capitals = any(p.piece != p.piece.lower() for p in pieces if p.type == NORMAL)
    is_task = _has(directory, TASK_FILE)
    task = _json(directory, TASK_FILE)["registered_name"].text() if is_task else ""
    lower_case = not (has_capitals or task.endswith("Classifier"))
    return lower_case, (
        f"{directory}: KerasHub does not lower-case texts, and the preset does not state whether "
        f"its users did. do_lower_case={lower_case} is used. If the model was trained differently, "
        f"pass do_lower_case={not lower_case}. Accents are removed from texts, unless "
        "keep_accents=True is passed."
    )


def read_config(directory: str) -> tuple[AlbertConfig, bool | None]:
    """Returns the configuration of a preset, and whether text is lower-cased."""
    config = _config_from(_described(directory, CONFIG_FILE, "AlbertBackbone"))
    if _has(directory, TASK_FILE):
        task = _described(directory, TASK_FILE, *_TASKS)
        backbone = config_facts(_config_from(task["backbone"]["config"]))
        settle({CONFIG_FILE: config_facts(config), task.where: backbone}, Meeting.LOAD)
        activation = task.get("activation")
        if activation is not None and activation.value not in ("linear", "softmax"):
            raise activation.error("'linear' or 'softmax'")
    if _has(directory, "tokenizer.json"):
        _described(directory, "tokenizer.json", "AlbertTokenizer")
    if not _has(directory, METADATA_FILE):
        return config, None
    metadata = _json(directory, METADATA_FILE)
    ours = metadata.get(_OUR_KEY)
    lower_case, values = (ours.get("do_lower_case"), ours.get("config")) if ours else (None, None)
    added = {key: value.value for key, value in values.members().items()} if values else {}
    sizes = {key: getattr(config, key) for key in (*_SIZES, "hidden_act")}
    settle({CONFIG_FILE: sizes, metadata.where: added}, Meeting.LOAD)
    config = _checked({**config.to_dict(), **added}, metadata)
    return config, lower_case.truth_value() if lower_case else None


def open_weights(checkpoint: str) -> Weights:
    """Reads the weights of a preset, including its head."""
    model = _load(*os.path.split(checkpoint))
    names = {_original_name(variable.path): variable for variable in model.weights}
    values = {name: _to_original(name, variable) for name, variable in names.items()}
    return without_identity_projection(Weights.in_memory(values, checkpoint))


def unsupported_weights(stored: StoredModel) -> list[str]:
    """Returns the names of unsupported weights; logs a warning about unsupported parts."""
    config = stored.required_config
    _, absent = _model_of(stored, None)
    if config.hidden_dropout_prob != config.attention_probs_dropout_prob:
        logging.warning(
            "KerasHub has a single dropout rate: hidden_dropout_prob %s replaces "
            "attention_probs_dropout_prob %s",
            config.hidden_dropout_prob,
            config.attention_probs_dropout_prob,
        )
    require_own_rules(stored.tokenizer, "A KerasHub preset")
    if stored.tokenizer is not None and not _is_usable(stored.tokenizer):
        logging.warning(
            "KerasHub's AlbertTokenizer needs a SentencePiece model with '<pad>', so KerasHub will "
            "ignore the vocabulary in the preset"
        )
    return absent


def write(directory: str, stored: StoredModel) -> None:
    """Writes a preset that KerasHub's `from_preset` loads.

    A model whose classifier uses the pooler becomes an `AlbertTextClassifier`, even if it has a
    single output. Otherwise, a model with a masked-LM head becomes an `AlbertMaskedLM`, and any
    other model becomes a backbone.
    """
    tokenizer, theirs = stored.tokenizer, None
    if _is_usable(tokenizer):
        theirs = _library().models.AlbertTokenizer(proto=tokenizer.model_proto)
    model, _ = _model_of(stored, theirs)
    if theirs is not None:
        theirs.save_to_preset(directory)
    elif tokenizer is not None:
        if isinstance(tokenizer, SentencePieceTokenizer):
            write_file(os.path.join(directory, VOCABULARY_FILE), tokenizer.model_proto)
        else:
            text = "".join(f"{token}\n" for token in tokenizer.tokens)
            write_file(os.path.join(directory, WORDPIECE_FILE), text)
    model.save_to_preset(directory)
    values = with_vocabulary(stored.required_config, tokenizer).to_dict().items()
    config = {key: value for key, value in values if key not in (*_SIZES, "hidden_act")}
    ours = {_OUR_KEY: {"do_lower_case": stored.do_lower_case, "config": config}}
    metadata = json.dumps({**_json(directory, METADATA_FILE).value, **ours}, indent=4)
    write_file(os.path.join(directory, METADATA_FILE), metadata)
    if stored.task is not None:
        stored.task.write(directory)


def library_ids(_directory: str, _texts: Any) -> str:
    """Returns why the ids of KerasHub are not compared."""
    return "KerasHub does not normalize text"


def _model_of(stored: StoredModel, tokenizer: Any) -> tuple[Any, list[str]]:
    """Returns KerasHub's model with its weights, and the names of unsupported weights."""
    models, config, weights = _library().models, stored.required_config, dict(stored.weights)
    if config.hidden_act.lower() != "gelu" or config.parameter_sharing not in ("all", "none"):
        raise UserError(
            "KerasHub supports hidden_act 'gelu' and parameter_sharing 'all' or 'none'. Received: "
            f"{config.hidden_act!r} and {config.parameter_sharing!r}"
        )
    model = backbone = models.AlbertBackbone(
        **{argument: getattr(config, key) for key, argument in _SIZES.items()},
        dropout=config.hidden_dropout_prob,
        dtype="float32",
    )
    length = stored.task.max_seq_length if stored.task else None
    length = length or min(512, config.max_position_embeddings)
    classifier = {name: weights[name].shape for name in weights if name == CLASSIFIER}
    if classifier and head_in(classifier, stored.task).model_class.uses_pooler:
        preprocessor = tokenizer and models.AlbertTextClassifierPreprocessor(tokenizer, length)
        num_classes = len(weights[CLASSIFIER])
        model = models.AlbertTextClassifier(backbone, num_classes, preprocessor=preprocessor)
    elif "cls/predictions/output_bias" in weights:
        preprocessor = tokenizer and models.AlbertMaskedLMPreprocessor(tokenizer, length)
        model = models.AlbertMaskedLM(backbone, preprocessor=preprocessor)
    weights = {**identity_projection(config.hidden_size), **weights}
    for variable in model.weights:
        name = _original_name(variable.path)
        value = weights.pop(name)
        variable.assign((value.T if name == "output_weights" else value).reshape(variable.shape))
    return model, sorted(weights)


def _is_usable(tokenizer: Tokenizer | None) -> TypeGuard[SentencePieceTokenizer]:
    return isinstance(tokenizer, SentencePieceTokenizer) and "<pad>" in tokenizer.tokens


def _config_from(values: JsonValue) -> AlbertConfig:
    sizes = {key: values[argument].value for key, argument in _SIZES.items()}
    rates = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    return _checked({**sizes, **dict.fromkeys(rates, values["dropout"].value)}, values)


def _checked(config: dict[str, Any], source: JsonValue) -> AlbertConfig:
    try:
        return AlbertConfig.from_dict(config)
    except ValueError as error:
        raise LoadError(f"{source.where}: {error}") from error


def _described(directory: str, name: str, *classes: str) -> JsonValue:
    """Returns the arguments of the object in a JSON file, whose class must be in `classes`."""
    description = _json(directory, name)
    registered = description["registered_name"]
    if registered.text().rpartition(">")[2] not in classes:
        raise registered.error(f"a class of KerasHub's ALBERT ({', '.join(classes)})")
    return description["config"]


def _json(directory: str, name: str) -> JsonValue:
    path = os.path.join(directory, name)
    return JsonValue(read_json(path, path), path)


def _has(directory: str, name: str) -> bool:
    return file_exists(os.path.join(directory, name))


def _load(directory: str, weights_file: str) -> Any:
    """Returns KerasHub's model of a preset with its weights."""
    check_version(keras, "3.9", repr(directory))
    files = (os.path.join(directory, name) for name in folder_names(directory))
    size = sum(file_size(file) for file in files if file.endswith(".h5"))
    check_parameters(directory, read_config(directory)[0], size)
    models = _library().models
    name, options, file = "AlbertBackbone", {}, CONFIG_FILE
    if _has(directory, TASK_FILE):
        name = _json(directory, TASK_FILE)["registered_name"].text().rpartition(">")[2]
        options, file = {"preprocessor": None, "compile": False}, TASK_FILE
    try:
        # KerasHub would interpret a relative path as a name.
        local = os.path.abspath(directory)
        model = getattr(models, name).from_preset(local, load_weights=False, **options)
        if options:
            file = "task.weights.h5"
            model.load_task_weights(os.path.join(local, file))
        file = weights_file
        getattr(model, "backbone", model).load_weights(os.path.join(local, file))
    except Exception as error:  # of Keras, h5py or Python, depending on the damage
        raise LoadError(
            f"{os.path.join(directory, file)!r} cannot be read by keras-hub: {reason_of(error)}"
        ) from error
    return model


def _library() -> Any:
    try:
        import keras_hub
    except ImportError as error:
        raise LoadError(
            f"KerasHub presets need keras-hub, which cannot be imported ({reason_of(error)}). "
            'Run pip install "albert_tf[keras-hub]".'
        ) from error
    return keras_hub
