"""Starting a model from a checkpoint of fewer layers, of other groups, or of more sharing.

Both models are stacks. A layer of the model takes its parameters from the layer at the same height
of the checkpoint's stack: layer l of L from place l * n // L of its n distinct layers. Where the
checkpoint shares one part among all layers, that is the only place there is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from albert_tf.config import AlbertConfig
from albert_tf.parameter_sharing import attention_norm_name, block_runs, feed_forward_norm_name

# A variable of a block: group, inner group, part, its number, the rest.
_PART = re.compile(
    r"^(.*/)group_(\d+)/inner_group_(\d+)/(attention|ffn|LayerNorm)(?:_(\d+))?/(.+)$"
)


def names_by_place(
    names: Iterable[str], stored_names: Iterable[str], config: AlbertConfig
) -> Mapping[str, str]:
    """Says which variable of a checkpoint stands where a variable of the model stands.

    A part that several layers of the model share takes what the first of them would take. If the
    checkpoint's groups and sharing differ from the model's only in that layers of the model share
    less, the model computes what the checkpoint's model computes.

    Args:
        names: of the model's variables, in the original's names.
        stored_names: of the checkpoint's; the scope of a TF-Hub module before them is no matter.
        config: of the model.

    Returns:
        The place of each variable of a block that has one, as a name without a hub scope. The
        checkpoint may lack it.
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
