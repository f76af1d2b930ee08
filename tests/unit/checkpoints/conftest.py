"""Recorded models, and the logged warnings."""

import shutil
from pathlib import Path

import pytest
from absl import logging


@pytest.fixture(scope="session")
def hub(golden) -> Path:
    """Returns the recorded modules and the release directory; read only."""
    return golden / "hub"


@pytest.fixture
def release(hub, tmp_path) -> Path:
    """Returns a copy of the release directory."""
    return shutil.copytree(hub / "albert_directory", tmp_path / "albert_directory")


@pytest.fixture
def logs(monkeypatch) -> list[str]:
    """Collects logged lines of level INFO."""
    lines = []
    monkeypatch.setattr(logging, "info", lambda line, *values: lines.append(line % values))
    return lines


@pytest.fixture
def warnings(monkeypatch) -> list[str]:
    """Collects logged warnings."""
    lines = []
    monkeypatch.setattr(logging, "warning", lambda line, *values: lines.append(line % values))
    return lines
