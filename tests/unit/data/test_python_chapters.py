"""The task of telling the chapters of Python's own documentation apart."""

import csv
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from albert_tf.data import python_chapters
from albert_tf.data.python_chapters import (
    CHAPTERS,
    DEV_FILE,
    MAX_PARAGRAPHS,
    MIN_PARAGRAPHS,
    TRAIN_FILE,
    chapter_of,
    chapter_paragraphs,
    write_chapters,
)
from albert_tf.data.python_corpus import Document

WORDS = [f"{a}{b}" for a in "bcdfgk" for b in ("a", "el", "imo", "oru", "ut")]


def sentence(module: str, place: int) -> str:
    """Seven words, another choice of them for every module and place."""
    seed = sum(map(ord, module)) * 131 + place
    return " ".join(WORDS[(seed * (i * 2 + 3) + i) % len(WORDS)] for i in range(7)) + f" {seed}."


def document(module: str, number: int, sentences: int = 5) -> Document:
    lines = [sentence(module, number * 10 + i) for i in range(sentences)]
    return Document(f"{module}/part.Class{number}", lines)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The files made of this Python's documentation, and what is said of them."""
    folder = tmp_path_factory.mktemp("chapters")
    return folder, *write_chapters(folder)


class TestOfThisPython:
    def test_the_files_have_what_is_returned(self, made):
        folder, *parts = made
        for name, part in zip((TRAIN_FILE, DEV_FILE), parts, strict=True):
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

    def test_no_paragraph_of_one_part_is_nearly_one_of_the_other(self, made):
        texts = [paragraph.text.lower() for part in made[1:] for paragraph in part]
        words = [set(re.findall(r"[a-z]+", text)) for text in texts]
        known = sorted(set().union(*words))
        has = np.array([[word in each for word in known] for each in words], np.float32)
        train, dev = np.split(has, [len(made[1])])
        common = dev @ train.T
        either = dev.sum(axis=1)[:, None] + train.sum(axis=1) - common
        assert (common / either).max() < 0.7

    def test_no_run_of_eight_words_is_in_both_parts(self, made):
        train, dev = ({run for p in part for run in runs(p.text)} for part in made[1:])
        assert train
        assert not train & dev

    def test_no_name_of_a_chapter_or_module_gives_the_answer_away(self, made):
        names = {*CHAPTERS, *(module for modules in CHAPTERS.values() for module in modules)}
        for paragraph in (*made[1], *made[2]):
            assert not names & set(re.findall(r"\w+", paragraph.text.lower())), paragraph


def runs(text: str) -> set[tuple[str, ...]]:
    """Runs of eight words inside of sentences."""
    found = set()
    for part in re.split(r"(?<=[.!?:]) (?=[A-Z\"'(\[])", text):
        words = re.findall(r"[a-z0-9]+", part.lower())
        found |= {tuple(words[i : i + 8]) for i in range(len(words) - 7)}
    return found


def test_chapters_of_documents():
    assert chapter_of("topic assert") == "language"
    assert chapter_of("topic debugger") == "testing"
    assert chapter_of("email/mime/base.MIMEBase") == "mail"
    assert chapter_of("shutil.Error") == "files"
    assert chapter_of("emailer.Class") is None
    every = [module for modules in CHAPTERS.values() for module in modules]
    assert len(every) == len(set(every))


def test_a_document_is_in_one_part_and_small_chapters_are_left_out():
    large = [document(m, n) for m in ("email", "tarfile", "random") for n in range(120)]
    small = [document("tkinter", n) for n in range(5)]
    unknown = [document("distutils", n) for n in range(120)]
    train, dev = chapter_paragraphs([*large, *small, *unknown])
    assert list(train) == list(dev) == ["mail", "numbers", "files"]  # the order of CHAPTERS
    numbers = [
        {text.split()[7] for texts in part.values() for text in texts} for part in (train, dev)
    ]
    assert not numbers[0] & numbers[1]
    assert sum(map(len, train.values())) > 3 * sum(map(len, dev.values()))


def test_a_paragraph_is_made_of_whole_sentences_and_of_enough_words(monkeypatch):
    monkeypatch.setattr(python_chapters, "MIN_PARAGRAPHS", 1)
    documents = [document(m, n, 6) for m in ("email", "random") for n in range(20)]
    documents[3].sentences[1] = "The Email is not for this one at all."
    train, dev = chapter_paragraphs(documents)
    texts = [text for part in (train, dev) for texts in part.values() for text in texts]
    # Eight words a sentence: four make 25 words, and the two that are left half of them.
    assert Counter(len(text.split()) for text in texts) == {32: 40, 16: 39}
    assert not [text for text in texts if "Email" in text]
    assert all(text.endswith(".") for text in texts)


def test_at_most_so_many_of_a_chapter_are_taken_from_all_over_it(monkeypatch, tmp_path):
    documents = [document(m, n) for m in ("email", "random") for n in range(120)]
    monkeypatch.setattr(python_chapters, "python_documents", lambda: documents)
    all_of_it = chapter_paragraphs(documents)
    monkeypatch.setattr(python_chapters, "MAX_PARAGRAPHS", (17, 11))
    for part, whole, limit in zip(write_chapters(tmp_path), all_of_it, (17, 11), strict=True):
        assert Counter(paragraph.chapter for paragraph in part) == {"mail": limit, "numbers": limit}
        places = [whole["mail"].index(paragraph.text) for paragraph in part[:limit]]
        assert places == sorted(set(places))
        assert places[-1] >= len(whole["mail"]) * (1 - 2 / limit)


def test_too_little_documentation_is_refused_before_anything_is_written(monkeypatch, tmp_path):
    documents = [document("email", n) for n in range(120)]
    monkeypatch.setattr(python_chapters, "python_documents", lambda: documents)
    with pytest.raises(ValueError, match="1 of the chapters"):
        write_chapters(tmp_path / "new")
    assert not Path(tmp_path / "new").exists()
