"""How many parameters a model has, part by part, from its configuration alone."""

from __future__ import annotations

import dataclasses

from albert_tf.config import AlbertConfig
from albert_tf.parameter_sharing import block_places


@dataclasses.dataclass(frozen=True)
class ParameterCounts:
    """Exact numbers of trainable parameters of a model for pretraining.

    Attributes:
        embeddings: the three tables and their layer norm.
        embedding_projection: E to H; 0 where E = H.
        attention: all attention parts, with the layer norm after each.
        feed_forward: all feed-forward parts, with the layer norm after each.
        pooler: the dense layer on the first token.
        masked_lm_head: transform, its layer norm and the output bias; the output matrix is the
            word table.
        sentence_head: two classes on the pooled output.
    """

    embeddings: int
    embedding_projection: int
    attention: int
    feed_forward: int
    pooler: int
    masked_lm_head: int
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
