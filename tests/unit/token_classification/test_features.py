"""Windows of sentences, and the task that is trained on them."""

import numpy as np
import tensorflow as tf

from albert_tf.labels import Labels
from albert_tf.modeling.losses import classification_loss
from albert_tf.modeling.models import AlbertForTokenClassification
from albert_tf.token_classification import features as module
from albert_tf.token_classification.features import TokenFeatures, WordTokenizer, token_features
from albert_tf.token_classification.task import TokenClassificationTask
from tests.small_model import encoder_inputs, small_config

LABELS = Labels(("O", "B-PER", "I-PER"))


class Letters:
    """A tokenizer with one piece per letter."""

    unk_id, cls_id, sep_id = 0, 1, 2
    source = "letters"

    def encode_batch(self, words):
        return [[3 + ord(letter) - ord("a") for letter in word.strip()] for word in words]

    def encode_with_offsets(self, text):
        """Returns no unknown characters."""
        return [], [], []


def predicted_in(counts: list[int], room: int) -> list[tuple[int, int]]:
    """Returns the first piece of the window of each word, and the position of the word in it."""
    total, starts = sum(counts), [0]
    while starts[-1] + room < total:
        starts.append(min(starts[-1] + (room + 1) // 2, total - room))
    found, piece = [], 0
    for count in counts:
        # The first window with the most context on the side with less context.
        start = max(starts, key=lambda s: (min(piece - s, s + room - 1 - piece), -s))
        found.append((start, 1 + piece - start))
        piece += count
    return found


def test_words_are_predicted_in_the_window_with_the_most_context(monkeypatch):
    monkeypatch.setattr(module, "_SENTENCES_AT_ONCE", 3)
    random = np.random.default_rng(1)
    for room in (1, 2, 5, 8, 13):
        counts = [random.integers(1, 7, random.integers(0, 20)).tolist() for _ in range(40)]
        counts.append([1, 60, 1])  # windows inside the long word predict nothing
        sentences = [(["abcdefghij"[:n] * (n // 10 or 1) for n in row], None) for row in counts]
        sentences[-1] = (["a", "b" * 60, "c"], None)
        found = token_features(sentences, WordTokenizer(Letters()), room + 2)
        expected = [predicted_in(row, room) for row in counts]
        assert found.positions.tolist() == [place for row in expected for _, place in row]
        windows = [(i, start) for i, row in enumerate(expected) for start, _ in row]
        assert len(found.sequences) == len(set(windows))
        assert np.diff(found.word_starts).tolist() == [
            windows.count(window) for window in dict.fromkeys(windows)
        ]
        assert np.diff(found.sentence_starts).tolist() == list(map(len, counts))
        assert found.sequences.lengths.max() <= room + 2


def example() -> TokenFeatures:
    rows = [(["ab", "", "cde"], [1, 0, 2]), (["a"], [0]), (["de", "ba"], [1, 0])]
    return token_features(rows, WordTokenizer(Letters()), 6)


def test_labels_are_at_first_pieces_and_words_without_pieces_are_unknown():
    found = example()
    batch = found.sequences.padded(np.arange(4), 6)["input_ids"].tolist()
    assert batch == [[1, 3, 4, 0, 5, 2], [1, 0, 5, 6, 7, 2], [1, 3, 2, 0, 0, 0], [1, 6, 7, 4, 3, 2]]
    assert found.positions.tolist() == [1, 3, 2, 1, 1, 3]
    labels = np.split(found.token_labels(), found.sequences.starts[1:-1])
    assert [row.tolist() for row in labels] == [
        [-1, 1, -1, 0, -1, -1],
        [-1, -1, 2, -1, -1, -1],
        [-1, 0, -1],
        [-1, 1, -1, 0, -1, -1],
    ]
    words, owners = found.words_of(np.array([3, 0]))
    assert (words.tolist(), owners.tolist()) == ([4, 5, 0, 1], [0, 0, 1, 1])


def test_no_sentences_give_no_windows():
    assert len(token_features([], WordTokenizer(Letters()), 6).sequences) == 0


def test_batches_have_labels_at_first_pieces_only():
    task = TokenClassificationTask(small_config(), LABELS, example(), max_seq_length=6)
    batch = next(iter(task.train_dataset(4, seed=1)))
    assert batch["label_ids"].shape == batch["input_ids"].shape
    rows = zip(batch["input_ids"].numpy().tolist(), batch["label_ids"].numpy(), strict=True)
    by_row = {tuple(ids): labels.tolist() for ids, labels in rows}
    assert by_row[1, 0, 5, 6, 7, 2] == [-1, -1, 2, -1, -1, -1]
    assert by_row[1, 3, 2, 0, 0, 0] == [-1, 0, -1, -1, -1, -1]


def test_the_description_of_the_input_depends_on_words_and_labels():
    def described(rows):
        found = token_features(rows, WordTokenizer(Letters()), 6)
        return TokenClassificationTask(
            small_config(), LABELS, found, max_seq_length=6
        ).describe_input()

    rows = [(["ab", "c"], [1, 0])]
    assert described(rows) == described(rows)
    for other in ([(["ab", "c"], [1, 2])], [(["ab", "d"], [1, 0])], [(["a", "bc"], [1, 0])]):
        assert described(other) != described(rows)


def test_compiled_models_have_the_loss_of_the_task():
    model = AlbertForTokenClassification(small_config(), num_labels=4)
    x, random = encoder_inputs(), np.random.default_rng(3)
    labels = random.integers(0, 4, x["input_ids"].shape)
    weights = (x["input_mask"].numpy() * random.integers(0, 2, labels.shape)).astype(np.float32)
    logits = model(x)["logits"]
    expected = classification_loss(logits, tf.constant(labels, tf.int32), tf.constant(weights))
    model.compile(loss=model.default_loss(), run_eagerly=True)
    found = model.evaluate(x, labels, sample_weight=weights, batch_size=len(labels), verbose=0)
    np.testing.assert_allclose(found, expected.mean(), rtol=1e-5)
