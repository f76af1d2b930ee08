"""Rows of all file formats, and what a schema makes of them."""

import csv
import json

import pytest

from albert_tf.data.rows import RowReport, read_rows
from albert_tf.data.schema import Field, Schema, as_is

ROWS = [{"a": "x", "b": 1}, {"a": "y", "b": 2}]
TWO = [["1", "2"], ["3", "4"]]
PANDAS = {  # by `orient`; "rows" has an index of texts, and "list" is written by `to_dict`
    "records": ROWS,
    "columns": {"a": {"0": "x", "1": "y"}, "b": {"0": 1, "1": 2}},
    "index": {"0": ROWS[0], "1": ROWS[1]},
    "rows": {"r1": ROWS[0], "r2": ROWS[1], "r3": {"a": "z", "b": 3}},
    "split": {"columns": ["a", "b"], "index": [0, 1], "data": [["x", 1], ["y", 2]]},
    "table": {"schema": {"fields": []}, "data": ROWS},
    "list": {"a": ["x", "y"], "b": [1, 2]},
}
# Name, content and cells, in the columns "a" and "b", or "a" if the cells are no lists.
FILES = {
    "plain": ("x.tsv", "a\tb\n1\t2\n3\t4\n", TWO),
    "two byte order marks": ("x.tsv", "\ufeff\ufeffa\tb\n1\t2\n", TWO[:1]),
    "quotation marks": ("x.txt", 'a\tb\n"1\t2\n3"\t"4"\n', [['"1', "2"], ['3"', '"4"']]),
    "other line ends": (
        "x.tsv",
        "a\tb\n1\u2028x\x85y\x0bz\x1d\t2\rt\n",
        [["1\u2028x\x85y\x0bz\x1d", "2\rt"]],
    ),
    "empty cells": ("x.tsv", "a\tb\n\t2\n3\t\n\t\n", [["", "2"], ["3", ""], ["", ""]]),
    "blanks": ("x.tsv", " a \tb\t\t\n 1 \t\u00a02\u3000\n", [[" 1 ", "\u00a02\u3000"]]),
    "more delimiters": ("x.tsv", "a\tb\n1\t2\t\t\n3\t4\n", TWO),
    "commas": ("x.CSV", "a,b\n1,2;\t3\n", [["1", "2;\t3"]]),
    "quoted": ("x.csv", '"a","b"\n"1,""x""\n\r\n",2\n3,"4"\n', [['1,"x"\n\r\n', "2"], ["3", "4"]]),
    "blanks after commas": (
        "x.csv",
        '"a", "b"\n"fine",  "x, y"\n1, 2 \n" 3",""\n',
        [["fine", "x, y"], ["1", "2 "], [" 3", ""]],
    ),
    "quotation marks inside": ("x.csv", 'a,b\n5" pipe,2\n', [['5" pipe', "2"]]),
    "windows": ("x.csv", '\ufeff"a",b\r\n1,2\r\n3,4\r\n', TWO),
    "longer than the default": ("x.csv", f"a,b\n{'x' * 200_000},2", [["x" * 200_000, "2"]]),
    "semicolons": ("x.csv", "a;b\n1,5;x\n", [["1,5", "x"]]),
    "tabs in CSV": ("x.csv", "a\tb\n1,5\tx\n", [["1,5", "x"]]),
    "bars": ("x.csv", "a|b\n1,5|x\n", [["1,5", "x"]]),
    "Excel": ("x.csv", 'sep=;\r\na;b\r\n"1,5";x\r\n', [["1,5", "x"]]),
    "a single column": ("x.csv", "a\nfine; really\nno\n", ["fine; really", "no"]),
    "blank rows of tabs": ("x.tsv", "a\n\n1\n\n \n2\n\n\n", ["", "1", "", " ", "2"]),
    "blank rows of commas": ("x.csv", 'a\n1\n\n2\n""\n\n', ["1", "", "2", ""]),
    "blank lines before": ("x.tsv", "\n \na\n1\n", ["1"]),
    "JSON Lines": (
        "x.jsonl",
        '{"a": "x\\u2028\u2028y", "b": 3}\n\n{"c": [1], "a": null}\r\n{"b": true}\n',
        [["x\u2028\u2028y", 3], [None, None], [None, True]],
    ),
    "one object": ("x.json", '{\n"a": 1.50,\n"b": {"c": 2}}', [[1.5, {"c": 2}]]),
} | {
    f"{orient}, {indent}": ("x.json", json.dumps(table, indent=indent), [["x", 1], ["y", 2]])
    for orient, table in PANDAS.items()
    for indent in (None, 2)
}


