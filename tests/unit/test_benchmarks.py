"""The benchmarks and scripts are not run by tests, but what they import must exist."""

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = [
    path
    for folder in ("benchmarks", "scripts", "docs/pictures")
    for path in (ROOT / folder).glob("*.py")
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_imports_exist(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("albert_tf"):
            module = importlib.import_module(node.module)
            for alias in node.names:
                if not hasattr(module, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")
