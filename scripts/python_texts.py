"""Writes the texts of the demo: English from Python's own documentation.

    python -m scripts.python_texts OUTPUT_DIR

`text/` contains raw text: the topics of the manual (`pydoc_data.topics`) and the docstrings of the
standard library. `train.csv` and `dev.csv` contain paragraphs with the chapter that they are from.
Prints the share of the most frequent chapter in `dev.csv`.
"""

import ast
import csv
import re
import sys
import sysconfig
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from pydoc_data.topics import topics

# Classes of the task: packages, and "language" for the topics of the manual.
CHAPTERS = ("asyncio", "email", "language", "logging", "unittest")
# Sentences with these names would reveal the chapter.
_NAMES = re.compile("|".join(CHAPTERS), re.IGNORECASE)
_MOST_PARAGRAPHS = 150  # per chapter
_PARAGRAPH_WORDS = 12  # minimum
_SENTENCE = re.compile(r"\b[A-Z][a-z]*(?: [A-Za-z'-]+[,;:]?){3,}[.!?](?=\s|$)")
_SKIPPED_FOLDER = re.compile("(^|/)(site-packages|dist-packages|tests?|idlelib|lib2to3)/")


def python_documents() -> dict[str, list[str]]:
    """Returns the sentences of each topic of the manual and each module of the standard library.

    The modules are parsed, not imported. Repeated sentences are dropped.
    """
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    texts = {f"language/{name}": topics[name] for name in sorted(topics)}
    folder = Path(sysconfig.get_path("stdlib"))
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder).as_posix()
        if not _SKIPPED_FOLDER.search(name):
            nodes = [n for n in ast.walk(ast.parse(path.read_bytes())) if isinstance(n, documented)]
            texts[name] = "\n".join(ast.get_docstring(node) or "" for node in nodes)
    seen: set[str] = set()
    documents = {}
    for name, text in texts.items():
        plain = " ".join(re.sub("[`*]", "", text).split())
        sentences = [s for s in dict.fromkeys(_SENTENCE.findall(plain)) if s not in seen]
        seen.update(sentences)
        if len(sentences) > 2:
            documents[name] = sentences
    return documents


def paragraphs_of_chapters(
    documents: Mapping[str, Sequence[str]],
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Returns paragraphs with their chapters: for training, and every fifth for evaluation."""
    chapters: dict[str, list[str]] = {chapter: [] for chapter in CHAPTERS}
    for name, sentences in documents.items():
        chapter, words = name.partition("/")[0], list[str]()
        for sentence in sentences if chapter in chapters else ():
            words += [] if _NAMES.search(sentence) else sentence.split()
            if len(words) >= _PARAGRAPH_WORDS:
                chapters[chapter].append(" ".join(words))
                words = []
    rows = [
        (text, chapter, number)
        for chapter, texts in chapters.items()
        for number, text in enumerate(texts[:_MOST_PARAGRAPHS])
    ]
    train = [(text, chapter) for text, chapter, number in rows if number % 5]
    return train, [(text, chapter) for text, chapter, number in rows if not number % 5]


def main(output_dir: str) -> None:
    """Writes all files."""
    documents, folder = python_documents(), Path(output_dir)
    (folder / "text").mkdir(parents=True, exist_ok=True)
    text = "".join(" ".join(sentences) + "\n\n" for sentences in documents.values())
    (folder / "text" / "python.txt").write_text(text, encoding="utf-8")
    for name, rows in zip(("train", "dev"), paragraphs_of_chapters(documents), strict=True):
        with open(folder / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows([("paragraph", "chapter"), *rows])
    [(_, count)] = Counter(chapter for _, chapter in rows).most_common(1)
    print(f"{count / len(rows):.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
