"""Fills a model with the weights of a checkpoint of any format, and reports what became of each.

A checkpoint may have fewer layers, other groups or more sharing than the model. Both are stacks: a
layer of the model takes its parameters from the layer at the same height of the checkpoint's stack,
layer l of L from place l * n // L of its n distinct layers. Where the checkpoint shares one part
among all layers, that is the only place there is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import keras
import numpy as np
from absl import logging

from albert_tf.checkpoints.formats import format_module, format_of_weights, open_weights
from albert_tf.checkpoints.model_contents import StoredModel, WeightsReader
from albert_tf.checkpoints.original.files import GLOBAL_STEP, read_variables
from albert_tf.checkpoints.report import LoadReport
from albert_tf.config import AlbertConfig
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.original_names import is_slot, original_names
from albert_tf.modeling.parameter_sharing import (
    attention_norm_name,
    block_runs,
    feed_forward_norm_name,
)

# A variable of a block: group, inner group, part, its number, the rest.
_PART = re.compile(
    r"^(.*/)group_(\d+)/inner_group_(\d+)/(attention|ffn|LayerNorm)(?:_(\d+))?/(.+)$"
)

HUB_SCOPE = "module/"  # before the encoder's names when the original trains a TF-Hub module
_POOLER = "bert/pooler/"
Opened = tuple[WeightsReader, dict[str, list[int]]]  # and the shape of every variable


def names_by_place(
    names: Iterable[str], stored_names: Iterable[str], config: AlbertConfig
) -> Mapping[str, str]:
    """Says which variable of a checkpoint stands where a variable of the model stands.

    A part that several layers of the model share takes what the first of them would take. If the
    checkpoint's groups and sharing differ from the model's only in that layers of the model share
    less, the model computes what the checkpoint's model computes.

    Returns:
        The place of each variable of a block that has one, as a name without the scope of a TF-Hub
        module, which the checkpoint may have or lack.
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
    """What the names in a checkpoint tell of its layers.

    Attributes:
        layers: (group, number) of each distinct layer, lowest first.
        numbers: of the attention and feed-forward parts.
        inner_groups: how many there are.
    """

    def __init__(self, names: Iterable[str]) -> None:
        groups: dict[int, int] = {}
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
        self.layers = [
            (group, number)
            for group, last in sorted(groups.items())
            for number in range(1, last + 1)
        ]

    def place(self, layer: int, num_layers: int, kind: str) -> tuple[int, int]:
        """Group and number of the part at the height of layer `layer` of `num_layers`."""
        group, number = self.layers[layer * len(self.layers) // num_layers]
        return group, number if number in self.numbers[kind] else 1


def _first_layers(config: AlbertConfig) -> dict[tuple[int, int], int]:
    """The first layer that uses the parts with a number of a group."""
    layers: dict[tuple[int, int], int] = {}
    for run, place in enumerate(block_runs(config)):
        layers.setdefault(place.layer, run // config.inner_group_num)
    return layers


def _kind_and_number(part: str, suffix: str | None, numbers_attention: bool) -> tuple[str, int]:
    """Which of the two parts a name belongs to, layer norms included, and the part's number."""
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

    A `warm_start`, the model's configuration, lets the checkpoint have other layers and share other
    parts, see `names_by_place`; else only equal names match.

    Differs: the original's own matching leaves some of these variables unfilled while reporting
        them as restored, and knows no height: it fills from group 0 what has no equal name.
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
    """Fills a model from a checkpoint of the original release, or from a model of any format.

    Args:
        model: see `original_names`.
        path: see `formats.locate`, or a model that is open.
        init_from_group0: fill a less shared or deeper model, see `warm_start` of `match_names`.
        allow_partial: accept encoder variables that the checkpoint does not fill, and blocks of
            the checkpoint that the model has no place for.
        skip: variables to leave as they are even where the checkpoint has values of their shape,
            and why, as in `{"output_weights": "other labels"}`.

    Returns:
        What was mapped, missing, skipped, ignored (slots and the step are not counted) or of
        another shape.

    Raises:
        LoadError: no such checkpoint, a damaged one, one that does not fill the encoder, or one of
            a model that shares less; the model is left as it was.
    """
    source = path if isinstance(path, StoredModel) else open_weights(path)
    prefix, (reader, shapes) = source.checkpoint, source.weights
    variables = original_names(model)
    skip = {name: why for name, why in (skip or {}).items() if name in variables}
    wanted = [name for name in variables if name not in skip]
    encoder = model if isinstance(model, AlbertEncoder) else model.encoder
    matches = match_names(wanted, shapes, encoder.config if init_from_group0 else None)
    mapped, mismatched = {}, []
    for name, stored in matches.items():
        there, wanted_shape = tuple(shapes[stored]), tuple(variables[name].shape)
        if there == wanted_shape:
            mapped[name] = stored
        else:
            mismatched.append((name, there, wanted_shape))
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
        mismatched=mismatched,
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
    """Returns a reader of a `StoredModel.checkpoint`, and the shape of every variable in it.

    Raises:
        DamagedError: the files are not a checkpoint, or are damaged.
        LoadError: they cannot be reached.
    """
    reader = format_module(format_of_weights(prefix)).open_weights(prefix)
    return reader, dict(sorted(reader.get_variable_to_shape_map().items()))


def read_global_step(prefix: str, opened: Opened | None = None) -> int:
    """Returns the training step of a checkpoint, which may be open; 0 if it is not stored."""
    reader, shapes = opened or open_checkpoint(prefix)
    if GLOBAL_STEP not in shapes:
        return 0
    return int(read_variables(reader, prefix, [GLOBAL_STEP])[GLOBAL_STEP])
