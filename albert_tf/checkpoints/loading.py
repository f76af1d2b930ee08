"""Loads models of any format: `load` builds a model, `load_weights` fills a model.

A checkpoint may have fewer layers, other groups or more sharing than the model. Layer l of L layers
of the model then takes its parameters from layer l * n // L of the n distinct layers of the
checkpoint. A part that the checkpoint shares among all layers is used for all layers.
"""

import dataclasses
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import keras
import numpy as np
from absl import logging

from albert_tf.checkpoints.facts import Meeting, settle
from albert_tf.checkpoints.formats.choose import open_weights
from albert_tf.checkpoints.model_choice import choose_model
from albert_tf.checkpoints.report import LoadReport, check_parameters
from albert_tf.checkpoints.stored_heads import (
    CLASSIFIER,
    HEAD_NAMES,
    Shapes,
    check_head,
    head_in,
    head_of,
    heads_in,
)
from albert_tf.checkpoints.stored_model import GLOBAL_STEP, StoredModel, Weights
from albert_tf.checkpoints.stored_task import MULTIPLE_CHOICE, TOKENS, UNCLEAR, UNNAMED, StoredTask
from albert_tf.config import BFLOAT16, FLOAT32, AlbertConfig
from albert_tf.data.arguments import as_path, check_choice
from albert_tf.data.errors import UserError
from albert_tf.data.files import is_remote
from albert_tf.data.strict_json import listed
from albert_tf.modeling.base import ConfiguredModel
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.layers import PENDING
from albert_tf.modeling.models import AlbertForMultipleChoice, AlbertForTokenClassification
from albert_tf.modeling.original_names import PRETRAINING_HEADS, SLOT_NAMES, is_slot, original_names
from albert_tf.modeling.parameter_sharing import ENCODER_PREFIX, POOLER, block_runs, norm_name
from albert_tf.modeling.rounded import warn_of_slow_bfloat16
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.piece_counts import warn_of_unreachable_pieces

M = TypeVar("M", bound=ConfiguredModel)
NEW_HEAD = 'For a new head, pass its classes, such as labels=["no", "yes"]'
_MAX_MISSING = 50_000_000  # fewer missing parameters are reported by name, after building a model

# Group, inner group, part and number of a block variable.
_NUMBERED_PART = re.compile(r"/group_(\d+)/inner_group_(\d+)/(attention|ffn)_(\d+)/")
_PART_SCOPE = re.compile(r"group_\d+/inner_group_\d+/\w+/")
_UNCLEAR = (
    "config.json does not show whether its classifier is one of texts, words or options. Load it "
    "with TextClassifier, TokenClassifier or MultipleChoice, or with the class of Keras, such as "
    'AlbertForTokenClassification; or set "architectures" in a copy of config.json, such as to '
    '["AlbertForTokenClassification"].'
)


def load(path: str | os.PathLike, *, albert_config_file: str | None = None) -> keras.Model:
    """Loads a model of any format.

    Args:
        path: a directory of any format that `convert_checkpoint.py` supports, a checkpoint, a
            `.keras` file, a released tar file, the URL of a TF-Hub module, the name of a released
            model, such as "base_v2" or "albert/albert-base-v2", or "mini", the model bundled with
            this package.
        albert_config_file: the configuration, if the path does not contain one.

    Returns:
        The model of the head in the weights: an `AlbertForQuestionAnsweringWithBeamSearch`,
        `AlbertForQuestionAnswering`, `AlbertForClassification`, `AlbertForTokenClassification`,
        `AlbertForMultipleChoice` or `AlbertForPretraining`, or an `AlbertEncoder` without a head.
        If the task is not stored, a classifier is loaded as a text classifier, and a single score
        per text as a regression. If transformers does not define the class of a classifier, only
        the encoder is loaded, with a warning; use a class such as `TextClassifier` instead.

    Raises:
        ValueError: there is no model, it is incomplete or of another architecture, or the
            configuration does not fit the weights.
    """
    stored = choose_model(as_path("path", path), albert_config_file=albert_config_file)
    return build(stored)[0]


