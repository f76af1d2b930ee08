from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from albert_tf.pretraining.batching import parse_batch
from albert_tf.pretraining.corpus import cut_into_blocks, read_documents
from albert_tf.pretraining.instances import (
    Documents,
    InstanceSettings,
    Pair,
    SegmentSettings,
    make_examples,
    make_features,
    masking_vocabulary,
    pretraining_feature_specs,
)
from albert_tf.pretraining.masking import MaskingSettings, Vocabulary
from albert_tf.tokenization.loading import load_tokenizer

NO_MASKING = MaskingSettings(masked_lm_prob=0, max_predictions_per_seq=3)
VOCABULARY = Vocabulary(50, 1, 2, 3, 4, np.append(np.arange(50) % 2 == 0, False))


def test_layout_of_a_single_run():
    ids = np.arange(10, 30, dtype=np.int32)
    settings = InstanceSettings(SegmentSettings(9), NO_MASKING)
    runs = [Pair(3, 10, 10, 10, 0, -1, 0), Pair(10, 12, 12, 12, 0, -1, 0)]
    features, _ = make_features(ids, runs, settings, VOCABULARY, np.random.default_rng(0))
    assert features["input_ids"].tolist() == [
        [2, 13, 14, 15, 16, 17, 18, 19, 3],
        [2, 20, 21, 3, 0, 0, 0, 0, 0],
    ]
    assert (features["input_mask"] * 1).tolist() == [[1] * 9, [1] * 4 + [0] * 5]
    assert (features["token_boundary"] * 1).tolist() == [
        [1, 0, 1, 0, 1, 0, 1, 0, 1],
        [1, 1, 0, 1, 0, 0, 0, 0, 0],
    ]
    assert not features["segment_ids"].any()
    assert features["next_sentence_labels"].tolist() == [[0], [0]]


def test_unknown_pieces_are_stored_as_unknown():
    ids = np.array([50, 50, 50, 50], np.int32)
    settings = InstanceSettings(
        SegmentSettings(7), MaskingSettings(masked_lm_prob=0.99, max_predictions_per_seq=5)
    )
    pairs = [Pair(0, 2, 2, 4, 0, -1, 0)]
    features, _ = make_features(ids, pairs, settings, VOCABULARY, np.random.default_rng(0))
    assert features["masked_lm_weights"].sum() == 4
    assert features["masked_lm_ids"][0, :4].tolist() == [1] * 4
    assert features["input_ids"].max() < 50
    assert (features["token_boundary"] * 1).tolist() == [[1, 0, 0, 1, 0, 0, 1]]


@pytest.fixture(scope="module")
def documents(golden: Path) -> tuple[Documents, Vocabulary]:
    tokenizer = load_tokenizer(vocab_file=str(golden / "tokenizer" / "vocab.txt"))
    (block,) = cut_into_blocks([str(golden / "pretraining_data" / "corpus.txt")])
    return read_documents(block, tokenizer), masking_vocabulary(tokenizer)


SETTINGS = InstanceSettings(SegmentSettings(48), MaskingSettings(max_predictions_per_seq=9))


def make(documents: tuple[Documents, Vocabulary], *seed: int) -> list[bytes]:
    batches = make_examples(documents[0], SETTINGS, documents[1], seed)
    return [example for examples, _ in batches for example in examples]


def test_seed_decides_everything(documents):
    made = make(documents, 5, 0, 3)
    assert made == make(documents, 5, 0, 3)
    for other in ((6, 0, 3), (5, 1, 3), (5, 0, 4), (-5, 0, 3)):
        assert made != make(documents, *other)


def test_counts_say_what_the_records_hold(documents):
    counts: Counter[str] = Counter()
    for _, made in make_examples(documents[0], SETTINGS, documents[1], [1]):
        counts.update(made)
    records = {
        name: value.numpy()
        for name, value in parse_batch(make(documents, 1), SETTINGS.feature_specs).items()
    }
    assert counts["instances"] == len(records["input_ids"]) > 300
    assert counts["positions"] == records["input_ids"].size
    assert counts["tokens"] == records["input_mask"].sum()
    assert counts["predictions"] == records["masked_lm_weights"].sum()
    assert counts["swapped"] + counts["random_parts"] == records["next_sentence_labels"].sum()
    assert counts["random_parts"] > 0
    assert counts["random_parts_of_only_document"] == 0
    assert counts["ngram_1"] > counts["ngram_2"] > counts["ngram_3"] > 0


def test_records_without_pairs_hold_the_text_once(documents):
    """What masking hides is put back; then the sequences, one after the other, are the text."""
    docs, vocabulary = documents
    settings = replace(SETTINGS, segments=SegmentSettings(48, sentence_loss="none"))
    made = list(make_examples(docs, settings, vocabulary, [1]))
    counts = sum((counts for _, counts in made), Counter())
    examples = [example for examples, _ in made for example in examples]
    records = {
        name: value.numpy() for name, value in parse_batch(examples, settings.feature_specs).items()
    }
    ids = records["input_ids"]
    rows, slots = np.nonzero(records["masked_lm_weights"])
    ids[rows, records["masked_lm_positions"][rows, slots]] = records["masked_lm_ids"][rows, slots]
    lengths = records["input_mask"].sum(axis=1)
    text = np.concatenate([row[1 : n - 1] for row, n in zip(ids, lengths, strict=True)])
    unknown = docs.ids == vocabulary.size
    np.testing.assert_array_equal(text, np.where(unknown, vocabulary.unk_id, docs.ids))
    assert (ids[:, 0] == vocabulary.cls_id).all()
    assert (ids[np.arange(len(ids)), lengths - 1] == vocabulary.sep_id).all()
    for name in ("segment_ids", "next_sentence_labels"):
        assert not records[name].any()
    assert counts["tokens"] == len(docs.ids) + 2 * counts["instances"]
    assert counts["swapped"] == counts["random_parts"] == counts["tokens_cut"] == 0
    # As many of the tokens as everywhere else.
    budget = np.minimum(9, np.maximum(1, np.round(lengths * 0.15)))
    assert 0.97 * budget.sum() < counts["predictions"] <= budget.sum()


def test_vocabulary_limits_the_ids():
    limits = {spec.name: spec.limit for spec in pretraining_feature_specs(64, 10, 30000)}
    assert limits["input_ids"] == limits["masked_lm_ids"] == 30000
    assert limits["masked_lm_positions"] == 64
    assert limits["next_sentence_labels"] == limits["segment_ids"] == 2


def test_dupe_factor_is_checked():
    with pytest.raises(ValueError, match="`dupe_factor`"):
        InstanceSettings(dupe_factor=0)
