import csv
import json
from pathlib import Path

import pytest

from albert_tf.data.tables import DataIssues, Table, read_table


def table(folder: Path, name: str, content: str | bytes, **settings) -> Table:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_table(str(path), **settings)


def never(cells) -> bool:
    """For files without a header."""
    return False


FILES = {
    "plain": ("x.tsv", "a\tb\n1\t2\n3\t4\n", [["1", "2"], ["3", "4"]]),
    "two byte order marks": ("x.tsv", "\ufeff\ufeffa\tb\n1\t2\n", [["1", "2"]]),
    "quotation marks": ("x.txt", 'a\tb\n"1\t2\n3"\t"4"\n', [['"1', "2"], ['3"', '"4"']]),
    "other line ends": (
        "x.tsv",
        "a\tb\n1\u2028x\x85y\x0bz\x1d\t2\rt\n",
        [["1\u2028x\x85y\x0bz\x1d", "2\rt"]],
    ),
    "empty cells": ("x.tsv", "a\tb\n\t2\n3\t\n\t\n", [["", "2"], ["3", ""], ["", ""]]),
    "blanks": ("x.tsv", " a \tb\t\t\n 1 \t\u00a02\u3000\n", [[" 1 ", "\u00a02\u3000"]]),
    "ragged": ("x.tsv", "a\tb\n1\n1\t2\t3\n", [["1"], ["1", "2", "3"]]),
    "commas": ("x.CSV", "a,b\n1,2;\t3\n", [["1", "2;\t3"]]),
    "quoted": ("x.csv", '"a","b"\n"1,""x""\n\r\n",2\n3,"4"\n', [['1,"x"\n\r\n', "2"], ["3", "4"]]),
    "blanks after commas": (
        "x.csv",
        '"a", "b"\n"fine",  "x, y"\n1, 2 \n" 3",""\n',
        [["fine", "x, y"], ["1", "2 "], [" 3", ""]],
    ),
    "quotation marks inside": ("x.csv", 'a,b\n5" pipe,2\n', [['5" pipe', "2"]]),
    "windows, CSV": ("x.csv", '\ufeff"a",b\r\n1,2\r\n', [["1", "2"]]),
    "longer than the default": ("x.csv", f"a,b\n{'x' * 200_000},2", [["x" * 200_000, "2"]]),
}


@pytest.mark.parametrize("name", FILES)
def test_rows_of_cells(name, tmp_path):
    file, text, expected = FILES[name]
    read = table(tmp_path, file, text)
    assert read.columns == ["a", "b"]
    assert read.width == 2
    assert [row for _, row in read.rows] == expected
    assert csv.field_size_limit() == 128 << 10  # the default
    assert not read.issues.locations


ONE_COLUMN = {
    "tabs": ("x.tsv", "a\n\n1\n\n \n2\n\n\n", ["", "1", "", " ", "2"]),
    "commas": ("x.csv", 'a\n1\n\n2\n""\n\n', ["1", "", "2", ""]),
}


@pytest.mark.parametrize("name", ONE_COLUMN)
def test_blank_lines_of_a_single_column(name, tmp_path):
    file, text, expected = ONE_COLUMN[name]
    assert [row for _, row in table(tmp_path, file, text).rows] == [[cell] for cell in expected]


def test_blank_lines_before_the_first_row(tmp_path):
    read = table(tmp_path, "x.tsv", "\na\n1\n")
    assert (read.columns, list(read.rows)) == (["a"], [(3, ["1"])])
    read = table(tmp_path, "x.tsv", "\n1\n2\n", is_header=never)
    assert list(read.rows) == [(1, [""]), (2, ["1"]), (3, ["2"])]


def test_values_of_json_lines_become_text(tmp_path):
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


ROWS = [{"a": "x", "b": 1}, {"a": "y", "b": 2}]
SPLIT = {"columns": ["a", "b"], "index": [0, 1], "data": [["x", 1], ["y", 2]]}
PANDAS = {  # by `orient`; "rows" has an index of texts
    "records": ROWS,
    "columns": {"a": {"0": "x", "1": "y"}, "b": {"0": 1, "1": 2}},
    "index": {"0": ROWS[0], "1": ROWS[1]},
    "rows": {"r1": ROWS[0], "r2": ROWS[1], "r3": {"a": "z", "b": 3}},
    "split": SPLIT,
    "table": {"schema": {"fields": []}, "data": ROWS},
    "list": {"a": ["x", "y"], "b": [1, 2]},  # of `to_dict`
}


@pytest.mark.parametrize("orient", PANDAS)
@pytest.mark.parametrize("indent", [None, 2])
def test_tables_of_pandas_are_read(orient, indent, tmp_path):
    read = table(tmp_path, "x.json", json.dumps(PANDAS[orient], indent=indent))
    assert read.columns == ["a", "b"]
    assert [*read.rows][:2] == [(1, ["x", "1"]), (2, ["y", "2"])]
    assert read.issues.unit == "row"


