"""Selected answers, compared with a plain loop over all pairs."""

import numpy as np
import pytest

from albert_tf.data.sequences import TokenSequences
from albert_tf.squad.answers import OUTPUTS, AnswerSelector, AnswerSettings
from albert_tf.squad.data import Question, SquadData
from albert_tf.squad.features import SquadFeatures

CONTEXTS = ["  ab cd\u3000 ef ab\n", "x y x y x yy x y", "", "ein Wort und noch ein Wort ohne Ende"]
PARAGRAPHS = [1, 0, 1, 3, 2, 3]  # of the questions
QUESTION_TOKENS = [2, 1, 3, 1, 2, 5]
ROOM, STRIDE = 9, 4  # context tokens of a window, and between the starts of two windows


def character_tokens(context):
    """Returns first and last characters of tokens, which have two characters each."""
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


def outputs_of(features, version, seed, extra=0):
    """Returns outputs with many ties; logits of padding are the largest."""
    generator = np.random.default_rng(seed)
    count, length = len(features), features.sequences.lengths.max() + extra

    def scores(*shape):
        return generator.integers(-6, 1, [count, *shape]).astype(np.float32) / 2

    if version == 1:
        is_real = np.arange(length) < features.sequences.lengths[:, None]
        return {name: np.where(is_real, scores(length), 9.0) for name in OUTPUTS[1]}
    beams = {
        "start_top_log_probs": scores(6),
        "start_top_index": generator.integers(0, length + 2, [count, 6], np.int32),
        "end_top_log_probs": scores(30),
        "end_top_index": generator.integers(0, length + 2, [count, 30], np.int32),
        "cls_logits": generator.normal(size=count).astype(np.float32),
    }
    beams["start_top_index"][:, 2] = beams["start_top_index"][:, 0]
    beams["end_top_index"][:, 10:12] = beams["end_top_index"][:, :2]  # pairs that occur twice
    return beams


def pairs_of_row(features, outputs, row, n_best_size):
    """Yields starts, ends and their scores in the order in which they are tried."""
    if "start_logits" in outputs:
        length = features.sequences.lengths[row]
        starts, ends = (outputs[name][row, :length].tolist() for name in OUTPUTS[1])
        for start in ranked(starts, n_best_size):
            for end in ranked(ends, n_best_size):
                yield start, end, starts[start], ends[end]
        return
    start_scores, starts, end_scores, ends, _ = (outputs[name][row].tolist() for name in OUTPUTS[2])
    for place in range(30):
        yield starts[place // 5], ends[place], start_scores[place // 5], end_scores[place]


@pytest.mark.parametrize(
    ("version", "n_best_size", "max_answer_length", "extra"),
    [(1, 3, 4, 0), (1, 7, 1, 2), (1, 40, 30, 5), (1, 1, 2, 1), (2, 2, 3, 0), (2, 20, 30, 0)],
)
def test_answers(data, features, version, n_best_size, max_answer_length, extra):
    outputs = outputs_of(features, version, 8, extra)
    settings = AnswerSettings(version, n_best_size=n_best_size, max_answer_length=max_answer_length)
    selector = AnswerSelector(data, features, settings)
    for rows in np.split(np.random.default_rng(0).permutation(len(features)), [2, 3, 8]):
        length = features.sequences.lengths[rows].max() + extra if version == 1 else None
        selector.add(rows, {name: values[rows][..., :length] for name, values in outputs.items()})
    answers = selector.answers()
    assert answers.ids == [f"id-{number}" for number in range(6)]
    has_candidates = set()
    for number, paragraph in enumerate(PARAGRAPHS):
        expected = plain_candidates(
            data,
            features,
            number,
            lambda row: pairs_of_row(features, outputs, row, n_best_size),
            max_answer_length,
            n_best_size,
        )
        has_candidates.add(bool(expected))
        if expected:
            assert_as_expected(answers, number, expected, CONTEXTS[paragraph])
        else:
            fallback = (
                ("empty", 1.0, 0.0, 0.0, -1, -1) if version == 1 else ("", 1.0, -1e6, -1e6, -1, -1)
            )
            assert answers.candidates[number] == [fallback]
        assert answers.predictions()[f"id-{number}"] == answers.candidates[number][0].text
    assert has_candidates == {True, False}
    if version == 2:
        rows_of = [features.question_indices == number for number in range(6)]
        odds = [float(outputs["cls_logits"][rows].min()) for rows in rows_of]
        assert list(answers.null_odds_by_id().values()) == odds
    else:
        assert answers.null_odds is None
        assert answers.null_odds_by_id() == {}


def test_portions_of_questions_do_not_change_answers(data, features, monkeypatch):
    selector = AnswerSelector(data, features, AnswerSettings(1))
    selector.add(np.arange(len(features)), outputs_of(features, 1, 6))
    whole = selector.answers().candidates
    for count in (1, 4):
        monkeypatch.setattr("albert_tf.squad.answers._QUESTIONS_AT_ONCE", count)
        assert selector.answers().candidates == whole
