"""Selected answers, compared with a plain loop over all pairs."""

from dataclasses import replace

import numpy as np
import pytest

from albert_tf.data.sequences import TokenSequences
from albert_tf.squad.answers import AnswerSelector, AnswerSettings
from albert_tf.squad.data import Question, SquadData
from albert_tf.squad.features import SquadFeatures

CONTEXTS = ["  ab cd\u3000 ef ab\n", "x y x y x yy x y", "", "ein Wort und noch ein Wort ohne Ende"]
PARAGRAPHS = [1, 0, 1, 3, 2, 3]  # of the questions
QUESTION_TOKENS = [2, 1, 3, 1, 2, 5]
ROOM, STRIDE = 9, 4  # context tokens of a window, and by how many the next begins behind it


def character_tokens(context):
    """A token for every two characters, white space included; the last may be shorter."""
    starts = np.arange(0, len(context), 2)
    return starts, np.minimum(starts + 1, len(context) - 1)


@pytest.fixture
def data():
    questions = [
        Question(f"id-{number}", "?", paragraph, (), False)
        for number, paragraph in enumerate(PARAGRAPHS)
    ]
    return SquadData(CONTEXTS, questions, "file.json")


@pytest.fixture
def features(data):
    tokens = [character_tokens(context) for context in CONTEXTS]
    counts = [len(starts) for starts, _ in tokens]
    windows = [
        (number, span * STRIDE, min(ROOM, counts[paragraph] - span * STRIDE))
        for number, paragraph in enumerate(PARAGRAPHS)
        for span in range(1 + -(-max(counts[paragraph] - ROOM, 0) // STRIDE))
    ]
    questions, starts, lengths = np.array(windows, np.int32).T
    first = np.array(QUESTION_TOKENS, np.int32)[questions] + 2
    totals = first + lengths + (lengths > 0)
    sequences = TokenSequences(
        np.ones(totals.sum(), np.int32), np.concatenate([[0], np.cumsum(totals)]), first
    )
    return SquadFeatures(
        sequences=sequences,
        question_indices=questions,
        paragraph_indices=np.array(PARAGRAPHS, np.int32)[questions],
        window_starts=starts,
        token_starts=np.concatenate([starts for starts, _ in tokens]).astype(np.int32),
        token_ends=np.concatenate([ends for _, ends in tokens]).astype(np.int32),
        paragraph_offsets=np.concatenate([[0], np.cumsum(counts)]),
    )


def plain_candidates(data, features, number, pairs_of_row, max_answer_length, n_best_size):
    """Returns texts, scores and first characters according to the docstring of the selector."""
    found = []
    context = data.contexts[data.questions[number].paragraph]
    offset = features.paragraph_offsets[data.questions[number].paragraph]
    for row in np.flatnonzero(features.question_indices == number):
        first = features.sequences.first_lengths[row]
        length = int(features.context_lengths(np.array([row]))[0])
        spans = {}
        for start, end, *scores in pairs_of_row(row):
            token, last = start - first, end - first
            if not (0 <= token <= last < length) or last - token + 1 > max_answer_length:
                continue
            if not features.is_max_context(np.array([row]), np.array([[start]]))[0, 0]:
                continue
            spans.setdefault((token, last), []).append(scores)
        for (token, last), scores in spans.items():
            begin = features.token_starts[offset + features.window_starts[row] + token]
            end = features.token_ends[offset + features.window_starts[row] + last]
            text = context[begin : end + 1].strip()
            found.append(
                (text, *(sum(values) / len(scores) for values in zip(*scores, strict=True)), begin)
            )
    found.sort(key=lambda entry: -(entry[1] + entry[2]))
    distinct = {}
    for entry in found:
        distinct.setdefault(entry[0], entry)
    return list(distinct.values())[:n_best_size]


def ranked(logits, count):
    """Returns the positions of the largest numbers; ties keep their order."""
    return sorted(range(len(logits)), key=lambda place: -logits[place])[:count]


def assert_as_expected(answers, number, expected, context):
    got = answers.candidates[number]
    assert [entry.text for entry in got] == [entry[0] for entry in expected]
    for entry, (text, start_score, end_score, begin) in zip(got, expected, strict=True):
        assert (entry.start_log_prob, entry.end_log_prob) == (start_score, end_score)
        assert context[entry.start : entry.end] == text
        assert begin <= entry.start
    exponentials = np.exp([entry[1] + entry[2] for entry in expected])
    shares = exponentials / exponentials.sum()
    np.testing.assert_allclose([entry.probability for entry in got], shares, rtol=1e-12, atol=0)


def logits_of(features, seed, extra):
    """Returns logits with many ties; those of padding are the largest."""
    generator = np.random.default_rng(seed)
    length = features.sequences.lengths.max() + extra
    names = ("start_logits", "end_logits")
    return {
        name: np.where(
            np.arange(length) < features.sequences.lengths[:, None],
            generator.integers(-3, 4, [len(features), length]) / 2,
            9.0,
        ).astype(np.float32)
        for name in names
    }


@pytest.mark.parametrize(
    ("n_best_size", "max_answer_length", "extra"), [(3, 4, 0), (7, 1, 2), (40, 30, 5), (1, 2, 1)]
)
def test_first_version(data, features, n_best_size, max_answer_length, extra):
    logits = logits_of(features, 3, extra)
    settings = AnswerSettings(1, n_best_size=n_best_size, max_answer_length=max_answer_length)
    selector = AnswerSelector(data, features, settings)
    for rows in np.split(np.arange(len(features))[::-1], [2, 3, 8]):
        length = features.sequences.lengths[rows].max() + extra
        selector.add(rows, {name: values[rows, :length] for name, values in logits.items()})
    answers = selector.answers()

    def pairs_of_row(row):
        length = features.sequences.lengths[row]
        starts, ends = (logits[name][row, :length] for name in ("start_logits", "end_logits"))
        for start in ranked(starts, n_best_size):
            for end in ranked(ends, n_best_size):
                yield start, end, float(starts[start]), float(ends[end])

    assert answers.ids == [f"id-{number}" for number in range(6)]
    for number, paragraph in enumerate(PARAGRAPHS):
        expected = plain_candidates(
            data, features, number, pairs_of_row, max_answer_length, n_best_size
        )
        if paragraph == 2 or not expected:
            expected = [("empty", 0.0, 0.0, -1)]
            assert [(e.text, e.start, e.end) for e in answers.candidates[number]] == [
                ("empty", -1, -1)
            ]
        else:
            assert_as_expected(answers, number, expected, CONTEXTS[paragraph])
        assert answers.predictions()[f"id-{number}"] == expected[0][0]
    assert answers.null_odds is None
    assert answers.null_odds_by_id() == {}


def beams_of(features, seed, num_starts=6, num_ends=5):
    """Returns beams with many ties, repetitions and positions outside of the context."""
    generator = np.random.default_rng(seed)
    count = len(features)
    length = features.sequences.lengths.max() + 2
    return {
        "start_top_log_probs": -generator.integers(0, 3, [count, num_starts]).astype(np.float32),
        "start_top_index": generator.integers(0, length, [count, num_starts], np.int32),
        "end_top_log_probs": -generator.integers(0, 3, [count, num_starts * num_ends]).astype(
            np.float32
        ),
        "end_top_index": generator.integers(0, length, [count, num_starts * num_ends], np.int32),
        "cls_logits": generator.normal(size=count).astype(np.float32),
    }


@pytest.mark.parametrize(("n_best_size", "max_answer_length"), [(2, 3), (20, 30)])
def test_second_version(data, features, n_best_size, max_answer_length):
    beams = beams_of(features, 8)
    beams["start_top_index"][:, 2] = beams["start_top_index"][:, 0]
    beams["end_top_index"][:, 10:12] = beams["end_top_index"][:, :2]  # pairs that occur twice
    settings = AnswerSettings(2, n_best_size=n_best_size, max_answer_length=max_answer_length)
    selector = AnswerSelector(data, features, settings)
    for rows in np.split(np.random.default_rng(0).permutation(len(features)), [5, 6]):
        selector.add(rows, {name: values[rows] for name, values in beams.items()})
    answers = selector.answers()

    def pairs_of_row(row):
        for beam in range(6):
            for rank in range(5):
                place = beam * 5 + rank
                yield (
                    int(beams["start_top_index"][row, beam]),
                    int(beams["end_top_index"][row, place]),
                    float(beams["start_top_log_probs"][row, beam]),
                    float(beams["end_top_log_probs"][row, place]),
                )

    kinds = set()
    for number, paragraph in enumerate(PARAGRAPHS):
        expected = plain_candidates(
            data, features, number, pairs_of_row, max_answer_length, n_best_size
        )
        kinds.add(bool(expected))
        if expected:
            assert_as_expected(answers, number, expected, CONTEXTS[paragraph])
        else:
            (entry,) = answers.candidates[number]
            assert (entry.text, entry.start_log_prob, entry.end_log_prob) == ("", -1e6, -1e6)
            assert (entry.probability, entry.start, entry.end) == (1.0, -1, -1)
    assert kinds == {True, False}
    odds = [
        float(beams["cls_logits"][features.question_indices == number].min()) for number in range(6)
    ]
    assert list(answers.null_odds_by_id().values()) == odds


def test_questions_at_the_threshold_are_unanswered(data, features):
    selector = AnswerSelector(data, features, AnswerSettings(2))
    selector.add(np.arange(len(features)), beams_of(features, 8))
    answers = selector.answers()
    best = answers.predictions()
    threshold = sorted(answers.null_odds_by_id().values())[2]
    kept = answers.predictions(threshold)
    for qas_id, odds in answers.null_odds_by_id().items():
        assert kept[qas_id] == (best[qas_id] if odds < threshold else "")
    assert sum(kept[qas_id] != best[qas_id] for qas_id in best) > 1


def test_padding_displaces_candidates_if_it_is_ranked(data, features):
    logits = logits_of(features, 1, extra=3)
    rows = np.arange(len(features))
    found = {}
    for ranks_padding in (False, True):
        settings = AnswerSettings(1, n_best_size=3)
        selector = AnswerSelector(data, features, settings, ranks_padding=ranks_padding)
        selector.add(rows, logits)
        found[ranks_padding] = selector.answers()
    assert set(found[True].predictions().values()) == {"empty"}
    assert sum(text != "empty" for text in found[False].predictions().values()) >= 3


def test_a_question_without_windows(data, features):
    data = replace(data, questions=[*data.questions, Question("last", "?", 0, (), False)])
    rows = np.arange(len(features))
    first, second = (AnswerSelector(data, features, AnswerSettings(n)) for n in (1, 2))
    first.add(rows, logits_of(features, 0, 0))
    second.add(rows, beams_of(features, 0))
    assert first.answers().predictions()["last"] == "empty"
    answers = second.answers()
    assert answers.null_odds_by_id()["last"] == 1e6
    assert answers.predictions()["last"] == ""


def test_portions_of_questions_do_not_change_answers(data, features, monkeypatch):
    selector = AnswerSelector(data, features, AnswerSettings(1))
    selector.add(np.arange(len(features)), logits_of(features, 6, 0))
    whole = selector.answers().candidates
    for count in (1, 4):
        monkeypatch.setattr("albert_tf.squad.answers._QUESTIONS_AT_ONCE", count)
        assert selector.answers().candidates == whole


def test_windows_without_outputs_are_reported(data, features):
    selector = AnswerSelector(data, features, AnswerSettings(2))
    beams = beams_of(features, 8)
    rows = np.arange(len(features))[2:]
    selector.add(rows, {name: values[rows] for name, values in beams.items()})
    with pytest.raises(ValueError, match=rf"2 of {len(features)} windows"):
        selector.answers()
