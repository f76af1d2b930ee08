"""The cache of features: used only for what it was made from, and never in the way."""

import json
import logging
from dataclasses import dataclass, field

import numpy as np
import pytest

from albert_tf.data import feature_cache
from albert_tf.data.feature_cache import cached_text_features
from albert_tf.data.text_examples import DEV, TEST, TRAIN, Labels, TextExample
from albert_tf.data.text_features import text_features
from albert_tf.tokenization import load_tokenizer

ROWS = [
    TextExample("r-1", "The garden of forking paths.", "A text.", "yes"),
    TextExample("r-2", "Two\ttexts", "é", "no"),
    TextExample("r-5", "", "Three texts, 9, or more.", "yes"),
]


@dataclass
class SmallData:
    """Three pairs of texts in every split; those to predict have no labels."""

    name: str = "small"
    labels: Labels = field(default_factory=lambda: Labels(("no", "yes")))
    best_metric: str = "eval_accuracy"
    metrics: tuple[str, ...] = ()
    submission_file: str | None = None
    rows: tuple[TextExample, ...] = tuple(ROWS)

    def file(self, split):
        return split

    def read(self, split):
        if split == TEST:
            return [TextExample(row.guid, row.text_a, row.text_b) for row in self.rows]
        return list(self.rows)


@pytest.fixture(scope="module")
def model_file(golden):
    return str(golden / "tokenizer" / "small_1000.model")


@pytest.fixture
def tokenizer(model_file):
    return load_tokenizer(spm_model_file=model_file)


@pytest.fixture
def made(monkeypatch):
    """Counts how often features were made."""
    calls = []

    def count(*arguments):
        calls.append(arguments)
        return text_features(*arguments)

    monkeypatch.setattr(feature_cache, "text_features", count)
    return calls


@pytest.fixture(autouse=True)
def _log(caplog):
    caplog.set_level(logging.INFO, logger="absl")


def assert_same(ours, theirs):
    rows, length = np.arange(len(theirs.guids)), 40
    for name, values in theirs.sequences.padded(rows, length).items():
        np.testing.assert_array_equal(ours.sequences.padded(rows, length)[name], values)
    np.testing.assert_array_equal(ours.label_ids, theirs.label_ids)
    assert ours.guids == theirs.guids


@pytest.mark.parametrize(
    ("split", "name"),
    [
        (TRAIN, "small_train.tf_record"),
        (DEV, "small_eval.tf_record"),
        (TEST, "predict.tf_record"),
    ],
)
def test_features_are_used_again(tmp_path, tokenizer, made, split, name):
    folder = tmp_path / "new" / "folder"
    first = cached_text_features(SmallData(), split, tokenizer, 24, str(folder))
    assert sorted(path.name for path in folder.iterdir()) == [name, f"{name}.json"]
    again = cached_text_features(SmallData(), split, tokenizer, 24, str(folder))
    assert len(made) == 1
    assert_same(again, first)
    assert again.guids == ["r-1", "r-2", "r-5"]
    assert again.label_ids is None if split == TEST else again.label_ids.tolist() == [1, 0, 1]


