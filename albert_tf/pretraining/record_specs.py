"""The features of pretraining records, as they are written and read."""

from collections.abc import Sequence

from albert_tf.data.tfrecord import FeatureSpec
from albert_tf.pretraining.masking import TOKEN_BOUNDARY

# Features of masked records only. The last feature is 0 in unused slots.
PREDICTION_FEATURES = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")


def pretraining_feature_specs(
    max_seq_length: int,
    max_predictions_per_seq: int,
    vocab_size: int | None = None,
    type_vocab_size: int = 2,
) -> tuple[FeatureSpec, ...]:
    """Returns the features of a masked record, named as in the original release.

    A reader rejects token ids of at least `vocab_size`, and segment ids of at least
    `type_vocab_size`. If `vocab_size` is `None`, token ids are not limited.
    """
    S, P, V = max_seq_length, max_predictions_per_seq, vocab_size
    length, slots = "max_seq_length", "max_predictions_per_seq"
    vocabulary = "vocab_size of the model's configuration"
    types = f"type_{vocabulary}"
    return (
        FeatureSpec("input_ids", "int64", S, V, length, vocabulary),
        FeatureSpec("input_mask", "int64", S, 2, length),
        FeatureSpec("segment_ids", "int64", S, type_vocab_size, length, types),
        FeatureSpec(TOKEN_BOUNDARY, "int64", S, 2, length),
        FeatureSpec("masked_lm_positions", "int64", P, S, slots, length),
        FeatureSpec("masked_lm_ids", "int64", P, V, slots, vocabulary),
        FeatureSpec("masked_lm_weights", "float32", P, None, slots),
        FeatureSpec("next_sentence_labels", "int64", 1, 2),
    )


def plain_feature_specs(specs: Sequence[FeatureSpec]) -> tuple[FeatureSpec, ...]:
    """Returns the features of a record that is not masked."""
    return tuple(spec for spec in specs if spec.name not in PREDICTION_FEATURES)
