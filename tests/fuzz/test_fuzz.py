"""A sample of the fuzzers' inputs, and the detection of all outcomes."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fuzz import engine
from tests.fuzz.parsers import NEED_TORCH, PARSERS, UNKNOWN, Parser
from tests.programs import ROOT, warm_python

INPUTS = 60


@pytest.mark.parametrize(
    "names",
    [
        pytest.param([name for name in PARSERS if name not in NEED_TORCH], id="all"),
        pytest.param(sorted(NEED_TORCH), id="torch", marks=pytest.mark.slow),
    ],
)
def test_damaged_files_are_read_or_rejected_in_one_line(names):
    if sys.version_info < (3, 11):  # which keras-hub needs
        names = [name for name in names if not name.startswith("keras_hub")]
    command = ["-m", "tests.fuzz", f"--inputs={INPUTS}", f"--parsers={','.join(names)}"]
    done = subprocess.run(
        [str(warm_python()), *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = [line.split("|")[1:3] for line in done.stdout.splitlines() if line.startswith("| ")]
    assert [[cell.strip() for cell in row] for row in counts[1:]] == [
        [name, str(INPUTS)] for name in names
    ]


def read():
    content = Path("file.txt").read_bytes()
    if content == b"abort":
        os.abort()
    if content == b"loop":
        while True:
            pass
    if content == b"sleep":
        time.sleep(60)
    if content == b"memory":
        return len(bytearray(b"x") * (100 << 20)) and content
    errors = {
        b"stack trace": KeyError("file.txt"),
        b"several lines": ValueError("file.txt\nis damaged"),
        b"no file named": ValueError("it is damaged"),
        b"long message": ValueError("file.txt" * 1000),
        b"clear error": ValueError("file.txt is damaged"),
    }
    if content in errors:
        raise errors[content]
    return content


def read_otherwise():
    content = Path("file.txt").read_bytes()
    return {b"another answer": b"", b"read": UNKNOWN}.get(content, content)


@pytest.mark.slow
def test_all_outcomes_are_reported(monkeypatch):
    """Each input has the name of its outcome."""
    kinds = [
        *("equal", "abort", "read", "clear error", "stack trace", "sleep", "several lines"),
        *("loop", "no file named", "long message", "another answer", "memory", "equal"),
    ]
    parser = Parser("fake", "file.txt", read, (b"seed",), independent=read_otherwise)
    monkeypatch.setattr(engine, "PARSERS", {"fake": parser})
    monkeypatch.setattr(engine, "MAX_PROCESSOR_SECONDS", 1.0)
    monkeypatch.setattr(engine, "MAX_SECONDS", 12.0)
    monkeypatch.setattr(engine, "MAX_BYTES", 50 << 20)
    monkeypatch.setattr(engine, "damaged", lambda parser, good, n: kinds[n].encode())
    found = [outcome.kind for outcome in engine.run(["fake"], range(len(kinds)))]
    ends = {"abort": "killed by SIGABRT", "sleep": "killed by SIGALRM", "loop": "killed by SIGPROF"}
    assert found == [ends.get(kind, kind) for kind in kinds]


def test_inputs_are_reproducible_by_number():
    parser = PARSERS["config"]
    inputs = [engine.damaged(parser, parser.good(), number) for number in range(50)]
    assert inputs == [engine.damaged(parser, parser.good(), number) for number in range(50)]
    assert len(set(inputs)) > 45
