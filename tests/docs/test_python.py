"""The examples of docs/python.md run as written, and their statements are counted."""

import ast
import os
import re
import shutil
import subprocess
import sys

import pytest

import albert_tf
from tests.documentation import DOCS, blocks_of
from tests.programs import ROOT

PAGE = DOCS / "python.md"
LIBRARIES = ("albert_tf", "KerasHub", "transformers")
NAMES = {"KerasHub": "albert_base_en_uncased", "transformers": "albert/albert-base-v2"}
PRELUDES = {
    "albert_tf": "",
    "KerasHub": "import csv, keras, keras_hub, numpy",
    "transformers": """
import csv, torch
from transformers import (
    AlbertConfig, AlbertForMaskedLM, AutoModel, AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification, AutoTokenizer, DataCollatorForLanguageModeling, Trainer,
    TrainingArguments, pipeline,
)
""",
}
TABLE = "text_a,label\na moving film,positive\na waste of two hours,negative\n"


def sections() -> dict[str, str]:
    """Returns the headings in the table, by anchor."""
    rows = re.findall(r"^\| \[(.+)\]\(#(.+)\) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(rows) == 10
    return {anchor: name for name, anchor in rows}


def code() -> dict[str, dict[str, str]]:
    """Returns the code of each section, by library."""
    lines = PAGE.read_text("utf-8").splitlines()
    found: dict[str, dict[str, str]] = {}
    for block in blocks_of(PAGE):
        headings = [line for line in lines[: block.line] if line.startswith("## ")]
        section = headings[-1][3:].lower().replace(" ", "-")
        of_other = re.fullmatch(r"In (\w+):", lines[block.line - 4])
        library = of_other[1] if of_other else "albert_tf"
        if section in sections():
            assert (block.needs is None) == (library == "albert_tf"), block.place
        elif block.needs:
            continue
        by_library = found.setdefault(section, {})
        by_library[library] = by_library.get(library, "") + block.text
    return found


def statements(text: str) -> int:
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
    return sum(not isinstance(node, ast.Import | ast.ImportFrom) for node in nodes)


def test_the_table_counts_statements_and_albert_tf_never_needs_more():
    rows = re.findall(
        r"^\| \[.+\]\(#(.+)\) \| (\S+) \| (\S+) \| (\S+) \|$",
        PAGE.read_text("utf-8"),
        re.MULTILINE,
    )
    found = code()
    for section, *numbers in rows:
        counts = [found[section].get(library) for library in LIBRARIES]
        assert numbers == [str(statements(text)) if text else "-" for text in counts], section
        assert all(int(numbers[0]) <= int(other) for other in numbers if other != "-"), section


def run_all(library: str, folder, prelude: str = "") -> None:
    """Runs the blocks of a library in order, in one process in the folder."""
    shutil.copy(DOCS / "pretraining.md", folder / "text.txt")
    for name in ("train.csv", "dev.csv"):
        (folder / name).write_text(TABLE)
    parts = [text[library] for text in code().values() if library in text]
    script = "\n".join([PRELUDES[library], prelude, *parts])
    if library in NAMES:
        script = script.replace(f'"{NAMES[library]}"', '"model"')
    (folder / "page.py").write_text(script)
    paths = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "page.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]


SQUAD = """
import albert_tf
albert_tf.save(albert_tf.AlbertForQuestionAnswering.load("mini"), "squad", max_seq_length=128)
"""


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_examples_run_as_written(library, tmp_path):
    if library == "albert_tf":
        run_all(library, tmp_path, SQUAD)
        return
    format_name = {"KerasHub": "keras_hub", "transformers": "huggingface"}[library]
    albert_tf.convert("mini", format_name, tmp_path / "model")
    if library == "transformers":
        answering = albert_tf.AlbertForQuestionAnswering.load("mini")
        albert_tf.save(answering, tmp_path / "original")
        albert_tf.convert(tmp_path / "original", format_name, tmp_path / "squad")
    run_all(library, tmp_path)
