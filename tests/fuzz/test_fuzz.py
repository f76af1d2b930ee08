"""A sample of the damaged files."""

import subprocess

import pytest

from tests.fuzz.parsers import NEED_TORCH, PARSERS
from tests.programs import ROOT, warm_python


@pytest.mark.parametrize(
    "names",
    [
        pytest.param([name for name in PARSERS if name not in NEED_TORCH], id="all"),
        pytest.param(sorted(NEED_TORCH), id="torch", marks=pytest.mark.slow),
    ],
)
def test_damaged_files_are_read_or_rejected_in_one_line(names):
    command = [warm_python(), "-m", "tests.fuzz", "--inputs=10", f"--parsers={','.join(names)}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == names
