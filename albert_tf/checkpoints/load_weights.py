"""Fills a model with the weights of a checkpoint of any format, and reports on every variable.

A checkpoint may have fewer layers, other groups or more sharing than the model. Layer l of L layers
of the model then takes its parameters from layer l * n // L of the n distinct layers of the
checkpoint. A part that the checkpoint shares among all layers is used for all layers.
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
from albert_tf.modeling.parameter_sharing import block_runs, norm_name

# Group, inner group, part and number of a block variable.
_NUMBERED_PART = re.compile(r"/group_(\d+)/inner_group_(\d+)/(attention|ffn)_(\d+)/")
_PART_SCOPE = re.compile(r"group_\d+/inner_group_\d+/\w+/")

HUB_SCOPE = "module/"  # scope of the encoder if the original trains a TF-Hub module
Opened = tuple[WeightsReader, dict[str, list[int]]]  # reader, and shape of every variable


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

    Only equal names match, except for the scope of a TF-Hub module. If `warm_start`, the
    configuration of the model, is given, the checkpoint may have other layers and sharing.

    Differs: the original reports some unfilled variables as restored, and fills variables without
        an equal name from group 0 at any depth.
    """
    stored, matches = set(stored_names), {}
    parts = _parts_by_depth(stored, warm_start) if warm_start else {}
    for name in model_names:
        there = _PART_SCOPE.sub(lambda scope: parts.get(scope[0], scope[0]), name)
        match = next((full for full in (there, HUB_SCOPE + there) if full in stored), None)
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
    """Fills a model with the weights of a checkpoint; returns a report on every variable.

    Args:
        model: an `AlbertEncoder` or a model with an encoder and heads.
        path: a path or name, see `load`, or an open model.
        init_from_group0: whether the model may share less or be deeper than the checkpoint.
        allow_partial: whether encoder variables may be missing in the checkpoint, and blocks of the
            checkpoint may be missing in the model.
        skip: variables to leave unchanged, and the reason, as in
            `{"output_weights": "other labels"}`.

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
        unused=[] if model.uses_pooler else [n for n in missing if n.startswith("bert/pooler/")],
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
    """Opens a `StoredModel.checkpoint`. Raises `LoadError` if it cannot be read."""
    reader = format_module(format_of_weights(prefix)).open_weights(prefix)
    return reader, dict(sorted(reader.get_variable_to_shape_map().items()))


def read_global_step(prefix: str, opened: Opened | None = None) -> int:
    """Returns the training step of a checkpoint, or 0 if it is not stored."""
    reader, shapes = opened or open_checkpoint(prefix)
    if GLOBAL_STEP not in shapes:
        return 0
    return int(read_variables(reader, prefix, [GLOBAL_STEP])[GLOBAL_STEP])
