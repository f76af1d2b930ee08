import re
from pathlib import Path

import pytest

from albert_tf.data.table_rows import Table, read_table

FLAG = "--some_file"


def table(folder: Path, name: str, content: str | bytes, **settings) -> Table:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_table(str(path), FLAG, **settings)


def never(cells) -> bool:
    """For files without a header."""
    return False


def cells(*args, **settings) -> list[list[str | None]]:
    return [row for _, row in table(*args, **settings).rows]


TSV = {
    "plain": ("a\tb\n1\t2\n3\t4\n", [["1", "2"], ["3", "4"]]),
    "no end": ("a\tb\n1\t2", [["1", "2"]]),
    "windows": ("a\tb\r\n1\t2\r\n", [["1", "2"]]),
    "old mac": ("a\tb\r1\t2\r3\t4\r", [["1", "2"], ["3", "4"]]),
    "byte order mark": ("\ufeffa\tb\n1\t2\n", [["1", "2"]]),
    "quotation marks": ('a\tb\n"1\t2\n3"\t"4"\n', [['"1', "2"], ['3"', '"4"']]),
    "other line ends": (
        "a\tb\n1\u2028x\x85y\x0bz\x1d\t2\rt\n",
        [["1\u2028x\x85y\x0bz\x1d", "2\rt"]],
    ),
    "empty cells": ("a\tb\n\t2\n3\t\n\t\n", [["", "2"], ["3", ""], ["", ""]]),
    "blanks": ("a\tb\n 1 \t\u00a02\u3000\n", [[" 1 ", "\u00a02\u3000"]]),
    "ragged": ("a\tb\n1\n1\t2\t3\n", [["1"], ["1", "2", "3"]]),
}


@pytest.mark.parametrize("name", TSV)
def test_tsv(name, tmp_path):
    text, expected = TSV[name]
    read = table(tmp_path, "x.tsv", text)
    assert read.columns == ["a", "b"]
    assert read.width == 2
    assert [row for _, row in read.rows] == expected
    assert not read.oddities.lines


CSV = {
    "plain": ("a,b\n1,2\n", [["1", "2"]]),
    "semicolons": ("a;b\n1,5;2\n", [["1,5", "2"]]),
    "tabs": ("a\tb\n1,5\t2\n", [["1,5", "2"]]),
    "quoted": ('"a","b"\n"1,""x""\n\r\n",2\n3,"4"\n', [['1,"x"\n\r\n', "2"], ["3", "4"]]),
    "quotation marks inside": ('a,b\n5" pipe,2\n', [['5" pipe', "2"]]),
    "other line ends": ("a,b\n1\u2028x\x85,2\n", [["1\u2028x\x85", "2"]]),
    "windows": ("a,b\r\n1,2\r\n", [["1", "2"]]),
    "byte order mark": ('\ufeff"a","b"\n1,2\n', [["1", "2"]]),
    "longer than the csv module takes": (f"a,b\n{'x' * 200_000},2\n", [["x" * 200_000, "2"]]),
}


@pytest.mark.parametrize("name", CSV)
def test_csv(name, tmp_path):
    text, expected = CSV[name]
    read = table(tmp_path, "x.CSV", text)
    assert read.columns == ["a", "b"]
    assert [row for _, row in read.rows] == expected


def test_csv_without_header_is_parted_by_commas(tmp_path):
    assert cells(tmp_path, "x.csv", "1;2;3,4\n5,6\n", is_header=never) == [
        ["1;2;3", "4"],
        ["5", "6"],
    ]


@pytest.mark.parametrize("first", ["sep=;\r\n", '"SEP=;"\n', "\ufeffsep=;\n"])
def test_excel_says_how_cells_are_parted(first, tmp_path):
    read = table(tmp_path, "x.csv", first + "a,b;c\n1,2;\n")
    assert read.columns == ["a,b", "c"]
    assert list(read.rows) == [(3, ["1,2", ""])]