def open_with_tokenizer(
    path: object, name: str = "path", precision: str = FLOAT32, **rules: Any
) -> StoredModel:
    """Opens a model, which must have a tokenizer. `name` is the argument that contains `path`.

    `precision` is "float32" or "bfloat16"; `rules` are `do_lower_case` and `keep_accents`.
    """
    if precision not in (FLOAT32, BFLOAT16):
        raise UserError(f"precision must be 'float32' or 'bfloat16'. Received: {precision!r}")
    for rule, value in rules.items():
        check_choice(rule, value)
    stored = choose_model(as_path(name, path), **rules)
    if precision == BFLOAT16:
        warn_of_slow_bfloat16()
        stored = dataclasses.replace(stored, dtype="mixed_bfloat16")
    if stored.tokenizer is None:
        raise UserError(
            f"{name} must contain a tokenizer. Received: {stored.path!r}, which has no tokenizer. "
            f"{stored.stored_tokenizer.note}".rstrip(". ")
        )
    return stored


def build_kind(
    stored: StoredModel,
    kinds: type | tuple[type, ...],
    wanted: str,
    task: StoredTask | None = None,
) -> Any:
    """Returns the model of the stored head with its weights.

    Raises `ValueError` if its class is not in `kinds`, which `wanted` describes. If no task is
    stored, `task` is used.
    """
    shapes, task = stored.weights.shapes, _stated(stored.task or task, kinds)
    if task and task.name == UNCLEAR:
        raise UserError(f"path must be {wanted}. {stored.path!r}: {_UNCLEAR}")
    if not issubclass(head_in(shapes, task).model_class, kinds):
        heads = ", ".join(heads_in(shapes)) or "none"
        name = stored.task.name if stored.task else UNCLEAR
        of_task = f" and was trained for the task {name!r}" if name != UNCLEAR else ""
        raise UserError(
            f"path must be {wanted}. Received: {stored.path!r}, which has the heads: "
            f"{heads}{of_task}"
        )
    model, report = build(stored, task)
    report.check_complete()
    return model


def build_as(
    model_class: type[M],
    stored: StoredModel,
    settings: Mapping[str, Any],
    allow_partial: bool = False,
) -> M:
    """Returns a model of a given class with stored weights; see `ConfiguredModel.load`.

    Raises `ValueError` if the stored head has other labels, unless `settings` contain `new_head` or
    `rename_labels`.
    """
    settings, config, shapes = dict(settings), stored.required_config, stored.weights.shapes
    is_asked, is_renamed = settings.pop("new_head", False), settings.pop("rename_labels", False)
    is_new = is_asked
    task, known = _stated(stored.task, model_class), {}
    if not (is_new or _is_other_head(model_class, settings, shapes, task)):
        check_head(stored.path, shapes, task)
        known = head_of(model_class).settings(config, shapes, task)
    else:
        is_new, task = True, None
    _check_labels(stored.path, known, settings, is_renamed)
    model, report = new_model(
        lambda: model_class(config, **{"dtype": stored.dtype, **known, **settings}),
        stored.weights,
        allow_partial=allow_partial,
        new_head=is_new,
    )
    report.check_heads(allow_new=True)
    if report.needed and not is_asked:
        logging.warning(
            "%s.load(%r): new weights, random until they are trained: %s",
            model_class.__name__,
            stored.path,
            ", ".join(sorted(report.needed)),
        )
    if all(name.startswith(ENCODER_PREFIX) for name in report.mapped):
        is_new, task = True, None
    elif task and is_renamed and (names := settings.get("labels")):
        labels = dataclasses.replace(task.labels, names=tuple(names))
        task = dataclasses.replace(task, labels=labels)
    model.set_origin(stored.tokenizer, task, has_new_head=is_new)
    return model


def _stated(task: StoredTask | None, kinds: type | tuple[type, ...]) -> StoredTask | None:
    """Returns the task; a single class states the kind of an unclear classifier."""
    if task is None or isinstance(kinds, tuple):
        return task
    is_score = task.name == UNCLEAR and not task.labels.names
    if is_score and issubclass(kinds, AlbertForMultipleChoice):
        return StoredTask(MULTIPLE_CHOICE)
    return task.named(TOKENS if issubclass(kinds, AlbertForTokenClassification) else UNNAMED)


