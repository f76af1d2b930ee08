"""Fills a model with the weights of a checkpoint of any format, and reports on every variable.

A checkpoint may have fewer layers, other groups or more sharing than the model. Layer l of L layers
of the model then takes its parameters from layer l * n // L of the n distinct layers of the
checkpoint. If the checkpoint shares a part among all layers, all layers take this part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import keras
import numpy as np
from absl import logging

from albert_tf.checkpoints.formats import format_module, format_of_weights, open_weights
from albert_tf.checkpoints.model_contents import StoredModel, WeightsReader
from albert_tf.checkpoints.original import GLOBAL_STEP, read_variables
from albert_tf.checkpoints.report import LoadReport
from albert_tf.config import AlbertConfig
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.original_names import is_slot, original_names
from albert_tf.modeling.parameter_sharing import (
    attention_norm_name,
    block_runs,
    feed_forward_norm_name,
)

# Name of a block variable: group, inner group, part, number of the part, rest.
_PART = re.compile(
    r"^(.*/)group_(\d+)/inner_group_(\d+)/(attention|ffn|LayerNorm)(?:_(\d+))?/(.+)$"
)

HUB_SCOPE = "module/"  # scope of the encoder if the original trains a TF-Hub module
_POOLER = "bert/pooler/"
Opened = tuple[WeightsReader, dict[str, list[int]]]  # reader, and shape of every variable


def names_by_place(
    names: Iterable[str], stored_names: Iterable[str], config: AlbertConfig
) -> Mapping[str, str]:
    """Maps block variables of a model to variables at the same relative depth in a checkpoint.

    A part that several layers of the model share takes the parameters of the first of these layers.
    If the model differs from the checkpoint's model only by sharing less, both compute the same.
    Names are returned without the scope of a TF-Hub module.
    """
    stored = _Stack(stored_names)
    layers = _first_layers(config)
    places = {}
    for name in names:
        match = _PART.match(name)
        if match is None or not stored.layers:
            continue
        before, group, inner, part, suffix, rest = match.groups()
        kind, number = _kind_and_number(part, suffix, config.parameter_sharing == "ffn")
        layer = layers.get((int(group), number))
        if layer is None:
            continue
        from_group, from_number = stored.place(layer, config.num_hidden_layers, kind)
        from_inner = int(inner) * stored.inner_groups // config.inner_group_num
        own_name = _own_name(kind, from_number, is_norm=part == "LayerNorm")
        places[name] = f"{before}group_{from_group}/inner_group_{from_inner}/{own_name}/{rest}"
    return places


class _Stack:
    """The layers of a checkpoint, derived from its names."""

    def __init__(self, names: Iterable[str]) -> None:
        groups: dict[int, int] = {}
        # Numbers of the attention and feed-forward parts.
        self.numbers: dict[str, set[int]] = {"attention": {1}, "ffn": {1}}
        self.inner_groups = 1
        for match in filter(None, map(_PART.match, names)):
            _, group, inner, part, suffix, _ = match.groups()
            self.inner_groups = max(self.inner_groups, int(inner) + 1)
            number = 1
            if part != "LayerNorm":
                number = int(suffix or 1)
                self.numbers[part].add(number)
            groups[int(group)] = max(number, groups.get(int(group), 1))
        # (group, number) of each distinct layer, lowest first.
        self.layers = [
            (group, number)
            for group, last in sorted(groups.items())
            for number in range(1, last + 1)
        ]

    def place(self, layer: int, num_layers: int, kind: str) -> tuple[int, int]:
        """Returns group and number of the part for layer `layer` of `num_layers`."""
        group, number = self.layers[layer * len(self.layers) // num_layers]
        return group, number if number in self.numbers[kind] else 1


def _first_layers(config: AlbertConfig) -> dict[tuple[int, int], int]:
    """Returns the first layer that uses each (group, number)."""
    layers: dict[tuple[int, int], int] = {}
    for run, place in enumerate(block_runs(config)):
        layers.setdefault(place.layer, run // config.inner_group_num)
    return layers


def _kind_and_number(part: str, suffix: str | None, numbers_attention: bool) -> tuple[str, int]:
    """Returns the part, attention or feed-forward, and its number; layer norms belong to a part."""
    number = int(suffix or 1)
    if part != "LayerNorm":
        return part, number
    is_attention = suffix is None or (number > 1 and numbers_attention)
    return ("attention" if is_attention else "ffn"), number


def _own_name(kind: str, number: int, is_norm: bool) -> str:
    if not is_norm:
        return f"{kind}_{number}"
    return attention_norm_name(number) if kind == "attention" else feed_forward_norm_name(number)


def match_names(
    model_names: Iterable[str], stored_names: Iterable[str], warm_start: AlbertConfig | None = None
) -> dict[str, str]:
    """Maps model variables to the names in a checkpoint that fill them.

    With the configuration of the model, `warm_start`, the checkpoint may have other layers and
    sharing, see `names_by_place`. Otherwise only equal names match.

    Differs: the original reports variables as restored that it leaves unfilled, and fills variables
        without an equal name from group 0 at any depth.
    """
    names, stored = list(model_names), set(stored_names)
    places = names_by_place(names, stored, warm_start) if warm_start else {}
    matches = {}
    for name in names:
        candidates = [places.get(name, name)]
        candidates += [HUB_SCOPE + candidate for candidate in candidates]
        match = next((candidate for candidate in candidates if candidate in stored), None)
        if match is not None:
            matches[name] = match
    return matches


def load_weights(
    model: keras.Model,
    path: str | StoredModel,
    *,
    init_from_group0: bool = False,
    allow_partial: bool = False,
    skip: Mapping[str, str] | None = None,
) -> LoadReport:
    """Fills a model from a model of any format.

    Args:
        model: an `AlbertEncoder` or a model with an encoder and heads.
        path: a path or name, see `load`, or an open model.
        init_from_group0: whether the model may share less or be deeper, see `match_names`.
        allow_partial: whether encoder variables may be missing in the checkpoint, and blocks of the
            checkpoint may be missing in the model.
        skip: variables to leave unchanged, and the reason, as in
            `{"output_weights": "other labels"}`.

    Returns:
        A report on every variable.

    Raises:
        LoadError: the checkpoint is missing, damaged, does not fill the encoder, or belongs to a
            model that shares less. The model is left unchanged.
    """
    source = path if isinstance(path, StoredModel) else open_weights(path)
    prefix, (reader, shapes) = source.checkpoint, source.weights
    variables = original_names(model)
    skip = {name: why for name, why in (skip or {}).items() if name in variables}
    wanted = [name for name in variables if name not in skip]
    encoder = model if isinstance(model, AlbertEncoder) else model.encoder
    matches = match_names(wanted, shapes, encoder.config if init_from_group0 else None)
    sizes = {n: (tuple(shapes[s]), tuple(variables[n].shape)) for n, s in matches.items()}
    mapped = {name: matches[name] for name, (stored, own) in sizes.items() if stored == own}
    missing = [name for name in wanted if name not in matches]
    report = LoadReport(
        source=prefix,
        shapes=shapes,
        mapped=mapped,
        missing=missing,
        ignored=[
            name
            for name in shapes
            if name not in {*matches.values(), *skip, GLOBAL_STEP} and not is_slot(name)
        ],
        mismatched=[(name, *both) for name, both in sizes.items() if name not in mapped],
        skipped=skip,
        unused=[] if model.uses_pooler else [n for n in missing if n.startswith(_POOLER)],
    )
    report.check_encoder(allow_partial)
    if not (allow_partial or init_from_group0):
        report.check_no_block_is_left()
    values = read_variables(reader, prefix, mapped.values())
    if bad := [name for name, stored in mapped.items() if not np.isfinite(values[stored]).all()]:
        logging.warning("%s contains NaN or infinite weights: %s", prefix, ", ".join(bad))
    for name, stored in mapped.items():
        variables[name].assign(values[stored])
    return report


def open_checkpoint(prefix: str) -> Opened:
    """Returns a reader of a `StoredModel.checkpoint`, and all shapes. Raises `LoadError`."""
    reader = format_module(format_of_weights(prefix)).open_weights(prefix)
    return reader, dict(sorted(reader.get_variable_to_shape_map().items()))


def read_global_step(prefix: str, opened: Opened | None = None) -> int:
    """Returns the training step of a checkpoint, which may be open; 0 if it is not stored."""
    reader, shapes = opened or open_checkpoint(prefix)
    if GLOBAL_STEP not in shapes:
        return 0
    return int(read_variables(reader, prefix, [GLOBAL_STEP])[GLOBAL_STEP])
