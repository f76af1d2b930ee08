"""The demo: its directory, and the corpus and task from Python's documentation."""

import csv
import re

import pytest

from albert_tf.tools import demo
from tests.programs import ROOT

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


def test_only_directories_of_a_demo_are_replaced(tmp_path, monkeypatch):
    def stop(*_):
        raise InterruptedError

    monkeypatch.setattr(demo, "write_corpus", stop)
    mine = tmp_path / "mine" / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    for folder in (mine.parent, "gs://bucket/demo"):
        with pytest.raises(ValueError, match="`output_dir`"):
            demo.run_demo(str(folder), num_train_steps=3, vocab_size=90)
    assert mine.read_text() == "mine"

    for _ in range(2):
        with pytest.raises(InterruptedError):
            demo.run_demo(str(tmp_path / "new"), num_train_steps=3, vocab_size=90)
        assert [path.name for path in (tmp_path / "new").iterdir()] == ["demo_settings.json"]
        (tmp_path / "new" / "pretraining").mkdir()


def test_the_script_lists_all_flags():
    flags = re.findall(r'Flag\("(\w+)"', (ROOT / "albert_tf/cli/demo.py").read_text())
    text = (ROOT / "demo.sh").read_text()
    assert [flag for flag in flags if f"#   --{flag}=" not in text] == []


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Replaces Python's documentation by one topic and a few modules."""
    for name in ("email/table.py", "email/tests/cases.py", "other.py"):
        path = tmp_path / "library" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(MODULE if "other" not in name else "number = 1")
    monkeypatch.setattr(demo, "topics", {"loops": TOPIC})
    monkeypatch.setattr(demo.sysconfig, "get_path", lambda _: str(tmp_path / "library"))
    demo.python_documents.cache_clear()
    yield
    demo.python_documents.cache_clear()


def test_sentences_of_topics_and_docstrings(library):
    assert demo.python_documents() == {
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


@pytest.mark.parametrize(("bound", "expected"), [(100, 100), (40, 34), (None, 100)])
def test_every_tenth_document_is_held_out(tmp_path, monkeypatch, bound, expected):
    monkeypatch.setattr(demo, "python_documents", lambda: numbered(100))
    demo.write_corpus(tmp_path, bound)
    training, held_out = ((tmp_path / f"{n}.txt").read_text() for n in ("training", "held_out"))
    assert held_out.startswith("This is,\nor was,\nsentence 0 of text 0.\nThis is,\n")
    assert training.count("\n\n") + held_out.count("\n\n") == expected
    assert held_out.count("\n\n") == -(-expected // 10)


def test_paragraphs_of_chapters(tmp_path, monkeypatch):
    documents = {**numbered(30), "other": ["Not part of any chapter."]}
    documents["email/0"].append("The name of this chapter is email.")
    monkeypatch.setattr(demo, "python_documents", lambda: documents)
    held_out = demo.write_chapters(tmp_path)["email"]
    rows = {}
    for name in ("train", "dev"):
        with open(tmp_path / f"{name}.csv", newline="", encoding="utf-8") as file:
            header, *rows[name] = csv.reader(file)
        assert header == ["paragraph", "chapter"]
    assert rows["dev"] == [[text, "email"] for text in held_out]
    assert (len(rows["train"]), len(rows["dev"])) == (24, 6)
    assert not {tuple(row) for row in rows["train"]} & {tuple(row) for row in rows["dev"]}
    assert not [text for text, _ in rows["train"] + rows["dev"] if "email" in text]


@pytest.mark.slow
def test_the_texts_of_this_python(tmp_path):
    demo.write_corpus(tmp_path)
    sizes = [len((tmp_path / f"{n}.txt").read_text("utf-8")) for n in ("training", "held_out")]
    assert sizes[0] > 400_000
    assert 0.05 < sizes[1] / sizes[0] < 0.25
    held_out = demo.write_chapters(tmp_path)
    assert held_out.keys() == set(demo.CHAPTERS)
    assert all(10 <= len(texts) <= 30 for texts in held_out.values())
