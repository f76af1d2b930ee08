"""Instances: pairs of segments, single segments, and their records."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

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
    pair_segments,
)
from albert_tf.pretraining.masking import MaskingSettings, Vocabulary
from albert_tf.tokenization.base import Tokenizer


def documents(*lengths: list[int]) -> Documents:
    """Returns documents of segments with the given lengths. Tokens are numbered from 0."""
    segments, starts, token = [], [0], 0
    for document in lengths:
        for length in document:
            segments.append(list(range(token, token + length)))
            token += length
        starts.append(len(segments))
    return Documents.from_segments(segments, starts)


def pairs_of(docs: Documents, index: int = 0, seed: int = 1, **settings: float | str) -> list[Pair]:
    settings = {"max_seq_length": 23, "short_seq_prob": 0.0} | settings
    return list(pair_segments(docs, index, SegmentSettings(**settings), random.Random(seed)))


def test_single_runs_contain_every_token_once():
    docs = documents([3, 5, 4, 6, 7, 2, 90, 3, 3], [1], [21], [22])
    for index, lengths in enumerate(([21] * 5 + [18], [1], [21], [21, 1])):
        runs = pairs_of(docs, index, sentence_loss="none")
        assert [run.a_end - run.a_start for run in runs] == lengths
        assert {(run.label, run.random_document, run.tokens_cut) for run in runs} == {(0, -1, 0)}
        assert all(run.b_start == run.b_end for run in runs)
        begin, end = (docs.segment_starts[docs.document_starts[n]] for n in (index, index + 1))
        tokens = [token for run in runs for token in range(run.a_start, run.a_end)]
        assert tokens == [*range(begin, end)]


def test_short_single_runs_are_whole_segments():
    docs = documents([4] * 30)
    lengths = set()
    for seed in range(200):
        runs = pairs_of(docs, seed=seed, short_seq_prob=1.0, sentence_loss="none")
        assert sum(run.a_end - run.a_start for run in runs) == 120
        lengths.add(runs[0].a_end - runs[0].a_start)
    assert lengths == {4, 8, 12, 16, 20, 21}  # 21: a target of 21, cut in the sixth segment


def test_invalid_settings():
    with pytest.raises(ValueError, match=r"`max_seq_length` must .* Received: 4"):
        SegmentSettings(max_seq_length=4)
    with pytest.raises(ValueError, match=r"`sentence_pairs`=adjacent contradicts.*nsp"):
        SegmentSettings(sentence_pairs="adjacent", sentence_loss="nsp")


LENGTH = 43
ADJACENT = SegmentSettings(LENGTH, sentence_pairs="adjacent")
ORIGINAL = SegmentSettings(LENGTH)


@pytest.fixture(scope="module")
def generated() -> Documents:
    """Returns 1,500 documents of 1 to 40 segments of 1 to 400 tokens."""
    rng = np.random.default_rng(3)
    counts = rng.integers(1, 41, 1500)
    lengths = np.ceil(rng.lognormal(2.3, 0.9, counts.sum())).clip(1, 400).astype(int)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    return Documents(np.arange(starts[-1]), starts.tolist(), [0, *np.cumsum(counts).tolist()])


def make(documents: Documents, settings: SegmentSettings) -> list[Pair]:
    return [
        pair
        for index in range(documents.count)
        for pair in pair_segments(documents, index, settings, random.Random(index))
    ]


@pytest.fixture(scope="module")
def adjacent(generated) -> list[Pair]:
    return make(generated, ADJACENT)


@pytest.fixture(scope="module")
def original(generated) -> list[Pair]:
    return make(generated, ORIGINAL)


def in_order(pair: Pair) -> tuple[int, int, int, int]:
    a, b = pair[:2], pair[2:4]
    return (*b, *a) if pair.label else (*a, *b)


def sizes(pairs: Sequence[Pair]) -> tuple[np.ndarray, np.ndarray]:
    places = np.array(pairs)
    return places[:, 1] - places[:, 0], places[:, 3] - places[:, 2]


def standard_scores(features: Sequence[np.ndarray], pairs: Sequence[Pair]) -> np.ndarray:
    """Returns the correlation of each feature with the label, in standard errors."""
    labels = [pair.label for pair in pairs]
    return np.corrcoef([labels, *features])[0, 1:] * len(pairs) ** 0.5


def length_scores(pairs: Sequence[Pair]) -> np.ndarray:
    a, b = (size / LENGTH for size in sizes(pairs))
    longer = np.sign(a - b)
    features = [a, b, abs(a - b), longer, longer * (a + b), longer * a * b, a * a, b * b]
    return np.abs(standard_scores(features, pairs))


def mark_scores(pairs: Sequence[Pair], is_mark: np.ndarray) -> np.ndarray:
    """Scores of punctuation at the first and last token of both parts, and of all products."""
    places = np.array(pairs)[:, :4] - [0, 1, 0, 1]
    marks = (is_mark[places] * 2.0 - 1).T
    pairwise = [marks[i] * marks[j] for i in range(4) for j in range(i)]
    return np.abs(standard_scores([*marks, *pairwise], pairs))


def label_score(pairs: Sequence[Pair]) -> float:
    """Returns the difference of the share of label 1 from 1/2, in standard errors."""
    return abs(np.mean([pair.label for pair in pairs]) - 0.5) * 2 * len(pairs) ** 0.5


def test_lengths_and_label_shares_do_not_reveal_the_label(adjacent, original):
    assert len(adjacent) > 9000
    assert label_score(adjacent) < 3
    assert length_scores(adjacent).max() < 3
    assert label_score(original) > 10
    assert length_scores(original).max() > 10


def test_punctuation_does_not_reveal_the_label(generated, adjacent, original):
    rng = np.random.default_rng(4)
    is_mark = rng.random(len(generated.ids)) < 0.1
    is_mark[np.array(generated.segment_starts[1:]) - 1] = True
    assert mark_scores(adjacent, is_mark).max() < 3
    assert mark_scores(original, is_mark).max() > 10


def test_adjacent_parts_are_only_truncated_at_their_ends(generated, adjacent):
    starts = set(generated.segment_starts)
    limits = np.array(generated.segment_starts)[generated.document_starts]
    most = ADJACENT.max_tokens
    for pair in adjacent:
        first, first_end, second, second_end = in_order(pair)
        end = second_end + pair.tokens_cut - (second - first_end)  # of the chunk, uncut
        assert first < first_end <= second < second_end <= end
        assert {first, second, end} <= starts
        document = np.searchsorted(limits, first, "right")
        assert end <= limits[document]
        assert pair.random_document == -1
        whole = [second - first, end - second]
        kept = [first_end - first, second_end - second]
        if sum(whole) <= most:
            assert kept == whole
        else:  # only parts that are longer than half of the sequence are cut
            a, b = kept[:: -1 if pair.label else 1]
            assert a + b == most
            short = min(whole)
            assert (min(kept) == short) if short <= most // 2 else (a == most - most // 2)


@pytest.mark.parametrize("short_seq_prob", [0.0, 1.0])
def test_every_segment_is_in_a_chunk_and_few_are_in_two(generated, short_seq_prob):
    starts, from_the_end = generated.segment_starts, 0
    settings = replace(ADJACENT, short_seq_prob=short_seq_prob)
    for index in range(generated.count):
        begin, last = generated.document_starts[index : index + 2]
        used = np.zeros(last - begin, int)
        pairs = list(pair_segments(generated, index, settings, random.Random(index)))
        for pair in pairs:
            first, first_end, second, second_end = in_order(pair)
            end = second_end + pair.tokens_cut - (second - first_end)
            used[starts.index(first, begin) - begin : starts.index(end, begin) - begin] += 1
        if last - begin == 1:
            assert pairs == []
            continue
        assert used.min() == 1
        assert used.sum() <= last - begin + 1
        assert used[2:-2].max(initial=1) == 1
        from_the_end += in_order(pairs[0])[0] > starts[begin]
    assert 0.3 < from_the_end / generated.count < 0.6


@pytest.mark.parametrize("settings", [ADJACENT, ORIGINAL])
def test_sequences_of_minimum_length(settings):
    docs = documents([3, 1, 40], [2], [1, 7, 1, 1])
    for lengths in sizes(make(docs, replace(settings, max_seq_length=5))):
        assert (lengths == 1).all()


VOCABULARY = Vocabulary(50, 1, 2, 3, 4, np.append(np.arange(50) % 2 == 0, False))


def test_unknown_pieces_get_the_unknown_id():
    ids = np.array([50, 50, 50, 50], np.int32)
    masking = MaskingSettings(masked_lm_prob=0.99, max_predictions_per_seq=5)
    settings = InstanceSettings(SegmentSettings(7), masking)
    pairs = [Pair(0, 2, 2, 4, 0, -1, 0)]
    features, _ = make_features(ids, pairs, settings, VOCABULARY, np.random.default_rng(0))
    assert features["masked_lm_weights"].sum() == 4
    assert features["masked_lm_ids"][0, :4].tolist() == [1] * 4
    assert features["input_ids"].max() < 50
    assert (features["token_boundary"] * 1).tolist() == [[1, 0, 0, 1, 0, 0, 1]]


@pytest.fixture(scope="module")
def text(corpus: str, word_pieces: Tokenizer) -> tuple[Documents, Vocabulary]:
    (block,) = cut_into_blocks([corpus])
    return read_documents(block, word_pieces), masking_vocabulary(word_pieces)


SETTINGS = InstanceSettings(SegmentSettings(48), MaskingSettings(max_predictions_per_seq=9))


def make_records(documents: tuple[Documents, Vocabulary], *seed: int) -> list[bytes]:
    batches = make_examples(documents[0], SETTINGS, documents[1], seed)
    return [example for examples, _ in batches for example in examples]


def test_counts_match_the_records(text):
    assert make_records(text, 5, 0, 3) == make_records(text, 5, 0, 3)
    seeds = ((5, 0, 3), (6, 0, 3), (5, 1, 3), (5, 0, 4), (-5, 0, 3))
    assert len({make_records(text, *seed)[0] for seed in seeds}) == 5
    counts: Counter[str] = Counter()
    for _, made in make_examples(text[0], SETTINGS, text[1], [1]):
        counts.update(made)
    batch = parse_batch(make_records(text, 1), SETTINGS.feature_specs)
    records = {name: value.numpy() for name, value in batch.items()}
    assert counts["instances"] == len(records["input_ids"]) > 300
    assert counts["positions"] == records["input_ids"].size
    assert counts["tokens"] == records["input_mask"].sum()
    assert counts["predictions"] == records["masked_lm_weights"].sum()
    assert counts["swapped"] + counts["random_parts"] == records["next_sentence_labels"].sum()
    assert counts["random_parts"] > 0
    assert counts["random_parts_of_only_document"] == 0
    assert counts["ngram_1"] > counts["ngram_2"] > counts["ngram_3"] > 0


def test_records_of_single_runs_contain_the_text_once(text):
    """Without masks, the concatenated sequences are the text."""
    docs, vocabulary = text
    settings = replace(SETTINGS, segments=SegmentSettings(48, sentence_loss="none"))
    made = make_examples(docs, settings, vocabulary, [1])
    examples = [example for examples, _ in made for example in examples]
    batch = parse_batch(examples, settings.feature_specs)
    records = {name: value.numpy() for name, value in batch.items()}
    ids = records["input_ids"]
    rows, slots = np.nonzero(records["masked_lm_weights"])
    ids[rows, records["masked_lm_positions"][rows, slots]] = records["masked_lm_ids"][rows, slots]
    lengths = records["input_mask"].sum(axis=1)
    found = np.concatenate([row[1 : n - 1] for row, n in zip(ids, lengths, strict=True)])
    unknown = docs.ids == vocabulary.size
    np.testing.assert_array_equal(found, np.where(unknown, vocabulary.unk_id, docs.ids))
    assert (ids[:, 0] == vocabulary.cls_id).all()
    assert (ids[np.arange(len(ids)), lengths - 1] == vocabulary.sep_id).all()
    np.testing.assert_array_equal(
        records["token_boundary"], (vocabulary.starts_word[ids] | np.isin(ids, [2, 3])) & (ids > 0)
    )
    for name in ("segment_ids", "next_sentence_labels"):
        assert not records[name].any()
