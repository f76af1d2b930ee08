"""English texts from Python's documentation: a corpus, and a small classification task.

The topics of the manual (`pydoc_data.topics`) and the docstrings of the standard library contain a
few hundred kilobytes of English prose. Source files are parsed, not imported. The task is to
classify paragraphs by the chapter of the documentation.
"""

from __future__ import annotations

import ast
import csv
import inspect
import io
import os
import re
import sysconfig
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path

from albert_tf.data.errors import UserError
from albert_tf.data.files import write_then_rename

TRAINING_FILE, HELD_OUT_FILE = "training.txt", "held_out.txt"  # of the corpus
TRAIN_FILE, DEV_FILE = "train.csv", "dev.csv"  # of the task
TEXT_COLUMN, LABEL_COLUMN = "paragraph", "chapter"
# Top-level modules of each chapter. The chapter "language" consists of the topics of the manual.
CHAPTERS = {
    "language": "",
    "graphics": "tkinter turtle",
    "mail": "email imaplib mailbox nntplib poplib smtplib",
    "web": "cgi ftplib html http socket socketserver ssl urllib wsgiref xmlrpc",
    "concurrency": "asyncio concurrent contextvars multiprocessing queue sched selectors subprocess"
    " threading",
    "numbers": "_pydecimal colorsys decimal fractions numbers random statistics",
    "testing": "bdb cProfile doctest pdb profile pstats timeit trace traceback unittest",
    "files": "_pyio bz2 filecmp fileinput genericpath glob gzip lzma ntpath os pathlib posixpath"
    " shutil tarfile tempfile zipfile",
}
MAX_PARAGRAPHS = (200, 40)  # per chapter, for training and for evaluation
_CHAPTER_OF = {module: chapter for chapter, text in CHAPTERS.items() for module in text.split()}
# Sentences with these names would reveal the chapter.
_NAMES = re.compile(rf"\b(?:{'|'.join({*CHAPTERS, *_CHAPTER_OF})})\b", re.IGNORECASE)
_SKIPPED_FOLDER = re.compile(
    r"(?:^|/)(?:site-packages|dist-packages|tests?|idlelib|lib2to3|turtledemo|pydoc_data)/"
)
_MIN_SENTENCES = 3  # of a document
_MIN_WORDS = 4  # of a sentence or clause
_PARAGRAPH_WORDS = 25  # of the task
_SHARED_WORDS = 8  # held-out sentences with this many consecutive training words are dropped
_PARAGRAPH_END = re.compile(r"\n\s*\n|\n\s*(?=[*+o•-] |\(?(?:\d+|[a-z])[.)] )")  # or a list item
_NOISE = re.compile(r"\s*(?:\.\. |:[\w ]+:|@\w+|\|)|.*>>>", re.DOTALL)  # directives and examples
_MARKUP = re.compile(
    r"^\s*(?:[*+o•-]|\(?(?:\d+|[a-z])[.)])\s|:[\w:+-]+:(?=`)|[`~]|\*+(?=\w)|(?<=\w)\*+|\[\d+\]_?|:(?=:$)"
)
_SENTENCE_END = re.compile(r"(?<!e\.g\.)(?<!i\.e\.)(?<=[.!?]) +(?=[\"'(]?[A-Z])")
_SENTENCE = re.compile(r"[\"'(]?[A-Z].*[.!?:][\"')]?")
_PLAIN_WORD = re.compile(r"[\"'(]*[A-Za-z]+(?:['-][A-Za-z]+)*[\"')]*[.,;:!?]*[\"')]*")
_FUNCTION_WORD = re.compile(
    r"\b(?:an?|and|are|as|be|but|by|can|for|from|has|if|in|is|it|not|of|on|or|that|the|to|with)\b",
    re.IGNORECASE,
)
Documents = Mapping[str, list[str]]  # sentences by topic, module or class


