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

import dataclasses
from typing import NamedTuple

from albert_tf.config import AlbertConfig

ENCODER_PREFIX = "bert/"
TRANSFORMER_SCOPE = "bert/encoder/transformer/"


class BlockPlace(NamedTuple):
    """Where a block's parameters stand; parts are numbered within group and inner group, from 1."""

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


@dataclasses.dataclass(frozen=True)
class ParameterCounts:
    """Exact numbers of trainable parameters of a model for pretraining, layer norms included."""

    embeddings: int  # the three tables
    embedding_projection: int  # E to H; 0 where E = H
    attention: int  # of all parts
    feed_forward: int
    pooler: int
    masked_lm_head: int  # transform and output bias; the output matrix is the word table
    sentence_head: int

    @property
    def encoder(self) -> int:
        """Parameters of `AlbertEncoder`, pooler included."""
        heads = self.masked_lm_head + self.sentence_head
        return self.pretraining - heads

    @property
    def pretraining(self) -> int:
        """Parameters of `AlbertForPretraining` with both heads."""
        return sum(dataclasses.astuple(self))


def parameter_counts(config: AlbertConfig) -> ParameterCounts:
    """Counts the parameters of a model without building it."""
    V, E = config.vocab_size, config.embedding_size
    H, F = config.hidden_size, config.intermediate_size
    tables = V + config.type_vocab_size + config.max_position_embeddings
    places = block_places(config)
    attentions = {(place.scope, place.attention) for place in places}
    feed_forwards = {(place.scope, place.feed_forward) for place in places}
    return ParameterCounts(
        embeddings=tables * E + _layer_norm(E),
        embedding_projection=_projection(E, H) if config.projects_embeddings else 0,
        attention=len(attentions) * (4 * _projection(H, H) + _layer_norm(H)),
        feed_forward=len(feed_forwards) * (_projection(H, F) + _projection(F, H) + _layer_norm(H)),
        pooler=_projection(H, H),
        masked_lm_head=_projection(H, E) + _layer_norm(E) + V,
        sentence_head=_projection(H, 2),
    )


def _projection(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def _layer_norm(size: int) -> int:
    return 2 * size
