"""Counting lines of text, and estimating those there is no time to count."""

import itertools

from albert_tf.data.line_count import count_lines


def ticking():
    times = itertools.count(0.0)
    return lambda: next(times)


def test_lines_without_text_are_none(tmp_path):
    paths = [tmp_path / name for name in "abc"]
    for path, text in zip(paths, ("one\n\n \t\ntwo\r\n", "", "three"), strict=True):
        path.write_bytes(text.encode())
    count = count_lines(list(map(str, paths)))
    assert (count.number, count.is_exact, count.num_bytes) == (3, True, 18)


def test_the_beginning_stands_for_the_rest(tmp_path):
    (tmp_path / "a").write_bytes(b"12345\n" * 10 + b"123\n" * 5)
    path = str(tmp_path / "a")
    count = count_lines([path], seconds=4.5, clock=ticking())
    assert (count.number, count.is_exact, count.num_bytes) == (round(80 / 6), False, 80)
    assert count_lines([path], seconds=14.5, clock=ticking()).is_exact
