"""Pretraining data equal the original's: with its draws replayed, and in distribution without."""

import json
import random
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from albert_tf.data.masking import (
    MaskedBatch,
    MaskingSettings,
    find_words,
    mask_tokens,
    prediction_budget,
)
from albert_tf.data.segments import Documents, SegmentSettings, _truncate, pair_segments
from albert_tf.tokenization import Tokenizer, load_tokenizer
from tests.golden.original_draws import replay_draws

DATA = Path(__file__).parent / "data"
CASES = json.loads((DATA / "pretraining_data" / "masking_cases.json").read_text("utf-8"))


@cache
def tokenizer_of(name: str, do_lower_case: bool = True) -> Tokenizer:
    if name == "spm":
        file = {"spm_model_file": str(DATA / "tokenizer" / "small_1000.model")}
    else:
        file = {"vocab_file": str(DATA / "tokenizer" / "vocab.txt")}
    return load_tokenizer(**file, do_lower_case=do_lower_case)


def masking_settings(case: dict) -> MaskingSettings:
    names = MaskingSettings.__dataclass_fields__
    return MaskingSettings(**{name: case[name] for name in names})


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
    words = find_words(ids, is_text, tokenizer.starts_word, settings.do_whole_word_mask)
    budget = prediction_budget(np.array([ids.shape[1]]), settings)
    if settings.masked_lm_prob == 0:
        python, numpy = random.Random(0), np.random.RandomState(0)  # the original draws nothing
    draws = replay_draws(words, budget[0], settings, tokenizer.vocab_size, python, numpy)
    return mask_tokens(ids, is_text, words, budget, draws, tokenizer.mask_id)


def assert_masking_equals(batch: MaskedBatch, expected: dict, tokenizer: Tokenizer) -> None:
    count = batch.counts[0]
    labels = tokenizer.convert_tokens_to_ids(expected["masked_lm_labels"])
    np.testing.assert_array_equal(batch.positions[0, :count], expected["masked_lm_positions"])
    np.testing.assert_array_equal(batch.labels[0, :count], labels)


@pytest.mark.parametrize("case", CASES["create_masked_lm_predictions"])
def test_masking_replays_the_original(case: dict) -> None:
    tokenizer = tokenizer_of(case["tokenizer"])
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
    tokenizer = tokenizer_of(case["tokenizer"])
    texts = CASES["documents"][case["tokenizer"]]
    documents = Documents.from_segments(
        [tokenizer.convert_tokens_to_ids(segment) for text in texts for segment in text],
        np.cumsum([0, *map(len, texts)]).tolist(),
    )
    settings = SegmentSettings(
        case["max_seq_length"], case["short_seq_prob"], case["random_next_sentence"]
    )
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
