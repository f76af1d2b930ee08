"""Predictions for files of texts: a line with label and probabilities per line."""

import itertools
import os
import sys
from io import BytesIO
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.classification.text_predictor import TextPredictor, check_file, predict_file
from albert_tf.labels import Labels

NUMBERS = Labels()


class LengthPredictor:
    """A fake model: predicts class n % K, or the number n / 8, for a sequence of n tokens."""

    max_seq_length = 12

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
def predict(tokenizer, tmp_path):
    def predicted(data: bytes, labels: Labels = NUMBERS, is_pair: bool = False) -> list[str]:
        """Returns the lines of the output for a file."""
        path, out = tmp_path / "texts.txt", tmp_path / "out.txt"
        path.write_bytes(data)
        predictor = TextPredictor(LengthPredictor(labels), tokenizer, labels, is_pair)
        predict_file(str(path), predictor, str(out))
        lines = out.read_text().split("\n")
        assert predictor.num_texts == len(lines) - 1
        return lines[:-1]

    return predicted


@pytest.fixture
def regression(tokenizer):
    return TextPredictor(LengthPredictor(NUMBERS), tokenizer, NUMBERS, False)


def text_of(num_tokens: int) -> str:
    """Returns a text with a number of tokens, without special tokens."""
    return " ".join(["the"] * num_tokens)


def set_input(monkeypatch, read) -> None:
    stream = SimpleNamespace(read=read, read1=read)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=stream))


def test_a_line_contains_the_label_and_the_probability_of_every_class(predict):
    lines = predict(f"{text_of(1)}\n{text_of(6)}".encode(), Labels(("low", "middle", "high")))
    assert lines == [
        "low\tlow=0.750000\tmiddle=0.125000\thigh=0.125000",
        "high\tlow=0.125000\tmiddle=0.125000\thigh=0.750000",
    ]


def test_special_characters_of_labels_are_escaped(predict):
    names = ("a\tb\\", "c\nd=1\r", "Größe\ud800")
    (line,) = predict(text_of(1).encode(), Labels(names))
    assert line == (
        r"a\tb\\" + "\t" + r"a\tb\\=0.750000" + "\t" + r"c\nd=1\r=0.125000" + "\t"
        r"Größe\ud800=0.125000"
    )


@pytest.mark.parametrize("end", ["", "\n"])
def test_only_line_feeds_separate_lines(predict, end):
    one, two = text_of(1), text_of(2)
    lines = [f"\ufeff{two}\r", "", f"{one}\u2028{one}\x0b{one}\x85\r{one}", " ", f"{one}\t{one}"]
    assert predict(("\n".join(lines) + end).encode()) == ["0.5", "0.25", "0.75", "0.25", "0.5"]


def test_pairs_are_separated_by_a_tab(predict):
    one, two = text_of(1), text_of(2)
    lines = [f"{one}\t{two}", f"{two}\t", f"\t{two}", "", "\t", f"{two}\t{two}\r"]
    numbers = [float(line) * 8 for line in predict("\n".join(lines).encode(), is_pair=True)]
    assert numbers == [1 + 2 + 3, 2 + 2, 0 + 2 + 3, 2, 2, 2 + 2 + 3]


@pytest.mark.parametrize(
    ("bad", "is_pair", "message"),
    [
        (b"caf\xe9", False, "line 3 .*0xe9"),
        (b"no tab", True, "line 3: .*0 tabs: 'no tab'"),
        (b"a\tb\tc", True, "line 3: .*2 tabs"),
    ],
)
def test_invalid_lines_are_rejected(
    tokenizer, tmp_path, monkeypatch, capsysbinary, bad, is_pair, message
):
    data = b"the\tthe\nthe\tthe\n" + bad + b"\nthe\tthe\n"
    path = tmp_path / "texts.txt"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=f"texts.txt.*{message}"):
        check_file(str(path), is_pair, tokenizer)
    # Lines of a stream before the invalid line are predicted; an incomplete file is removed.
    for output in (None, str(tmp_path / "out.txt")):
        set_input(monkeypatch, BytesIO(data).read1)
        predictor = TextPredictor(LengthPredictor(NUMBERS), tokenizer, NUMBERS, is_pair)
        with pytest.raises(ValueError, match=f"the standard input.*{message}"):
            predict_file("-", predictor, output)
        assert predictor.num_texts == 2
    assert len(capsysbinary.readouterr().out.splitlines()) == 2
    assert [file.name for file in tmp_path.iterdir()] == ["texts.txt"]


def test_remote_files_and_pipes_are_predicted_in_order(regression, tmp_path):
    """The file has more lines than a group, and a line that is longer than the read buffer."""
    sizes = [n % 8 for n in range(2500)]
    lines = [text_of(n) for n in sizes]
    lines[1500] = " " * 600_000 + text_of(4)
    sizes[1500] = 4
    source, target = "ram://text_prediction/texts.txt", tmp_path / "numbers.txt"
    with tf.io.gfile.GFile(source, "wb") as file:
        file.write("\n".join(lines).encode())
    predict_file(source, regression, str(target))
    assert [float(line) * 8 - 2 for line in target.read_text().splitlines()] == sizes
    assert regression._predictor.groups == [1024, 1024, 452]
    for data, expected in ((b"the\nthe the\n", "0.375\n0.5\n"), (b"", "")):
        reading, writing = os.pipe()
        with open(writing, "wb") as sink:
            sink.write(data)
        predict_file(f"/dev/fd/{reading}", regression, str(target))
        os.close(reading)
        assert target.read_text() == expected


def test_an_endless_stream_is_predicted_until_the_reader_closes(regression, monkeypatch):
    reads = itertools.count()
    set_input(monkeypatch, lambda size: b"the the\n" * 512 if next(reads) < 99 else b"")
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as sink:
        monkeypatch.setattr(sys, "stdout", sink)
        predict_file("-", regression)
        sink.flush()  # as Python does at exit; must not raise
    assert next(reads) < 4
