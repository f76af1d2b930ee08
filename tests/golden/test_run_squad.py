"""Files written by `run_squad.py`, compared with those of the original's programs."""

import numpy as np
import pytest

from tests.golden.reference import DATA, flags_with_weights, read_json, recorded_flags
from tests.programs import run_program

TOLERANCE = 1e-5
CLOSE = 1e-5  # candidates whose sums differ by less may change their order
# Questions dropped by the original, because it cannot align their context.
NUM_DROPPED = {1: 2, 2: 2}


class Both:
    """Files of our program and of the original's, for the same model and flags."""

    def __init__(self, version, folder):
        self.version = version
        self.output, self.records = folder / "output", folder / "predict.tfrecord"
        weights = DATA / "squad" / "heads" / f"v{version}_model.ckpt"
        flags = {
            **recorded_flags(f"squad_v{version}"),
            "squad_version": version,
            "predict_file": DATA / "squad" / f"dev-v{version}.json",
            "predict_feature_file": self.records,
            "predict_feature_left_file": folder / "left.pickle",
            "padding": "max",
        }
        flags = flags_with_weights(self.output, weights, "model.ckpt-best", **flags)
        result = run_program("run_squad.py", folder, flags)
        assert result.code == 0, result.output
        self.printed = result.output
        self.expected = DATA / "programs" / f"squad_v{version}"

    def pair(self, name):
        """Returns a file of answers by id: ours and the original's."""
        return read_json(self.output / name), read_json(self.expected / name)


@pytest.fixture(scope="module", params=[1, 2], ids=["v1", "v2"])
def both(request, tmp_path_factory):
    return Both(request.param, tmp_path_factory.mktemp("run"))


def is_answered(entries):
    """Returns whether the original made windows of the question."""
    return not (len(entries) == 1 and entries[0]["text"] in ("", "empty"))


def test_candidates_equal_those_of_the_original(both):
    written, expected = both.pair("nbest_predictions.json")
    assert list(written) == list(expected)
    answered = [qas_id for qas_id, entries in expected.items() if is_answered(entries)]
    assert len(expected) - len(answered) == NUM_DROPPED[both.version]
    for qas_id in answered:
        assert len(written[qas_id]) == len(expected[qas_id])
        sums = []
        for place, (entry, wanted) in enumerate(
            zip(written[qas_id], expected[qas_id], strict=True)
        ):
            sums.append((score(entry), score(wanted)))
            is_same = entry["text"] == wanted["text"]
            if is_same:
                for key in ("probability", "start_log_prob", "end_log_prob"):
                    assert entry[key] == pytest.approx(wanted[key], abs=TOLERANCE), qas_id
            assert is_same or is_close_call(expected[qas_id], place), (qas_id, place)
        ours, theirs = np.array(sums).T
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=2 * TOLERANCE)


def score(entry):
    return entry["start_log_prob"] + entry["end_log_prob"]


def is_close_call(entries, place):
    """Returns whether the previous or next candidate has the same score."""
    neighbours = [entries[i] for i in (place - 1, place + 1) if 0 <= i < len(entries)]
    return any(abs(score(entries[place]) - score(other)) < CLOSE for other in neighbours)


def test_answers_equal_those_of_the_original(both):
    written, expected = both.pair("predictions.json")
    nbest = read_json(both.expected / "nbest_predictions.json")
    assert list(written) == list(expected)
    for qas_id, text in expected.items():
        if is_answered(nbest[qas_id]) and not is_close_call(nbest[qas_id], 0):
            assert written[qas_id] == text, qas_id


def test_null_odds_equal_those_of_the_original(both):
    if both.version == 1:
        assert not (both.output / "null_odds.json").exists()
        return
    written, expected = both.pair("null_odds.json")
    assert list(written) == list(expected)
    kept = [qas_id for qas_id, odds in expected.items() if odds != 1e6]
    assert len(expected) - len(kept) == NUM_DROPPED[2]
    np.testing.assert_allclose(
        [written[qas_id] for qas_id in kept],
        [expected[qas_id] for qas_id in kept],
        rtol=0,
        atol=TOLERANCE,
    )


def test_scores_equal_those_of_the_original(both):
    """Questions that the original drops are also answered incorrectly here."""
    lines = (both.output / "eval_results.txt").read_text().split("=" * 50 + "\n")[-1].splitlines()
    assert lines.pop() == "best perf happened at step: 17"
    written = dict(line.split(" = ") for line in lines)
    assert list(written) == sorted(written)
    if both.version == 1:
        expected = read_json(both.expected / "metrics.json")
    else:
        *body, last = (both.expected / "eval_results.txt").read_text().splitlines()
        assert last == "best perf happened at step: 17"
        expected = dict(line.split(" = ") for line in body)
        assert written["total"] == expected["total"]
    for name, value in expected.items():
        assert float(written[name]) == pytest.approx(float(value), abs=TOLERANCE), name


def test_feature_files_are_not_written(both):
    assert not both.records.exists()
    assert not (both.records.parent / "left.pickle").exists()
    for flag in ("--predict_feature_file", "--predict_feature_left_file"):
        assert flag in both.printed
