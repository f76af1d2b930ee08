"""Runs the Python code of documentation pages."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from tests.markdown_blocks import blocks_of

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def python_blocks(page: str) -> list[str]:
    """Returns the Python blocks of a page in docs/."""
    return [block.text for block in blocks_of(DOCS / page) if block.language == "python"]


def write_module(page: str, path: Path, blocks: slice = slice(None)) -> Path:
    """Writes blocks of a page to one Python file."""
    path.write_text("\n\n".join(python_blocks(page)[blocks]), encoding="utf-8")
    return path


def import_module(path: Path, name: str) -> ModuleType:
    """Imports a file under a name. The caller removes it from `sys.modules`."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
