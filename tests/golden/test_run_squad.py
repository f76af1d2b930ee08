"""Files written by `run_squad.py`, compared with those of the original's programs."""

import json
import shutil

import numpy as np
import pytest

from tests.programs import run_program

TOLERANCE = 1e-5
CLOSE = 1e-5  # candidates whose sums differ by less may change their order
# Questions dropped by the original, because it cannot align their context.
NUM_DROPPED = {1: 2, 2: 2}


def load(path):
    return json.loads(path.read_text())


class Both:
    """Files written by our program and the original's with the same model and flags."""

    def __init__(self, golden, version, folder):
        recorded = load(golden / "programs" / "runs.json")[f"squad_v{version}"]
        pairs = [flag.removeprefix("--").partition("=") for flag in recorded["flags"]]
        flags = {key: value if equals else True for key, equals, value in pairs}
        heads = golden / "squad" / "heads"
        self.version = version
        self.output = folder / "output"
        self.output.mkdir()
        for suffix in ("index", "data-00000-of-00001"):
            source = heads / f"v{version}_model.ckpt.{suffix}"
            shutil.copy(source, self.output / f"model.ckpt-best.{suffix}")
        self.records = folder / "predict.tfrecord"
        result = run_program(
            "run_squad.py",
            folder,
            {
                **flags,
                "squad_version": version,
                "predict_file": golden / "squad" / f"dev-v{version}.json",
                "predict_feature_file": self.records,
                "predict_feature_left_file": folder / "left.pickle",
                "output_dir": self.output,
                "spm_model_file": golden / "tokenizer" / "small_1000.model",
                "albert_config_file": heads / "albert_config.json",
                "padding": "max",
            },
        )
        assert result.code == 0, result.output
        self.printed = result.output
        self.expected = golden / "programs" / f"squad_v{version}"

    def pair(self, name):
        """Returns a file of answers by id: ours and the original's."""
        return load(self.output / name), load(self.expected / name)


@pytest.fixture(scope="module", params=[1, 2], ids=["v1", "v2"])
def both(request, golden, tmp_path_factory):
    return Both(golden, request.param, tmp_path_factory.mktemp("run"))


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
    nbest = load(both.expected / "nbest_predictions.json")
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
        expected = load(both.expected / "metrics.json")
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
