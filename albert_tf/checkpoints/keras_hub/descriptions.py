"""KerasHub's descriptions of an ALBERT: JSON objects that name a class and what it is made with."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import keras

from albert_tf.config import AlbertConfig

BACKBONE = "AlbertBackbone"
MASKED_LM = "AlbertMaskedLM"
CLASSIFIER = "AlbertTextClassifier"
TOKENIZER = "AlbertTokenizer"
_EARLIER_NAMES = {"AlbertClassifier": CLASSIFIER}
# Whose classes are read: KerasHub's, under both of its names.
PACKAGES = ("keras_hub", "keras_nlp")
# The version whose layout is written; those before it read it as well.
KERAS_HUB_VERSION = "0.32.0"
# Key of `metadata.json`, whose other keys are KerasHub's, for what its classes have no place for.
OUR_KEY = "albert_tf"

# What KerasHub calls what the original calls so. The second is what it takes where one is missing.
_SIZES: Mapping[str, tuple[str, int | None]] = {
    "vocab_size": ("vocabulary_size", None),
    "embedding_size": ("embedding_dim", None),
    "hidden_size": ("hidden_dim", None),
    "num_hidden_layers": ("num_layers", None),
    "num_hidden_groups": ("num_groups", 1),
    "num_attention_heads": ("num_heads", None),
    "intermediate_size": ("intermediate_dim", None),
    "inner_group_num": ("num_inner_repetitions", 1),
    "max_position_embeddings": ("max_sequence_length", 512),
    "type_vocab_size": ("num_segments", 2),
}
_LAYER_KEYS = ("name", "trainable", "dtype")  # which every layer has
_FLOAT_POLICIES = ("float32", "float64", "float16", "bfloat16", "mixed_float16", "mixed_bfloat16")
# Of the original's keys, those KerasHub has no place for; they change no output.
_TRAINING_KEYS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range")


def class_of(description: Any) -> tuple[str, str]:
    """Returns package and class that a description names, such as ("keras_hub", BACKBONE).

    Raises:
        ValueError: it names none.
    """
    if not isinstance(description, dict) or not isinstance(description.get("config"), dict):
        raise ValueError("it names no class and no configuration")
    registered = description.get("registered_name") or description.get("class_name")
    package, _, name = str(registered).rpartition(">")
    return package, _EARLIER_NAMES.get(name, name)


def values_of(description: Any, *names: str) -> dict[str, Any]:
    """Returns the arguments of a description of one of some classes of KerasHub's.

    Raises:
        ValueError: it is of another class.
    """
    package, name = class_of(description)
    if name not in names or package not in PACKAGES:
        found = f"{package}>{name}" if package else name
        raise ValueError(f"it is of the class {found}; only {' or '.join(names)} can be read")
    return dict(description["config"])


def config_from(backbone: Any) -> AlbertConfig:
    """Returns the configuration that a backbone's description stands for.

    KerasHub's ALBERT has one activation, the tanh approximation of GELU, one rate of dropout and
    the original's epsilon.

    Raises:
        ValueError: it is of another class, lacks a value, has one that is not known here or one
            that the model cannot have.
    """
    values = values_of(backbone, BACKBONE)
    known = {key for key, _ in _SIZES.values()} | {"dropout", *_LAYER_KEYS}
    unknown = sorted(set(values) - known)
    if unknown:
        raise ValueError(
            f"it has values that are not known here, {', '.join(unknown)}: a newer KerasHub's? "
            f"Expected {', '.join(sorted(known))}"
        )
    missing = [key for key, default in _SIZES.values() if key not in values and default is None]
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}")
    _check_dtype(values.get("dtype"))
    dropout = values.get("dropout", 0.0)
    sizes: dict[str, Any] = {
        name: values.get(key, default) for name, (key, default) in _SIZES.items()
    }
    config = AlbertConfig(
        **sizes, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout
    )
    check_groups(config)
    return config


def check_groups(config: AlbertConfig) -> None:
    """Refuses layers that do not divide among the groups: KerasHub knows no such model.

    Raises:
        ValueError: they do not.
    """
    if config.num_hidden_layers % config.num_hidden_groups:
        raise ValueError(
            "KerasHub runs every group equally often, so num_layers must be a multiple of "
            f"num_groups. Received: {config.num_hidden_layers} layers and "
            f"{config.num_hidden_groups} groups"
        )


def num_classes_of(classifier: Mapping[str, Any]) -> int:
    """Returns the outputs of a text classifier, given its arguments.

    Raises:
        ValueError: there is no such number, or its outputs are neither logits nor their softmax.
    """
    number, activation = classifier.get("num_classes"), classifier.get("activation")
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ValueError(f"num_classes is {number!r}; expected a whole number of at least 1")
    if activation not in (None, "linear", "softmax"):
        raise ValueError(
            f"its activation is {activation!r}; only 'linear' and 'softmax' can be read, as a "
            "classifier here gives logits and takes their softmax for probabilities"
        )
    return number


def check_tokenizer(tokenizer: Any) -> None:
    """Refuses a tokenizer that is not ALBERT's, or one that adds tokens of its own.

    Raises:
        ValueError: it is one.
    """
    values = values_of(tokenizer, TOKENIZER)
    for key in ("add_bos", "add_eos"):
        if values.get(key):
            raise ValueError(f"it has {key}, which ALBERT's tokenizer does without")


def _check_dtype(dtype: Any) -> None:
    """Refuses quantised weights; the floats of any policy are read as float32."""
    name = dtype
    if isinstance(dtype, dict):
        name = dtype.get("class_name")
        if name == "DTypePolicy":
            name = dict(dtype.get("config") or {}).get("name")
    if name is not None and name not in _FLOAT_POLICIES:
        raise ValueError(
            f"its weights are of the kind {name}; only floating-point ones can be read. Save the "
            "preset before it is quantised"
        )


def with_our_values(config: AlbertConfig, metadata: Mapping[str, Any]) -> AlbertConfig:
    """Adds what only our own `metadata.json` says; none of it changes an output.

    Where KerasHub's own dropout was changed since, that counts.
    """
    ours = metadata.get(OUR_KEY)
    ours = ours.get("config") if isinstance(ours, dict) else None
    if not isinstance(ours, dict):
        return config
    values = {key: ours[key] for key in _TRAINING_KEYS if key in ours}
    if values.get("hidden_dropout_prob") != config.hidden_dropout_prob:
        values = {key: value for key, value in values.items() if "dropout" not in key}
    sharing = ours.get("parameter_sharing")
    if sharing == "none" and config.num_hidden_groups == config.num_hidden_layers:
        values["parameter_sharing"] = sharing
    extra = {key: ours[key] for key in ours if key not in config.to_dict() and key not in values}
    extra.pop("parameter_sharing", None)
    return config.replace(**values, extra=extra)


def lower_case_of(metadata: Mapping[str, Any]) -> bool | None:
    """Whether the model's text was lower-cased, None where `metadata.json` does not say."""
    ours = metadata.get(OUR_KEY)
    lower_case = ours.get("do_lower_case") if isinstance(ours, dict) else None
    return lower_case if isinstance(lower_case, bool) else None


