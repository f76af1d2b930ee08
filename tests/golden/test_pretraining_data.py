"""Pretraining data equal the original's with the same draws, and otherwise in distribution."""

import random
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data.tfrecord import read_records
from albert_tf.pretraining.batching import parse_batch
from albert_tf.pretraining.corpus import cut_into_blocks, read_documents
from albert_tf.pretraining.instances import (
    PREDICTION_FEATURES,
    Documents,
    InstanceSettings,
    Pair,
    SegmentSettings,
    _truncate,
    make_features,
    masking_vocabulary,
    pair_segments,
    pretraining_feature_specs,
)
from albert_tf.pretraining.masking import (
    MaskedBatch,
    MaskingSettings,
    OnlineMasking,
    Vocabulary,
    find_words,
    mask_tokens,
    prediction_budget,
)
from albert_tf.tokenization.base import Tokenizer
from tests.golden.original_draws import OriginalDraws
from tests.golden.record_statistics import HISTOGRAMS, SCALARS, record_statistics, shares
from tests.golden.reference import DATA, read_json, tokenizer_named

FOLDER = DATA / "pretraining_data"
CASES = read_json(FOLDER / "masking_cases.json")
STATISTICS = read_json(FOLDER / "statistics.json")
WRITTEN, TWELVE_COPIES = STATISTICS["written_files"], STATISTICS["twelve_copies"]
NAMES = [entry["name"] for entry in WRITTEN]
SEEDS = 10


def masking_settings(case: dict) -> MaskingSettings:
    names = MaskingSettings.__dataclass_fields__
    return MaskingSettings(**{name: case[name] for name in names})


def segment_settings(case: dict) -> SegmentSettings:
    loss = "nsp" if case["random_next_sentence"] else "sop"
    return SegmentSettings(case["max_seq_length"], case["short_seq_prob"], loss)


def replay_masking(
    ids: np.ndarray,
    case: dict,
    tokenizer: Tokenizer,
    python: random.Random,
    numpy: np.random.RandomState,
) -> MaskedBatch:
    """Masks one sequence with our rules and the draws of the original."""
    settings = masking_settings(case)
    is_text = ~np.isin(ids, [tokenizer.cls_id, tokenizer.sep_id])
    starts = tokenizer.starts_word[ids] if settings.do_whole_word_mask else None
    words = find_words(is_text, starts)
    budget = prediction_budget(np.array([ids.shape[1]]), settings)
    if settings.masked_lm_prob == 0:
        python, numpy = random.Random(0), np.random.RandomState(0)  # the original draws nothing
    sizes = np.diff(words.begin[0, : words.counts[0] + 1]).tolist()
    draws = OriginalDraws(sizes, budget[0], settings, tokenizer.vocab_size, python, numpy).draw()
    return mask_tokens(ids, is_text, words, budget, draws, tokenizer.mask_id)


def assert_masking_equals(batch: MaskedBatch, expected: dict, tokenizer: Tokenizer) -> None:
    count = batch.counts[0]
    labels = tokenizer.convert_tokens_to_ids(expected["masked_lm_labels"])
    np.testing.assert_array_equal(batch.positions[0, :count], expected["masked_lm_positions"])
    np.testing.assert_array_equal(batch.labels[0, :count], labels)


@pytest.mark.parametrize("case", CASES["create_masked_lm_predictions"])
def test_masking_replays_the_original(case: dict) -> None:
    tokenizer = tokenizer_named(case["tokenizer"])
    ids = np.array([tokenizer.convert_tokens_to_ids(case["tokens"])], np.int32)
    python = random.Random(case["python_seed"])
    numpy = np.random.RandomState(case["numpy_seed"])
    batch = replay_masking(ids, case, tokenizer, python, numpy)
    assert tokenizer.convert_ids_to_tokens(batch.input_ids[0]) == case["output_tokens"]
    assert_masking_equals(batch, case, tokenizer)
    assert python.random() == case["after"]["python_next_random"]
    assert numpy.random_sample() == case["after"]["numpy_next_random"]
    boundary = tokenizer.starts_word[ids[0]] | np.isin(ids[0], [tokenizer.cls_id, tokenizer.sep_id])
    assert boundary.astype(int).tolist() == case["token_boundary"]


@pytest.mark.parametrize("case", CASES["truncate_seq_pair"])
def test_truncation_replays_the_original(case: dict) -> None:
    a, b = case["length_a"], case["length_b"]
    rng = random.Random(case["python_seed"])
    excess = max(0, a + b - case["max_num_tokens"])
    a_start, a_end, b_start, b_end = _truncate(0, a, a, a + b, excess, rng)
    assert [f"a{i}" for i in range(a_start, a_end)] == case["result_a"]
    assert [f"b{i - a}" for i in range(b_start, b_end)] == case["result_b"]
    assert rng.random() == case["python_next_random"]


