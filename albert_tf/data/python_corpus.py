"""An English corpus out of what every Python installation carries.

The manual's topics (`pydoc_data.topics`) and the docstrings of the standard library are a few
hundred kilobytes of real English prose, there without any download. Nothing of the library is
imported or run: its source files are parsed.
"""

import ast
import os
import re
import sysconfig
import warnings
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from albert_tf.data.files import write_then_rename
from albert_tf.data.prose import clauses, prose_sentences

TRAINING_FILE = "training.txt"
HELD_OUT_FILE = "held_out.txt"
MIN_SENTENCES = 3

# A held-out sentence that has this many words in a row in common with the training part is
# dropped: most such runs are one text that stands in two places.
_SHARED_WORDS = 8
_SKIPPED_FOLDER = re.compile(
    r"(?:^|/)(?:site-packages|dist-packages|tests?|idlelib|lib2to3|turtledemo|pydoc_data)/"
)
_WORD = re.compile(r"[a-z0-9]+")


class Document(NamedTuple):
    """Sentences that belong together, in order; the name says where they come from."""

    name: str
    sentences: list[str]


class CorpusPart(NamedTuple):
    """A file of the corpus and what is in it; a segment is a line."""

    path: str
    documents: int
    segments: int
    words: int


class CorpusReport(NamedTuple):
    """What `write_corpus` wrote."""

    training: CorpusPart
    held_out: CorpusPart


def write_corpus(
    directory: str | os.PathLike, held_out_share: float = 0.1, max_documents: int | None = None
) -> CorpusReport:
    """Writes the corpus: a sentence or clause a line, an empty line after each document.

    This is what create_pretraining_data reads. Sentences are split into clauses because a small
    model has short sequences, and each must hold two lines for its sentence-order task.

    A document is held out by a hash of its name, so the same Python always gives the same files.
    Held-out sentences that the training part has too, in whole or in long runs, are dropped.

    Args:
        directory: where TRAINING_FILE and HELD_OUT_FILE go; made if it is not there.
        held_out_share: share of the documents to hold out, above 0 and below 1.
        max_documents: at most so many documents in all, evenly picked; None takes all.

    Returns:
        Paths and counts of both files.

    Raises:
        ValueError: an argument is out of range, or one of the parts would be empty.
    """
    if not 0 < held_out_share < 1:
        raise ValueError(f"held_out_share lies above 0 and below 1. Received: {held_out_share}")
    if max_documents is not None and max_documents < 2:
        raise ValueError(f"max_documents is at least 2. Received: {max_documents}")
    documents = python_documents()
    if max_documents is not None:
        documents = documents[:: -(-len(documents) // max_documents)]
    training, held_out = split_documents(documents, held_out_share)
    if not training or not held_out:
        raise ValueError(
            f"{len(documents)} documents do not suffice for a training and a held-out part: "
            f"{len(training)} and {len(held_out)}. Take more documents or another held_out_share."
        )
    return CorpusReport(
        _write_part(os.path.join(directory, TRAINING_FILE), training),
        _write_part(os.path.join(directory, HELD_OUT_FILE), held_out),
    )


def python_documents() -> list[Document]:
    """Returns all documents of this Python; a sentence that is in several is in the first alone."""
    return _without_repetitions([*topic_documents(), *source_documents()])


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

    Args:
        root: folder of Python files; None is the standard library of the running Python.
    """
    folder = Path(root or sysconfig.get_path("stdlib"))
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder).with_suffix("").as_posix()
        if not _SKIPPED_FOLDER.search(name):
            yield from _documents_of_module(path, name)


def split_documents(
    documents: Iterable[Document], held_out_share: float
) -> tuple[list[Document], list[Document]]:
    """Divides documents by a hash of their names, so that nothing is in both parts.

    Args:
        documents: any documents with different names.
        held_out_share: expected share of the second part, in (0, 1).

    Returns:
        The training part, and the held-out part without the sentences that share a run of words
        with the training part. Documents that end up with fewer than MIN_SENTENCES are left out.
    """
    training: list[Document] = []
    held_out: list[Document] = []
    for document in documents:
        place = zlib.crc32(document.name.encode()) / 2**32
        (held_out if place < held_out_share else training).append(document)
    seen = {run for document in training for s in document.sentences for run in _runs(s)}
    cleared = (
        Document(name, [s for s in sentences if seen.isdisjoint(_runs(s))])
        for name, sentences in held_out
    )
    return _large_enough(training), _large_enough(cleared)


@cache  # corpus and chapters are made of the same files
def _documents_of_module(path: Path, name: str) -> list[Document]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other people's strings
        try:
            module = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):  # test data and templates that are no Python
            return []
    classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
    rest = ast.Module([node for node in module.body if node not in classes], [])
    return [
        Document(name, _docstring_sentences(rest)),
        *(Document(f"{name}.{node.name}", _docstring_sentences(node)) for node in classes),
    ]


def _docstring_sentences(tree: ast.AST) -> list[str]:
    return [
        sentence
        for node in _documented_nodes(tree)
        for sentence in prose_sentences(ast.get_docstring(node) or "")
    ]


def _documented_nodes(
    tree: ast.AST,
) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yields what can have a docstring, in the order of the source."""
    if isinstance(tree, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield tree
    for child in ast.iter_child_nodes(tree):
        yield from _documented_nodes(child)


def _without_repetitions(documents: Iterable[Document]) -> list[Document]:
    """Keeps each sentence where it stands first, and the documents that are long enough then."""
    seen: set[str] = set()
    return _large_enough(
        Document(name, [s for s in sentences if _is_new(s, seen)]) for name, sentences in documents
    )


def _is_new(sentence: str, seen: set[str]) -> bool:
    key = " ".join(_words(sentence))
    if key in seen:
        return False
    seen.add(key)
    return True


def _large_enough(documents: Iterable[Document]) -> list[Document]:
    return [document for document in documents if len(document.sentences) >= MIN_SENTENCES]


def _words(sentence: str) -> list[str]:
    return _WORD.findall(sentence.lower())


def _runs(sentence: str) -> set[tuple[str, ...]]:
    """All runs of _SHARED_WORDS words; a shorter sentence is one run."""
    words = _words(sentence)
    last = max(len(words) - _SHARED_WORDS, 0)
    return {tuple(words[i : i + _SHARED_WORDS]) for i in range(last + 1)}


def _write_part(path: str, documents: Sequence[Document]) -> CorpusPart:
    lines = [
        [clause for sentence in document.sentences for clause in clauses(sentence)]
        for document in documents
    ]
    with write_then_rename(path) as file:
        for segments in lines:
            file.write("\n".join([*segments, "", ""]).encode())
    words = sum(len(segment.split()) for segments in lines for segment in segments)
    return CorpusPart(path, len(documents), sum(map(len, lines)), words)
