"""The environment script behind demo.sh and test.sh."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "environment.sh"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts")
    (tmp_path / "requirements.txt").write_text("# nothing\n")
    return tmp_path


def make_environment(checkout: Path, python: str) -> subprocess.CompletedProcess[str]:
    commands = (
        "set -euo pipefail; . scripts/environment.sh; make_environment requirements.txt;"
        'echo "PYTHON is $PYTHON"; "$PYTHON" -c "import sys; print(sys.version_info[:2])"'
    )
    return subprocess.run(
        ["bash", "-c", commands],
        cwd=checkout,
        env={"PYTHON": python, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_is_made_once_and_installed_into_when_the_requirements_change(checkout):
    first = make_environment(checkout, sys.executable)
    assert first.returncode == 0, first.stderr
    assert "Making .venv" in first.stdout
    assert "Installing requirements.txt into .venv" in first.stdout
    assert first.stdout.endswith(f"PYTHON is .venv/bin/python\n{sys.version_info[:2]}\n")

    again = make_environment(checkout, sys.executable)
    assert again.stdout == f"PYTHON is .venv/bin/python\n{sys.version_info[:2]}\n"

    (checkout / "requirements.txt").write_text("# another nothing\n")
    changed = make_environment(checkout, sys.executable)
    assert changed.stdout.startswith("Installing requirements.txt into .venv")


def test_a_failed_installation_is_tried_again(checkout):
    (checkout / "requirements.txt").write_text("./not-there\n")
    for _ in range(2):
        result = make_environment(checkout, sys.executable)
        assert result.returncode != 0
        assert "not-there" in result.stderr


def test_an_unfit_python_is_named(checkout):
    old = checkout / "old-python"
    old.write_text("#!/bin/sh\necho 3.9\n")
    old.chmod(0o755)
    for python, found in ((str(old), "(3.9)"), ("no-such-python", "(does not run)")):
        result = make_environment(checkout, python)
        assert result.returncode != 0
        assert f"Found: {python} {found}" in result.stderr
        assert not (checkout / ".venv").exists()
