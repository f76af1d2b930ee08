"""Answers, null odds, thresholds and scores of recorded outputs, compared with the original."""

from dataclasses import fields, replace

import numpy as np
import pytest

from albert_tf.data.sequences import TokenSequences
from albert_tf.squad.answers import AnswerSelector, AnswerSettings, write_answers
from albert_tf.squad.data import read_squad
from albert_tf.squad.features import SquadFeatures, squad_features
from albert_tf.squad.metrics import exact_match, f1, normalize_answer, v1_scores, v2_scores
from albert_tf.squad.run import SquadEvaluationResults
from tests.golden.reference import DATA, read_arrays, read_json, tokenizer_named

SQUAD = DATA / "squad"
V1_CASES = [("n20_len30", 20, 30), ("n5_len6", 5, 6)]


class Recorded:
    """The development questions of one version, and the windows that the original made."""

    def __init__(self, version):
        self.folder = SQUAD / f"predictions_v{version}"
        self.version = version
        path = str(SQUAD / f"dev-v{version}.json")
        self.data = read_squad(path, version=version, is_training=False)
        settings = next(
            dict(entry["options"])
            for entry in read_json(SQUAD / "features" / "settings.json")
            if (entry["setting"], entry["version"]) == ("len64", version)
        )
        tokenizer = tokenizer_named("spm", settings.pop("do_lower_case"))
        features = squad_features(self.data, tokenizer, is_training=False, **settings)
        recorded = read_arrays(SQUAD / "features" / f"dev-v{version}_len64.npz")
        indices = recorded["example_index"]
        self.features = rows_of(features, np.isin(features.question_indices, indices))
        np.testing.assert_array_equal(self.features.question_indices, indices)

    def outputs(self, name):
        values = read_arrays(self.folder / f"{name}.npz")
        del values["unique_id"]
        if self.version == 1:
            return {name.replace("log_prob", "logits"): logits for name, logits in values.items()}
        return values

    def select(self, name, *, ranks_padding=False, **options):
        """Returns the answers, from outputs of windows in random order and batches."""
        settings = AnswerSettings(self.version, **options)
        selector = AnswerSelector(self.data, self.features, settings, ranks_padding=ranks_padding)
        outputs = self.outputs(name)
        order = np.random.default_rng(5).permutation(len(self.features))
        for rows in np.split(order, [1, 30, 171]):
            selector.add(rows, {name: values[rows] for name, values in outputs.items()})
        return selector.answers()


def rows_of(features, is_kept):
    """Returns some windows; the original drops questions whose context it cannot align."""
    starts, ends = features.sequences.starts[:-1][is_kept], features.sequences.starts[1:][is_kept]
    tokens = [features.sequences.tokens[a:b] for a, b in zip(starts, ends, strict=True)]
    sequences = TokenSequences(
        np.concatenate(tokens),
        np.concatenate([[0], np.cumsum(ends - starts)]),
        features.sequences.first_lengths[is_kept],
    )
    of_context = {"sequences", "token_starts", "token_ends", "paragraph_offsets", "cut_questions"}
    changed = {
        field.name: getattr(features, field.name)[is_kept]
        for field in fields(SquadFeatures)
        if field.name not in of_context and getattr(features, field.name) is not None
    }
    return replace(features, sequences=sequences, **changed)


@pytest.fixture(scope="module")
def first():
    return Recorded(1)


@pytest.fixture(scope="module")
def second():
    return Recorded(2)


def assert_same_candidates(folder, expected, answers):
    """Compares the written with the recorded file: equal texts, numbers within 1e-6."""
    written = read_json(folder / "nbest_predictions.json")
    assert list(written) == list(expected)
    for qas_id, entries in expected.items():
        assert [entry["text"] for entry in written[qas_id]] == [e["text"] for e in entries], qas_id
        for entry, wanted in zip(written[qas_id], entries, strict=True):
            assert list(entry) == list(wanted)
            for key in ("probability", "start_log_prob", "end_log_prob"):
                assert entry[key] == pytest.approx(wanted[key], abs=1e-6, rel=1e-6), (qas_id, key)
    for number, qas_id in enumerate(expected):
        assert [c.text for c in answers.candidates[number]] == [
            entry["text"] for entry in expected[qas_id]
        ]


@pytest.mark.parametrize(("name", "n_best_size", "max_answer_length"), V1_CASES)
def test_answers_of_squad_1(first, tmp_path, name, n_best_size, max_answer_length):
    answers = first.select(
        "raw_results",
        n_best_size=n_best_size,
        max_answer_length=max_answer_length,
        ranks_padding=True,
    )
    write_answers(str(tmp_path), answers)
    expected = (first.folder / f"predictions_{name}.json").read_text()
    assert (tmp_path / "predictions.json").read_text() == expected
    assert_same_candidates(tmp_path, read_json(first.folder / f"nbest_{name}.json"), answers)
    assert not (tmp_path / "null_odds.json").exists()
    scores = v1_scores(first.data.questions, answers.predictions())
    recorded = read_json(first.folder / "metrics.json")[name]["metrics"]
    assert scores == pytest.approx(recorded, rel=1e-12)


