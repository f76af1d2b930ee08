"""From documents to pretraining instances: what a record holds and how it comes about."""

from albert_tf.data.examples import FeatureSpec


def pretraining_feature_specs(
    max_seq_length: int, max_predictions_per_seq: int, vocab_size: int | None = None
) -> tuple[FeatureSpec, ...]:
    """The features of a pretraining record, as the original release names them.

    Args:
      max_seq_length: S, positions of a sequence.
      max_predictions_per_seq: P, prediction slots; twice the flag if the records were made with
        --do_permutation.
      vocab_size: V; when given, a reader refuses ids beyond it.
    """
    S, P, V = max_seq_length, max_predictions_per_seq, vocab_size
    length_flag, vocabulary = "--max_seq_length", "vocab_size of the model's configuration"

    def per_token(name: str, limit: int | None, limit_source: str | None = None) -> FeatureSpec:
        return FeatureSpec(name, "int64", S, limit, length_flag, limit_source)

    def per_slot(
        name: str, dtype: str, limit: int | None = None, limit_source: str | None = None
    ) -> FeatureSpec:
        return FeatureSpec(name, dtype, P, limit, "--max_predictions_per_seq", limit_source)

    return (
        per_token("input_ids", V, vocabulary),
        per_token("input_mask", 2),
        per_token("segment_ids", 2),
        per_token("token_boundary", 2),
        per_slot("masked_lm_positions", "int64", S, length_flag),
        per_slot("masked_lm_ids", "int64", V, vocabulary),
        per_slot("masked_lm_weights", "float32"),
        FeatureSpec("next_sentence_labels", "int64", 1, 2),
    )