@pytest.fixture
def read(tmp_path):
    def read(name, content, **settings):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_rows(str(path), **settings)

    return read


@pytest.mark.parametrize("name", FILES)
def test_cells_of_rows(name, read):
    *file, expected = FILES[name]
    rows = read(*file)
    columns = ["a", "b"][: len(expected[0])] if isinstance(expected[0], list) else ["a"]
    assert rows.columns[: len(columns)] == columns
    found = [[row.value.get(column) for column in columns] for _, row, problem in rows.rows]
    assert found[: len(expected)] == [e if isinstance(e, list) else [e] for e in expected]
    assert len(found) == len(expected) + (name[:5] == "rows,")
    assert csv.field_size_limit() == 128 << 10  # the default
    assert not rows.report.locations
    assert rows.unit == ("row" if "schema" in file[1] or name.split(",")[0] in PANDAS else "line")


def test_names_of_columns_are_texts(read):
    content = {"columns": [0, "b", ["c", 1]], "data": [["x", 1, 2]]}
    assert read("x.json", json.dumps(content)).columns == ["0", "b", "['c', 1]"]


@pytest.mark.parametrize(
    ("columns", "row"), [(["a", "a"], "xy"), ([1, "1"], "xy"), (["a", "b"], "x"), (["a"], "xy")]
)
def test_columns_of_pandas_have_different_names_and_a_cell_in_each_row(columns, row, read):
    table = {"columns": columns, "data": [[*"xy"[: len(columns)]], [*row]]}
    with pytest.raises(ValueError, match=r"x.json: \"columns\" .*: ('a'|1)"):
        read("x.json", json.dumps(table))


def test_inner_keys_are_columns(read):
    rows = read("x.jsonl", '{"a": {"b": 1, "c": 2}}\n{"d": 3}\n')
    assert rows.columns == ["a", "a.b", "a.c", "d"]


def test_rows_have_the_number_of_their_first_line(read):
    rows = read("x.csv", 'a,b\n"1\n2\n",3\n\n4,5\n6,"7\n"\n8,9\n')
    assert [number for number, _, _ in rows.rows] == [2, 6, 7, 9]
    assert [*rows.report.locations.values()] == [[5]]


def test_files_without_a_header(read):
    names = lambda first, second: (False, [f"{cell}{second[0]}" for cell in first])  # noqa: E731
    rows = read("x.tsv", "1\t2\n3\t4\n", name_columns=names)
    assert [(number, row.value) for number, row, _ in rows.rows] == [
        (1, {"13": "1", "23": "2"}),
        (2, {"13": "3", "23": "4"}),
    ]
    rows = read("x.tsv", "\n1\n2\n", name_columns=names)
    assert [(number, *row.value.values()) for number, row, _ in rows.rows] == [
        (1, ""),
        (2, "1"),
        (3, "2"),
    ]