def test_without_padding_answers_are_at_least_as_good(first):
    """Only windows with padding have other candidates."""
    with_padding = first.select("raw_results", n_best_size=5, ranks_padding=True)
    without = first.select("raw_results", n_best_size=5)
    is_full = first.features.sequences.lengths == 64
    full = np.bincount(first.features.question_indices, ~is_full) == 0
    assert 0 < full.sum() < len(full)
    num_more = 0
    for number, only_full_windows in enumerate(full):
        theirs, ours = with_padding.candidates[number], without.candidates[number]
        if only_full_windows:
            assert ours == theirs
        elif theirs[0].text != "empty":
            best = ours[0].start_log_prob + ours[0].end_log_prob
            assert best >= theirs[0].start_log_prob + theirs[0].end_log_prob
            num_more += ours != theirs
    assert num_more


@pytest.mark.parametrize("top", ["top5_5", "top3_4"])
def test_answers_of_squad_2(second, tmp_path, top):
    recorded = read_json(second.folder / "metrics.json")[top]
    answers = second.select(
        f"raw_results_{top}",
        n_best_size=recorded["n_best_size"],
        max_answer_length=recorded["max_answer_length"],
    )
    scores = v2_scores(second.data.questions, answers.predictions(), answers.null_odds_by_id())
    for name, value in (recorded["final_metrics"] | recorded["best_threshold_search"]).items():
        assert scores[name] == pytest.approx(value, rel=1e-12), name
    thresholds = {
        "no_threshold": None,
        "threshold_0": 0.0,
        "best_f1_threshold": scores["null_score_diff_threshold"],
    }
    for name, threshold in thresholds.items():
        write_answers(str(tmp_path), answers, threshold)
        expected = (second.folder / f"predictions_{name}_{top}.json").read_text()
        assert (tmp_path / "predictions.json").read_text() == expected, name
    assert_same_candidates(tmp_path, read_json(second.folder / f"nbest_{top}.json"), answers)
    expected = (second.folder / f"null_odds_{top}.json").read_text()
    assert (tmp_path / "null_odds.json").read_text() == expected


@pytest.mark.parametrize("top", ["top5_5", "top3_4"])
def test_scores_of_single_answers_of_squad_2(second, top):
    recorded = read_json(second.folder / "metrics.json")[top]
    predictions = read_json(second.folder / f"predictions_no_threshold_{top}.json")
    for question in second.data.questions:
        references = [t for t, _ in question.answers if normalize_answer(t)] or [""]
        answer = predictions[question.qas_id]
        exact = recorded["exact_raw_without_threshold"][question.qas_id]
        assert exact_match(answer, references) == exact
        wanted = recorded["f1_raw_without_threshold"][question.qas_id]
        assert f1(answer, references, 2) == pytest.approx(wanted, rel=1e-12)


def test_scores_of_unusual_answers():
    cases = read_json(SQUAD / "answer_metrics.json")
    assert len(cases) > 40
    for case in cases:
        prediction, references = case["prediction"], case["gold"]
        assert normalize_answer(prediction) == case["normalized_v1"] == case["normalized_v2"]
        for version in (1, 2):
            assert exact_match(prediction, references) == case[f"exact_v{version}"], case
            assert f1(prediction, references, version) == pytest.approx(
                case[f"f1_v{version}"], rel=1e-12
            ), case


def test_scores_of_predictions_of_the_original_version_1(first):
    folder = DATA / "programs" / "squad_v1"
    scores = v1_scores(first.data.questions, read_json(folder / "predictions.json"))
    assert scores == pytest.approx(read_json(folder / "metrics.json"), rel=1e-12)


def test_results_file_of_predictions_of_the_original_version_2(second, tmp_path):
    folder = DATA / "programs" / "squad_v2"
    candidates = read_json(folder / "nbest_predictions.json")
    best = {qas_id: entries[0]["text"] for qas_id, entries in candidates.items()}
    scores = v2_scores(second.data.questions, best, read_json(folder / "null_odds.json"))
    names = ("exact", "f1", "null_score_diff_threshold", "total")
    results = {name: scores[name] for name in names}
    file = SquadEvaluationResults(str(tmp_path))
    file.append_with_best(17, results, "f1")
    *_, ending = (tmp_path / "eval_results.txt").read_text().split("=" * 50 + "\n")
    assert ending == (folder / "eval_results.txt").read_text()
