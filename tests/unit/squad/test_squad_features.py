"""Features of unusual questions. tests/golden compares usual features with the original."""

import random
from dataclasses import replace

import numpy as np
import pytest

from albert_tf.squad import features as module
from albert_tf.squad.data import Question, SquadData
from albert_tf.squad.features import check_lengths, cut_windows, squad_features
from albert_tf.tokenization.word_piece import WordPieceTokenizer

WORDS = ["the", "river", "tejo", "is", "wide", "and", "long", "in", "lisbon", "porto", "12", "300"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh里斯本在河边长", "##b"]
LENGTHS = {"max_seq_length": 23, "doc_stride": 5, "max_query_length": 7}


@pytest.fixture(scope="module")
def word_pieces():
    return WordPieceTokenizer(VOCABULARY)


@pytest.mark.parametrize("at_once", [1, 7])
def test_features_do_not_depend_on_batches_and_processes(tokenizer, monkeypatch, at_once):
    rng = random.Random(5)
    contexts = [" ".join(rng.choices(WORDS, k=rng.randrange(1, 90))) for _ in range(9)]
    questions = [
        Question(str(n), " ".join(rng.choices(WORDS, k=n % 9)), n % 9, (("", 0),), True)
        for n in range(31)
    ]
    data = SquadData(contexts, questions, "words.json")
    settings = {**LENGTHS, "is_training": False}
    expected = squad_features(data, tokenizer, **settings)
    monkeypatch.setattr(module, "_WINDOWS_AT_ONCE", at_once)
    monkeypatch.setattr(module, "_CONTEXTS_AT_ONCE", 2)
    monkeypatch.setattr(module, "_QUESTIONS_AT_ONCE", 4)
    workers = 1 if at_once == 1 else 2
    found = squad_features(data, tokenizer, num_workers=workers, **settings)
    np.testing.assert_array_equal(found.sequences.tokens, expected.sequences.tokens)
    for name in ("window_starts", "token_starts", "token_ends", "paragraph_offsets"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def answers_through_tokens(data, tokenizer):
    """Yields each reference answer and the text of its tokens."""
    asked = [
        replace(question, question="", answers=(answer,), is_impossible=False)
        for question in data.questions
        for answer in question.answers
    ]
    features = squad_features(
        SquadData(data.contexts, asked, data.path),
        tokenizer,
        max_seq_length=10_000,  # a window contains its whole context
        doc_stride=1,
        max_query_length=1,
        is_training=True,
    )
    assert len(features) == len(asked)
    for row, question in enumerate(asked):
        base = features.paragraph_offsets[question.paragraph] - features.first_context_position[row]
        begin = features.token_starts[base + features.start_positions[row]]
        end = features.token_ends[base + features.end_positions[row]]
        yield question.answers[0][0], data.contexts[question.paragraph][begin : end + 1]


# Some characters have no token: repeated spaces, zero-width characters, combining marks.
ODD = "  The   ta\u0301ll  \u200b½ \u00a0 cafe\u0301, “12,300” ﬁne\n"


@pytest.mark.parametrize(
    ("text", "back"),
    [
        ("The", "The"),
        (" ta\u0301ll ", "ta\u0301ll"),
        ("\u0301ll", "ta\u0301ll"[1:]),  # the token contains more than the answer
        ("cafe\u0301", "cafe"),  # an accent after the letter of the last token has no token
        ("\u200b½", "½"),
        ("½ ", "½ \u00a0 ca"),  # a space belongs to the word after it
        ("“12,300”", "“12,300”"),
        ("300", "300"),
    ],
)
def test_tokens_of_answers_contain_their_text(tokenizer, text, back):
    question = Question("a", "what", 0, ((text, ODD.index(text)),), False)
    data = SquadData([ODD], [question], "odd.json")
    ((wanted, found),) = answers_through_tokens(data, tokenizer)
    assert (wanted, found.strip()) == (text, back)


@pytest.mark.parametrize("answer", [("\u200b", 1), (" ", 3), ("\n", 4)])
def test_an_answer_without_tokens_gets_the_nearest_token(tokenizer, answer):
    data = SquadData(["a\u200bb \n"], [Question("a", "b", 0, (answer,), False)], "odd.json")
    features = squad_features(data, tokenizer, is_training=True, **LENGTHS)
    assert not features.is_impossible[0]
    assert 3 <= features.start_positions[0] <= features.end_positions[0]


def test_positions_of_chinese_answers(word_pieces):
    context = "里斯本在ab河边。"
    questions = [
        Question("x", "在河边", 0, (("ab", 4),), False),
        Question("y", "长", 0, (("河边", 6),), False),
        Question("z", "", 0, (("里斯本", 0),), False),
    ]
    data = SquadData([context], questions, "zh.json")
    features = squad_features(
        data, word_pieces, max_seq_length=64, doc_stride=9, max_query_length=3, is_training=True
    )
    tokens = [
        word_pieces.convert_ids_to_tokens(ids[ids > 0])
        for ids in features.sequences.padded(np.arange(3), 16)["input_ids"]
    ]
    assert tokens[1] == ["[CLS]", "长", "[SEP]", *"里斯本在", "a", "##b", *"河边", "[UNK]", "[SEP]"]
    chosen = [
        row[start : end + 1]
        for row, start, end in zip(
            tokens, features.start_positions, features.end_positions, strict=True
        )
    ]
    assert chosen == [["a", "##b"], ["河", "边"], ["里", "斯", "本"]]
    back = [found for _, found in answers_through_tokens(data, word_pieces)]
    assert back == ["ab", "河边", "里斯本"]


def test_an_empty_context_has_a_window(word_pieces):
    questions = [Question("a", "a b", 0, (), False), Question("b", "", 1, (), False)]
    data = SquadData(["\u200b \n", ""], questions, "x.json")
    features = squad_features(data, word_pieces, is_training=False, **LENGTHS)
    rows = np.arange(2)
    assert features.sequences.padded(rows, 5)["input_ids"].tolist() == [
        [2, 5, 6, 3, 0],
        [2, 3, 0, 0, 0],
    ]
    assert features.context_lengths(rows).tolist() == [0, 0]
    assert not features.is_max_context(rows, np.tile(np.arange(-1, 6), (2, 1))).any()


def test_lengths_without_room_are_rejected():
    check_lengths(max_seq_length=23, doc_stride=5, max_query_length=19)  # one token of context
    with pytest.raises(ValueError, match=r"`max_seq_length` must be at least 24 .* Received: 23"):
        check_lengths(max_seq_length=23, doc_stride=5, max_query_length=20)


def test_a_stride_longer_than_a_window_skips_no_token():
    windows = cut_windows(np.array([0, 4, 9]), np.array([4, 4, 4]), doc_stride=7)
    assert windows.questions.tolist() == [0, 1, 2, 2, 2]
    assert windows.starts.tolist() == [0, 0, 0, 4, 8]
    assert windows.lengths.tolist() == [0, 4, 4, 4, 1]


def test_truncated_questions_are_reported(word_pieces, caplog):
    lengths = dict(zip("abcd", (6, 8, 7, 40), strict=True))
    questions = [Question(name, "a " * n, 0, (), True) for name, n in lengths.items()]
    data = SquadData(["b " * 50], questions, "long.json")
    squad_features(data, word_pieces, is_training=False, **{**LENGTHS, "max_query_length": 7})
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "rows=2 with a question longer than `max_query_length`=7" in warnings[0]
    assert "(ids b, d)" in warnings[0]


def test_answers_that_fit_into_no_window_are_reported(word_pieces, caplog):
    contexts = [" ".join("abcdefgh" * 4), "a b"]
    long = [
        Question(f"long{n}", "", 0, ((contexts[0][: 2 * n - 1], 0),), False) for n in range(21, 28)
    ]
    short = Question("short", "", 1, (("b", 2),), False)
    unanswerable = Question("none", "", 1, (), True)
    data = SquadData(contexts, [*long, short, unanswerable], "x.json")
    features = squad_features(data, word_pieces, is_training=True, **LENGTHS)
    assert np.count_nonzero(~features.is_impossible) == 1
    assert "rows=7 with an answer that does not fit into a window" in caplog.messages[0]
    assert "(ids long21, long22, long23, long24, long25, ...)" in caplog.messages[0]
    lengths = {**LENGTHS, "is_training": True}
    with pytest.raises(ValueError, match=r"x.json.* up to 20 tokens .* Increase `max_seq_length`"):
        squad_features(SquadData(contexts, long, "x.json"), word_pieces, **lengths)
    split = Question("split", "", 0, ((contexts[0][38:42], 38),), False)  # tokens 19 to 20
    with pytest.raises(ValueError, match=r"x.json.* Decrease `doc_stride`"):
        squad_features(
            SquadData(contexts, [split], "x.json"), word_pieces, **{**lengths, "doc_stride": 20}
        )
