"""Features of questions, compared with those of the original for the same files."""

from functools import cache

import numpy as np
import pytest

from albert_tf.squad.data import SquadData, read_squad
from albert_tf.squad.features import SquadFeatures, squad_features
from tests.golden.reference import DATA, INPUTS, read_arrays, read_json, tokenizer_named

FOLDER = DATA / "squad"
SETTINGS = {
    f"{entry['split']}-v{entry['version']}_{entry['setting']}": entry
    for entry in read_json(FOLDER / "features" / "settings.json")
}
CASES = sorted(path.stem for path in (FOLDER / "features").glob("*.npz"))
# The original cannot align the context of these questions, and drops them.
DROPPED = {1: (34, 35), 2: (41, 42)}


@cache
def data_of(split: str, version: int) -> SquadData:
    path = str(FOLDER / f"{split}-v{version}.json")
    return read_squad(path, version=version, is_training=split == "train")


def dropped_of(case: str) -> tuple[int, ...]:
    return DROPPED[SETTINGS[case]["version"]]


@cache
def made(case: str) -> tuple[SquadFeatures, np.ndarray]:
    """Returns our features, and the windows that the original also makes."""
    entry = SETTINGS[case]
    settings = dict(entry["options"])
    tokenizer = tokenizer_named("spm", settings.pop("do_lower_case"))
    data = data_of(entry["split"], entry["version"])
    features = squad_features(data, tokenizer, is_training=entry["split"] == "train", **settings)
    return features, np.flatnonzero(~np.isin(features.question_indices, dropped_of(case)))


def recorded(case: str) -> dict[str, np.ndarray]:
    return read_arrays(FOLDER / "features" / f"{case}.npz")


def test_number_of_recorded_cases():
    assert len(CASES) == 8  # SQuAD 1.1 with one setting, 2.0 with three; train and dev


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("split", ["train", "dev"])
def test_questions_equal_those_of_the_original(split, version):
    data = data_of(split, version)
    examples = read_json(FOLDER / "features" / f"examples_{split}-v{version}.json")
    assert len(examples) == (43 if version == 1 else 50)
    for question, example in zip(data.questions, examples, strict=True):
        assert question.qas_id == example["qas_id"]
        assert question.question == example["question_text"]
        if split == "train":
            text, start = question.answers[0] if question.answers else ("", -1)
            assert (text, start) == (example["orig_answer_text"], example["start_position"])
            assert question.is_impossible == example["is_impossible"]


@pytest.mark.parametrize("case", CASES)
def test_windows(case):
    features, rows = made(case)
    expected = recorded(case)
    length = expected["input_ids"].shape[1]
    assert len(rows) == SETTINGS[case]["num_features"]
    padded = features.sequences.padded(rows, length)
    for name in INPUTS:
        np.testing.assert_array_equal(padded[name], expected[name], err_msg=name)
    np.testing.assert_array_equal(features.sequences.lengths[rows], expected["paragraph_len"])
    # Questions that the original drops also have windows.
    assert {*features.question_indices} - {*features.question_indices[rows]} == {*dropped_of(case)}


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("train")])
def test_positions_of_answers(case):
    features, rows = made(case)
    expected = recorded(case)
    np.testing.assert_array_equal(features.start_positions[rows], expected["start_position"])
    np.testing.assert_array_equal(features.end_positions[rows], expected["end_position"])
    np.testing.assert_array_equal(features.is_impossible[rows], expected["is_impossible"])


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("dev")])
def test_characters_and_largest_context(case):
    features, rows = made(case)
    np.testing.assert_array_equal(features.question_indices[rows], recorded(case)["example_index"])
    windows = read_json(FOLDER / "features" / f"{case}.json")
    assert len(windows) == len(rows)
    lengths = features.context_lengths(rows).tolist()
    best = features.is_max_context(rows, np.tile(np.arange(64, dtype=np.int32), (len(rows), 1)))
    for number, (row, window) in enumerate(zip(rows.tolist(), windows, strict=True)):
        assert features.first_context_position[row] == window["first_context_position"]
        begin = (
            features.paragraph_offsets[features.paragraph_indices[row]]
            + features.window_starts[row]
        )
        chosen = slice(begin, begin + lengths[number])
        assert features.token_starts[chosen].tolist() == window["tok_start_to_orig_index"]
        assert features.token_ends[chosen].tolist() == window["tok_end_to_orig_index"]
        expected = window["max_context_positions"]
        assert np.flatnonzero(best[number]).tolist() == [at for at in expected if at < 64]
        every = features.is_max_context(np.array([row]), np.arange(-1, 400)[None])[0]
        assert (np.flatnonzero(every) - 1).tolist() == expected
