"""Predictions for files of texts: a line with label and probabilities per line."""

import io
import itertools
import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.classification.predict_texts import (
    TextPredictor,
    check_file,
    predict_file,
    predict_lines,
)
from albert_tf.data.streams import read_lines
from albert_tf.data.text_examples import Labels

CLASSES = Labels(("low", "middle", "high"))
LENGTH = 12


class LengthPredictor:
    """A fake model: predicts class n % K, or the number n / 8, for a sequence of n tokens."""

    max_seq_length = LENGTH

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self.groups: list[int] = []

    def predict(self, sequences, description):
        self.groups.append(len(sequences))
        if self.labels.is_regression:
            return {"logits": sequences.lengths[:, None].astype(np.float32) / 8}
        classes = np.arange(self.labels.num_outputs)
        likeliest = sequences.lengths[:, None] % len(classes) == classes
        return {"logits": np.where(likeliest, np.float32(np.log(6)), np.float32(0))}


@pytest.fixture
def new_classifier(tokenizer):
    def new(labels: Labels = CLASSES, is_pair: bool = False) -> TextPredictor:
        return TextPredictor(LengthPredictor(labels), tokenizer, labels, is_pair)

    return new


def text_of(num_tokens: int) -> str:
    """Returns a text with a number of tokens, without special tokens."""
    return " ".join(["the"] * num_tokens)


def predicted(classifier: TextPredictor, data: bytes) -> list[str]:
    """Returns the lines of the output for the content of a file."""
    out = io.BytesIO()
    predict_lines(read_lines(io.BytesIO(data)), classifier, out, source="texts")
    assert out.getvalue().endswith(b"\n")
    return out.getvalue().decode().split("\n")[:-1]


def test_a_line_contains_the_label_and_the_probability_of_every_class(new_classifier):
    lines = predicted(new_classifier(), f"{text_of(1)}\n{text_of(6)}".encode())
    assert lines == [
        "low\tlow=0.750000\tmiddle=0.125000\thigh=0.125000",
        "high\tlow=0.125000\tmiddle=0.125000\thigh=0.750000",
    ]


def test_special_characters_of_labels_are_escaped(new_classifier):
    names = ("a\tb\\", "c\nd=1\r", "\\t", "Größe\ud800")
    (line,) = predicted(new_classifier(Labels(names)), text_of(2).encode())
    label, *fields = line.split("\t")
    assert label == r"a\tb" + "\\\\"
    assert [field.rpartition("=")[0] for field in fields] == [
        r"a\tb" + "\\\\",
        r"c\nd=1\r",
        r"\\t",
        r"Größe\ud800",
    ]
    values = [float(field.rpartition("=")[2]) for field in fields]
    np.testing.assert_allclose(values, [6 / 9, 1 / 9, 1 / 9, 1 / 9], rtol=0, atol=1e-6)


def test_only_line_feeds_separate_lines(new_classifier):
    one, two = text_of(1), text_of(2)
    lines = [f"\ufeff{two}\r", "", f"{one}\u2028{one}\x0b{one}\x85\r{one}", " ", f"{one}\t{one}"]
    classifier = new_classifier(Labels())
    expected = ["0.5", "0.25", "0.75", "0.25", "0.5"]
    for end in ("", "\n"):
        assert predicted(classifier, ("\n".join(lines) + end).encode()) == expected
    assert classifier.num_texts == 10


def test_pairs_are_separated_by_a_tab(new_classifier):
    classifier = new_classifier(Labels(), is_pair=True)
    one, two = text_of(1), text_of(2)
    lines = [f"{one}\t{two}", f"{two}\t", f"\t{two}", "", "\t", f"{two}\t{two}\r"]
    numbers = [float(line) * 8 for line in predicted(classifier, "\n".join(lines).encode())]
    assert numbers == [1 + 2 + 3, 2 + 2, 0 + 2 + 3, 2, 2, 2 + 2 + 3]