@pytest.mark.parametrize("case", CASES["create_instances_from_document"])
def test_instances_replay_the_original(case: dict) -> None:
    tokenizer = tokenizer_named(case["tokenizer"])
    texts = CASES["documents"][case["tokenizer"]]
    documents = Documents.from_segments(
        [tokenizer.convert_tokens_to_ids(segment) for text in texts for segment in text],
        np.cumsum([0, *map(len, texts)]).tolist(),
    )
    settings = segment_settings(case)
    python = random.Random(case["python_seed"])
    numpy = np.random.RandomState(case["numpy_seed"])
    pairs = pair_segments(documents, case["document_index"], settings, python)
    for pair, expected in zip(pairs, case["instances"], strict=True):
        a = documents.ids[pair.a_start : pair.a_end].tolist()
        b = documents.ids[pair.b_start : pair.b_end].tolist()
        ids = [tokenizer.cls_id, *a, tokenizer.sep_id, *b, tokenizer.sep_id]
        batch = replay_masking(np.array([ids], np.int32), case, tokenizer, python, numpy)
        assert tokenizer.convert_ids_to_tokens(batch.input_ids[0]) == expected["tokens"]
        assert_masking_equals(batch, expected, tokenizer)
        assert pair.label == expected["is_random_next"]
        assert expected["segment_ids"] == [0] * (len(a) + 2) + [1] * (len(b) + 1)


@cache
def read_golden(file: str) -> dict[str, np.ndarray]:
    """Returns all records of a file of the original."""
    payloads = list(read_records(str(FOLDER / file)))
    settings = settings_of(flags_of_file(file))
    specs = pretraining_feature_specs(
        settings.segments.max_seq_length, settings.masking.prediction_slots
    )
    return {name: value.numpy() for name, value in parse_batch(payloads, specs).items()}


def flags_of_file(file: str) -> dict:
    return next(entry["flags"] for entry in WRITTEN if entry["file"] == file)


def settings_of(flags: dict) -> InstanceSettings:
    return InstanceSettings(
        segment_settings(flags),
        masking_settings(flags),
        flags["dupe_factor"],
        flags["random_seed"],
    )


def documents_of(entry: dict) -> Documents:
    (block,) = cut_into_blocks([str(FOLDER / "corpus.txt")])
    tokenizer = tokenizer_named(entry["tokenizer"], entry["flags"]["do_lower_case"])
    return read_documents(block, tokenizer)


@pytest.mark.parametrize("entry", WRITTEN, ids=NAMES)
def test_features_equal_those_of_the_original(entry: dict) -> None:
    """Only records without masking differ: the original adds predictions that are all zeros."""
    specs = settings_of(entry["flags"]).feature_specs
    zeros = PREDICTION_FEATURES if entry["flags"]["masked_lm_prob"] == 0 else ()
    for payload in read_records(str(FOLDER / entry["file"])):
        features = tf.train.Example.FromString(payload).features.feature
        assert sorted(features) == sorted([*(spec.name for spec in specs), *zeros])
        for name in zeros:
            assert not any(features[name].int64_list.value)
            assert not any(features[name].float_list.value)
        for spec in specs:
            kind = "int64_list" if spec.dtype == "int64" else "float_list"
            assert features[spec.name].WhichOneof("kind") == kind
            assert len(getattr(features[spec.name], kind).value) == spec.length


def unmasked(records: dict[str, np.ndarray]) -> np.ndarray:
    """Returns the ids before masking."""
    ids = records["input_ids"].copy()
    rows, slots = np.nonzero(records["masked_lm_weights"])
    ids[rows, records["masked_lm_positions"][rows, slots]] = records["masked_lm_ids"][rows, slots]
    return ids


class DocumentSearch:
    """Finds sequences of ids in documents."""

    def __init__(self, documents: Documents, vocabulary: Vocabulary):
        self.starts = np.array(documents.segment_starts)[documents.document_starts].tolist()
        ids = np.where(documents.ids == vocabulary.size, vocabulary.unk_id, documents.ids)
        self.texts = [self.bytes_of(ids[start:end]) for start, end in pairwise(self.starts)]

    @staticmethod
    def bytes_of(ids: np.ndarray) -> bytes:
        return ids.astype(">u4").tobytes()

    def find(self, ids: np.ndarray) -> tuple[int, int]:
        for start, text in zip(self.starts, self.texts, strict=False):
            place = text.find(self.bytes_of(ids))
            if place >= 0 and place % 4 == 0:
                return start + place // 4, start + place // 4 + len(ids)
        raise AssertionError(f"No document has {ids.tolist()}")


@pytest.mark.parametrize("entry", WRITTEN, ids=NAMES)
def test_layout_equals_the_original(entry: dict) -> None:
    """The parts of every instance are in our documents, and have the same layout."""
    records = read_golden(entry["file"])
    settings = replace(settings_of(entry["flags"]), masking=MaskingSettings(masked_lm_prob=0))
    tokenizer = tokenizer_named(entry["tokenizer"], entry["flags"]["do_lower_case"])
    vocabulary, documents = masking_vocabulary(tokenizer), documents_of(entry)
    assert documents.count == 60
    search = DocumentSearch(documents, vocabulary)
    ids = unmasked(records)
    is_b = records["segment_ids"] == 1
    is_a = (records["input_mask"] == 1) & ~is_b
    pairs = [
        Pair(*search.find(row[a][1:-1]), *search.find(row[b][:-1]), label, -1, 0)
        for row, a, b, (label,) in zip(
            ids, is_a, is_b, records["next_sentence_labels"], strict=True
        )
    ]
    rng = np.random.default_rng(0)
    features, _ = make_features(documents.ids, pairs, settings, vocabulary, rng)
    np.testing.assert_array_equal(features["input_ids"], ids)
    for name in ("input_mask", "segment_ids", "token_boundary", "next_sentence_labels"):
        np.testing.assert_array_equal(features[name], records[name], err_msg=name)


