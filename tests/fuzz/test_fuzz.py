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
    command = [warm_python(), "-m", "tests.fuzz", "--inputs=60", f"--parsers={','.join(names)}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == names


def read():
    content = Path("file.txt").read_bytes()
    if content == b"abort":
        os.abort()
    if content == b"sleep":
        time.sleep(60)
    errors = {
        b"stack trace": KeyError("file.txt"),
        b"several lines": OSError("file.txt\nis damaged"),
        b"no file named": OSError("it is damaged"),
        b"long message": OSError("file.txt" * 1000),
        b"clear error": OSError("file.txt is damaged"),
    }
    if content in errors:
        raise errors[content]
    return content


def read_independently():
    content = Path("file.txt").read_bytes()
    return {b"different result": b"", b"read": UNKNOWN}.get(content, content)


@pytest.mark.slow
def test_all_outcomes_are_reported(monkeypatch, tmp_path):
    kinds = [
        *("equal", "abort", "read", "clear error", "stack trace", "sleep", "several lines"),
        *("no file named", "long message", "different result", "equal"),
    ]
    (tmp_path / "file.txt").write_bytes(b"equal")
    parser = Parser("fake", "file.txt", read, [tmp_path], ["file.txt"], (), read_independently)
    monkeypatch.setattr(fuzz, "PARSERS", {"fake": parser})
    monkeypatch.setattr(fuzz, "MAX_SECONDS", 3)
    monkeypatch.setattr(fuzz, "damaged", lambda parser, n: (tmp_path, kinds[n].encode()))
    found = [outcome.kind for outcome in fuzz.run(["fake"], range(len(kinds)))]
    ends = {"abort": "killed by SIGABRT", "sleep": "killed by SIGALRM"}
    assert found == [ends.get(kind, kind) for kind in kinds]


def test_inputs_are_reproducible_by_number():
    first, second = ([fuzz.damaged(PARSERS["config"], n) for n in range(50)] for _ in range(2))
    assert first == second
    assert len(set(first)) > 45
