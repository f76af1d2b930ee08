"""Parameter sharing between layers, and the numbers of parameters.

A layer runs the blocks of its group, one per inner group. A block consists of an attention part and
a feed-forward part, each including the layer norm after it. Parts are named as in the original:
`group_<g>/inner_group_<i>/attention_<n>` and `.../ffn_<n>`. Parts with the same name share their
parameters. In the k-th layer of a group, `parameter_sharing` selects the number n of each part:

- "all": both parts have the number 1, as in the original.
- "attention": the attention has the number 1, the feed-forward part k.
- "ffn": the attention has the number k, the feed-forward part 1.
- "none": both have the number 1, and every layer is a separate group.
"""

import dataclasses
from typing import NamedTuple

from albert_tf.config import AlbertConfig

ENCODER_PREFIX = "bert/"
TRANSFORMER_SCOPE = "bert/encoder/transformer/"
POOLER = "bert/pooler/"


class BlockPlace(NamedTuple):
    """Numbers that identify the parameters of a block; parts are numbered from 1."""

    group: int
    inner: int
    attention: int = 1
    feed_forward: int = 1

    @property
    def scope(self) -> str:
        """The original's scope of group and inner group."""
        return f"group_{self.group}/inner_group_{self.inner}"

    @property
    def layer(self) -> tuple[int, int]:
        """The first layer that runs this block: its group, and its number in the group, from 1."""
        return self.group, max(self.attention, self.feed_forward)


def block_runs(config: AlbertConfig) -> list[BlockPlace]:
    """Returns the blocks that are run, in order: L * inner_group_num places."""
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
    """Returns the distinct blocks of a model, in the order of their first runs."""
    return list(dict.fromkeys(block_runs(config)))


def norm_name(part: str, number: int) -> str:
    """Returns the name of the layer norm after a part ("attention" or "ffn") with this number.

    Names are unique, because only one of the two parts has numbers above 1.
    """
    return "LayerNorm" if (part, number) == ("attention", 1) else f"LayerNorm_{number}"


@dataclasses.dataclass(frozen=True)
class ParameterCounts:
    """Numbers of trainable parameters of a pretraining model, including layer norms."""

    embeddings: int
    embedding_projection: int  # 0 if E = H
    attention: int
    feed_forward: int
    pooler: int
    masked_lm_head: int  # without the word embeddings
    sentence_head: int

    @property
    def encoder(self) -> int:
        """Parameters of `AlbertEncoder`, including the pooler."""
        return self.pretraining - self.masked_lm_head - self.sentence_head

    @property
    def pretraining(self) -> int:
        """Parameters of `AlbertForPretraining` with both heads."""
        return sum(dataclasses.astuple(self))


def parameter_counts(config: AlbertConfig) -> ParameterCounts:
    """Returns the numbers of parameters of a model, without creating it."""
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
