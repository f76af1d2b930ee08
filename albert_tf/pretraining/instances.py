"""From documents to pretraining instances, and what a record of them holds.

`make_examples` is a pure function of documents, settings and seed.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

import numpy as np

from albert_tf.data.errors import UserError
from albert_tf.data.tfrecord import FeatureSpec, encode_examples
from albert_tf.pretraining.masking import MaskingSettings, Vocabulary, mask_batch
from albert_tf.pretraining.segments import Documents, Pair, SegmentSettings, pair_segments
from albert_tf.tokenization.base import Tokenizer

# What masking adds to a record; the last one is 0 where a slot is not used.
PREDICTION_FEATURES = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
_BATCH = 512  # instances masked and serialised together; part of what a seed means


@dataclass(frozen=True)
class InstanceSettings:
    """Everything that decides the instances, next to documents and vocabulary.

    Attributes:
        segments: how documents are cut into instances.
        masking: how tokens are chosen for prediction.
        dupe_factor: passes over the documents, each with other random choices; at least 1.
        random_seed: any integer; decides every random choice.
    """

    segments: SegmentSettings = field(default_factory=SegmentSettings)
    masking: MaskingSettings = field(default_factory=MaskingSettings)
    dupe_factor: int = 40
    random_seed: int = 12345

    def __post_init__(self) -> None:
        if self.dupe_factor < 1:
            raise UserError(f"`dupe_factor` must be at least 1: {self.dupe_factor}")

    @property
    def feature_specs(self) -> tuple[FeatureSpec, ...]:
        """What the records hold; without masking nothing of predictions."""
        specs = pretraining_feature_specs(
            self.segments.max_seq_length, self.masking.prediction_slots
        )
        return specs if self.masking.masked_lm_prob else plain_feature_specs(specs)


def masking_vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    """What instances need to know of a tokenizer."""
    return Vocabulary(
        tokenizer.vocab_size,
        tokenizer.unk_id,
        tokenizer.cls_id,
        tokenizer.sep_id,
        tokenizer.mask_id,
        np.append(tokenizer.starts_word, False),
    )


def pretraining_feature_specs(
    max_seq_length: int,
    max_predictions_per_seq: int,
    vocab_size: int | None = None,
    type_vocab_size: int = 2,
) -> tuple[FeatureSpec, ...]:
    """The features of a pretraining record, as the original release names them.

    Args:
        max_seq_length: S, positions of a sequence.
        max_predictions_per_seq: P, prediction slots; twice the flag if the records were made with
            --do_permutation.
        vocab_size: V; when given, a reader refuses ids beyond it.
        type_vocab_size: entries of the reader's segment table; the records made here need two.
    """
    S, P, V = max_seq_length, max_predictions_per_seq, vocab_size
    length_name, vocabulary = "max_seq_length", "vocab_size of the model's configuration"
    segments = "type_vocab_size of the model's configuration"

    def per_token(name: str, limit: int | None, limit_source: str | None = None) -> FeatureSpec:
        return FeatureSpec(name, "int64", S, limit, length_name, limit_source)

    def per_slot(
        name: str, dtype: str, limit: int | None = None, limit_source: str | None = None
    ) -> FeatureSpec:
        return FeatureSpec(name, dtype, P, limit, "max_predictions_per_seq", limit_source)

    return (
        per_token("input_ids", V, vocabulary),
        per_token("input_mask", 2),
        per_token("segment_ids", type_vocab_size, segments),
        per_token("token_boundary", 2),
        per_slot("masked_lm_positions", "int64", S, length_name),
        per_slot("masked_lm_ids", "int64", V, vocabulary),
        per_slot("masked_lm_weights", "float32"),
        FeatureSpec("next_sentence_labels", "int64", 1, 2),
    )


def plain_feature_specs(specs: Sequence[FeatureSpec]) -> tuple[FeatureSpec, ...]:
    """Those of the features of a pretraining record that do not come from masking."""
    return tuple(spec for spec in specs if spec.name not in PREDICTION_FEATURES)


def make_examples(
    documents: Documents,
    settings: InstanceSettings,
    vocabulary: Vocabulary,
    seed: Sequence[int],
) -> Iterator[tuple[list[bytes], Counter[str]]]:
    """Makes the instances of one pass over documents.

    Args:
        documents: as ids; random second parts come from these documents too.
        settings: lengths, sentence loss, masking; not `dupe_factor` and `random_seed`.
        vocabulary: from `masking_vocabulary`.
        seed: integers that decide every random choice, such as (random_seed, pass, block).

    Yields:
        Serialised `tf.train.Example`s of a batch of instances, in the order of the documents, and
        counts of what was made (see `count_instances`).
    """
    python_state, *numpy_state = mix_seed(seed)
    rng = random.Random(python_state)
    generator = np.random.Generator(np.random.SFC64(numpy_state))
    pairs = chain.from_iterable(
        pair_segments(documents, index, settings.segments, rng) for index in range(documents.count)
    )
    while batch := list(islice(pairs, _BATCH)):
        columns, ngrams = make_features(documents.ids, batch, settings, vocabulary, generator)
        counts = count_instances(columns, batch, documents)
        counts.update({f"ngram_{length}": int(n) for length, n in enumerate(ngrams) if n})
        yield encode_examples(columns, settings.feature_specs), counts


def mix_seed(numbers: Sequence[int]) -> list[int]:
    """Five well-mixed integers below 2**64 from any integers."""
    entropy = [len(numbers), *(number % 2**64 for number in numbers)]
    return np.random.SeedSequence(entropy).generate_state(5, np.uint64).tolist()


def make_features(
    ids: np.ndarray,
    pairs: Sequence[Pair],
    settings: InstanceSettings,
    vocabulary: Vocabulary,
    rng: np.random.Generator,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Lays out [CLS] A [SEP] B [SEP], or [CLS] A [SEP] where B is empty, and masks it.

    Args:
        ids: int32 [T]; the tokens that the B pairs are ranges of, see `read_documents`.
        pairs: which tokens each instance has.
        settings: length and masking.
        vocabulary: special ids and word starts.
        rng: draws the masking.

    Returns:
        The features of the records by name, each [B, length], and the number of masked n-grams of
        each length.
    """
    S = settings.segments.max_seq_length
    input_ids = np.zeros((len(pairs), S), np.int32)
    for row, pair in zip(input_ids, pairs, strict=True):
        sep = 1 + pair.a_end - pair.a_start
        end = sep + 1 + pair.b_end - pair.b_start
        row[1:sep] = ids[pair.a_start : pair.a_end]
        row[sep + 1 : end] = ids[pair.b_start : pair.b_end]
    sep_a = np.array([[1 + pair.a_end - pair.a_start] for pair in pairs])
    lengths_b = np.array([[pair.b_end - pair.b_start] for pair in pairs])
    sep_b = sep_a + lengths_b + (lengths_b > 0)  # without B, the [SEP] of A is the last token
    columns = np.arange(S)
    input_mask = columns <= sep_b
    is_text = input_mask & (columns > 0)
    for position, special_id in (
        (np.zeros_like(sep_a), vocabulary.cls_id),
        (sep_a, vocabulary.sep_id),
        (sep_b, vocabulary.sep_id),
    ):
        np.put_along_axis(input_ids, position, special_id, axis=1)
        np.put_along_axis(is_text, position, False, axis=1)
    lengths = sep_b[:, 0] + 1
    masked = mask_batch(input_ids, is_text, lengths, vocabulary, settings.masking, rng)
    slots = np.arange(settings.masking.prediction_slots)
    for stored in (masked.input_ids, masked.labels):
        stored[stored == vocabulary.size] = vocabulary.unk_id
    features = {
        "input_ids": masked.input_ids,
        "input_mask": input_mask,
        "segment_ids": input_mask & (columns > sep_a),
        "token_boundary": input_mask & (vocabulary.starts_word[input_ids] | ~is_text),
        "masked_lm_positions": masked.positions,
        "masked_lm_ids": masked.labels,
        "masked_lm_weights": (slots < masked.counts[:, None]).astype(np.float32),
        "next_sentence_labels": np.array([[pair.label] for pair in pairs]),
    }
    return features, masked.ngrams


def count_instances(
    columns: dict[str, np.ndarray], pairs: Sequence[Pair], documents: Documents
) -> Counter[str]:
    """Counts what a batch holds.

    Of the names that do not speak for themselves, positions: tokens and padding; swapped: label 1
    by swapping the parts; random_parts: B from elsewhere; random_parts_of_only_document: B from the
    single document there is; tokens_cut: lost to make pairs fit.
    """
    random_parts = sum(pair.random_document >= 0 for pair in pairs)
    return Counter(
        instances=len(pairs),
        positions=columns["input_mask"].size,
        tokens=int(np.count_nonzero(columns["input_mask"])),
        predictions=int(np.count_nonzero(columns["masked_lm_weights"])),
        swapped=sum(pair.label for pair in pairs) - random_parts,
        random_parts=random_parts,
        random_parts_of_only_document=random_parts if documents.count == 1 else 0,
        tokens_cut=sum(pair.tokens_cut for pair in pairs),
    )
