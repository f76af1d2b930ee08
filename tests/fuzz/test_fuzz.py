"""A sample of the damaged files, and the detection of all outcomes."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fuzz import __main__ as fuzz
from tests.fuzz.parsers import NEED_TORCH, PARSERS, UNKNOWN, Parser
from tests.programs import ROOT, warm_python


@pytest.mark.parametrize(
    "names",
    [
        pytest.param([name for name in PARSERS if name not in NEED_TORCH], id="all"),
        pytest.param(sorted(NEED_TORCH), id="torch", marks=pytest.mark.slow),
    ],
)
def test_damaged_files_are_read_or_rejected_in_one_line(names):
    if sys.version_info < (3, 11):  # keras-hub requires 3.11
        names = [name for name in names if not name.startswith("keras_hub")]
    command = [warm_python(), "-m", "tests.fuzz", "--inputs=30", f"--parsers={','.join(names)}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == names


def read_or_fail():
    """Reads file.txt, or fails in the way that its content names."""
    content = Path("file.txt").read_bytes()
    match content:
        case b"killed by SIGABRT":
            os.abort()
        case b"killed by SIGALRM":
            time.sleep(60)
        case b"stack trace":
            raise KeyError("file.txt")
        case b"unclear error":
            raise OSError("file.txt\nis damaged")
        case b"clear error":
            raise OSError("file.txt is damaged")
    return content


def read_independently():
    content = Path("file.txt").read_bytes()
    return {b"different result": b"", b"read": UNKNOWN}.get(content, content)


@pytest.mark.slow
def test_all_outcomes_are_reported(monkeypatch, tmp_path):
    kinds = [
        *("equal", "killed by SIGABRT", "read", "clear error", "stack trace", "killed by SIGALRM"),
        *("unclear error", "different result", "equal"),
    ]
    (tmp_path / "file.txt").write_bytes(b"equal")
    parser = Parser(
        "fake", "file.txt", read_or_fail, [tmp_path], ["file.txt"], (), read_independently
    )
    monkeypatch.setattr(fuzz, "PARSERS", {"fake": parser})
    monkeypatch.setattr(fuzz, "MAX_SECONDS", 3)
    monkeypatch.setattr(fuzz, "damaged", lambda parser, n: (tmp_path, kinds[n].encode()))
    assert [kind for _, _, kind, _ in fuzz.run(["fake"], range(len(kinds)))] == kinds


def test_inputs_are_reproducible_by_number():
    first, second = ([fuzz.damaged(PARSERS["config"], n) for n in range(50)] for _ in range(2))
    assert first == second
    assert len(set(first)) > 45