ONE_COLUMN = {
    "tabs": ("x.tsv", "a\n\n1\n\n \n2\n\n\n", ["", "1", "", " ", "2"], [7, 8]),
    "windows": ("x.tsv", "a\r\n1\r\n\r\n2\r\n\r\n", ["1", "", "2"], [5]),
    "no end": ("x.tsv", "a\n1\n\n2", ["1", "", "2"], []),
    "commas": ("x.csv", 'a\n1\n\n2\n""\n\n', ["1", "", "2", ""], [6]),
}


@pytest.mark.parametrize("name", ONE_COLUMN)
def test_blank_lines_of_a_single_column_are_rows(name, tmp_path):
    file, text, expected, left_out = ONE_COLUMN[name]
    read = table(tmp_path, file, text)
    assert [row for _, row in read.rows] == [[cell] for cell in expected]
    kinds = {"nothing in them at the end of the file, left out": left_out} if left_out else {}
    assert read.oddities.lines == kinds


def test_blank_lines_before_the_first_row(tmp_path):
    read = table(tmp_path, "x.tsv", "\na\n1\n")
    assert (read.columns, list(read.rows)) == (["a"], [(3, ["1"])])
    assert read.oddities.lines == {"nothing in them, left out": [1]}
    read = table(tmp_path, "x.tsv", "\n1\n2\n", is_header=never)
    assert list(read.rows) == [(1, [""]), (2, ["1"]), (3, ["2"])]


def test_json_lines(tmp_path):
    lines = (
        '{"a": "x\\u2028\u2028y", "b": 3}\n\n{"c": [1], "a": null}\r\n'
        '{"b": true, "a": "\\ud83d!"}\n'
        '{"b": 1.50, "a": "\\ud83d\\ude82"}\n'
    )
    read = table(tmp_path, "x.jsonl", lines)
    assert read.columns == ["a", "b", "c"]
    assert list(read.rows) == [
        (1, ["x\u2028\u2028y", "3", None]),
        (3, [None, None, None]),
        (4, ["\ufffd!", "true", None]),
        (5, ["\U0001f682", "1.5", None]),
    ]
    assert [*read.oddities.lines.values()] == [[2], [4]]


def test_lines_are_counted_as_editors_do(tmp_path):
    read = table(tmp_path, "x.csv", 'a,b\n"1\n2\n",3\n\n4,5\n6,"7\n"\n8,9\n')
    assert [line for line, _ in read.rows] == [2, 6, 7, 9]
    assert [*read.oddities.lines.values()] == [[5]]


def test_odd_rows_are_counted(tmp_path):
    text = 'a\tb\n\n1\t2\na\tb\n \n3\0\t4\n"he ""x"""\t5\n\n\n'
    read = table(tmp_path, "x.tsv", text)
    assert [row for _, row in read.rows] == [
        ["1", "2"],
        ["a", "b"],
        ["3\0", "4"],
        ['"he ""x"""', "5"],
    ]
    assert read.header == ["a", "b"]
    kinds = {kind.split(",")[0]: lines for kind, lines in read.oddities.lines.items()}
    assert kinds == {
        "nothing in them": [2, 5],
        "NUL characters": [6],
        "cells quoted as in CSV": [7],
    }


def test_files_without_header(tmp_path):
    read = table(tmp_path, "x.tsv", "1\t2\t3\n1\t2\t3\n", is_header=never)
    assert (read.columns, read.width) == (None, 3)
    assert [line for line, _ in read.rows] == [1, 2]
    assert read.place("2", "--f") == 2
    assert read.has("2")
    assert not read.has("3")
    for column in ("3", "label", "-1"):
        with pytest.raises(
            ValueError, match=f"--f must be a number from 0 to 2. Received: '{column}'"
        ):
            read.place(column, "--f")