def write_corpus(directory: str | os.PathLike, max_documents: int | None = None) -> None:
    """Writes the corpus: one clause per line, an empty line after each document.

    Args:
        directory: directory of TRAINING_FILE and HELD_OUT_FILE.
        max_documents: maximum number of documents. If `None`, all are used.

    Raises:
        ValueError: one of the files would be empty.
    """
    documents = python_documents()
    names = list(documents)[:: -(-len(documents) // (max_documents or len(documents)))]
    parts = split_documents({name: documents[name] for name in names}, 0.1)
    if not all(parts):
        raise UserError(
            "`max_documents` is too small for a training and a held-out file. Received: "
            f"{max_documents}"
        )
    for name, part in zip((TRAINING_FILE, HELD_OUT_FILE), parts, strict=True):
        with write_then_rename(os.path.join(directory, name)) as file:
            for sentences in part.values():
                lines = [clause for sentence in sentences for clause in clauses(sentence)]
                file.write("\n".join([*lines, "", ""]).encode())


def write_chapters(directory: str | os.PathLike) -> list[list[tuple[str, str]]]:
    """Writes the tables TRAIN_FILE and DEV_FILE of the task; returns their rows."""
    parts = [_by_chapter(part) for part in split_documents(python_documents(), 0.2)]
    tables = []
    for name, part, limit in zip((TRAIN_FILE, DEV_FILE), parts, MAX_PARAGRAPHS, strict=True):
        rows = []
        for chapter, texts in part.items():
            count = min(limit, len(texts))
            rows += [(texts[i * len(texts) // count], chapter) for i in range(count)]
        table = io.StringIO()
        csv.writer(table, lineterminator="\n").writerows([(TEXT_COLUMN, LABEL_COLUMN), *rows])
        with write_then_rename(os.path.join(directory, name)) as file:
            file.write(table.getvalue().encode())
        tables.append(rows)
    return tables


def _by_chapter(documents: Documents) -> dict[str, list[str]]:
    """Returns the paragraphs of each chapter. A paragraph is from one document."""
    found: dict[str, list[str]] = {chapter: [] for chapter in CHAPTERS}
    for name, sentences in documents.items():
        module = re.split(r"[/.]", name)[0]
        chapter = "language" if name.startswith("topic ") else _CHAPTER_OF.get(module)
        words: list[str] = []
        for sentence in sentences if chapter else ():
            words += [] if _NAMES.search(sentence) else sentence.split()
            if len(words) >= _PARAGRAPH_WORDS:
                found[chapter or ""].append(" ".join(words))
                words = []
    return found


def split_documents(documents: Documents, held_out_share: float) -> tuple[Documents, Documents]:
    """Splits documents into a training and a held-out part by a hash of their names.

    Held-out sentences that share _SHARED_WORDS consecutive words with the training part are
    dropped, and then documents with too few sentences.
    """
    held_out = {n for n in documents if zlib.crc32(n.encode()) / 2**32 < held_out_share}
    training = {n: sentences for n, sentences in documents.items() if n not in held_out}
    seen = {run for sentences in training.values() for s in sentences for run in _runs(s)}
    cleared = {n: [s for s in documents[n] if seen.isdisjoint(_runs(s))] for n in held_out}
    return training, {n: cleared[n] for n in documents if len(cleared.get(n, ())) >= _MIN_SENTENCES}


def _runs(sentence: str) -> set[tuple[str, ...]]:
    """Returns all sequences of _SHARED_WORDS words; a shorter sentence is one sequence."""
    words = re.findall(r"[a-z0-9]+", sentence.lower())
    last = max(len(words) - _SHARED_WORDS, 0)
    return {tuple(words[i : i + _SHARED_WORDS]) for i in range(last + 1)}


@cache
def python_documents() -> Documents:
    """Returns all documents of this Python installation. A repeated sentence is kept once."""
    topics: dict[str, str] = {}
    with suppress(ModuleNotFoundError):  # some distributions package it separately
        topics = import_module("pydoc_data.topics").topics
    manual = [(f"topic {name}", prose_sentences(topics[name])) for name in sorted(topics)]
    seen: set[str] = set()
    documents = {}
    for name, sentences in [*manual, *source_documents(sysconfig.get_path("stdlib"))]:
        new = [sentence for sentence in dict.fromkeys(sentences) if sentence not in seen]
        seen.update(new)
        if len(new) >= _MIN_SENTENCES:
            documents[name] = new
    return documents


def source_documents(folder: str | os.PathLike) -> Iterator[tuple[str, list[str]]]:
    """Yields the sentences in the docstrings of each module, and of each top-level class."""
    for path in sorted(Path(folder).rglob("*.py")):
        name = path.relative_to(folder).with_suffix("").as_posix()
        if _SKIPPED_FOLDER.search(name):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # invalid escapes in string literals
                module = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):  # templates and test data
            continue
        classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
        module.body = [node for node in module.body if node not in classes]
        for title, tree in [(name, module), *((f"{name}.{node.name}", node) for node in classes)]:
            documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
            nodes = [node for node in ast.walk(tree) if isinstance(node, documented)]
            texts = [ast.get_docstring(node) or "" for node in nodes]
            yield title, [sentence for text in texts for sentence in prose_sentences(text)]


def prose_sentences(text: str) -> list[str]:
    """Returns the sentences of running English in a docstring or reStructuredText.

    Headings, code, examples, tables and signatures are dropped, wrapped lines are joined, markup is
    removed. A sentence begins with a capital, ends in `.`, `!`, `?` or `:`, and consists mostly of
    plain words.
    """
    found: list[str] = []
    for paragraph in _PARAGRAPH_END.split(inspect.cleandoc(text)):
        if not _NOISE.match(paragraph):
            plain = " ".join(_MARKUP.sub("", paragraph).split()).replace("’", "'")
            found += filter(_is_prose, _SENTENCE_END.split(plain))
    return found


def _is_prose(sentence: str) -> bool:
    words = sentence.split()
    return (
        _MIN_WORDS <= len(words) <= 120
        and _SENTENCE.fullmatch(sentence) is not None
        and sum(_PLAIN_WORD.fullmatch(word) is not None for word in words) >= 0.9 * len(words)
        and _FUNCTION_WORD.search(sentence) is not None
    )


def clauses(sentence: str) -> list[str]:
    """Splits a sentence after commas, semicolons and colons into parts of at least four words."""
    parts: list[str] = []
    for part in re.split("(?<=[,;:]) ", sentence):
        if parts and min(len(parts[-1].split()), len(part.split())) < _MIN_WORDS:
            parts[-1] += " " + part
        else:
            parts.append(part)
    return parts
