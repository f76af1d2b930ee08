"""A small task out of Python's own documentation: which chapter is this paragraph from?

Like the corpus (`python_corpus.py`) it comes with every Python installation. Whole topics, modules
and classes are kept back for evaluation, never paragraphs of one that is trained on.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from albert_tf.data.files import write_then_rename
from albert_tf.data.python_corpus import Document, python_documents, split_documents

TRAIN_FILE = "train.csv"
DEV_FILE = "dev.csv"
TEXT_COLUMN, LABEL_COLUMN = "paragraph", "chapter"

# Top-level modules of each chapter; what a Python lacks of them does not matter. The topics of the
# manual are the chapter of the language, but for the one of the debugger.
CHAPTERS = {
    "language": (),
    "graphics": ("tkinter", "turtle"),
    "mail": ("email", "imaplib", "mailbox", "nntplib", "poplib", "smtplib"),
    "web": ("cgi", "ftplib", "html", "http", "socket", "socketserver", "ssl", "urllib", "wsgiref",
            "xmlrpc"),
    "concurrency": ("asyncio", "concurrent", "contextvars", "multiprocessing", "queue", "sched",
                    "selectors", "subprocess", "threading"),
    "numbers": ("_pydecimal", "colorsys", "decimal", "fractions", "numbers", "random",
                "statistics"),
    "testing": ("bdb", "cProfile", "doctest", "pdb", "profile", "pstats", "timeit", "trace",
                "traceback", "unittest"),
    "files": ("_pyio", "bz2", "filecmp", "fileinput", "genericpath", "glob", "gzip", "lzma",
              "ntpath", "os", "pathlib", "posixpath", "shutil", "tarfile", "tempfile", "zipfile"),
}  # fmt: skip
MAX_PARAGRAPHS = (200, 40)  # of a chapter to train on, and to evaluate
MIN_PARAGRAPHS = 10  # in either part, for a chapter to be taken
_WORDS = 25  # of a paragraph, at least; the last one of a document may have half of them
_HELD_OUT_SHARE = 0.2

_CHAPTER_OF = {module: chapter for chapter, modules in CHAPTERS.items() for module in modules}
# Names that would give the answer away: a sentence with one is left out.
_NAMES = re.compile(rf"\b(?:{'|'.join({*CHAPTERS, *_CHAPTER_OF})})\b", re.IGNORECASE)


class Paragraph(NamedTuple):
    """A few sentences in a row, and the chapter they are from."""

    text: str
    chapter: str


def write_chapters(directory: str | os.PathLike) -> tuple[list[Paragraph], list[Paragraph]]:
    """Writes the task as tables with a header: TRAIN_FILE and DEV_FILE.

    Args:
        directory: where they go; made if it is not there.

    Returns:
        What is in the two files.

    Raises:
        ValueError: this Python carries too little documentation for two chapters.
    """
    parts = chapter_paragraphs(python_documents())
    train, dev = map(_balanced, parts, MAX_PARAGRAPHS)
    for name, part in ((TRAIN_FILE, train), (DEV_FILE, dev)):
        with write_then_rename(os.path.join(directory, name)) as file:
            file.write(_table(part))
    return train, dev


def chapter_paragraphs(
    documents: Iterable[Document],
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Divides the documentation into paragraphs to train on and to evaluate, by chapter.

    A document is in one part as a whole, by a hash of its name. A sentence of the second part that
    shares a run of words with the first is left out, as is one that names a chapter or module.

    Args:
        documents: as `python_corpus` names them.

    Returns:
        The paragraphs of each chapter that has at least MIN_PARAGRAPHS in both parts.

    Raises:
        ValueError: fewer than two chapters have.
    """
    known = [document for document in documents if chapter_of(document.name)]
    train, dev = map(_by_chapter, split_documents(known, _HELD_OUT_SHARE))
    large = [
        chapter
        for chapter in CHAPTERS
        if min(len(part.get(chapter, ())) for part in (train, dev)) >= MIN_PARAGRAPHS
    ]
    if len(large) < 2:
        raise ValueError(
            f"This Python carries too little documentation: {len(large)} of the chapters "
            f"{', '.join(CHAPTERS)} have {MIN_PARAGRAPHS} paragraphs to train on and to evaluate."
        )
    return {name: train[name] for name in large}, {name: dev[name] for name in large}


def chapter_of(name: str) -> str | None:
    """Returns the chapter of a document, None where it is of none."""
    if name.startswith("topic "):
        return "testing" if name == "topic debugger" else "language"
    return _CHAPTER_OF.get(re.split(r"[/.]", name)[0])


def _by_chapter(documents: Iterable[Document]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for document in documents:
        chapter = chapter_of(document.name)
        if chapter is not None:
            found.setdefault(chapter, []).extend(_paragraphs(document.sentences))
    return found


def _paragraphs(sentences: Iterable[str]) -> list[str]:
    paragraphs: list[list[str]] = [[]]
    for sentence in sentences:
        if _NAMES.search(sentence):
            continue
        if len(paragraphs[-1]) >= _WORDS:
            paragraphs.append([])
        paragraphs[-1] += sentence.split()
    if len(paragraphs[-1]) < _WORDS / 2:
        paragraphs.pop()
    return [" ".join(words) for words in paragraphs]


def _balanced(part: Mapping[str, list[str]], limit: int) -> list[Paragraph]:
    """At most so many paragraphs of each chapter, evenly picked."""
    return [
        Paragraph(texts[i * len(texts) // min(limit, len(texts))], chapter)
        for chapter, texts in part.items()
        for i in range(min(limit, len(texts)))
    ]


def _table(part: Iterable[Paragraph]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([TEXT_COLUMN, LABEL_COLUMN])
    writer.writerows(part)
    return text.getvalue().encode()
