"""The layers of ALBERT: embedding, attention, feed-forward, block.

Axis letters: B batch, S sequence, R positions that are read, E embedding, H hidden, N heads, D head
size, F feed-forward, V vocabulary, P predictions.

Layers create their variables in the constructor, so weights can be loaded before the first call.
Each variable corresponds to one variable of the original release.

With a mixed-precision policy, matrix products are in half precision; softmax, layer normalization,
GELU and all sums over a batch are in float32. Variables that are only used in float32 (biases,
layer norms, small tables) have `autocast=False`, so they are not rounded.

Dropout is stateless: the mask depends only on `dropout_seed`, int32 [2]. `None` disables dropout.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, ClassVar, TypeAlias

import keras
import tensorflow as tf
from keras.initializers import TruncatedNormal

from albert_tf.config import EXACT_GELU, AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.modeling.layouts import PADDED, Padded, Read, factor_of, with_axes_of
from albert_tf.modeling.ops import (
    PLAIN,
    Ops,
    Parameter,
    add_bias,
    as_float32,
    dropout,
    embedding_lookup,
    exact_gelu,
    gelu,
    layer_norm,
)

ConfigLike: TypeAlias = AlbertConfig | dict[str, Any]  # a dictionary from a saved model
Inputs: TypeAlias = Mapping[str, tf.Tensor] | tf.Tensor  # by name, or only token ids
Seed: TypeAlias = tf.Tensor | None  # dropout seed, int32 [2]; `None` disables dropout
# If this is a list, new variables are 0 and are added to it with the initializers to use later.
PENDING: ContextVar[list[tuple[keras.Variable, TruncatedNormal]] | None]
PENDING = ContextVar("PENDING", default=None)

ACTIVATIONS = {
    "gelu": gelu,
    EXACT_GELU: exact_gelu,
    "relu": tf.nn.relu,
    "tanh": tf.tanh,
    "linear": tf.identity,
    "": tf.identity,
}


def register(kind: Any) -> Any:
    """Registers a class with Keras, so that saved models can contain it."""
    if kind.__name__.startswith("Albert"):
        # Keras's HDF5 files contain no package. Short names, such as LayerNorm, may not be unique.
        keras.saving.get_custom_objects()[kind.__name__] = kind
    return keras.saving.register_keras_serializable(package="albert_tf")(kind)


def as_config(config: ConfigLike) -> AlbertConfig:
    """Returns a configuration, which may be given as the dictionary of a saved model."""
    if isinstance(config, AlbertConfig):
        return config
    if isinstance(config, Mapping):
        return AlbertConfig.from_dict(config)
    raise TypeError(
        f"config must be an AlbertConfig. Received: {config!r}. To load a model by its path or "
        "name, use albert_tf.load or a class method, such as AlbertEncoder.load('base_v2'). To "
        "create a new model, pass a configuration, such as AlbertConfig.from_preset('base_v2')."
    )


def split_seed(seed: Seed, num: int) -> list[tf.Tensor | None]:
    """Returns `num` independent seeds, int32 [2] each; `None` for each if `seed` is `None`."""
    if seed is None:
        return [None] * num
    return tf.unstack(tf.random.experimental.stateless_split(seed, num), num=num)


class SavedSettings:
    """Base class of layers and models. `SETTINGS` lists the constructor's arguments to save."""

    SETTINGS: ClassVar[tuple[str, ...]] = ()

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments. `config` is a dictionary."""
        own = {name: getattr(self, name) for name in self.SETTINGS}
        if "config" in own:
            own["config"] = own["config"].to_dict()
        return {**super().get_config(), **own}  # type: ignore[misc]

    def _add_random_weight(
        self, name: str, shape: tuple[int, int], std: float, autocast: bool = True
    ) -> keras.Variable:
        initializer, pending = TruncatedNormal(stddev=std), PENDING.get()
        now = initializer if pending is None else "zeros"
        variable = self.add_weight(  # type: ignore[attr-defined]
            name=name, shape=shape, initializer=now, autocast=autocast
        )
        if pending is not None:
            pending.append((variable, initializer))
        return variable

    def quantize(self, *_args: Any, **_kwargs: Any) -> None:
        """Raises ValueError. `export_litert` quantizes models."""
        raise UserError(
            "The layers of albert_tf do not support quantize. Use albert_tf.export_litert with "
            "quantization='int8'."
        )


@register
class Projection(SavedSettings, keras.layers.Layer):
    """activation(x W + b) over the last axis.

    `initializer_range` is the standard deviation of the initial values of W.
    """

    SETTINGS = ("input_size", "output_size", "initializer_range", "activation")
    has_lora = False

    def __init__(
        self,
        input_size: int,
        output_size: int,
        initializer_range: float,
        activation: str = "linear",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.input_size = input_size
        self.output_size = output_size
        self.initializer_range = initializer_range
        self.activation = activation
        self._activate = ACTIVATIONS[activation.lower()]
        shape = (input_size, output_size)
        self.kernel = self._add_random_weight("kernel", shape, initializer_range)
        self.bias = self.add_weight(
            name="bias", shape=(output_size,), initializer="zeros", autocast=False
        )
        self.built = True

    def enable_lora(self, rank: int) -> None:
        """Adds the product of two trainable matrices of this rank to W."""
        if not self.has_lora:  # blocks may share projections
            self.lora_a = self.add_weight((self.input_size, rank), "he_uniform", name="lora_a")
            self.lora_b = self.add_weight((rank, self.output_size), "zeros", name="lora_b")
            self.has_lora = True

    @property
    def merged_kernel(self) -> keras.Variable | tf.Tensor:
        """W, including the product of the LoRA matrices."""
        return self.kernel + tf.matmul(self.lora_a, self.lora_b) if self.has_lora else self.kernel

    def save_own_variables(self, store: Any) -> None:
        """Stores W, including the product of the LoRA matrices, and the bias. Called by Keras."""
        store["0"], store["1"] = self.merged_kernel, self.bias

    def load_own_variables(self, store: Any) -> Any:
        """Reads W and the bias, and sets the product of the LoRA matrices to 0. Called by Keras."""
        if not self.has_lora:
            return super().load_own_variables(store)
        self.kernel.assign(store["0"])
        self.bias.assign(store["1"])
        return self.lora_b.assign(tf.zeros_like(self.lora_b))

    def call(self, x: tf.Tensor, ops: Ops = PLAIN) -> tf.Tensor:
        """Maps float [..., input_size] to float [..., output_size]."""
        # A reshape between product and activation would prevent TensorFlow from fusing them.
        return with_axes_of(x, self.activated(self.product(factor_of(x)), self.bias, ops))

    def activated(self, product: tf.Tensor, bias: Parameter, ops: Ops) -> tf.Tensor:
        """Returns activation(product + bias)."""
        if self._activate in (gelu, exact_gelu):
            return ops.biased_gelu(product, bias, self._activate is exact_gelu)
        # Not tf.nn.bias_add: on a CPU, its gradient sums the rows in bfloat16, which loses small
        # summands.
        return self._activate(ops.apply(add_bias, product, bias))

    def product(self, x: tf.Tensor, kernel: Parameter | None = None) -> tf.Tensor:
        """Returns x W without the bias, for an x of `factor_of`. W is `kernel` if it is passed.

        Maps [R, input_size] to [R, output_size], and [B, S, input_size], or [B, S, N, D] with
        input_size = N * D, to [B, S, output_size].
        """
        kernel = self.merged_kernel if kernel is None else kernel
        if x.shape.rank == 2:
            return tf.matmul(x, kernel)
        if x.shape.rank == 3:
            return tf.einsum("bsh,hk->bsk", x, kernel)
        return tf.einsum("bsnd,ndk->bsk", x, tf.reshape(kernel, [*x.shape[2:], -1]))


@register
class LayerNorm(SavedSettings, keras.layers.Layer):
    """Layer normalization over the last axis, which has `size` entries."""

    SETTINGS = ("size",)

    def __init__(self, size: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.size = size
        self.beta = self.add_weight(name="beta", shape=(size,), initializer="zeros", autocast=False)
        self.gamma = self.add_weight(
            name="gamma", shape=(size,), initializer="ones", autocast=False
        )
        self.built = True

    def call(self, x: tf.Tensor, ops: Ops = PLAIN) -> tf.Tensor:
        """Maps float [..., H] to float [..., H]."""
        gamma, beta = tf.convert_to_tensor(self.gamma), tf.convert_to_tensor(self.beta)
        return ops.apply(layer_norm, x, gamma, beta)

    def of_sum(self, x: tf.Tensor, rows: tf.Tensor, bias: keras.Variable, ops: Ops) -> tf.Tensor:
        """Normalizes x + rows + bias: x [B, S, H], rows [B * S, H] or [B, S, H], bias [H]."""
        return ops.residual_norm(x, rows, bias, self.gamma, self.beta)


class ConfiguredLayer(SavedSettings, keras.layers.Layer):
    """Base class of layers whose constructor takes an `AlbertConfig`."""

    SETTINGS: ClassVar[tuple[str, ...]] = ("config",)

    def __init__(self, config: ConfigLike, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config = as_config(config)

    def _projection(
        self, input_size: int, output_size: int, name: str, activation: str = "linear"
    ) -> Projection:
        std, dtype = self.config.initializer_range, self.dtype_policy
        with keras.name_scope(self.name):  # HDF5 files need unique paths of variables
            return Projection(input_size, output_size, std, activation, name=name, dtype=dtype)

    def _layer_norm(self, size: int, name: str) -> LayerNorm:
        with keras.name_scope(self.name):
            return LayerNorm(size, name=name, dtype=self.dtype_policy)


@register
class FactorizedEmbedding(ConfiguredLayer):
    """Sum of word, segment and position embeddings of width E, normalized; paper section 3.1.

    `use_one_hot_embeddings` replaces lookups with matrix products with the same result, which are
    faster on TPUs.
    """

    SETTINGS = ("config", "use_one_hot_embeddings")

    def __init__(
        self, config: ConfigLike, use_one_hot_embeddings: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(config, **kwargs)
        self.use_one_hot_embeddings = use_one_hot_embeddings
        self.word_embeddings = self._add_table("word_embeddings", self.config.vocab_size)
        self.token_type_embeddings = self._add_table(
            "token_type_embeddings", self.config.type_vocab_size, autocast=False
        )
        self.position_embeddings = self._add_table(
            "position_embeddings", self.config.max_position_embeddings, autocast=False
        )
        self.layer_norm = self._layer_norm(self.config.embedding_size, "LayerNorm")
        self.built = True

    def _add_table(self, name: str, rows: int, autocast: bool = True) -> keras.Variable:
        shape = rows, self.config.embedding_size
        return self._add_random_weight(name, shape, self.config.initializer_range, autocast)

    def _look_up(self, table: keras.Variable, ids: tf.Tensor) -> tf.Tensor:
        table = tf.convert_to_tensor(table)
        if self.use_one_hot_embeddings:
            return tf.matmul(tf.one_hot(ids, table.shape[0], dtype=table.dtype), table)
        return embedding_lookup(table, ids)

    def call(
        self,
        input_ids: tf.Tensor,
        segment_ids: tf.Tensor,
        dropout_seed: Seed = None,
        layout: Padded = PADDED,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the embedding output and the word embeddings of all tokens.

        They are float [B, S, E], or have another layout.

        Raises ValueError if S exceeds the position table. If S is unknown during tracing, running
        the graph raises `tf.errors.InvalidArgumentError` instead.
        """
        length = self._checked_length(input_ids)
        words = self._look_up(self.word_embeddings, layout.tokens(input_ids))
        segments = self._look_up(self.token_type_embeddings, layout.tokens(segment_ids))
        positions = as_float32(self.position_embeddings)[:length]
        embedded = layout.add_positions(as_float32(words) + as_float32(segments), positions)
        embedded = self.layer_norm(embedded)
        return dropout(embedded, self.config.hidden_dropout_prob, dropout_seed), words

    def _checked_length(self, input_ids: tf.Tensor) -> int | tf.Tensor:
        if input_ids.shape[1] is not None:
            self.config.check_sequence_length(input_ids.shape[1], "`input_ids.shape[1]`")
            return input_ids.shape[1]
        length = tf.shape(input_ids)[1]
        positions = self.config.max_position_embeddings
        check = tf.debugging.assert_less_equal(
            length,
            positions,
            f"A sequence has more tokens than the model has positions: {positions} "
            "(max_position_embeddings).",
        )
        # Otherwise, another operation would fail first, with an unclear message.
        with tf.control_dependencies([check]):
            return tf.identity(length)