def _is_other_head(
    model_class: type[ConfiguredModel],
    settings: Mapping[str, Any],
    shapes: Shapes,
    task: StoredTask | None,
) -> bool:
    """Returns whether the stored head is of another kind than the model class."""
    if task is None or CLASSIFIER not in model_class.head_weights:
        return False  # the variables of other heads have unique names
    several = task.labels.multi_label
    is_kind = head_of(model_class) is head_in(shapes, task)
    return not is_kind or settings.get("multi_label", several) != several


def _check_labels(
    path: str, known: Mapping[str, Any], settings: Mapping[str, Any], is_renamed: bool
) -> None:
    """Rejects labels that differ from the labels of the stored head or, to rename, their number."""
    labels, stored = settings.get("labels"), known.get("num_labels")
    number = settings.get("num_labels", len(labels) if labels else stored or 1)
    given = {"num_labels": number, "labels": None if labels is None else tuple(labels)}
    advice = "Pass new_head=True to replace the head, or rename_labels=True to rename its classes."
    if is_renamed:
        given, stored = {"num_labels": number}, stored or 0
        advice = "rename_labels=True needs a name for each class."
    stated = {"num_labels": stored, "labels": known.get("labels")}
    settle({path: stated, "the arguments": given}, Meeting.GIVEN, advice=advice)


def read_model(
    path: str, *, with_optimizer: bool = False, **parts: Any
) -> tuple[StoredModel, LoadReport]:
    """Reads a complete model, see `load`, into memory; also returns a report on the weights.

    `parts` are arguments of `choose_model`.
    """
    stored = choose_model(path, **parts)
    model, report = build(stored)
    weights = {name: np.asarray(v, np.float32) for name, v in original_names(model).items()}
    del model  # frees as much memory as the weights need
    for name, there in report.mapped.items() if with_optimizer else ():
        slots = (slot for slot in SLOT_NAMES if f"{there}/{slot}" in stored.weights)
        weights |= {f"{name}/{slot}": stored.weights[f"{there}/{slot}"] for slot in slots}
    step = stored.weights.global_step
    task = None if stored.task and stored.task.name == UNCLEAR else stored.task
    return dataclasses.replace(stored.with_weights(weights), global_step=step, task=task), report


def build(
    stored: StoredModel, task: StoredTask | None = None
) -> tuple[ConfiguredModel, LoadReport]:
    """Builds the Keras model of the stored head and fills it with the stored weights.

    If `task` is `None`, the stored task is used. Raises `LoadError` if the weights are incomplete
    or do not fit the configuration.
    """
    config, task, shapes = stored.required_config, task or stored.task, stored.weights.shapes
    if task and task.name == UNCLEAR:
        logging.warning("%s is loaded without its classifier: %s", stored.path, _UNCLEAR)
        task, shapes = None, {n: s for n, s in shapes.items() if not n.startswith("output_")}
    check_head(stored.path, shapes, task and stored.task)
    stored_parameters = sum(map(math.prod, shapes.values()))
    check_parameters(stored.path, config, stored_parameters + _MAX_MISSING)
    model, report = new_model(
        lambda: empty_model(config, shapes, task, dtype=stored.dtype), stored.weights
    )
    report.check_heads()
    # Only a pooler that no stored head uses can be missing. Its new values are always the same.
    random, variables = np.random.default_rng(0), original_names(model)
    for name in report.missing:
        shape = tuple(variables[name].shape)
        values = random.standard_normal(shape) * config.initializer_range
        values = values if len(shape) > 1 else np.zeros(shape)
        variables[name].assign(values.astype(np.float32))
    model.set_origin(stored.tokenizer, task)
    return model, report


def empty_model(
    config: AlbertConfig, shapes: Shapes, task: StoredTask | None = None, **settings: Any
) -> ConfiguredModel:
    """Creates a model with random weights; `shapes` and `task` determine the heads."""
    head = head_in(shapes, task)
    return head.model_class(config, **head.settings(config, shapes, task), **settings)