BROKEN = {
    "empty": ("x.tsv", "\n \n", "x.tsv is empty"),
    "a blank cell": ("x.csv", '""\n', "x.csv is empty"),
    "no rows": ("x.json", "[]", "x.json contains no rows"),
    "latin-1": ("x.tsv", b"a\tb\nxy\t\xe9\n", "x.tsv.*line 2.*0xe9"),
    "utf-16, no mark": ("x.tsv", "a\tb\n".encode("utf-16-le"), "x.tsv.*line 1.*0x00"),
    "ending": ("x.xlsx", "a\tb\n", "must end in one of .tsv, .*x.xlsx"),
    "open quote": ("x.csv", 'a,b\n1,2\n3,"4\n5,6\n', "x.csv.*line 3"),
    "not valid JSON": ("x.jsonl", '{"a": \n{"a": 1\n', "x.jsonl.*line 1"),
    "JSON values": ("x.json", '[{"a": 1}, 2]', "line 1 of .*x.json.*Expected: an object"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_invalid_files_are_rejected(name, read):
    file, content, message = BROKEN[name]
    with pytest.raises(ValueError, match=message) as error:
        read(file, content, wanted="an object")
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=r"none\.tsv"):
        read_rows("none.tsv")


def test_warnings_count_rows_and_list_lines(caplog):
    report = RowReport("x.tsv")
    for line in (2, 3, 5, 7, 11, 13):
        report.add("too few columns, left out", line, ValueError(f"line {line} is short"))
    report.add("an empty text, kept", 7)
    report.log()
    assert caplog.messages == [
        "x.tsv: rows=6 with too few columns, left out (lines 2, 3, 5, 7, 11, ...). The first: "
        "line 2 is short",
        "x.tsv: rows=1 with an empty text, kept (line 7)",
    ]
    report.check(600)
    for count, most in ((599, 0.01), (11, 0.5), (6, 1.0)):
        with pytest.raises(ValueError, match=f"line 2 is short. Malformed rows: 6 of {count}. At"):
            report.check(count, most)


TEXT, VALUE = Field(("text", "Sentence")), Field(("label", "y"), as_is)
LAYOUTS = [
    {"text": TEXT, "label": VALUE},
    {"text": Field(("options[0-9]",), lambda value: value.value, is_pattern=True)},
    {"text": Field(("outer.inner",))},
]


@pytest.mark.parametrize(
    ("columns", "layout", "expected"),
    [
        ("text,label", 0, ["text", "label"]),
        ("SENTENCE,Y,z", 0, ["SENTENCE", "Y"]),
        ("Text,text,Label", 0, ["text", "Label"]),
        ("options2,options1,x", 1, ["options1", "options2"]),
        ("outer,outer.inner", 2, ["outer.inner"]),
    ],
)
def test_columns_are_found(columns, layout, expected, read, caplog):
    rows = read("x.csv", f"{columns}\n")
    with caplog.at_level("INFO", logger="absl"):
        found = Schema(dict, LAYOUTS).choose(rows)
    assert [field for field, _ in found.values()] == [*LAYOUTS[layout].values()]
    assert [column for _, columns in found.values() for column in columns] == expected
    unused = {*rows.columns} - {*expected, "outer"}
    assert all(f"not used: {name!r}" in caplog.text for name in unused)


@pytest.mark.parametrize(
    ("file", "content", "layouts", "message"),
    [
        ("x.csv", "a,b\n", LAYOUTS, "no column named 'text' or 'Sentence'.*'a', 'b'.*text, label;"),
        ("x.csv", "text,text,y\n", LAYOUTS[:1], "2 columns named 'text'.*: 'text', 'text', 'y'"),
        ("x.csv", "a;b\n1;2;3\n", [{"a": Field(("a",))}], "'a'.*Separated by ';'"),
        ("x.tsv", "a,b\n1,2\n", [{"a": Field(("a",))}], "'a'.*Separated by ','"),
        ("x.csv", "d,c,C\n", [{"a": Field(("b", "C", "d"), setting="z")}], "3 .*`z` selects"),
    ],
)
def test_missing_and_ambiguous_columns_are_rejected(file, content, layouts, message, read):
    with pytest.raises(ValueError, match=message):
        Schema(dict, layouts).choose(read(file, content))