@register
class SelfAttention(ConfiguredLayer):
    """Multi-head self-attention with its output projection.

    Source: modeling.py of the original release, attention_layer and attention_ffn_block.
    """

    def __init__(self, config: ConfigLike, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        H = self.config.hidden_size
        self.query = self._projection(H, H, "query")
        self.key = self._projection(H, H, "key")
        self.value = self._projection(H, H, "value")
        self.output_projection = self._projection(H, H, "dense")
        self.built = True

    def context(
        self,
        x: tf.Tensor,
        attention_mask: tf.Tensor,
        dropout_seed: Seed,
        ops: Ops,
        read: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Attends from the vectors `read` to the real tokens of x in the sequence.

        x is float [B, S, H], or has another layout. `read` is x or [B, R, H]. `attention_mask` is
        [B, S] of any number type; 1 = real token, 0 = padding. As in the original, a row of zeros
        has the same effect as a row of ones. Returns the context before the projection, in the
        shape of `read` or [B, R, N, D], and the attention probabilities before dropout, float
        [B, N, R, S]. If `ops` has fused attention, the probabilities are `None`.
        """
        projections, scale = (self.query, self.key, self.value), self.config.head_size**-0.5
        heads = self.config.num_attention_heads
        query, key, value = ops.project_heads(x, read, projections, scale, heads)
        rate = self.config.attention_probs_dropout_prob
        context, probabilities = ops.attend(query, key, value, attention_mask, rate, dropout_seed)
        return ops.layout.merge_heads(context, read), probabilities


@register
class FeedForward(ConfiguredLayer):
    """Two projections, H to F and back, with the activation between them."""

    def __init__(self, config: ConfigLike, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        H, F = self.config.hidden_size, self.config.intermediate_size
        self.intermediate = self._projection(H, F, "intermediate", self.config.hidden_act)
        self.output_projection = self._projection(F, H, "output")
        self.built = True

    def product(self, x: tf.Tensor, ops: Ops) -> tf.Tensor:
        """Maps x to the product of `Projection.product`, without the bias of the second one."""
        first, second = self.intermediate, self.output_projection

        def project(inner: tf.Tensor, bias: Parameter, kernel: Parameter) -> tf.Tensor:
            return second.product(first.activated(inner, bias, ops), kernel)

        inner = first.product(factor_of(x))
        return ops.recomputed(project, inner, first.bias, second.merged_kernel)


@register
class TransformerBlock(ConfiguredLayer):
    """Self-attention and feed-forward, each followed by dropout, residual sum and layer norm."""

    def __init__(
        self,
        config: ConfigLike,
        attention_of: TransformerBlock | None = None,
        feed_forward_of: TransformerBlock | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, **kwargs)
        H, dtype = self.config.hidden_size, self.dtype_policy
        if attention_of is None:
            with keras.name_scope(self.name):
                self.attention = SelfAttention(self.config, name="attention", dtype=dtype)
            self.attention_norm = self._layer_norm(H, "LayerNorm")
        else:
            self.attention = attention_of.attention
            self.attention_norm = attention_of.attention_norm
        if feed_forward_of is None:
            with keras.name_scope(self.name):
                self.feed_forward = FeedForward(self.config, name="ffn", dtype=dtype)
            self.feed_forward_norm = self._layer_norm(H, "LayerNorm_1")
        else:
            self.feed_forward = feed_forward_of.feed_forward
            self.feed_forward_norm = feed_forward_of.feed_forward_norm
        self.built = True

    def call(
        self,
        x: tf.Tensor,
        attention_mask: tf.Tensor,
        dropout_seed: Seed = None,
        ops: Ops = PLAIN,
        read: Read | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Maps float [B, S, H] to [B, S, H] and probabilities; see `SelfAttention.context`.

        With `read`, only the vectors [B, R, H] of these positions are computed.
        """
        seeds = split_seed(dropout_seed, 3)
        attention, feed_forward = self.attention, self.feed_forward
        rows = x if read is None else ops.layout.read(x, read)
        context, probabilities = attention.context(x, attention_mask, seeds[0], ops, rows)
        projection = attention.output_projection
        product = projection.product(factor_of(context))
        x = self._add(rows, product, projection.bias, self.attention_norm, seeds[1], ops)
        product, bias = feed_forward.product(x, ops), feed_forward.output_projection.bias
        return self._add(x, product, bias, self.feed_forward_norm, seeds[2], ops), probabilities

    def _add(
        self,
        x: tf.Tensor,
        product: tf.Tensor,
        bias: keras.Variable,
        norm: LayerNorm,
        seed: Seed,
        ops: Ops,
    ) -> tf.Tensor:
        """Returns norm(x + dropout(product + bias)) in the shape of x."""
        rate = self.config.hidden_dropout_prob
        if seed is None or rate == 0.0:
            return norm.of_sum(x, product, bias, ops)
        projected = with_axes_of(x, ops.apply(add_bias, product, bias))
        return norm(x + dropout(projected, rate, seed))
