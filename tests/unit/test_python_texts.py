"""The texts of the demo, from Python's documentation."""

import csv

import pytest

from scripts import python_texts

TOPIC = """
The heading of a section
========================

Use the *value* in a ``for`` loop, or in an ``if`` statement: both are compound
statements. too short. Apples. The language is described here! It is the last one of them.
"""
MODULE = '''"""The module is about the numbers. They are all in one list."""

raise SystemExit("must not be run")


class Table:
    """A table is a list of rows. The language is described here!"""

    def width(self):
        """The width is the number of columns."""
'''


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Replaces Python's documentation by one topic and a few modules."""
    for name in ("email/table.py", "email/tests/cases.py", "other.py"):
        path = tmp_path / "library" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(MODULE if "other" not in name else "number = 1")
    monkeypatch.setattr(python_texts, "topics", {"loops": TOPIC})
    monkeypatch.setattr(python_texts.sysconfig, "get_path", lambda _: str(tmp_path / "library"))


def test_sentences_of_topics_and_docstrings(library):
    assert python_texts.python_documents() == {
        "language/loops": [
            "Use the value in a for loop, or in an if statement: both are compound statements.",
            "The language is described here!",
            "It is the last one of them.",
        ],
        "email/table.py": [
            "The module is about the numbers.",
            "They are all in one list.",
            "A table is a list of rows.",
            "The width is the number of columns.",
        ],
    }


def numbered(count):
    return {
        f"email/{i}": [f"This is, or was, sentence {j} of text {i}." for j in range(3)]
        for i in range(count)
    }


def read_rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header == ["paragraph", "chapter"]
    return [tuple(row) for row in rows]


def test_files(tmp_path, monkeypatch, capsys):
    documents = {**numbered(30), "other": ["Not part of any chapter."]}
    documents["email/0"].append("The name of this chapter is email.")
    documents["logging/0"] = ["This is about records. " * 4] * 5
    monkeypatch.setattr(python_texts, "python_documents", lambda: documents)
    for _ in range(2):
        python_texts.main(str(tmp_path / "texts"))
        assert capsys.readouterr().out == "0.8571\n"  # 6 of 7 paragraphs
    text = (tmp_path / "texts" / "text" / "python.txt").read_text()
    assert text.startswith("This is, or was, sentence 0 of text 0. This is, or was, sentence 1")
    assert text.count("\n\n") == len(documents)
    train, dev = (read_rows(tmp_path / "texts" / f"{name}.csv") for name in ("train", "dev"))
    assert (len(train), len(dev)) == (28, 7)
    assert {chapter for _, chapter in train} == {"email", "logging"}
    emails = [text for text, chapter in train + dev if chapter == "email"]
    assert len({*emails}) == 30
    assert not [text for text in emails if "email" in text]


@pytest.mark.slow
def test_the_texts_of_this_python(tmp_path, capsys):
    python_texts.main(str(tmp_path))
    share = float(capsys.readouterr().out)
    assert (tmp_path / "text" / "python.txt").stat().st_size > 400_000
    for name, low, high in (("train", 40, 120), ("dev", 10, 30)):
        chapters = [chapter for _, chapter in read_rows(tmp_path / f"{name}.csv")]
        counts = [chapters.count(chapter) for chapter in python_texts.CHAPTERS]
        assert sum(counts) == len(chapters)
        assert all(low <= count <= high for count in counts)
    assert share == round(max(counts) / len(chapters), 4)
