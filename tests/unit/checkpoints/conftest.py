"""Models that were recorded, to be read or spoilt, and what is warned of them."""

import shutil
from pathlib import Path

import pytest
from absl import logging


@pytest.fixture(scope="session")
def hub(golden) -> Path:
    """The recorded modules and the release directory they were made from, to be read."""
    return golden / "hub"


@pytest.fixture
def release(hub, tmp_path) -> Path:
    """A copy of the release directory, to be changed."""
    return shutil.copytree(hub / "albert_directory", tmp_path / "albert_directory")


@pytest.fixture
def warnings(monkeypatch) -> list[str]:
    """The warnings that were logged."""
    lines = []
    monkeypatch.setattr(logging, "warning", lambda line, *values: lines.append(line % values))
    return lines