def check_model(model: Any, kinds: Any, tokenizer: object) -> Tokenizer:
    """Checks the arguments `model` and `tokenizer`; returns the tokenizer or `model.tokenizer`.

    Raises `TypeError` for wrong types, `ValueError` for the vocabulary of another model.
    """
    if not isinstance(model, kinds):
        names = [kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,))]
        raise TypeError(f"model must be {' or '.join(names)}. Received: {type(model).__name__}")
    own = model.tokenizer
    tokenizer = own if tokenizer is None else tokenizer
    if not isinstance(tokenizer, Tokenizer):
        raise TypeError(
            "tokenizer must be created by albert_tf.load_tokenizer, or be None if the model has "
            f"a tokenizer. Received: {type(tokenizer).__name__}"
        )
    sources = {
        "model.config": {"num_tokens": model.config.vocab_size},
        "model.tokenizer": {"vocabulary": own and own.fingerprint},
        "tokenizer": {"num_tokens": len(tokenizer), "vocabulary": tokenizer.fingerprint},
    }
    advice = "Omit tokenizer. If the model was trained with the new one, set model.tokenizer."
    settle(sources, Meeting.GIVEN, advice=advice, strict={"model.tokenizer"})
    warn_of_unreachable_pieces(tokenizer)
    return tokenizer