@pytest.mark.parametrize("entry", WRITTEN, ids=NAMES)
def test_prediction_features_follow_the_original_rules(entry: dict) -> None:
    records = read_golden(entry["file"])
    masking = masking_settings(entry["flags"])
    weights = records["masked_lm_weights"]
    counts = weights.sum(axis=1).astype(int)
    np.testing.assert_array_equal(weights, np.arange(weights.shape[1]) < counts[:, None])
    for name in ("masked_lm_positions", "masked_lm_ids"):
        assert not records[name][weights == 0].any()
    budget = prediction_budget(records["input_mask"].sum(axis=1), masking)
    assert (counts <= budget * (2 if masking.do_permutation else 1)).all()
    assert (counts >= budget * 0.8).all()


@cache
def our_statistics(name: str, online: bool) -> list[dict]:
    """Returns statistics of our records with the settings of the original, for several seeds."""
    entry = next(entry for entry in TWELVE_COPIES if entry["name"] == name)
    settings = settings_of(entry["flags"])
    tokenizer = tokenizer_named(entry["tokenizer"], entry["flags"]["do_lower_case"])
    documents, vocabulary = documents_of(entry), masking_vocabulary(tokenizer)
    in_records = (
        replace(settings, masking=MaskingSettings(masked_lm_prob=0)) if online else settings
    )
    results = []
    for seed in range(SEEDS):
        python, numpy = random.Random(seed), np.random.default_rng(seed)
        pairs = [
            pair
            for _ in range(settings.dupe_factor)
            for index in range(documents.count)
            for pair in pair_segments(documents, index, settings.segments, python)
        ]
        records, _ = make_features(documents.ids, pairs, in_records, vocabulary, numpy)
        if online:
            records = mask_online(records, settings.masking, tokenizer, seed)
        results.append(record_statistics(records, tokenizer.mask_id))
    return results


def mask_online(
    records: dict[str, np.ndarray], masking: MaskingSettings, tokenizer: Tokenizer, seed: int
) -> dict[str, np.ndarray]:
    """Masks plain records as during training."""
    names = ("input_ids", "input_mask", "segment_ids", "token_boundary")
    plain = {name: tf.constant(records[name].astype(np.int32)) for name in names}
    mask = OnlineMasking(masking, tokenizer.mask_id, tokenizer.vocab_size)
    numbers = tf.range(len(records["input_ids"]), dtype=tf.int64) + seed * 2**32
    masked = mask(plain, numbers, seed=0)
    return {**records, **{name: values.numpy() for name, values in masked.items()}}


RARE = ("spm_long_ngrams_random_next", "spm_no_whole_word_ngram1")
ONLINE = ("spm_default", "spm_long_ngrams_random_next", "spm_no_whole_word_ngram1")
BOTH_WAYS = [
    pytest.param(
        entry,
        online,
        id=f"{entry['name']}-{'online' if online else 'records'}",
        marks=[pytest.mark.slow] * (entry["name"] in RARE),
    )
    for entry in TWELVE_COPIES
    for online in (False, True)[: 1 + (entry["name"] in ONLINE)]
]


@pytest.mark.parametrize(("entry", "online"), BOTH_WAYS)
@pytest.mark.parametrize("key", SCALARS)
def test_statistics_agree(entry: dict, online: bool, key: str) -> None:
    """The original is within five standard deviations of our seeds."""
    ours = [statistics[key] for statistics in our_statistics(entry["name"], online)]
    golden = entry["statistics"][key]
    if golden is None:
        assert ours == [None] * SEEDS
        return
    spread = np.std(ours, ddof=1) * np.sqrt(1 + 1 / SEEDS)
    np.testing.assert_allclose(np.mean(ours), golden, rtol=0, atol=5 * spread + 1e-9)


@pytest.mark.parametrize(("entry", "online"), BOTH_WAYS)
@pytest.mark.parametrize("key", HISTOGRAMS)
def test_histograms_agree(entry: dict, online: bool, key: str) -> None:
    """The original is at most 1.5 times as far from our mean as our farthest seed."""
    golden = entry["statistics"][key]
    ours = [statistics[key] for statistics in our_statistics(entry["name"], online)]
    keys = sorted(set(golden).union(*ours))
    each = np.array([shares(histogram, keys) for histogram in ours])
    total = each.sum(axis=0)
    own = [abs(one - (total - one) / (SEEDS - 1)).sum() for one in each]
    distance = abs(shares(golden, keys) - total / SEEDS).sum()
    assert distance <= 1.5 * max(own)
