"""Reading questions from JSON in all layouts."""

import io
import json

import pytest

from albert_tf.data.streams import read_lines
from albert_tf.squad.answerer import PlainQuestion, read_plain_questions

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
    groups = read_plain_questions(read_lines(io.BytesIO(data)), "file")
    return [question for group in groups for question in group]


def json_lines(entries, **options) -> str:
    return "\n".join(json.dumps(entry, **options) for entry in entries)


def squad() -> dict:
    """Returns the questions in the format of SQuAD."""
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
    "lines without an end": json_lines(ENTRIES),
    "lines with blank ones": json_lines(ENTRIES).replace("\n", "\r\n\n\t\n") + "\n\n",
    "squad": json.dumps(squad()),
    "squad over many lines": json.dumps(squad(), indent="\t"),
    "articles": json.dumps(squad()["data"]),
    "an article a line": json_lines(squad()["data"]),
    "a paragraph a line": json_lines(p for a in squad()["data"] for p in a["paragraphs"]),
}


@pytest.mark.parametrize("form", FORMS)
def test_all_layouts_give_the_same_questions(form):
    for before in ("", "\n \r\n", "\ufeff"):
        assert asked((before + FORMS[form]).encode()) == QUESTIONS
    assert [*map(asked, (b"", b"\n \n", b"[]", b'{"data": []}'))] == [[]] * 4


GOOD = json.dumps(ENTRIES[0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello", r"file .*JSON: .* at line 1, column 1\."),
        (f'{GOOD}\n\n{{"context": "a" "question"}}', r"JSON: .* at line 3, column 17\."),
        (f'[{GOOD}, {{"question": "a"}}]', r"line 1: \[1\]\.context is missing"),
        ('{"context": "", "question": "", "id": 1.5}', r"line 1: id must .*Received: 1\.5"),
        (
            '{"data": [{"paragraphs": [{"context": "", "qas": [{"question": "a"}, {}]}]}]}',
            r"\[0\]\.paragraphs\[0\]\.qas\[1\]\.question is missing",
        ),
        (f'{GOOD}\n{{"context": "caf\udce9"}}', "file is not UTF-8 text: line 2 .*0xe9"),
        (f"{GOOD}\n{{}}\n{GOOD}", "file: line 2: context is missing"),
    ],
)
def test_errors_name_the_line_or_key_after_earlier_questions(text, message):
    groups = read_plain_questions(
        read_lines(io.BytesIO(text.encode("utf-8", "surrogateescape"))), "file"
    )
    if GOOD in text or "[{" in text:  # earlier questions
        assert len(next(groups)) == 1
    with pytest.raises(ValueError, match=message):
        next(groups)


def test_a_malformed_first_line_is_reported_before_the_next_is_read():
    def lines():
        yield [b'{"context": "a", question: "b"}']
        raise AssertionError("read on")

    with pytest.raises(ValueError, match="line 1, column 18"):
        next(read_plain_questions(lines(), "-"))