def test_without_a_folder_nothing_is_kept(tmp_path, tokenizer, made, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        cached_text_features(SmallData(), TRAIN, tokenizer, 24, None)
    assert len(made) == 2
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("part", ["labels", "max_seq_length", "rows", "tokenizer", "guid", "label"])
def test_what_changed_is_noticed_and_named(
    tmp_path, tokenizer, model_file, golden, made, caplog, part
):
    cached_text_features(SmallData(), DEV, tokenizer, 24, str(tmp_path))
    data, length = SmallData(), 24
    if part == "labels":
        data.labels = Labels(("yes", "no"))
    elif part == "rows":
        data.rows = (*ROWS[:2], TextExample("r-5", "", "Three texts, 9, or many.", "yes"))
    elif part == "guid":
        data.rows = (*ROWS[:2], TextExample("r-6", *["", ROWS[2].text_b, "yes"]))
    elif part == "label":
        data.rows = (*ROWS[:2], TextExample("r-5", "", ROWS[2].text_b, "no"))
    elif part == "max_seq_length":
        length = 23
    else:
        tokenizer = load_tokenizer(spm_model_file=model_file, do_lower_case=False)
    features = cached_text_features(data, DEV, tokenizer, length, str(tmp_path))
    assert len(made) == 2
    assert_same(features, text_features(data.read(DEV), data.labels, tokenizer, length))
    named = "rows" if part in ("guid", "label") else part
    assert f"small_eval.tf_record is made anew: changed={named}\n" in caplog.text
    assert_same(cached_text_features(data, DEV, tokenizer, length, str(tmp_path)), features)
    assert len(made) == 2


def test_predictions_of_two_tasks_share_a_name_but_nothing_else(tmp_path, tokenizer, caplog):
    cached_text_features(SmallData(), TEST, tokenizer, 24, str(tmp_path))
    other = SmallData(name="other", rows=tuple(ROWS[:2]))
    features = cached_text_features(other, TEST, tokenizer, 24, str(tmp_path))
    assert features.guids == ["r-1", "r-2"]
    assert "changed=task,rows\n" in caplog.text


def test_each_tokenizer_has_features_of_its_own(tmp_path, tokenizer, golden, made):
    words = load_tokenizer(vocab_file=str(golden / "tokenizer" / "vocab.txt"))
    for each in (tokenizer, words):
        features = cached_text_features(SmallData(), TRAIN, each, 24, str(tmp_path))
        assert_same(features, text_features(ROWS, SmallData().labels, each, 24))
    assert len(made) == 2


def test_a_foreign_file_is_neither_read_nor_replaced(tmp_path, tokenizer, made, caplog):
    path = tmp_path / "small_train.tf_record"
    path.write_bytes(b"of the original")
    for _ in range(2):
        features = cached_text_features(SmallData(), TRAIN, tokenizer, 24, str(tmp_path))
        assert_same(features, text_features(ROWS, SmallData().labels, tokenizer, 24))
    assert len(made) == 2
    assert path.read_bytes() == b"of the original"
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    assert "is not used and left as it is: no small_train.tf_record.json says" in caplog.text


def overwrite(path):
    path.write_bytes(path.read_bytes()[:-1])


def exchange(path):
    """The records in another order: each one is sound."""
    data = path.read_bytes()
    size = 16 + int.from_bytes(data[:8], "little")
    path.write_bytes(data[size:] + data[:size])


def cut_note(path):
    note = path.with_name(f"{path.name}.json")
    note.write_text(note.read_text()[:-9])


def other_note(path):
    path.with_name(f"{path.name}.json").write_text("[3]")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (overwrite, "record 3: the file ends inside this record"),
        (exchange, "it does not hold what was written"),
        (cut_note, "changed=format,task,labels,max_seq_length,tokenizer,rows"),
        (other_note, "changed=format,task,labels,max_seq_length,tokenizer,rows"),
    ],
)
def test_damaged_files_are_made_anew(tmp_path, tokenizer, made, caplog, damage, message):
    path = tmp_path / "small_train.tf_record"
    first = cached_text_features(SmallData(), TRAIN, tokenizer, 24, str(tmp_path))
    sound = path.read_bytes()
    damage(path)
    assert_same(cached_text_features(SmallData(), TRAIN, tokenizer, 24, str(tmp_path)), first)
    assert len(made) == 2
    assert f"{path} is made anew: " in caplog.text
    assert message in caplog.text
    assert path.read_bytes() == sound
    cached_text_features(SmallData(), TRAIN, tokenizer, 24, str(tmp_path))
    assert len(made) == 2


def test_being_stopped_while_writing_does_no_harm(tmp_path, tokenizer, made, monkeypatch):
    """With nothing there, and with the features of other settings there."""

    def stop(*arguments):
        raise KeyboardInterrupt

    for length in (24, 20):
        with monkeypatch.context() as context:
            context.setattr(feature_cache, "write_text_records", stop)
            with pytest.raises(KeyboardInterrupt):
                cached_text_features(SmallData(), TRAIN, tokenizer, length, str(tmp_path))
        made.clear()
        for _ in range(2):
            features = cached_text_features(SmallData(), TRAIN, tokenizer, length, str(tmp_path))
            assert_same(features, text_features(ROWS, SmallData().labels, tokenizer, length))
        assert len(made) == 1


def test_the_note_says_what_the_file_was_made_from(tmp_path, tokenizer):
    cached_text_features(SmallData(), TRAIN, tokenizer, 24, str(tmp_path))
    note = json.loads((tmp_path / "small_train.tf_record.json").read_text())
    assert (note["task"], note["labels"], note["max_seq_length"]) == ("small", ["no", "yes"], 24)
