"""The ALBERT encoder: embeddings, projection from E to H, shared blocks, pooler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import keras
import tensorflow as tf

from albert_tf.modeling.base import ConfiguredModel
from albert_tf.modeling.layers import (
    ConfigLike,
    FactorizedEmbedding,
    Inputs,
    Projection,
    Seed,
    TransformerBlock,
    register,
    split_seed,
)
from albert_tf.modeling.layouts import Read, is_selective
from albert_tf.modeling.ops import PLAIN, Ops
from albert_tf.modeling.parameter_sharing import BlockPlace, block_places, block_runs
from albert_tf.modeling.rematerialization import Run, run_rematerialized

# If this is a dictionary, each block is traced once for all layers that share it. Only for graphs
# that are not exported and compute no gradients.
BLOCK_TRACES: ContextVar[dict[TransformerBlock, Any] | None]
BLOCK_TRACES = ContextVar("BLOCK_TRACES", default=None)


@register
class AlbertEncoder(ConfiguredModel):
    """Maps token ids to contextual vectors. Also usable in functional Keras models.

    Args:
        config: the model's configuration.
        use_one_hot_embeddings: see `FactorizedEmbedding`.

    Attributes:
        remat: whether training calls save memory by recomputing the inner tensors of blocks in the
            backward pass. Default: False. Not saved, and ignored with `output_attentions`.

    Source: modeling.py of the original release, class AlbertModel; paper section 3.1.
    """

    def __init__(
        self, config: ConfigLike, use_one_hot_embeddings: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(config, use_one_hot_embeddings, **kwargs)
        config, dtype = self.config, self.dtype_policy
        self.remat = False
        self.embeddings = FactorizedEmbedding(
            config, use_one_hot_embeddings, name="embeddings", dtype=dtype
        )
        E, H, std = config.embedding_size, config.hidden_size, config.initializer_range
        self.embedding_projection = (
            Projection(E, H, std, name="embedding_hidden_mapping_in", dtype=dtype)
            if config.projects_embeddings
            else None
        )
        self.blocks = self._create_blocks()  # in the order of `block_places`
        for block in self.blocks:
            setattr(self, block.name, block)  # tf.train.Checkpoint ignores Keras's lists
        self.pooler = Projection(H, H, std, name="pooler", dtype=dtype)
        self.dropout_seeds = keras.random.SeedGenerator()
        # A `tf.function` with dropout can only be exported if its seed variable is an attribute.
        self._dropout_state = self.dropout_seeds.state.value
        self.built = True

    def call(
        self,
        inputs: Inputs,
        training: bool | None = None,
        dropout_seed: Seed = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
        ops: Ops = PLAIN,
        keras_mask: bool = True,
        read: Read = "all",
    ) -> dict[str, Any]:
        """Encodes a batch of token sequences.

        Args:
            inputs: `input_ids`, int32 [B, S], or a dictionary with `input_ids` and optionally
                `input_mask` (int32 [B, S]; 1 = real token, 0 = padding; default: 0 for the id of
                the padding token, which is 0 without a tokenizer) and `segment_ids` (int32 [B, S];
                default: zeros). Hugging Face's names, `attention_mask` and `token_type_ids`, are
                accepted. Names of other libraries, such as `padding_mask`, are rejected. Other keys
                are ignored.
            training: whether to apply dropout.
            dropout_seed: int32 [2]; determines every dropout mask of this call. If `None`, a
                training call takes the next seed of the encoder's generator.
            output_hidden_states: whether to return the outputs of all layers.
            output_attentions: whether to return the attention probabilities.
            ops: the operations between matrix products, which a training step selects.
            keras_mask: whether `sequence_output` has a Keras mask, which layers such as
                `GlobalAveragePooling1D` use. In a row that contains only padding, nothing is
                masked.
            read: the positions whose `sequence_output` is needed: "all"; a bool [B, S], all others
                are then arbitrary; "first", which returns [B, 1, H]; or the first and others,
                int32 [B, P], which returns [B, 1 + P, H]. Ignored if hidden states or attention
                probabilities are returned.

        Returns:
            A dictionary of float tensors: `pooled_output` [B, H] and `sequence_output` [B, S, H].
            With `output_hidden_states` also `encoder_outputs`, a list with the output [B, S, H] of
            each of the L * inner_group_num applications of blocks, and `embedding_output` and
            `word_embedding_output` [B, S, E]. With `output_attentions` also `attention_probs`, a
            list with the probabilities [B, N, S, S] of each application.

        Raises:
            ValueError: `input_ids` are missing, not integers, or longer than the position table;
                or an input is passed twice, or under the name of another library.
        """
        inputs = self.complete_inputs(inputs)
        input_ids, attention_mask = tf.cast(inputs["input_ids"], tf.int32), inputs["input_mask"]
        segment_ids = inputs.get("segment_ids")
        if segment_ids is None:
            segment_ids = tf.zeros_like(input_ids)

        embedding_seed, *block_seeds = split_seed(
            self._dropout_seed(training, dropout_seed), 1 + len(block_runs(self.config))
        )
        if output_hidden_states or output_attentions:
            read = "all"
        selects = is_selective(read)
        reads = [*[None] * (len(block_seeds) - 1), read if selects else None]
        ops = ops.for_batch(attention_mask, read, self.config.num_attention_heads)
        embedded, words = self.embeddings(
            input_ids, tf.cast(segment_ids, tf.int32), embedding_seed, layout=ops.layout
        )
        projection = self.embedding_projection
        x = embedded if projection is None else projection(embedded, ops=ops)

        if self.remat and training and not output_attentions:
            runs = self._runs(attention_mask, block_seeds, reads, ops)
            encoder_outputs = run_rematerialized(x, runs)
        else:
            if output_attentions:
                ops = ops.with_plain_attention()
            encoder_outputs, attention_probs = [], []
            traces = BLOCK_TRACES.get()
            for block, seed, rows in zip(self._blocks_in_order(), block_seeds, reads, strict=True):
                if traces is not None:
                    block = traces.setdefault(block, tf.function(block, autograph=False))
                x, probabilities = block(x, attention_mask, seed, ops=ops, read=rows)
                encoder_outputs.append(x)
                attention_probs.append(probabilities)
        x = encoder_outputs[-1] if selects else ops.layout.read(encoder_outputs[-1], read)
        outputs = {"pooled_output": tf.tanh(self.pooler(x[:, 0], ops=ops)), "sequence_output": x}
        if output_hidden_states:
            outputs["encoder_outputs"] = encoder_outputs
            outputs["embedding_output"] = embedded
            outputs["word_embedding_output"] = words
        if output_attentions:
            outputs["attention_probs"] = attention_probs
        if keras_mask and not selects:
            attach_keras_mask(x, attention_mask)
        return outputs

    def _create_blocks(self) -> list[TransformerBlock]:
        """Creates the blocks. Some share their attention or feed-forward part."""
        blocks: dict[BlockPlace, TransformerBlock] = {}
        for place in block_places(self.config):
            first = blocks.get(place._replace(attention=1, feed_forward=1))
            group, number = place.layer
            suffix = f"_layer_{number}" if number > 1 else ""
            blocks[place] = TransformerBlock(
                self.config,
                attention_of=first if place.attention == 1 else None,
                feed_forward_of=first if place.feed_forward == 1 else None,
                name=f"group_{group}_inner_group_{place.inner}{suffix}",
                dtype=self.dtype_policy,
            )
        return list(blocks.values())

    def _runs(
        self,
        attention_mask: tf.Tensor,
        seeds: Sequence[tf.Tensor | None],
        reads: Sequence[Read | None],
        ops: Ops,
    ) -> list[Run]:
        def function_of(block: TransformerBlock, read: Read | None) -> Callable[..., tf.Tensor]:
            return lambda *inputs: block(*inputs, ops=ops, read=read)[0]

        of_block = {block: function_of(block, None) for block in self.blocks}
        runs = []
        for block, seed, read in zip(self._blocks_in_order(), seeds, reads, strict=True):
            inputs = (attention_mask,) if seed is None else (attention_mask, seed)
            function = of_block[block] if read is None else function_of(block, read)
            runs.append(Run(function, inputs, block.weights))
        return runs

    def _blocks_in_order(self) -> list[TransformerBlock]:
        blocks = dict(zip(block_places(self.config), self.blocks, strict=True))
        return [blocks[place] for place in block_runs(self.config)]

    def _dropout_seed(self, training: bool | None, dropout_seed: Seed) -> tf.Tensor | None:
        """Returns the seed of this call's dropout; `None` without dropout."""
        drops = self.config.hidden_dropout_prob or self.config.attention_probs_dropout_prob
        if not training or not drops:
            return None
        if dropout_seed is None:
            dropout_seed = tf.cast(self.dropout_seeds.next(), tf.int32)
        return dropout_seed


def attach_keras_mask(states: tf.Tensor, input_mask: tf.Tensor) -> None:
    """Attaches the Keras mask of padding to states, float [B, S, ...]."""
    is_real = tf.cast(input_mask, tf.bool)
    mask = is_real | ~tf.reduce_any(is_real, axis=-1, keepdims=True)
    keras.layers.Lambda(lambda x: x, mask=mask, autocast=False, name="mask")(states)
