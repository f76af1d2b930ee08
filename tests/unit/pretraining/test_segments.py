import random

import pytest

from albert_tf.pretraining.segments import Documents, Pair, SegmentSettings, pair_segments


def documents(*lengths: list[int]) -> Documents:
    """Documents of segments of the given lengths; tokens are numbered from 0."""
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


def test_single_runs_use_every_token_once_and_fill_the_sequence():
    docs = documents([3, 5, 4, 6, 7, 2, 90, 3, 3], [1], [21], [22])
    for index, lengths in enumerate(([21] * 5 + [18], [1], [21], [21, 1])):
        runs = pairs_of(docs, index, sentence_loss="none")
        assert [run.a_end - run.a_start for run in runs] == lengths
        assert {(run.label, run.random_document, run.tokens_cut) for run in runs} == {(0, -1, 0)}
        assert all(run.b_start == run.b_end for run in runs)
        begin, end = (docs.segment_starts[docs.document_starts[n]] for n in (index, index + 1))
        assert [token for run in runs for token in range(run.a_start, run.a_end)] == [
            *range(begin, end)
        ]


def test_short_single_runs_are_whole_segments():
    docs = documents([4] * 30)
    lengths = set()
    for seed in range(200):
        runs = pairs_of(docs, seed=seed, short_seq_prob=1.0, sentence_loss="none")
        assert sum(run.a_end - run.a_start for run in runs) == 120
        lengths.add(runs[0].a_end - runs[0].a_start)
    assert lengths == {4, 8, 12, 16, 20, 21}  # 21: a target of 21, cut in the sixth segment


def test_shortest_length_leaves_a_token_in_each_part():
    docs = documents([9, 1, 4], [3])
    for seed in range(20):
        for pair in pairs_of(docs, seed=seed, max_seq_length=5):
            assert (pair.a_end - pair.a_start, pair.b_end - pair.b_start) == (1, 1)


@pytest.mark.parametrize(
    ("name", "value"), [("max_seq_length", 4), ("short_seq_prob", 1.1), ("short_seq_prob", -0.1)]
)
def test_settings_are_checked(name, value):
    with pytest.raises(ValueError, match=f"--{name} must .*{value}"):
        SegmentSettings(**{name: value})


def test_unknown_sentence_losses_are_refused():
    with pytest.raises(ValueError, match=r"--sentence_loss must be one of sop, nsp, none.*'mlm'"):
        SegmentSettings(sentence_loss="mlm")


def test_sentence_pairs_are_checked():
    with pytest.raises(ValueError, match=r"--sentence_pairs must be one of original, adjacent.*'x"):
        SegmentSettings(sentence_pairs="x")
    with pytest.raises(ValueError, match=r"--sentence_pairs=adjacent contradicts.*_loss=nsp"):
        SegmentSettings(sentence_pairs="adjacent", sentence_loss="nsp")
    runs = [
        pairs_of(documents([7, 9, 30]), sentence_loss="none", sentence_pairs=pairs)
        for pairs in ("original", "adjacent")
    ]
    assert runs[0] == runs[1]
