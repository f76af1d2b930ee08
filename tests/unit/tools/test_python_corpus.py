"""The corpus and the task made of Python's own documentation."""

import csv
import re
import sys
from collections import Counter

import pytest

from albert_tf.tools import python_corpus
from albert_tf.tools.python_corpus import (
    CHAPTERS,
    MAX_PARAGRAPHS,
    MIN_PARAGRAPHS,
    Document,
    chapter_of,
    clauses,
    prose_sentences,
    source_documents,
    split_documents,
    write_chapters,
    write_corpus,
)

MORE = " and then goes on in plain words until the end."
SOURCE = '''"""The module is about the numbers. They are all in a list. Each of them is odd."""

raise SystemExit("must not be run")


def find(number):
    """Find the place of a number."""


class Table:
    """A table is a list of the rows."""

    def width(self):
        """The width is the number of columns."""

        def inner():
            """It is the inner part of it."""
'''


class TestProse:
    @pytest.mark.parametrize(
        "noise",
        [
            "The heading of a section\n=========================",
            ">>> print('This is the result of a call.')\nThis is the result of a call.",
            ".. note:: This is the name of a directive.",
            ":param name: This is the name of a field.",
            "sorted(iterable, key=None, reverse=False) -> list.",
            "Too short this.",
            "The end has no stop",
            "the beginning is not a capital.",
            "Apples pears plums cherries grapes.",
        ],
    )
    def test_noise_is_dropped_and_its_neighbours_stay(self, noise):
        before, after = "This sentence stands before it.", "This sentence stands after it."
        assert prose_sentences(f"{before}\n\n{noise}\n\n{after}") == [before, after]

    def test_wrapped_lines_become_one_sentence_and_list_items_their_own(self):
        text = """Opens the file that was named on the command-
        line. Two things are needed:
        * The first is a name.
        1. The second is a
           place."""
        assert prose_sentences(text) == [
            "Opens the file that was named on the command-line.",
            "Two things are needed:",
            "The first is a name.",
            "The second is a place.",
        ]

    @pytest.mark.parametrize(
        ("written", "plain"),
        [
            ("Use :class:`~os.PathLike` for all" + MORE, "Use os.PathLike for all" + MORE),
            ("Use ``f()`` and *never* a **loop**" + MORE, "Use f() and never a loop" + MORE),
            ('Setting it to "None" is an error.', "Setting it to None is an error."),
            ("It is not safe [2]. Use `the other one` here.", "It is not safe."),
            ("The object’s value is the “same”.", 'The object\'s value is the "same".'),
            ("Consider the structure of a file::", "Consider the structure of a file:"),
            ("It takes *args" + MORE, "It takes *args" + MORE),
        ],
    )
    def test_markup_is_removed(self, written, plain):
        assert prose_sentences(written)[0] == plain

    def test_sentences_are_split_at_their_ends_only(self):
        sentences = [
            "Many types, e.g. Lists or i.e. Tuples, can do all of this and a lot more besides, "
            "and some of them could do so since version 3.10.2 of the language came out.",
            "Is this by J. Smith a question?",
            "(It is in brackets.)",
            "What an end this is!",
        ]
        assert prose_sentences(" ".join(sentences)) == sentences

    @pytest.mark.parametrize(
        ("sentence", "parts"),
        [
            ("The first is a name, and the second is a place.", 2),
            ("The first, the second and the third, are all of them here: no, not all of it.", 3),
            ("It is so, too.", 1),
            ("It is 1,000 of them; that is the number; it is not more.", 3),
        ],
    )
    def test_clauses_have_four_words_at_least_and_lose_nothing(self, sentence, parts):
        found = clauses(sentence)
        assert len(found) == parts
        assert " ".join(found) == sentence
        assert min(len(clause.split()) for clause in found) >= 4


def test_sources_give_a_document_a_class_and_one_for_the_rest_of_the_module(tmp_path):
    (tmp_path / "package" / "tests").mkdir(parents=True)
    (tmp_path / "package" / "numbers.py").write_text(SOURCE)
    (tmp_path / "package" / "tests" / "cases.py").write_text(SOURCE)
    (tmp_path / "broken.py").write_text("def (")
    found = [(name, sentences[0], len(sentences)) for name, sentences in source_documents(tmp_path)]
    assert found == [
        ("package/numbers", "The module is about the numbers.", 4),
        ("package/numbers.Table", "A table is a list of the rows.", 3),
    ]


def test_a_python_without_the_manual_gives_the_docstrings_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    assert list(python_corpus.topic_documents()) == []


def numbered(count: int, name: str = "document") -> list[Document]:
    return [
        Document(f"{name} {i}", [f"This is the sentence {j} of text {i}." for j in range(3)])
        for i in range(count)
    ]


