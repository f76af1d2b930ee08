"""Which parameters each run of a block uses: the sharing modes, as places in the stack.

A layer runs the blocks of its group, one for each inner group. A block is an attention part and a
feed-forward part, each with the layer norm after it, and each numbered as in the original's names:
`group_<g>/inner_group_<i>/attention_<k>` and `.../ffn_<k>`. Runs with the same numbers share
parameters. With `parameter_sharing`

- "all", every part has the number 1: a group is the same in all of its layers, as in the original;
- "attention", the feed-forward part of a group's k-th layer is number k, its attention 1;
- "ffn", the attention of a group's k-th layer is number k, its feed-forward part 1;
- "none", every layer is a group of its own.
"""

from __future__ import annotations

from typing import NamedTuple

from albert_tf.config import AlbertConfig


class BlockPlace(NamedTuple):
    """Where a block's parameters stand.

    Attributes:
        group: g in 0..G-1.
        inner: i in 0..inner_group_num-1.
        attention: number of the attention part within group and inner group, from 1.
        feed_forward: number of the feed-forward part, from 1.
    """

    group: int
    inner: int
    attention: int = 1
    feed_forward: int = 1

    @property
    def scope(self) -> str:
        """The group and inner group, as the original names them."""
        return f"group_{self.group}/inner_group_{self.inner}"

    @property
    def layer(self) -> tuple[int, int]:
        """The group, and which of its layers this is the first run of, from 1."""
        return self.group, max(self.attention, self.feed_forward)


def block_runs(config: AlbertConfig) -> list[BlockPlace]:
    """Returns the place of every block run, in order: L * inner_group_num of them.

    Equal places share all parameters; places with equal group, inner group and attention (or
    feed-forward) number share that part.
    """
    groups = [config.group_of_layer(layer) for layer in range(config.num_hidden_layers)]
    runs = []
    for layer, group in enumerate(groups):
        number = 1 + layer - groups.index(group)
        attention = number if config.parameter_sharing == "ffn" else 1
        feed_forward = number if config.parameter_sharing == "attention" else 1
        runs += [
            BlockPlace(group, inner, attention, feed_forward)
            for inner in range(config.inner_group_num)
        ]
    return runs


def block_places(config: AlbertConfig) -> list[BlockPlace]:
    """Returns the different places of a model's blocks, in the order they first run in."""
    return list(dict.fromkeys(block_runs(config)))


def attention_norm_name(number: int) -> str:
    """The name of the layer norm after `attention_<number>`, within its inner group.

    The original has one of each, "LayerNorm" and "LayerNorm_1". Further ones take the number of
    the part before them; as only one of the two parts is numbered further, no name is taken twice.
    """
    return "LayerNorm" if number == 1 else f"LayerNorm_{number}"


def feed_forward_norm_name(number: int) -> str:
    """The name of the layer norm after `ffn_<number>`; see `attention_norm_name`."""
    return f"LayerNorm_{number}"