def test_first_row_can_tell_whether_it_is_a_header(tmp_path):
    def is_header(row):
        return row[0] == "a"

    assert cells(tmp_path, "x.tsv", "a\n1\n", is_header=is_header) == [["1"]]
    assert cells(tmp_path, "x.tsv", "b\n1\n", is_header=is_header) == [["b"], ["1"]]


def test_columns_are_found_by_name(tmp_path):
    read = table(tmp_path, "x.tsv", " text \tx\tlabel\tx\t\t\n1\t2\t3\t4\n")
    assert read.columns == ["text", "x", "label", "x"]
    assert read.place("label", "--l") == 2
    with pytest.raises(
        ValueError, match=r"no column named 'Label'. Its columns: 'text', 'x', 'label', 'x'. --l "
    ):
        read.place("Label", "--l")
    with pytest.raises(ValueError, match="2 columns named 'x'"):
        read.place("x", "--l")


BROKEN = {
    "empty": ("x.tsv", "\n \n", "x.tsv is empty"),
    "byte order mark only": ("x.tsv", "\ufeff", "x.tsv is empty"),
    "latin-1": ("x.tsv", b"a\tb\nxy\t\xe9\n", "not UTF-8 text: line 2 holds byte 0xe9"),
    "utf-16": ("x.tsv", "a\tb\n".encode("utf-16"), "not UTF-8 text: line 1 holds byte 0xff"),
    "utf-16, no mark": ("x.tsv", "a\tb\n".encode("utf-16-le"), "line 1 holds byte 0x00"),
    "ending": ("x.xlsx", "a\tb\n", "ends in .tsv, .txt, .csv"),
    "open quote": ("x.csv", 'a,b\n1,2\n3,"4\n5,6\n', "no CSV from line 3 on"),
    "text after quote": ("x.csv", 'a,b\n1,2\n"3"x,4\n', "no CSV from line 3 on"),
    "quotes only": ("x.csv", '""\n', "x.csv is empty"),
    "broken JSON": ("x.jsonl", '{"a": 1}\n{"a": \n', "x.jsonl is broken JSON.* line 2"),
    "JSON, one key twice": (
        "x.json",
        '{"a": 1, "a": 2}\n',
        "x.json is .*'a' is there twice.* line 1",
    ),
    "JSON array": ("x.json", '\n[{"a": 1}]\n', r"JSON array; .* one object a line \(JSON Lines\)"),
    "JSON over many lines": (
        "x.json",
        '{\n"a": 1}\n',
        r"broken .* one object a line \(JSON Lines\)",
    ),
    "JSON text": ("x.json", '{"a": 1}\n"a"\n', "line 2 of .* must be a JSON object"),
    "NaN": ("x.jsonl", '{"a": 1}\n{"a": NaN}', "x.jsonl is broken JSON.* line 2"),
    "long number": ("x.jsonl", '{"a": ' + "9" * 10_000 + "}", "x.jsonl is broken JSON.* line 1"),
    "deep JSON": ("x.jsonl", '{"a": ' + "[" * 100_000, "x.jsonl is broken JSON.* line 1"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused(name, tmp_path):
    file, content, message = BROKEN[name]
    with pytest.raises(ValueError, match=message) as error:
        cells(tmp_path, file, content)
    assert FLAG in str(error.value)


def test_only_ends_of_lines_end_the_header(tmp_path):
    read = table(tmp_path, "x.csv", "a\u2028,\x0bx;b;c\n1;2;3\n")
    assert read.columns == ["a\u2028,\x0bx", "b", "c"]
    assert [row for _, row in read.rows] == [["1", "2", "3"]]


def test_missing_file_is_named(tmp_path):
    path = str(tmp_path / "x.tsv")
    with pytest.raises(ValueError, match=re.escape(f"{FLAG}: there is no file {path!r}")):
        read_table(path, FLAG)
    (tmp_path / "y.tsv").mkdir()
    with pytest.raises(ValueError, match="there is no file"):
        read_table(str(tmp_path / "y.tsv"), FLAG)
