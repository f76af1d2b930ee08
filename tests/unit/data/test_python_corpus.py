"""The corpus made of Python's own documentation."""

import re
import sys
from pathlib import Path

import pytest

from albert_tf.data import python_corpus
from albert_tf.data.python_corpus import Document, source_documents, split_documents, write_corpus

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


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    (tmp_path / "package" / "tests").mkdir(parents=True)
    (tmp_path / "package" / "numbers.py").write_text(SOURCE)
    (tmp_path / "package" / "tests" / "cases.py").write_text(SOURCE)
    (tmp_path / "broken.py").write_text("def (")
    return tmp_path


def sentences_of(path: str) -> list[str]:
    return [line for line in Path(path).read_text(encoding="utf-8").splitlines() if line]


def test_sources_give_a_document_a_class_and_one_for_the_rest_of_the_module(sources):
    assert list(source_documents(sources)) == [
        Document(
            "package/numbers",
            [
                "The module is about the numbers.",
                "They are all in a list.",
                "Each of them is odd.",
                "Find the place of a number.",
            ],
        ),
        Document(
            "package/numbers.Table",
            [
                "A table is a list of the rows.",
                "The width is the number of columns.",
                "It is the inner part of it.",
            ],
        ),
    ]


def numbered_documents(count: int) -> list[Document]:
    return [
        Document(f"document {i}", [f"This is the sentence {j} of text {i}." for j in range(3)])
        for i in range(count)
    ]


def test_held_out_share_is_about_what_was_asked_for():
    training, held_out = split_documents(numbered_documents(1000), 0.1)
    assert len(training) + len(held_out) == 1000
    assert 70 < len(held_out) < 130


def test_a_documents_part_does_not_depend_on_the_other_documents():
    held_out = split_documents(numbered_documents(50), 0.3)[1]
    assert split_documents(reversed(numbered_documents(50)), 0.3)[1] == held_out[::-1]


def test_held_out_sentences_that_the_training_part_shares_are_dropped():
    shared = "It copies one two three four five six seven things in order."
    near = "And so it Copies one, two three four five six: nothing else."  # eight words of it
    unlike = "It copies one two three four five of the things."  # seven words of it
    own = ["This is the first own one.", "This is the second own one."]
    training_name, held_out_name = _names_on_both_sides()
    documents = [
        Document(training_name, [shared, "Then it is done.", "The end is here."]),
        Document(held_out_name, [shared, near, unlike, *own]),
    ]
    training, held_out = split_documents(documents, 0.5)
    assert training == documents[:1]
    assert held_out == [Document(held_out_name, [unlike, *own])]


def _names_on_both_sides() -> tuple[str, str]:
    training, held_out = split_documents(numbered_documents(20), 0.5)
    return training[0].name, held_out[0].name


def test_a_held_out_document_that_is_left_too_short_is_dropped():
    training_name, held_out_name = _names_on_both_sides()
    sentences = ["This is one of them.", "This is two of them.", "This is the last one."]
    documents = [Document(training_name, sentences), Document(held_out_name, sentences)]
    assert split_documents(documents, 0.5) == (documents[:1], [])


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> python_corpus.CorpusReport:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def test_this_python_gives_several_hundred_kilobytes(report):
    assert Path(report.training.path).stat().st_size > 500_000
    assert 0.05 < report.held_out.words / report.training.words < 0.25


def test_no_eight_words_in_a_row_stand_in_both_parts(report):
    training, held_out = (runs_of_eight_words(part.path) for part in report)
    assert len(held_out) > 1000
    assert not training & held_out


def runs_of_eight_words(path: str) -> set[tuple[str, ...]]:
    lines = [re.findall("[a-z0-9]+", line.lower()) for line in sentences_of(path)]
    return {tuple(words[i : i + 8]) for words in lines for i in range(len(words) - 7)}


def test_report_counts_what_the_files_hold(report):
    for part in report:
        text = Path(part.path).read_text(encoding="utf-8")
        documents = [document.splitlines() for document in text.removesuffix("\n\n").split("\n\n")]
        assert len(documents) == part.documents
        assert sum(map(len, documents)) == part.segments
        assert sum(len(s.split()) for document in documents for s in document) == part.words
        assert min(map(len, documents)) >= python_corpus.MIN_SENTENCES


@pytest.fixture
def hundred_documents(monkeypatch):
    """Stands in for the standard library, which takes seconds to read."""
    monkeypatch.setattr(python_corpus, "topic_documents", lambda: numbered_documents(100))
    monkeypatch.setattr(python_corpus, "source_documents", lambda: iter(()))


@pytest.mark.usefixtures("hundred_documents")
def test_a_second_run_gives_the_same_bytes_and_leaves_nothing_else(tmp_path):
    first = write_corpus(tmp_path)
    contents = [Path(part.path).read_bytes() for part in first]
    assert write_corpus(tmp_path) == first
    assert [Path(part.path).read_bytes() for part in first] == contents
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.usefixtures("hundred_documents")
@pytest.mark.parametrize(("bound", "expected"), [(100, 100), (40, 34), (33, 25)])
def test_max_documents_bounds_the_number_of_documents(tmp_path, bound, expected):
    report = write_corpus(tmp_path, held_out_share=0.2, max_documents=bound)
    assert report.training.documents + report.held_out.documents == expected


def test_a_python_without_the_manual_gives_the_docstrings_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    assert list(python_corpus.topic_documents()) == []


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5])
def test_a_share_out_of_range_is_refused_before_anything_is_written(tmp_path, share):
    with pytest.raises(ValueError, match=r"held_out_share.*Received"):
        write_corpus(tmp_path / "new", held_out_share=share)
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("hundred_documents")
def test_too_few_documents_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="do not suffice"):
        write_corpus(tmp_path / "new", held_out_share=1e-6, max_documents=3)
    with pytest.raises(ValueError, match=r"max_documents.*Received: 1"):
        write_corpus(tmp_path / "new", max_documents=1)
    assert not (tmp_path / "new").exists()
