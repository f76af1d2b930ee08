"""The demo: its directory, and the corpus and task from Python's documentation."""

import csv
import re
from collections import Counter

import pytest

from albert_tf.tools import demo
from albert_tf.tools.demo import (
    CHAPTERS,
    MAX_PARAGRAPHS,
    clauses,
    prose_sentences,
    source_documents,
    split_documents,
    write_chapters,
    write_corpus,
)
from tests.programs import ROOT

SOURCE = '''"""The module is about the numbers. They are all in a list. Each of them is odd."""

raise SystemExit("must not be run")


def find(number):
    """Find the place of a number."""


class Table:
    """A table is a list of the rows."""

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


@pytest.mark.parametrize(
    "noise",
    [
        "The heading of a section\n=========================",
        ".. note:: This is the name of a directive.",
        "Too short this.",
        "the beginning is not a capital.",
        "Apples pears plums cherries grapes.",
    ],
)
def test_noise_is_removed(noise):
    before, after = "This sentence is before it.", "This sentence is after it."
    assert prose_sentences(f"{before}\n\n{noise}\n\n{after}") == [before, after]


def test_markup_is_removed_and_sentences_are_split():
    text = """
    Use :class:`~os.PathLike` for the object’s *value* in a **loop** ``or`` list.

    Two things are
      needed:
    * The first is a name.
    1. The second is a
       place.

    Many of them, e.g. Lists, can do it in 3.10.2 and then go on in plain words
    until the end. (It is in brackets.)

    Consider the structure of a file::
    """
    assert prose_sentences(text) == [
        "Use os.PathLike for the object's value in a loop or list.",
        "Two things are needed:",
        "The first is a name.",
        "The second is a place.",
        "Many of them, e.g. Lists, can do it in 3.10.2 and then go on in plain words until the "
        "end.",
        "(It is in brackets.)",
        "Consider the structure of a file:",
    ]


def test_clauses_have_at_least_four_words():
    first, second = "The first, the second and the third,", "are all 1,000 of them here:"
    last = "not all of these things."
    assert clauses(f"{first} {second} {last}") == [first, second, last]
    assert clauses("It is so, too.") == ["It is so, too."]


def test_modules_and_classes_are_documents(tmp_path):
    (tmp_path / "package" / "tests").mkdir(parents=True)
    for name in ("package/numbers.py", "package/tests/cases.py"):
        (tmp_path / name).write_text(SOURCE)
    (tmp_path / "broken.py").write_text("def (")
    found = [(name, sentences[0], len(sentences)) for name, sentences in source_documents(tmp_path)]
    assert found == [
        ("package/numbers", "The module is about the numbers.", 4),
        ("package/numbers.Table", "A table is a list of the rows.", 2),
    ]


def numbered(count):
    return {
        f"d{i}": [f"This is the sentence {j} of text {i}." for j in range(3)] for i in range(count)
    }


def test_held_out_documents_share_no_long_passages_with_the_training_part():
    documents = numbered(100)
    training, held_out = split_documents(documents, 0.3)
    assert 10 < len(held_out) < 50
    assert {**training, **held_out} == documents
    first = next(iter(held_out))
    shared = "It copies one two three four five six seven things in order."
    documents[next(iter(training))].append(shared)
    near = "And so it Copies one, two three four five six: nothing else."
    documents[first] += [shared, near, "It copies one two three four five of the things."]
    kept = split_documents(documents, 0.3)[1][first]
    assert len(kept) == 4
    assert not {shared, near} & set(kept)


@pytest.mark.parametrize(("bound", "expected"), [(100, 100), (40, 34), (None, 100)])
def test_max_documents_limits_the_number_of_documents(tmp_path, monkeypatch, bound, expected):
    monkeypatch.setattr(demo, "python_documents", lambda: numbered(100))
    write_corpus(tmp_path, bound)
    texts = [path.read_text() for path in sorted(tmp_path.iterdir())]
    assert len(texts) == 2
    assert sum(text.count("\n\n") for text in texts) == expected
    with pytest.raises(ValueError, match="max_documents"):
        write_corpus(tmp_path / "new", 1)
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_the_texts_of_this_python(tmp_path):
    write_corpus(tmp_path)
    sizes = [len((tmp_path / f"{n}.txt").read_text("utf-8")) for n in ("training", "held_out")]
    assert sizes[0] > 500_000
    assert 0.05 < sizes[1] / sizes[0] < 0.25

    chosen = write_chapters(tmp_path)
    for name, limit in zip(("train.csv", "dev.csv"), MAX_PARAGRAPHS, strict=True):
        with open(tmp_path / name, newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
        assert header == ["paragraph", "chapter"]
        counts = Counter(chapter for _, chapter in rows)
        assert counts.keys() == set(CHAPTERS)
        assert all(10 <= count <= limit for count in counts.values())
        assert not [text for text, _ in rows if set(CHAPTERS) & set(re.findall(r"\w+", text))]
    assert rows == [[text, chapter] for chapter, texts in chosen.items() for text in texts]
