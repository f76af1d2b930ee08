import numpy as np

from albert_tf.pretraining.masking import find_words


def test_words_of_a_sequence() -> None:
    starts = np.array([True, False, True])
    ids = np.array([[2, 1, 2, 1, 2, 1, 1, 2, 0, 0]])
    is_text = np.array([[0, 1, 1, 1, 0, 1, 1, 1, 0, 0]], bool)
    words = find_words(ids, is_text, starts, whole_words=True)
    # The first token opens a word although it starts none; the one after [SEP] joins the last.
    assert words.counts.tolist() == [3]
    assert words.of_position[is_text].tolist() == [0, 1, 1, 1, 1, 2]
    assert words.begin.tolist() == [[0, 1, 5, 6]]


def test_every_token_is_a_word_without_whole_words() -> None:
    ids = np.arange(5 * 9).reshape(5, 9)
    is_text = ids % 4 > 0
    words = find_words(ids, is_text, ids.ravel() % 2 > 0, whole_words=False)
    assert words.counts.tolist() == is_text.sum(axis=1).tolist()
    for begin, count in zip(words.begin, words.counts, strict=True):
        assert begin[: count + 1].tolist() == list(range(count + 1))
