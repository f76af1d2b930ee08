"""The parameters of each run of a block, by sharing mode.

A layer runs the blocks of its group, one per inner group. A block consists of an attention part and
a feed-forward part, each with the following layer norm, and each numbered as in the original's
names: `group_<g>/inner_group_<i>/attention_<k>` and `.../ffn_<k>`. Runs with the same numbers share
parameters. The values of `parameter_sharing`:

- "all": every part has the number 1, so all layers of a group are the same, as in the original.
- "attention": in the k-th layer of a group, the feed-forward part has number k, the attention 1.
- "ffn": in the k-th layer of a group, the attention has number k, the feed-forward part 1.
- "none": every layer is a separate group.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from albert_tf.config import AlbertConfig

ENCODER_PREFIX = "bert/"
TRANSFORMER_SCOPE = "bert/encoder/transformer/"


class BlockPlace(NamedTuple):
    """The place of a block's parameters. Parts are numbered within an inner group, from 1."""

    group: int
    inner: int
    attention: int = 1
    feed_forward: int = 1

    @property
    def scope(self) -> str:
        """Group and inner group, as named in the original."""
        return f"group_{self.group}/inner_group_{self.inner}"

    @property
    def layer(self) -> tuple[int, int]:
        """The group, and the number within it, from 1, of the layer that runs this block first."""
        return self.group, max(self.attention, self.feed_forward)


def block_runs(config: AlbertConfig) -> list[BlockPlace]:
    """Returns the place of every block run in order, L * inner_group_num of them."""
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
    """Returns the distinct places of a model's blocks, in the order of their first runs."""
    return list(dict.fromkeys(block_runs(config)))


def attention_norm_name(number: int) -> str:
    """Returns the name of the layer norm after `attention_<number>`, within its inner group.

    Only one of the two parts has numbers above 1, so names are unique.
    """
    return "LayerNorm" if number == 1 else f"LayerNorm_{number}"


def feed_forward_norm_name(number: int) -> str:
    """Returns the name of the layer norm after `ffn_<number>`; see `attention_norm_name`."""
    return f"LayerNorm_{number}"


@dataclasses.dataclass(frozen=True)
class ParameterCounts:
    """Numbers of trainable parameters of a pretraining model, including layer norms."""

    embeddings: int  # the three tables
    embedding_projection: int  # E to H; 0 if E = H
    attention: int  # of all parts
    feed_forward: int
    pooler: int
    masked_lm_head: int  # transform and output bias; the output matrix is the word table
    sentence_head: int

    @property
    def encoder(self) -> int:
        """Parameters of `AlbertEncoder`, including the pooler."""
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