class TestSplit:
    def test_a_documents_part_does_not_depend_on_the_other_documents(self):
        training, held_out = split_documents(numbered(1000), 0.1)
        assert len(training) + len(held_out) == 1000
        assert 70 < len(held_out) < 130
        assert split_documents(reversed(numbered(1000)), 0.1)[1] == held_out[::-1]

    def test_held_out_sentences_that_the_training_part_shares_are_dropped(self):
        training_name, held_out_name = (part[0].name for part in split_documents(numbered(20), 0.5))
        shared = "It copies one two three four five six seven things in order."
        near = "And so it Copies one, two three four five six: nothing else."  # eight words of it
        own = [
            "It copies one two three four five of the things.",  # seven words of it
            "This is the first own one.",
            "This is the second own one.",
        ]
        documents = [
            Document(training_name, [shared, "Then it is done.", "The end is here."]),
            Document(held_out_name, [shared, near, *own]),
        ]
        training, held_out = split_documents(documents, 0.5)
        assert training == documents[:1]
        assert held_out == [Document(held_out_name, own)]
        documents[1].sentences.pop()  # two that are its own are too few
        assert split_documents(documents, 0.5)[1] == []


def runs(text: str) -> set[tuple[str, ...]]:
    """Runs of eight words inside of lines and sentences."""
    found = set()
    for part in re.split(r"\n|(?<=[.!?:]) (?=[A-Z\"'(\[])", text):
        words = re.findall(r"[a-z0-9]+", part.lower())
        found |= {tuple(words[i : i + 8]) for i in range(len(words) - 7)}
    return found


class TestCorpus:
    @pytest.mark.slow
    def test_of_this_python(self, tmp_path):
        write_corpus(tmp_path)
        training = (tmp_path / "training.txt").read_text(encoding="utf-8")
        held_out = (tmp_path / "held_out.txt").read_text(encoding="utf-8")
        assert len(training) > 500_000
        assert 0.05 < len(held_out) / len(training) < 0.25
        assert len(runs(held_out)) > 1000
        assert not runs(training) & runs(held_out)
        documents = [text.splitlines() for text in training.removesuffix("\n\n").split("\n\n")]
        assert min(map(len, documents)) >= 3

    @pytest.mark.parametrize(("bound", "expected"), [(100, 100), (40, 34), (33, 25), (None, 100)])
    def test_max_documents_bounds_the_number_of_documents(
        self, tmp_path, monkeypatch, bound, expected
    ):
        monkeypatch.setattr(python_corpus, "python_documents", lambda: numbered(100))
        for _ in range(2):
            write_corpus(tmp_path, bound)
            texts = [path.read_text() for path in sorted(tmp_path.iterdir())]
            assert len(texts) == 2
            assert sum(text.count("\n\n") for text in texts) == expected

    def test_too_few_documents_are_refused_before_anything_is_written(self, tmp_path, monkeypatch):
        monkeypatch.setattr(python_corpus, "python_documents", lambda: numbered(3))
        with pytest.raises(ValueError, match="max_documents"):
            write_corpus(tmp_path / "new", 1)
        assert not (tmp_path / "new").exists()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The task made of this Python's documentation: its folder, and what is said of it."""
    folder = tmp_path_factory.mktemp("chapters")
    return folder, *write_chapters(folder)


@pytest.mark.slow
class TestChapters:
    def test_the_files_have_what_is_returned(self, made):
        folder, *parts = made
        for name, part in zip(("train.csv", "dev.csv"), parts, strict=True):
            with open(folder / name, newline="", encoding="utf-8") as file:
                header, *rows = csv.reader(file)
            assert header == ["paragraph", "chapter"]
            assert [tuple(row) for row in rows] == part

    def test_there_are_enough_of_several_chapters_and_no_one_prevails(self, made):
        train, dev = (Counter(paragraph.chapter for paragraph in part) for part in made[1:])
        assert 4 <= len(train) <= len(CHAPTERS)
        assert train.keys() == dev.keys()
        for counts, limit in zip((train, dev), MAX_PARAGRAPHS, strict=True):
            assert all(MIN_PARAGRAPHS <= count <= limit for count in counts.values())

    def test_nothing_gives_the_answer_away(self, made):
        train, dev = ({run for p in part for run in runs(p.text)} for part in made[1:])
        assert train
        assert not train & dev
        names = {*CHAPTERS, *(module for modules in CHAPTERS.values() for module in modules)}
        for paragraph in (*made[1], *made[2]):
            assert not names & set(re.findall(r"\w+", paragraph.text.lower())), paragraph

    def test_chapters_of_documents(self):
        assert chapter_of("topic assert") == "language"
        assert chapter_of("topic debugger") == "testing"
        assert chapter_of("email/mime/base.MIMEBase") == "mail"
        assert chapter_of("shutil.Error") == "files"
        assert chapter_of("emailer.Class") is None

    def test_too_little_documentation_is_refused_before_anything_is_written(
        self, monkeypatch, tmp_path
    ):
        documents = numbered(120, "email.")
        monkeypatch.setattr(python_corpus, "python_documents", lambda: documents)
        with pytest.raises(ValueError, match=str(MIN_PARAGRAPHS)):
            write_chapters(tmp_path / "new")
        assert not (tmp_path / "new").exists()
