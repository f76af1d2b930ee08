"""Questions in every layout people have them in, and what cannot be used of a file."""

import io
import json

import pytest

from albert_tf.data.streams import read_lines
from albert_tf.squad.ask import PlainQuestion, read_plain_questions

QUESTIONS = [
    PlainQuestion("first", "Ein Text.\n\u2028Zwei\x0b", "Wer?"),
    PlainQuestion(7, "Ein Text.\n\u2028Zwei\x0b", "\u5317\u4eac?"),
    PlainQuestion("3", "", ""),
    PlainQuestion("first", "[{", "\U0001f600 wo?"),
]
ENTRIES = [
    {"id": "first", "context": QUESTIONS[0].context, "question": "Wer?"},
    {"question": QUESTIONS[1].question, "id": 7, "context": QUESTIONS[1].context, "more": [1]},
    {"context": "", "question": "", "id": None},
    {"context": "[{", "question": QUESTIONS[3].question, "id": "first"},
]


def asked(data: bytes) -> list[PlainQuestion]:
    groups = read_plain_questions(read_lines(io.BytesIO(data)), "file", "--predict_json")
    return [question for group in groups for question in group]


def json_lines(entries, **options) -> str:
    return "\n".join(json.dumps(entry, **options) for entry in entries)


def squad() -> dict:
    """The same questions as a file of SQuAD."""
    first, second, third, fourth = (
        {"question": q.question, "answers": [{"text": "no such text", "answer_start": 99}]}
        for q in QUESTIONS
    )
    first["id"], second["id"], fourth["id"] = "first", 7, "first"
    paragraphs = [
        {"context": QUESTIONS[0].context, "qas": [first, second]},
        {"context": "", "qas": [third]},
    ]
    others = {"context": "[{", "qas": [fourth]}
    return {
        "version": "1.1",
        "data": [{"title": "t", "paragraphs": paragraphs}, {"paragraphs": [others]}],
    }


FORMS = {
    "list": json.dumps(ENTRIES),
    "list over many lines": json.dumps(ENTRIES, indent=2, ensure_ascii=True),
    "list with a line an entry": "[\n" + ",\n".join(map(json.dumps, ENTRIES)) + "\n]\n\n",
    "object with a list": json.dumps({"data": ENTRIES}),
    "lines": json_lines(ENTRIES) + "\n",
    "lines without an end": json_lines(ENTRIES),
    "lines with blank ones": "\n \r\n" + json_lines(ENTRIES).replace("\n", "\r\n\n\t\n") + "\n\n",
    "squad": json.dumps(squad()),
    "squad over many lines": "\n\n" + json.dumps(squad(), indent="\t"),
    "articles": json.dumps(squad()["data"]),
    "an article a line": json_lines(squad()["data"]),
    "a paragraph a line": json_lines(p for a in squad()["data"] for p in a["paragraphs"]),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_every_layout_gives_the_same_questions(form, mark):
    assert asked(mark + FORMS[form].encode()) == QUESTIONS


def test_a_single_question_may_be_laid_out_over_lines():
    assert asked(json.dumps(ENTRIES[1], indent=1).encode()) == QUESTIONS[1:2]


@pytest.mark.parametrize("data", [b"", b"\n \n", b"[]", b'{"data": []}'])
def test_a_file_without_questions_gives_none(data):
    assert asked(data) == []


@pytest.mark.parametrize("indent", [0, 1, 4, "\t"])
def test_a_document_is_told_from_lines_wherever_its_first_line_ends(indent):
    """Every place where JSON may be broken into lines, after the first of which it stops."""
    text = json.dumps({"data": ENTRIES, "x": [{"a": 1.5, "b": None}, []]}, indent=indent)
    lines = text.split("\n")
    for end in range(1, len(lines) + 1):
        first = " ".join(lines[:end])
        assert asked("\n".join([first, *lines[end:]]).encode()) == QUESTIONS


def test_lines_are_read_as_they_come():
    def lines():
        yield [json.dumps(ENTRIES[0]).encode()]
        assert seen == [QUESTIONS[:1]]
        yield [b"", json.dumps(ENTRIES[1]).encode(), json.dumps(ENTRIES[2]).encode()]
        assert seen == [QUESTIONS[:1], QUESTIONS[1:3]]
        yield [b"{]"]
        raise AssertionError("read on after an error")

    seen = []
    with pytest.raises(ValueError, match="broken JSON"):
        seen.extend(read_plain_questions(lines(), "file", "--flag"))


GOOD = json.dumps(ENTRIES[0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "hello",
            r"--predict_json: file is broken JSON: .* at line 1, column 1\. Wanted is a JSON",
        ),
        (f'{GOOD}\n\n{{"context": "a" "question"}}', r"broken JSON: .* at line 3, column 17\."),
        ('{"context": "a", "question": b}\n' + GOOD, r"broken JSON: .* at line 1, column 30\."),
        ('[\n {"context": "a",\n  "question": b}]', r"broken JSON: .* at line 3, column 15\."),
        (f"[{GOOD}]\n{GOOD}", "line 2"),
        (f"{GOOD}\n[{GOOD}]", r"file: line 2 must be a JSON object; wanted is a JSON list"),
        (f"{GOOD}\n3", r"file: line 2 must be a JSON object; .* Received: 3"),
        ('"text"', r"file must hold a list .* Received: 'text'"),
        (
            f'{GOOD}\n{{"context": "a"}}',
            r"line 2 must have a text called `question`; it has .*conte",
        ),
        (f'[{GOOD}, {{"question": "a"}}]', r"file: \[1\] must have a text called `context`"),
        (f'[{GOOD}, {GOOD}, "a"]', r"file: \[2\] must be an object\. Wanted is a JSON list"),
        ('{"data": {"context": "a"}}', r"must hold a list"),
        ('{"context": 5, "question": "a"}', r"line 1 must .* `context`; it is 5\. Wanted"),
        ('{"context": "a", "question": null}', r"line 1 must .* `question`; it has .*context"),
        ('{"context": "a", "question": ["a"]}', r"line 1 must .* `question`; it is \['a'\]"),
        ('{"context": "", "question": "", "id": 1.5}', r"line 1 must have an `id`, .*: 1\.5"),
        ('{"context": "", "question": "", "id": true}', r"line 1 must have an `id`, .*: True"),
        (
            '{"data": [{"paragraphs": [{"context": "", "qas": [{"question": "a"}, {}]}]}]}',
            r"file: data\[0\]\.paragraphs\[0\]\.qas\[1\] must have a text called `question`",
        ),
        (f'{GOOD}\n{{"context": "", "qas": [1]}}', r"file: line 2\.qas\[0\] must be an object"),
        ("[" * 200_000, "line 1"),
        (f'{GOOD}\n{{"id": {"1" * 5000}}}', "line 2"),
    ],
)
def test_what_cannot_be_used_is_named(text, message):
    with pytest.raises(ValueError, match=message):
        asked(text.encode())


@pytest.mark.parametrize("before", [f"{GOOD}\n", "[\n", ""])
def test_other_encodings_are_named(before):
    line = 2 if before else 1
    with pytest.raises(ValueError, match=rf"file is not UTF-8 text: line {line} .*0xe9"):
        asked(before.encode() + b'{"context": "caf\xe9"}')


def test_questions_before_an_error_are_there_first():
    lines = [GOOD.encode()] * 3 + [b"{}"] + [GOOD.encode()]
    groups = read_plain_questions([lines], "file", "--flag")
    assert len(next(groups)) == 3
    with pytest.raises(ValueError, match=r"--flag: file: line 4 must have a text"):
        next(groups)
