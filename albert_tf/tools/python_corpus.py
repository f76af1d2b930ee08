"""English text out of what every Python installation carries: a corpus, and a small task.

The manual's topics (`pydoc_data.topics`) and the docstrings of the standard library are a few
hundred kilobytes of English prose, there without any download. Nothing of the library is imported
or run: its source files are parsed. The task is to tell which chapter a paragraph is from.
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
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from albert_tf.data.files import write_then_rename

TRAINING_FILE, HELD_OUT_FILE = "training.txt", "held_out.txt"  # of the corpus
TRAIN_FILE, DEV_FILE = "train.csv", "dev.csv"  # of the task
TEXT_COLUMN, LABEL_COLUMN = "paragraph", "chapter"
_HELD_OUT_SHARE, _HELD_OUT_SHARE_OF_TASK = 0.1, 0.2
_MIN_SENTENCES = 3  # of a document
_MIN_WORDS, _MAX_WORDS = 4, 120  # of a sentence
_MIN_PLAIN_WORDS = 0.9  # share of the words of a sentence
# A held-out sentence that has this many words in a row in common with the training part is
# dropped: most such runs are one text that stands in two places.
_SHARED_WORDS = 8
_SKIPPED_FOLDER = re.compile(
    r"(?:^|/)(?:site-packages|dist-packages|tests?|idlelib|lib2to3|turtledemo|pydoc_data)/"
)
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
_PARAGRAPH_WORDS = 25  # at least; the last paragraph of a document may have half of them
_CHAPTER_OF = {module: chapter for chapter, modules in CHAPTERS.items() for module in modules}
# Names that would give the answer away: a sentence with one is left out.
_NAMES = re.compile(rf"\b(?:{'|'.join({*CHAPTERS, *_CHAPTER_OF})})\b", re.IGNORECASE)
# What belongs to no paragraph of prose, or begins one.
_DOCTEST = re.compile(r"\s*>>>")
_BULLET = re.compile(r"^\s*(?:[*+o•-]|\(?(?:\d+|[a-z])[.)])\s+(?=\S)")
_DIRECTIVE = re.compile(r"\s*(?:\.\. |:[\w ]+:|@\w+|\|)")
# Each mark-up pattern and the text that stays of it, in the order they are applied.
_MARKUP = [
    (re.compile(r":[\w:+-]+:`[~!]?([^`<]*?)(?:\s*<[^`]*>)?`"), r"\1"),  # :class:`~module.Name`
    (re.compile(r"``(.+?)``"), r"\1"),
    (re.compile(r"`([^`']+)[`']_{0,2}"), r"\1"),
    (re.compile(r"\*\*(\S(?:[^*]*\S)?)\*\*"), r"\1"),
    (re.compile(r"(?<![\w*])\*(\w(?:[^*]*\w)?)\*(?![\w*])"), r"\1"),
    (re.compile(r'"(\S+)"'), r"\1"),  # how text made from the manual writes literals
    (re.compile(r"\s*\[(?:\d+|#\w*)\]_?"), ""),  # footnotes
    (re.compile(r"\s+"), " "),
    (re.compile(r"(?<=[a-z]-) (?=[a-z])"), ""),  # a word wrapped at its hyphen
    (re.compile(r"::$"), ":"),
]
_TYPOGRAPHY = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "—": "-", "–": "-"})
_SENTENCE_END = re.compile(r"[.!?][\"')\]]*\s+(?=[\"'(\[]*[A-Z])")
_ABBREVIATION = re.compile(  # or an initial: its full stop ends no sentence
    r"(?:^|[\s(\[\"'])(?:e\.g|i\.e|cf|vs|viz|resp|approx|incl|esp|Nos?|Fig|Sec|Mrs?|Dr|Prof|St|[A-Z])"
    r"\.\s+$"
)
_CLAUSE_END = re.compile(r"(?<=[,;:]) ")
_SENTENCE = re.compile(r"[\"'(\[]*[A-Z].*[.!?:][\"')\]]*")
_PLAIN_WORD = re.compile(r"[\"'(\[]*[A-Za-z]+(?:['-][A-Za-z]+)*[\"')\]]*[.,;:!?]*[\"')\]]*")
_FUNCTION_WORD = re.compile(
    r"\b(?:an?|and|are|as|at|be|been|but|by|can|for|from|has|have|if|in|is|its?|not|of|on|or|that"
    r"|the|their|then|there|these|they|this|to|was|when|which|will|with|you)\b",
    re.IGNORECASE,
)


class Document(NamedTuple):
    """Sentences that belong together, in order; the name says where they come from."""

    name: str
    sentences: list[str]


class Paragraph(NamedTuple):
    """A few sentences in a row, and the chapter they are from."""

    text: str
    chapter: str


def write_corpus(directory: str | os.PathLike, max_documents: int | None = None) -> None:
    """Writes the corpus: a sentence or clause a line, an empty line after each document.

    This is what create_pretraining_data reads: TRAINING_FILE and HELD_OUT_FILE, of all documents or
    of `max_documents`, evenly picked; see `split_documents`. Sentences are split into clauses
    because a small model has short sequences, and each must hold two lines for its sentence-order
    task.

    Raises:
        ValueError: one of the parts would be empty.
    """
    documents = python_documents()
    if max_documents is not None:
        documents = documents[:: -(-len(documents) // max_documents)]
    parts = split_documents(documents, _HELD_OUT_SHARE)
    if not all(parts):
        raise ValueError(
            f"max_documents={max_documents} is too small for a training and a held-out part, which "
            f"would have {len(parts[0])} and {len(parts[1])} documents."
        )
    for name, part in zip((TRAINING_FILE, HELD_OUT_FILE), parts, strict=True):
        with write_then_rename(os.path.join(directory, name)) as file:
            for document in part:
                lines = [clause for s in document.sentences for clause in clauses(s)]
                file.write("\n".join([*lines, "", ""]).encode())


def write_chapters(directory: str | os.PathLike) -> tuple[list[Paragraph], list[Paragraph]]:
    """Writes the task as tables with a header, TRAIN_FILE and DEV_FILE; returns what is in them.

    Whole topics, modules and classes are held out for evaluation; see `split_documents`. Sentences
    that name a chapter or one of its modules are left out.

    Raises:
        ValueError: fewer than two chapters have MIN_PARAGRAPHS in both files.
    """
    documents = [document for document in python_documents() if chapter_of(document.name)]
    train, dev = map(_by_chapter, split_documents(documents, _HELD_OUT_SHARE_OF_TASK))
    chapters = [c for c in CHAPTERS if min(len(train[c]), len(dev[c])) >= MIN_PARAGRAPHS]
    if len(chapters) < 2:
        raise ValueError(
            f"This Python installation has too little documentation: only {len(chapters)} of the "
            f"chapters {', '.join(CHAPTERS)} have {MIN_PARAGRAPHS} paragraphs to train on and to "
            "evaluate."
        )
    parts = [
        _picked(part, chapters, n) for part, n in zip((train, dev), MAX_PARAGRAPHS, strict=True)
    ]
    for name, part in zip((TRAIN_FILE, DEV_FILE), parts, strict=True):
        table = io.StringIO()
        csv.writer(table, lineterminator="\n").writerows([(TEXT_COLUMN, LABEL_COLUMN), *part])
        with write_then_rename(os.path.join(directory, name)) as file:
            file.write(table.getvalue().encode())
    return parts[0], parts[1]


def chapter_of(name: str) -> str | None:
    """Returns the chapter of a document, None where it is of none."""
    if name.startswith("topic "):
        return "testing" if name == "topic debugger" else "language"
    return _CHAPTER_OF.get(re.split(r"[/.]", name)[0])


def _by_chapter(documents: Iterable[Document]) -> dict[str, list[str]]:
    """The paragraphs of each chapter: whole sentences of one document."""
    found: dict[str, list[str]] = {chapter: [] for chapter in CHAPTERS}
    for document in documents:
        paragraphs: list[list[str]] = [[]]
        for sentence in document.sentences:
            if not _NAMES.search(sentence):
                if len(paragraphs[-1]) >= _PARAGRAPH_WORDS:
                    paragraphs.append([])
                paragraphs[-1] += sentence.split()
        if len(paragraphs[-1]) < _PARAGRAPH_WORDS / 2:
            paragraphs.pop()
        found[chapter_of(document.name) or ""] += map(" ".join, paragraphs)
    return found


def _picked(part: dict[str, list[str]], chapters: Iterable[str], limit: int) -> list[Paragraph]:
    """At most so many paragraphs of each chapter, evenly picked."""
    picked = []
    for chapter in chapters:
        texts, count = part[chapter], min(limit, len(part[chapter]))
        picked += [Paragraph(texts[i * len(texts) // count], chapter) for i in range(count)]
    return picked


def split_documents(
    documents: Iterable[Document], held_out_share: float
) -> tuple[list[Document], list[Document]]:
    """Divides documents by a hash of their names, which differ; nothing is in both parts.

    Which part a document is in does not depend on the others. The held-out part, whose expected
    share is in (0, 1), comes second, without the sentences that share a run of words with the
    training part. Documents that end up with too few sentences are left out.
    """
    training: list[Document] = []
    held_out: list[Document] = []
    for document in documents:
        is_held_out = zlib.crc32(document.name.encode()) / 2**32 < held_out_share
        (held_out if is_held_out else training).append(document)
    seen = {run for document in training for s in document.sentences for run in _runs(s)}
    cleared = (
        Document(name, [s for s in sentences if seen.isdisjoint(_runs(s))])
        for name, sentences in held_out
    )
    return _large_enough(training), _large_enough(cleared)


def _runs(sentence: str) -> set[tuple[str, ...]]:
    """All runs of _SHARED_WORDS words; a shorter sentence is one run."""
    words = _words(sentence)
    last = max(len(words) - _SHARED_WORDS, 0)
    return {tuple(words[i : i + _SHARED_WORDS]) for i in range(last + 1)}


def _words(sentence: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", sentence.lower())


def _large_enough(documents: Iterable[Document]) -> list[Document]:
    return [document for document in documents if len(document.sentences) >= _MIN_SENTENCES]


@cache  # corpus and task are made of the same
def python_documents() -> list[Document]:
    """Returns all documents of this Python; a sentence that is in several is in the first alone."""
    seen: set[tuple[str, ...]] = set()
    documents = []
    for name, sentences in [*topic_documents(), *source_documents()]:
        new = []
        for sentence in sentences:
            key = tuple(_words(sentence))
            if key not in seen:
                seen.add(key)
                new.append(sentence)
        documents.append(Document(name, new))
    return _large_enough(documents)


def topic_documents() -> Iterator[Document]:
    """Yields one document for each topic of the manual; none where Python came without them."""
    try:
        from pydoc_data.topics import topics
    except ModuleNotFoundError:  # some distributions package them apart
        return
    for name in sorted(topics):
        yield Document(f"topic {name}", prose_sentences(topics[name]))


def source_documents(root: str | os.PathLike | None = None) -> Iterator[Document]:
    """Yields the docstrings of Python sources: a document a top-level class, and one a module.

    Sources are those below `root`, by default the standard library of the running Python.
    """
    folder = Path(root or sysconfig.get_path("stdlib"))
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder).with_suffix("").as_posix()
        if _SKIPPED_FOLDER.search(name):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # invalid escapes in other people's strings
                module = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):  # test data and templates that are no Python
            continue
        classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
        module.body = [node for node in module.body if node not in classes]
        for title, tree in [(name, module), *((f"{name}.{node.name}", node) for node in classes)]:
            texts = map(ast.get_docstring, _documented_nodes(tree))
            yield Document(title, [s for text in texts for s in prose_sentences(text or "")])


def _documented_nodes(
    tree: ast.AST,
) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yields what can have a docstring, in the order of the source."""
    if isinstance(tree, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield tree
    for child in ast.iter_child_nodes(tree):
        yield from _documented_nodes(child)


def prose_sentences(text: str) -> list[str]:
    """Takes the sentences of running English out of a documentation text.

    Headings, code, examples, tables, signatures and lists of single words fall away; wrapped
    lines are joined and mark-up is removed.

    Args:
        text: a docstring or a text in reStructuredText, as written.

    Returns:
        The sentences in order, each on one line: it begins with a capital, ends in `.`, `!`, `?`
        or `:`, and consists mostly of plain words.
    """
    found: list[str] = []
    for paragraph in _paragraphs(inspect.cleandoc(text).splitlines()):
        for pattern, kept in _MARKUP:
            paragraph = pattern.sub(kept, paragraph)
        found += filter(_is_prose, _split_sentences(paragraph.translate(_TYPOGRAPHY).strip()))
    return found


def _paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """Yields each paragraph and each list item as one line of text."""
    gathered: list[str] = []
    in_example = False
    for line in [*lines, ""]:
        is_blank, starts_example = not line.strip(), bool(_DOCTEST.match(line))
        is_noise = is_blank or bool(_DIRECTIVE.match(line))
        if gathered and (starts_example or is_noise or _BULLET.match(line)):
            yield " ".join(gathered)
            gathered = []
        in_example = not is_blank and (in_example or starts_example)
        if not in_example and not is_noise:
            gathered.append(_BULLET.sub("", line, count=1).strip())


def _split_sentences(paragraph: str) -> Iterator[str]:
    start = 0
    for match in _SENTENCE_END.finditer(paragraph):
        if not _ABBREVIATION.search(paragraph, start, match.end()):
            yield paragraph[start : match.end()].rstrip()
            start = match.end()
    yield paragraph[start:]


def _is_prose(sentence: str) -> bool:
    words = sentence.split()
    return (
        _MIN_WORDS <= len(words) <= _MAX_WORDS
        and _SENTENCE.fullmatch(sentence) is not None
        and sum(map(bool, map(_PLAIN_WORD.fullmatch, words))) >= _MIN_PLAIN_WORDS * len(words)
        and _FUNCTION_WORD.search(sentence) is not None
    )


def clauses(sentence: str) -> list[str]:
    """Splits a sentence after commas, semicolons and colons.

    Joined with blanks the parts are the sentence. None is shorter than four words, unless the
    sentence is.
    """
    parts: list[str] = []
    for part in _CLAUSE_END.split(sentence):
        if parts and min(len(parts[-1].split()), len(part.split())) < _MIN_WORDS:
            parts[-1] += " " + part
        else:
            parts.append(part)
    return parts
