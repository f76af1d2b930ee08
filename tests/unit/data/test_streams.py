"""Lines of files and pipes; standard input and output."""

import io
import os
import sys
from types import SimpleNamespace

import pytest

from albert_tf.data.streams import is_regular_file, open_input, read_lines


def test_lines_of_a_pipe_are_yielded_when_they_arrive():
    reading, writing = os.pipe()
    with open(reading, "rb") as source, open(writing, "wb", buffering=0) as sink:
        groups = read_lines(source)
        sink.write(b"first\nsec")
        assert next(groups) == [b"first"]
        sink.write(b"ond\nthird\n")
        assert next(groups) == [b"second", b"third"]
        sink.write(b"fourth")
        sink.close()
        assert list(groups) == [[b"fourth"]]


@pytest.mark.parametrize("data", [b"", b"\n", b"one", b"\n\none\r\n\ntwo\x0b3\n\n", b"a\n" * 3000])
@pytest.mark.parametrize("size", [1, 5, 1 << 18])
def test_lines_do_not_depend_on_the_size_of_reads(data, size):
    source = io.BytesIO(data)
    slow = SimpleNamespace(read=lambda _: source.read(size))
    groups = list(read_lines(slow))
    lines = [line for group in groups for line in group]
    expected = data.split(b"\n")
    assert lines == (expected[:-1] if not expected[-1] else expected)
    assert all(1 <= len(group) <= 1024 for group in groups)


def test_inputs_are_files_pipes_or_the_standard_input(tmp_path, monkeypatch):
    path = tmp_path / "in.txt"
    path.write_bytes(b"text")
    with open_input(str(path)) as file:
        assert file.read() == b"text"
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"typed")))
    with open_input("-") as file:
        assert file.read() == b"typed"
    assert not file.closed
    assert is_regular_file(str(path), "a file")
    assert not is_regular_file("-", "a file")
    reading, writing = os.pipe()
    assert not is_regular_file(f"/dev/fd/{reading}", "a file")
    os.close(reading)
    os.close(writing)
    for bad, found in (("nowhere", "does not exist"), (".", "is a directory")):
        with pytest.raises(ValueError, match=rf"{bad}.*{found}"):
            is_regular_file(str(tmp_path / bad), "a file")