@pytest.mark.parametrize(
    ("bad", "is_pair", "message"),
    [
        (b"caf\xe9", False, r"(the standard input|.*texts.txt).* line 3 .*0xe9"),
        (
            b"no tab",
            True,
            r"(the standard input|.*texts.txt), line 3: expected two texts.*0 tabs: 'no tab'",
        ),
        (b"a\tb\tc", True, r"(the standard input|.*texts.txt), line 3: expected two texts.*2 tabs"),
    ],
)
def test_invalid_lines_are_rejected(
    new_classifier, tmp_path, monkeypatch, capsysbinary, bad, is_pair, message
):
    good = b"the\tthe\n"
    data = good * 2 + bad + b"\n" + good
    # Lines of a stream before the invalid line are predicted.
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    with pytest.raises(ValueError, match=message):
        predict_file("-", new_classifier(is_pair=is_pair))
    assert len(capsysbinary.readouterr().out.splitlines()) == 2
    # A file is checked first.
    path, output = tmp_path / "texts.txt", tmp_path / "out" / "labels.tsv"
    path.write_bytes(data)
    classifier = new_classifier(is_pair=is_pair)
    with pytest.raises(ValueError, match=message):
        check_file(str(path), is_pair)
    with pytest.raises(ValueError, match=message):
        predict_file(str(path), classifier, str(output))
    assert classifier.num_texts == 0
    # An incomplete output file is removed.
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    with pytest.raises(ValueError, match=message):
        predict_file("-", classifier, str(output))
    assert classifier.num_texts == 2
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == ["texts.txt"]


@pytest.mark.parametrize("path", ["nowhere", "ram://nowhere"])
def test_missing_files_are_rejected(path):
    with pytest.raises(ValueError, match=f"'.*{path}' does not exist"):
        check_file(path, False)
    check_file("-", False)


def test_files_and_pipes_of_any_size_are_predicted_in_order(new_classifier, tmp_path):
    """The file has more lines than a group, and a line that is longer than the read buffer."""
    sizes = [n % 8 for n in range(2500)]
    lines = [text_of(n) for n in sizes]
    lines[1500] = " " * 600_000 + text_of(4)
    sizes[1500] = 4
    source, target = "ram://text_prediction/texts.txt", tmp_path / "numbers.txt"
    with tf.io.gfile.GFile(source, "wb") as file:
        file.write("\n".join(lines).encode())
    classifier = new_classifier(Labels())
    predict_file(source, classifier, str(target))
    assert [float(line) * 8 - 2 for line in target.read_text().splitlines()] == sizes
    assert classifier._predictor.groups == [1024, 1024, 452]
    for data, expected in ((b"the\nthe the\n", "0.375\n0.5\n"), (b"", "")):
        reading, writing = os.pipe()
        with open(writing, "wb") as sink:
            sink.write(data)
        predict_file(f"/dev/fd/{reading}", new_classifier(Labels()), str(target))
        os.close(reading)
        assert target.read_text() == expected


class Endless:
    """An endless stream that counts reads."""

    def __init__(self) -> None:
        self.reads = itertools.count()
        self.last = 0

    def read1(self, size: int) -> bytes:
        self.last = next(self.reads)
        return b"the the\n" * 512

    read = read1


def test_groups_are_written_before_the_next_group_is_read(new_classifier, tmp_path):
    with (tmp_path / "out").open("wb") as out:

        def groups():
            yield [b"the"]
            assert (tmp_path / "out").read_bytes().count(b"\n") == 1
            yield [b"the", b"the the"]

        predict_lines(groups(), new_classifier(), out, source="texts")


def test_an_endless_stream_is_predicted_until_the_reader_closes(new_classifier, monkeypatch):
    source = Endless()
    reading, writing = os.pipe()
    os.close(reading)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=source))
    with open(writing, "w") as sink:
        monkeypatch.setattr(sys, "stdout", sink)
        predict_file("-", new_classifier())
        sink.flush()  # as Python does at exit; must not raise
    assert source.last < 3
