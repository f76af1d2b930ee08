"""The JSON parser: equal to json.loads for strict JSON, otherwise one kind of error."""

import functools
import json
import random
import re
from pathlib import Path

import pytest

import albert_tf
from albert_tf.data.errors import UserError
from albert_tf.data.strict_json import (
    JsonError,
    JsonValue,
    as_whole_number,
    json_values,
    parse_json,
    read_json,
)

WHERE = "--some_flag=folder/file.json"


def random_value(source: random.Random, depth: int = 0):
    kinds = ["text", "whole", "float", "constant"] + ["list", "object"] * (depth < 5)
    kind = source.choice(kinds)
    if kind == "text":
        return "".join(source.choice('a"\\[{]}\n\u2028é\U0001f600,:0') for _ in range(4))
    if kind == "whole":
        return source.choice([0, -1, 7, 2**63, 1000000000000000019884624838656, -(10**900)])
    if kind == "float":
        return source.choice([0.5, -1e-300, 3e300, 39764.0])
    if kind == "constant":
        return source.choice([None, True, False])
    inner = [random_value(source, depth + 1) for _ in range(source.randrange(4))]
    return inner if kind == "list" else {f"k{i}\u2028": value for i, value in enumerate(inner)}


@pytest.mark.parametrize("seed", range(20))
def test_random_values_equal_those_of_json_loads(seed):
    source = random.Random(seed)
    for _ in range(20):
        value = random_value(source)
        is_ascii, indent = source.random() < 0.5, source.choice([None, 1])
        text = json.dumps(value, ensure_ascii=is_ascii, indent=indent)
        assert parse_json(f" \t\r\n{text}\n", WHERE) == json.loads(text)
        assert parse_json(b"\xef\xbb\xbf" + text.encode(), WHERE) == json.loads(text)
    for text in ('"\\ud800"', "-0.0", "[1E5]"):
        assert parse_json(text, WHERE) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        (" \n", None, None),
        ('{"a": 1,\n "b" 2}', 2, 6),
        ('{"a": 1}\n[2]', 2, None),
        ("\n[1,\n 2, NaN]", 2, None),
        ("[1e308,\n -1e309]", 1, None),
        (f"[{'7' * 9000}]", 1, None),
        ('{"c": 0, "a": {"b": 1, "key": 1, "key": 2}}', 1, None),
        ("\n" + "[" * 10**6, 2, None),
    ],
)
def test_errors_contain_the_line(text, line, column):
    for first in (1, 41):
        with pytest.raises(JsonError) as raised:
            parse_json(text if first > 1 else text.encode(), WHERE, line=first)
        message = str(raised.value)
        assert message.startswith(WHERE)
        assert len(message) < 300
        assert line is None or f"line {line + first - 1}" in message
        assert column is None or f"column {column}." in message


def test_other_encodings_are_rejected(tmp_path):
    for data in (b'{"a":\n\n"\xff"}', '{"a":\n\n"ü"}'.encode("latin-1")):
        with pytest.raises(UserError, match=f"{WHERE}.*line 3"):
            parse_json(data, WHERE)
    path = tmp_path / "file.json"
    path.write_text('{"a": 1}', encoding="utf-16")
    with pytest.raises(UserError, match=WHERE):
        read_json(str(path), WHERE)


def test_several_values_are_parsed():
    found = list(json_values('{"a": 1}{"b":\n2}\n\n[3] 4\n', WHERE))
    assert found == [(1, {"a": 1}), (1, {"b": 2}), (4, [3]), (4, 4)]
    values = json_values('{"a": 1}\n{"b" 2}', WHERE)
    assert next(values) == (1, {"a": 1})
    with pytest.raises(JsonError, match="line 2, column 6"):
        next(values)


CONTENT = JsonValue(
    {
        "name": "a",
        "size": 12.0,
        "large": 10**400,
        "rate": 0.5,
        "is_pair": True,
        "nothing": None,
        "half": "\ud800",
        "model": {"vocab": [["x", 0], ["y", "z"]], "odd key\n": 1},
        "deep": functools.reduce(lambda value, _: [value], range(10**5), []),
        "long": "x" * 10**6,
    },
    WHERE,
)


def test_values_of_the_right_type_are_returned():
    assert CONTENT["name"].text() == "a"
    assert CONTENT["size"].whole_number() == 12
    assert isinstance(CONTENT["size"].whole_number(), int)
    assert (CONTENT["rate"].number(), CONTENT["size"].number()) == (0.5, 12)
    assert CONTENT["is_pair"].truth_value() is True
    assert CONTENT.get("nothing") is CONTENT.get("missing") is None
    vocab = CONTENT["model"]["vocab"].elements()
    assert [pair.elements()[0].text() for pair in vocab] == ["x", "y"]
    assert CONTENT["model"].members()["odd key\n"].whole_number() == 1


@pytest.mark.parametrize(
    ("ask", "place"),
    [
        (lambda c: c["missing"], "missing"),
        (lambda c: c["name"].elements(), "name"),
        (lambda c: c["half"].text(), "half"),
        (lambda c: c["rate"].whole_number(), "rate"),
        (lambda c: c["large"].number(), "large"),
        (lambda c: c["is_pair"].whole_number(), "is_pair"),
        (lambda c: c["deep"].text(), "deep"),
        (lambda c: c["long"].number(), "long"),
        (lambda c: c["model"]["odd key\n"].text(), r"model.'odd key\n'"),
        (lambda c: c["model"]["vocab"].elements()[1].elements()[1].number(), "model.vocab[1][1]"),
    ],
)
def test_values_of_another_type_are_rejected(ask, place):
    with pytest.raises(JsonError) as raised:
        ask(CONTENT)
    assert str(raised.value).startswith(f"{WHERE}: {place} ")
    assert len(str(raised.value)) < 400


def test_whole_numbers_are_converted():
    assert [as_whole_number(value) for value in (3, 3.0, -0.0, 10**400)] == [3, 3, 0, 10**400]
    for value in (True, 0.5, float("nan"), float("inf"), "3", None, [3]):
        assert as_whole_number(value) is None


def test_no_other_module_parses_json():
    """Other parsers have no limits, and their errors do not contain the file.

    Raw text is an exception: the unused fields of a corpus may contain NaN.
    """
    parser = re.compile(r"json\.loads?\(|JSONDecoder|from json import")
    package = Path(albert_tf.__file__).parent
    found = {path.name for path in package.rglob("*.py") if parser.search(path.read_text("utf-8"))}
    assert found == {"strict_json.py", "raw_text.py"}