def _parts_by_depth(stored_names: Iterable[str], config: AlbertConfig) -> dict[str, str]:
    """Maps scopes of block parts to scopes at the same relative depth in a checkpoint."""
    last: dict[tuple[int, str], int] = {}  # largest number of each group and part
    inner_groups = 1
    for match in filter(None, map(_NUMBERED_PART.search, stored_names)):
        key, number = (int(match[1]), match[3]), int(match[4])
        last[key] = max(number, last.get(key, 1))
        inner_groups = max(inner_groups, int(match[2]) + 1)
    layers = []  # group, attention and feed-forward part of each distinct layer
    for group in sorted({group for group, _ in last}):
        attentions, feed_forwards = (last.get((group, part), 1) for part in ("attention", "ffn"))
        layers += [
            (group, min(number, attentions), min(number, feed_forwards))
            for number in range(1, 1 + max(attentions, feed_forwards))
        ]
    found: dict[str, str] = {}
    for run, place in enumerate(block_runs(config) if layers else ()):
        layer, inner = divmod(run, config.inner_group_num)
        group, attention, feed_forward = layers[layer * len(layers) // config.num_hidden_layers]
        stored = f"group_{group}/inner_group_{inner * inner_groups // config.inner_group_num}"
        _, number = place.layer
        for part, stored_part in (
            (f"attention_{number}", f"attention_{attention}"),
            (f"ffn_{number}", f"ffn_{feed_forward}"),
            (norm_name("attention", place.attention), norm_name("attention", attention)),
            (norm_name("ffn", place.feed_forward), norm_name("ffn", feed_forward)),
        ):  # the first layer determines a shared part
            found.setdefault(f"{place.scope}/{part}/", f"{stored}/{stored_part}/")
    return found


def match_names(
    model_names: Iterable[str], stored_names: Iterable[str], warm_start: AlbertConfig | None = None
) -> dict[str, str]:
    """Maps model variables to the names in a checkpoint that fill them.

    Only equal names match. If `warm_start`, the configuration of the model, is given, the
    checkpoint may have other layers and sharing.

    Differs: the original reports some unfilled variables as restored, and fills variables without
        an equal name from group 0 at any depth.
    """
    stored, matches = set(stored_names), {}
    parts = _parts_by_depth(stored, warm_start) if warm_start else {}
    for name in model_names:
        there = _PART_SCOPE.sub(lambda scope: parts.get(scope[0], scope[0]), name)
        if there in stored:
            matches[name] = there
    return matches


def load_weights(
    model: keras.Model,
    path: str | os.PathLike | Weights,
    *,
    init_from_group0: bool = False,
    allow_partial: bool = False,
    skip: Mapping[str, str] | None = None,
) -> LoadReport:
    """Fills a model with the weights of a checkpoint; returns a report on every variable.

    Args:
        model: an `AlbertEncoder` or a model with an encoder and heads.
        path: a path or name, see `load`, or open weights.
        init_from_group0: whether the model may share fewer parameters or have more layers.
        allow_partial: whether encoder variables may be missing in the checkpoint, and blocks of the
            checkpoint may be missing in the model. A pooler that no loaded head needs may always be
            missing.
        skip: variables to leave unchanged, and the reason, as in
            `{"output_weights": "other labels"}`.

    Raises:
        LoadError: the checkpoint is missing, damaged, does not fill the encoder, or belongs to a
            model that shares fewer parameters. The model is left unchanged.
    """
    weights = path if isinstance(path, Weights) else open_weights(as_path("path", path))
    variables = original_names(model)
    encoder = model if isinstance(model, AlbertEncoder) else model.encoder
    report = match(
        {name: tuple(variable.shape) for name, variable in variables.items()},
        weights,
        skip=skip or {},
        uses_pooler=model.uses_pooler,
        warm_start=encoder.config if init_from_group0 else None,
    )
    report.check_encoder(allow_partial)
    if not (allow_partial or init_from_group0):
        report.check_no_block_is_left()
    values = {there: weights[there] for there in set(report.mapped.values())}
    _warn_of_other_outputs(report, model, values)
    for name, there in report.mapped.items():
        variables[name].assign(values[there])
    return report


def match(
    wanted: Mapping[str, tuple[int, ...]],
    weights: Weights,
    *,
    skip: Mapping[str, str],
    uses_pooler: bool,
    warm_start: AlbertConfig | None,
) -> LoadReport:
    """Returns which stored variable fills each variable of a model, given the model's shapes.

    For `warm_start` see `match_names`, for `skip` see `load_weights`.
    """
    shapes, mapped, missing, mismatched = weights.shapes, {}, [], []
    skipped = {name: why for name, why in skip.items() if name in wanted}
    names = [name for name in wanted if name not in skipped]
    matches = match_names(names, shapes, warm_start)
    for name in names:
        there = matches.get(name)
        if there is None:
            missing.append(name)
        elif tuple(shapes[there]) != wanted[name]:
            mismatched.append((name, tuple(shapes[there]), wanted[name]))
        else:
            mapped[name] = there
    used = {*matches.values(), *skipped, GLOBAL_STEP}
    independent = (ENCODER_PREFIX, PRETRAINING_HEADS[0])
    needs_pooler = uses_pooler and any(
        name.startswith(POOLER) or not name.startswith(independent) for name in mapped
    )
    return LoadReport(
        source=weights.source,
        shapes=shapes,
        mapped=mapped,
        missing=missing,
        ignored=[name for name in shapes if name not in used and not is_slot(name)],
        mismatched=mismatched,
        skipped=skipped,
        unused=[] if needs_pooler else [name for name in missing if name.startswith(POOLER)],
    )


def new_model(
    create: Callable[[], M],
    weights: Weights,
    *,
    allow_partial: bool = False,
    new_head: bool = False,
) -> tuple[M, LoadReport]:
    """Creates and fills a model; only variables that are not filled get random values.

    With `new_head`, only the encoder is filled. For `allow_partial` see `load_weights`.
    """
    pending: list[Any] = []
    token = PENDING.set(pending)
    try:
        model = create()
    finally:
        PENDING.reset(token)
    variables = original_names(model)
    of_head = [name for name in variables if new_head and not name.startswith(ENCODER_PREFIX)]
    skip = dict.fromkeys(of_head, "of another task")
    report = load_weights(model, weights, allow_partial=allow_partial, skip=skip)
    filled = {id(variables[name]) for name in report.mapped}
    for variable, initializer in pending:
        if id(variable) not in filled:
            variable.assign(initializer(variable.shape, variable.dtype))
    local = weights.source and not is_remote(weights.source)
    model.weights_file = os.path.abspath(weights.source) if local else weights.source
    return model, report


def _warn_of_other_outputs(
    report: LoadReport, model: keras.Model, values: Mapping[str, np.ndarray]
) -> None:
    """Logs why a filled model may differ from the model whose weights, `values`, were stored."""
    if report.unused and model.uses_pooler:
        logging.warning(
            "%s has no pooler: the pooler of the model is new and random", report.source
        )
    known = (ENCODER_PREFIX, *PRETRAINING_HEADS, *HEAD_NAMES)
    if other := [name for name in report.ignored if not name.startswith(known)]:
        logging.warning(
            "%s: weights that are not used, so outputs may differ from the program that stored "
            "them: %s",
            report.source,
            listed(other),
        )
    if bad := [
        name for name, there in report.mapped.items() if not np.isfinite(values[there]).all()
    ]:
        logging.warning("%s contains NaN or infinite weights: %s", report.source, ", ".join(bad))