def test_columns_have_the_same_length(tmp_path):
    with pytest.raises(ValueError, match=r"the same length. Received: \[1, 2\]"):
        table(tmp_path, "x.json", '{"a": ["x", "y"], "b": [1]}')


@pytest.mark.parametrize(
    "text",
    ["a;b\n1,5;x\n", "a\tb\n1,5\tx\n", "a|b\n1,5|x\n", 'sep=;\r\na;b\r\n"1,5";x\r\n'],
)
def test_other_separators_of_csv_are_recognized(text, tmp_path, caplog):
    with caplog.at_level("INFO", logger="absl"):
        read = table(tmp_path, "x.csv", text)
    assert read.columns == ["a", "b"]
    assert [cells for _, cells in read.rows] == [["1,5", "x"]]
    assert "x.csv: the cells are separated by" in caplog.text


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [("x.csv", "a;b\n1;2;3\n", "';'"), ("x.tsv", "a,b\n1,2\n", "','")],
)
def test_errors_name_an_unexpected_separator(name, text, found, tmp_path):
    with pytest.raises(ValueError, match=f"no column named 'a'.*Separated by {found}"):
        table(tmp_path, name, text).index("a", "f")
    one = table(tmp_path, "x.csv", "a\nfine; really\nno\n")  # a single column
    assert [cells for _, cells in one.rows] == [["fine; really"], ["no"]]


def test_one_percent_of_malformed_lines_is_accepted(tmp_path):
    lines = ['{"a": 1}'] * 99
    read = table(tmp_path, "x.jsonl", "\n".join([*lines, '{"a": ']))
    assert [*read.rows][98:] == [(99, ["1"]), (100, [])]
    assert read.issues.messages() == ["rows=1 with malformed JSON (line 100)"]
    with pytest.raises(ValueError, match=r"line 100.*Malformed rows: 2 of 101\. At most 1%"):
        table(tmp_path, "x.jsonl", "\n".join([*lines, '{"a": ', "[]"]))


def test_rows_have_the_number_of_their_first_line(tmp_path):
    read = table(tmp_path, "x.csv", 'a,b\n"1\n2\n",3\n\n4,5\n6,"7\n"\n8,9\n')
    assert [line for line, _ in read.rows] == [2, 6, 7, 9]
    assert [*read.issues.locations.values()] == [[5]]


def test_columns_are_found_by_name_or_number(tmp_path):
    read = table(tmp_path, "x.tsv", "1\t2\t3\n1\t2\t3\n", is_header=never)
    assert (read.columns, read.width) == (None, 3)
    assert [line for line, _ in read.rows] == [1, 2]
    assert read.index("2", "f") == 2
    for column in ("3", "label", "-1"):
        with pytest.raises(ValueError, match=f"`f` .*'{column}'"):
            read.index(column, "f")
    for first, header in (("a", ["a"]), ("b", None)):
        read = table(tmp_path, "x.tsv", f"{first}\n1\n", is_header=lambda row: row[0] == "a")
        assert read.header == header
    read = table(tmp_path, "x.tsv", " text \tx\tlabel\tx\t\t\n1\t2\t3\t4\n")
    assert read.columns == ["text", "x", "label", "x"]
    assert read.index("label", "l") == 2
    for column in ("Label", "x"):
        with pytest.raises(ValueError, match=f"x.tsv .*'{column}'.*'text', 'x', 'label', 'x'.*`l`"):
            read.index(column, "l")


BROKEN = {
    "empty": ("x.tsv", "\n \n", "x.tsv"),
    "latin-1": ("x.tsv", b"a\tb\nxy\t\xe9\n", "x.tsv.*line 2.*0xe9"),
    "utf-16, no mark": ("x.tsv", "a\tb\n".encode("utf-16-le"), "x.tsv.*line 1.*0x00"),
    "ending": ("x.xlsx", "a\tb\n", "x.xlsx"),
    "open quote": ("x.csv", 'a,b\n1,2\n3,"4\n5,6\n', "x.csv.*line 3"),
    "not valid JSON": ("x.jsonl", '{"a": 1}\n{"a": \n', "x.jsonl.*line 2"),
    "JSON values": ("x.json", '[{"a": 1}, 2]', "line 1 of .*x.json.*JSON Lines"),
    "JSON text": ("x.json", '{"a": 1}\n"a"\n', "line 2 of .*x.json.* 1 of 2"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_invalid_files_are_rejected(name, tmp_path):
    file, content, message = BROKEN[name]
    with pytest.raises(ValueError, match=message) as error:
        list(table(tmp_path, file, content).rows)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=r"none\.tsv"):
        read_table(str(tmp_path / "none.tsv"))


def test_warnings_count_rows_and_list_lines(caplog):
    issues = DataIssues("x.tsv")
    for line in (2, 3, 5, 7, 11, 13):
        issues.add("too few columns, left out", line)
    issues.add("an empty text, kept", 7)
    issues.log()
    assert caplog.messages == [
        "x.tsv: rows=6 with too few columns, left out (lines 2, 3, 5, 7, 11, ...)",
        "x.tsv: rows=1 with an empty text, kept (line 7)",
    ]
