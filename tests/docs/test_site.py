"""The documentation site, built by the command in docs.sh, which treats warnings as errors."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import albert_tf
from scripts import browser_files
from tests.documentation import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Returns the directory of the site."""
    copy = tmp_path_factory.mktemp("checkout")
    without = shutil.ignore_patterns("_build", "modules", "__pycache__")
    for name in ("albert_tf", "docs", "notebooks"):
        shutil.copytree(ROOT / name, copy / name, ignore=without)
    for path in (*ROOT.glob("*.*"), ROOT / "LICENSE"):
        if path.is_file():
            shutil.copy(path, copy)
    lines = (copy / "docs.sh").read_text().splitlines()
    (build,) = (line for line in lines if "-m sphinx" in line)
    done = subprocess.run(
        ["bash", "-c", build],
        cwd=copy,
        env={**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return copy / "docs" / "_build"


def text_of(page: Path) -> str:
    """Returns the text of a page without tags, separated by single spaces."""
    return " ".join(re.sub(r"<[^>]*>", "", page.read_text("utf-8")).split())


def test_all_pages_exist(site):
    assert "README.html" in (site / "index.html").read_text()
    pages = [path.relative_to(ROOT).with_suffix(".html") for path in (ROOT / "docs").glob("*.md")]
    modules = [path for path in (ROOT / "albert_tf").rglob("*.py") if path.stem[:2] != "__"]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in modules]
    pages += [Path("docs/api/modules") / f"{name}.html" for name in names]
    assert len(names) > 100
    assert [str(page) for page in pages if not (site / page).exists()] == []


def test_the_reference_shows_shapes_sources_and_the_arguments_of_keras_classes(site):
    text = text_of(site / "docs" / "api" / "public.html")
    assert "AlbertEncoder(config[, use_one_hot_embeddings])" in text
    assert "inputs – input_ids, int32 [B, S], or a dictionary with input_ids" in text
    assert "Source: modeling.py of the original release, class AlbertModel" in text
    assert "sep_id – ids of the special tokens." in text
    assert not re.search(
        r"\(\*args, \*\*kwargs\)|\b(Source|Differs|Args|Raises): *(Source|Args)", text
    )


def test_words_in_backticks_are_links_to_code(site):
    page = (site / "docs" / "api" / "modules" / "albert_tf.training.optimization.html").read_text(
        "utf-8"
    )
    assert re.search(
        r'<a class="reference internal" href="#albert_tf.training.optimization.Lamb"', page
    )
    assert "<code" in page
    assert "`" not in re.sub(r"<[^>]*>", "", page)


def test_the_browser_page_without_nodejs(site, tmp_path, monkeypatch, capsys):
    page = (site / "docs" / "browser.html").read_text("utf-8")
    assert '<script type="module" src="browser/try.js">' in page
    assert "it was built without Node.js" in page
    monkeypatch.setenv("PATH", "")
    browser_files.main(str(tmp_path))
    assert "Node.js is not installed" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_the_browser_page_loads_at_most_7_mb_and_10_mb_with_a_classifier(tmp_path):
    assert shutil.which("npm"), "This test needs Node.js 20 or newer, with npm."
    classifier = albert_tf.TextClassifier.load("mini", labels=["negative", "positive"])
    classifier.save(tmp_path / "reviews")
    browser_files.main(str(tmp_path), str(tmp_path / "reviews"))
    folder = tmp_path / "docs" / "browser"
    files = {path.name: path.stat().st_size for path in folder.iterdir()}
    assert files.keys() >= {*browser_files.LIBRARIES, "fill.onnx.gz", "try.js", "try.css"}
    described = json.loads((folder / "files.json").read_text("utf-8"))
    assert described["fill"]["bytes"] == files["fill.onnx.gz"] < 3.1e6
    assert described["classify"]["labels"] == ["negative", "positive"]
    assert sum(files.values()) - files["classify.onnx.gz"] < 7e6
    assert sum(files.values()) < 10e6
