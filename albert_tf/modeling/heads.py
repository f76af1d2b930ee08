"""The heads of the models. Scores are float32 in every precision."""

from typing import Any, ClassVar

import tensorflow as tf

from albert_tf.data.errors import UserError
from albert_tf.modeling.layers import ConfigLike, ConfiguredLayer, Seed, register
from albert_tf.modeling.layouts import rows_of
from albert_tf.modeling.ops import PLAIN, Ops, add_bias, as_float32, dropout

MASKED_LOGIT = -1e30  # score of masked positions; float16 cannot represent it


@register
class MaskedLmHead(ConfiguredLayer):
    """Scores the vocabulary at masked positions. The output weights are the word embeddings.

    Source: run_pretraining.py of the original release, get_masked_lm_output.
    """

    def __init__(self, config: ConfigLike, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        H, E = self.config.hidden_size, self.config.embedding_size
        self.transform = self._projection(H, E, "transform", self.config.hidden_act)
        self.layer_norm = self._layer_norm(E, "LayerNorm")
        self.output_bias = self.add_weight(
            name="output_bias", shape=(self.config.vocab_size,), initializer="zeros", autocast=False
        )
        self.built = True

    def call(
        self,
        sequence_output: tf.Tensor,
        masked_lm_positions: tf.Tensor | None,
        word_embeddings: tf.Tensor,
        ops: Ops = PLAIN,
    ) -> tf.Tensor:
        """Returns logits, float32 [B, P, V], for positions, int32 [B, P]. Unused slots contain 0.

        If `masked_lm_positions` is `None`, all positions are scored: [B, S, V]. `sequence_output`
        is float [B, S, H], `word_embeddings` float [V, E].
        """
        gathered, shape = sequence_output, tf.shape(sequence_output)[:2]
        if masked_lm_positions is not None:
            gathered = tf.gather(sequence_output, masked_lm_positions, batch_dims=1)
            shape = tf.shape(masked_lm_positions)
        rows = tf.reshape(gathered, [-1, self.config.hidden_size])
        transformed = self.layer_norm(self.transform(rows, ops=ops), ops=ops)
        logits = tf.matmul(transformed, tf.convert_to_tensor(word_embeddings), transpose_b=True)
        logits = as_float32(logits) + as_float32(self.output_bias)
        return tf.reshape(logits, tf.concat([shape, [self.config.vocab_size]], axis=0))


@register
class ClassificationHead(ConfiguredLayer):
    """Maps a vector of a text or token to K scores; K is 1 for regression and multiple choice.

    `initializer_range` is the standard deviation of the initial weights, 0.02 in the original.

    Source: classifier_utils.py of the original release, create_model; run_pretraining.py,
        get_sentence_order_output.
    """

    SETTINGS: ClassVar[tuple[str, ...]] = (
        "config",
        "num_labels",
        "dropout_prob",
        "initializer_range",
    )

    def __init__(
        self,
        config: ConfigLike,
        num_labels: int,
        dropout_prob: float = 0.0,
        initializer_range: float = 0.02,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, **kwargs)
        _check_rate(dropout_prob)
        self.num_labels = num_labels
        self.dropout_prob = dropout_prob
        self.initializer_range = initializer_range
        # Transposed, as in the checkpoints of the original.
        shape = num_labels, self.config.hidden_size
        self.output_weights = self._add_random_weight("output_weights", shape, initializer_range)
        self.output_bias = self.add_weight(
            name="output_bias", shape=(num_labels,), initializer="zeros", autocast=False
        )
        self.built = True

    def call(self, vectors: tf.Tensor, dropout_seed: Seed = None) -> tf.Tensor:
        """Maps float [..., H] to logits, float32 [..., K]; without a seed, there is no dropout."""
        kept = dropout(vectors, self.dropout_prob, dropout_seed)
        logits = tf.matmul(rows_of(kept), self.output_weights, transpose_b=True)
        logits = as_float32(logits) + as_float32(self.output_bias)
        if vectors.shape.rank == 2:
            return logits
        return tf.reshape(logits, tf.concat([tf.shape(vectors)[:-1], [self.num_labels]], axis=0))


@register
class SpanHead(ClassificationHead):
    """Scores every token as the start and as the end of an answer.

    Do not rename this class: `.keras` files contain its name.

    Source: squad_utils.py of the original release, create_v1_model.
    """

    SETTINGS = ("config",)

    def __init__(self, config: ConfigLike, **kwargs: Any) -> None:
        super().__init__(config, num_labels=2, **kwargs)


@register
class SpanBeamHead(ConfiguredLayer):
    """Scores starts, ends given a start, and the absence of an answer.

    A search returns the `end_n_top` (M) best ends of each of the `start_n_top` (K) best starts.
    `dropout_prob` is the dropout rate of the hidden layer of the no-answer score.

    Source: squad_utils.py of the original release, create_v2_model.
    """

    SETTINGS = ("config", "start_n_top", "end_n_top", "dropout_prob")

    def __init__(
        self,
        config: ConfigLike,
        start_n_top: int = 5,
        end_n_top: int = 5,
        dropout_prob: float = 0.1,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, **kwargs)
        if start_n_top < 1 or end_n_top < 1:
            raise UserError(
                "start_n_top and end_n_top must be at least 1. Received: "
                f"start_n_top={start_n_top}, end_n_top={end_n_top}"
            )
        _check_rate(dropout_prob)
        self.start_n_top = start_n_top
        self.end_n_top = end_n_top
        self.dropout_prob = dropout_prob
        H = self.config.hidden_size
        self.start_dense = self._projection(H, 1, "start_dense")
        self.end_dense_0 = self._projection(2 * H, H, "end_dense_0")
        self.end_layer_norm = self._layer_norm(H, "end_layer_norm")
        self.end_dense_1 = self._projection(H, 1, "end_dense_1")
        self.answer_dense_0 = self._projection(2 * H, H, "answer_dense_0")
        std = self.config.initializer_range
        self.answer_weights = self._add_random_weight("answer_weights", (H, 1), std)
        self.built = True

    def call(
        self,
        sequence_output: tf.Tensor,
        p_mask: tf.Tensor,
        start_positions: tf.Tensor | None = None,
        dropout_seed: Seed = None,
        ops: Ops = PLAIN,
    ) -> dict[str, tf.Tensor]:
        """Scores ends for given starts, int32 [B], or searches for the best spans.

        `sequence_output` is float [B, S, H]; for a search, S is at least K and M. `p_mask` [B, S]
        is 1 where an answer must not start or end.

        Returns:
            Indices in int32, all else in float32. `cls_logits` [B], higher if there is no answer.
            With `start_positions` also `start_log_probs` and `end_log_probs` [B, S]. Otherwise also
            `start_top_log_probs` and `start_top_index` [B, K], best first, and `end_top_log_probs`
            and `end_top_index` [B, K * M]: M per start, best first.
        """
        p_mask = tf.cast(p_mask, tf.float32)
        start_logits = tf.squeeze(self.start_dense(sequence_output, ops=ops), -1)
        start_log_probs = ops.apply(_masked_log_softmax, start_logits, p_mask)
        answer_class = {
            "cls_logits": self._cls_logits(sequence_output, start_log_probs, dropout_seed, ops)
        }
        if start_positions is not None:
            starts = tf.cast(start_positions, tf.int32)[:, None]
            end_log_probs = self._end_log_probs(sequence_output, starts, p_mask, ops)
            return {
                "start_log_probs": start_log_probs,
                "end_log_probs": tf.squeeze(end_log_probs, 1),
                **answer_class,
            }
        top_starts, starts = tf.math.top_k(start_log_probs, self.start_n_top)
        end_log_probs = self._end_log_probs(sequence_output, starts, p_mask, ops)
        top_ends, ends = tf.math.top_k(end_log_probs, self.end_n_top)
        num_spans = self.start_n_top * self.end_n_top
        return {
            "start_top_log_probs": top_starts,
            "start_top_index": starts,
            "end_top_log_probs": tf.reshape(top_ends, [-1, num_spans]),
            "end_top_index": tf.reshape(ends, [-1, num_spans]),
            **answer_class,
        }

    def _end_log_probs(
        self, sequence_output: tf.Tensor, starts: tf.Tensor, p_mask: tf.Tensor, ops: Ops
    ) -> tf.Tensor:
        """Returns log-probabilities of ends, float32 [B, K, S], for starts, int32 [B, K]."""
        # The kernel is split so that each token is multiplied once, not once per start.
        end_kernel, start_kernel = tf.split(tf.convert_to_tensor(self.end_dense_0.kernel), 2)
        start_features = tf.gather(sequence_output, starts, batch_dims=1)
        by_start = tf.einsum("bkh,hi->bki", start_features, start_kernel)
        by_end = tf.einsum("bsh,hi->bsi", sequence_output, end_kernel)
        by_end = ops.apply(add_bias, by_end, self.end_dense_0.bias)
        hidden = tf.tanh(by_end[:, None] + by_start[:, :, None])
        logits = self.end_dense_1(self.end_layer_norm(hidden, ops=ops), ops=ops)
        return ops.apply(_masked_log_softmax, tf.squeeze(logits, -1), p_mask[:, None])

    def _cls_logits(
        self, sequence_output: tf.Tensor, start_log_probs: tf.Tensor, seed: Seed, ops: Ops
    ) -> tf.Tensor:
        probabilities = ops.apply(tf.cast, tf.exp(start_log_probs), sequence_output.dtype)
        start_feature = tf.einsum("bs,bsh->bh", probabilities, sequence_output)
        features = tf.concat([start_feature, sequence_output[:, 0]], axis=-1)
        hidden = dropout(tf.tanh(self.answer_dense_0(features, ops=ops)), self.dropout_prob, seed)
        return tf.cast(tf.squeeze(tf.matmul(hidden, self.answer_weights), -1), tf.float32)


def _check_rate(dropout_prob: float) -> None:
    if not 0 <= dropout_prob < 1:
        raise UserError(f"dropout_prob must be in [0, 1). Received: {dropout_prob!r}")


def _masked_log_softmax(logits: tf.Tensor, p_mask: tf.Tensor) -> tf.Tensor:
    """Returns log-probabilities over the last axis, float32; about -1e30 where `p_mask` is 1."""
    logits = tf.cast(logits, tf.float32)
    return tf.nn.log_softmax(logits * (1.0 - p_mask) + MASKED_LOGIT * p_mask)


def class_outputs(logits: tf.Tensor, threshold: float | None = None) -> dict[str, tf.Tensor]:
    """Returns `probabilities` [..., K] and `predictions` [...], the most likely class.

    For a regression, logits [B, 1], both contain the number. With a `threshold`, for multi-label
    classification, predictions [B, K] are 1 if a probability is at least the threshold.
    """
    if threshold is not None:
        probabilities = tf.sigmoid(logits)
        predictions = tf.cast(probabilities >= threshold, tf.int32)
        return {"probabilities": probabilities, "predictions": predictions}
    if logits.shape[-1] == 1:
        return {"probabilities": logits, "predictions": logits[:, 0]}
    return {
        "probabilities": tf.nn.softmax(logits),
        "predictions": tf.argmax(logits, axis=-1, output_type=tf.int32),
    }