def backbone_description(config: AlbertConfig) -> dict[str, Any]:
    """Returns the content of `config.json`."""
    sizes = {key: getattr(config, name) for name, (key, _) in _SIZES.items()}
    dropout = config.hidden_dropout_prob
    return _description("albert_backbone", BACKBONE, {**sizes, "dropout": dropout})


def tokenizer_description() -> dict[str, Any]:
    """Returns the content of `tokenizer.json`; the vocabulary is a file beside it."""
    values = {
        "config_file": "tokenizer.json",
        "proto": None,
        "sequence_length": None,
        "add_bos": False,
        "add_eos": False,
    }
    return _description("albert_tokenizer", TOKENIZER, values, dtype="int32")


def preprocessor_description(task: str, sequence_length: int) -> dict[str, Any]:
    """Returns the content of `preprocessor.json` of a task with a tokenizer."""
    values: dict[str, Any] = {
        "tokenizer": tokenizer_description(),
        "config_file": "preprocessor.json",
        "sequence_length": sequence_length,
        "truncate": "round_robin",
    }
    module = "albert_text_classifier_preprocessor"
    if task == MASKED_LM:
        module = "albert_masked_lm_preprocessor"
        values.update(
            mask_selection_rate=0.15,
            mask_selection_length=96,
            mask_token_rate=0.8,
            random_token_rate=0.1,
        )
    return _description(module, f"{task}Preprocessor", values)


def task_description(
    task: str,
    config: AlbertConfig,
    preprocessor: Mapping[str, Any] | None,
    num_labels: int | None = None,
) -> dict[str, Any]:
    """Returns the content of `task.json`.

    Args:
        task: `MASKED_LM` or `CLASSIFIER`.
        config: of the model.
        preprocessor: content of `preprocessor.json`, None without.
        num_labels: of a classifier.
    """
    values: dict[str, Any] = {
        "backbone": backbone_description(config),
        "preprocessor": preprocessor,
    }
    if task == MASKED_LM:
        return _description("albert_masked_lm", task, values, dtype=None)
    values.update(num_classes=num_labels, activation="linear", dropout=0.1)
    return _description("albert_text_classifier", task, values, dtype=None)


def metadata(config: AlbertConfig, do_lower_case: bool, num_parameters: int) -> dict[str, Any]:
    """Returns the content of `metadata.json`."""
    ours = {key: getattr(config, key) for key in _TRAINING_KEYS}
    if config.parameter_sharing != "all":
        ours["parameter_sharing"] = config.parameter_sharing
    return {
        "keras_version": keras.__version__,
        "keras_hub_version": KERAS_HUB_VERSION,
        "parameter_count": num_parameters,
        "date_saved": datetime.datetime.now().strftime("%Y-%m-%d@%H:%M:%S"),
        "tasks": ["MaskedLM", "TextClassifier"],
        OUR_KEY: {"do_lower_case": do_lower_case, "config": {**ours, **config.extra}},
    }


def _description(
    module: str, name: str, values: Mapping[str, Any], dtype: str | None = "float32"
) -> dict[str, Any]:
    """A class of KerasHub's and what it is made with; tasks take the type of their backbone."""
    layer: dict[str, Any] = {"name": module}
    if dtype is not None:
        policy = {"class_name": "DTypePolicy", "config": {"name": dtype}, "registered_name": None}
        layer = {**layer, "trainable": True, "dtype": {"module": "keras", **policy}}
    return {
        "module": f"keras_hub.src.models.albert.{module}",
        "class_name": name,
        "config": {**layer, **values},
        "registered_name": f"keras_hub>{name}",
    }
