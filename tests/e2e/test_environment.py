"""The environment of demo.sh, docs.sh and test.sh, with stand-ins for Python, pip and cksum."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.programs import ROOT

DEMO = ["requirements.txt"]
DOCS = ["requirements.txt", "docs.txt", "beam.txt"]
TEST = ["requirements.txt", "requirements-dev.txt", "beam.txt", "keras-hub.txt", "litert.txt"]
ALL = ["requirements.txt", "requirements-dev.txt",
       "beam.txt", "docs.txt", "hf.txt", "keras-hub.txt", "litert.txt"]  # fmt: skip
JAX = ["jax.txt"]

# Records calls of venv and pip. Like the real pip, a killed one leaves a half-installed package,
# and the next one does not repair it. With $PAUSE, pip waits for a line from the named pipe `go`.
PYTHON = """#!/usr/bin/env bash
case "$0 $*" in *.venv-lowest*) venv=.venv-lowest ;; *) venv=.venv ;; esac
site=$venv/lib/python3.11/site-packages
case "$*" in
  "-c "*) echo 3.11 ;;
  "-I -S -c "*) exec REAL_PYTHON "$@" ;;
  "-m venv --clear "*)
    echo made >>made
    cp "$0" python && rm -rf "$venv" && mkdir -p "$venv/bin" "$site" && mv python "$venv/bin" ;;
  "-m pip --version") ;;
  "-m pip install "*)
    files=$(printf '%s\\n' "$@" | sed -n 's/^--requirement=//p' | xargs -n1 basename)
    echo $files >>installations
    was_half=$(ls "$site/half" 2>/dev/null)
    touch "$site/half"
    [ -z "${PAUSE:-}" ] || { touch paused; read -r line <go; }
    [ -n "$was_half" ] || rm "$site/half" ;;
  *) ! [ -f "$site/half" ] ;;
esac
"""
# Slow: a reader that stops at the first line must not end it.
CKSUM = """#!/usr/bin/env bash
set -e
for file; do
  "$(PATH=${PATH#*:} command -v cksum)" "$file"
  sleep 0.02
done
"""


class Clone:
    """The scripts and their requirements in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "requirements", folder / "requirements")
        for name in ("scripts/environment.sh", "benchmarks/jax.txt", "demo.sh", "docs.sh",
                     "test.sh", "requirements.txt", "requirements-dev.txt"):  # fmt: skip
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
        self.add_program("python3", PYTHON.replace("REAL_PYTHON", sys.executable))
        self.add_program("cksum", CKSUM)
        os.mkfifo(folder / "go")
        self.started: list[subprocess.Popen[str]] = []

    def add_program(self, name: str, text: str) -> None:
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def start(self, script: str, **environment: str) -> subprocess.Popen[str]:
        """Starts a script, such as "test --all", in a process group of its own."""
        name, *arguments = script.split()
        self.started.append(
            subprocess.Popen(
                [f"./{name}.sh", *arguments],
                cwd=self.folder,
                env={"PATH": f"{self.folder / 'bin'}:/usr/bin:/bin", **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        )
        return self.started[-1]

    def run(self, script: str) -> str:
        return output_of(self.start(script))

    def start_and_pause(self, script: str) -> subprocess.Popen[str]:
        """Starts a script and waits until its pip is at work."""
        process = self.start(script, PAUSE="1")
        while not (self.folder / "paused").exists():
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.01)
        return process

    def installations(self) -> list[list[str]]:
        """The requirements files of each call of pip."""
        return [line.split() for line in (self.folder / "installations").read_text().splitlines()]

    def environments(self) -> int:
        """How often an environment was created."""
        return len((self.folder / "made").read_text().splitlines())


def output_of(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    return output


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Clone]:
    clone = Clone(tmp_path)
    yield clone
    for process in clone.started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def test_each_script_installs_what_is_missing_and_nothing_twice(clone):
    for script in ("demo", "test", "demo", "test", "test --all", "docs", "test --all"):
        clone.run(script)
    assert clone.installations() == [DEMO, TEST, ALL, JAX]
    with open(clone.folder / "requirements" / "docs.txt", "a") as file:
        file.write("# changed\n")
    for script in ("demo", "docs", "docs"):
        clone.run(script)
    assert clone.installations()[4:] == [DOCS]
    assert clone.environments() == 1


def test_a_killed_installation_is_done_again(clone):
    clone.run("demo")
    process = clone.start_and_pause("test")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    clone.run("test")
    assert clone.installations() == [DEMO, TEST, TEST]
    assert clone.environments() == 2


@pytest.mark.parametrize("is_killed", [False, True], ids=["running", "killed"])
def test_a_second_script_waits_for_the_pip_of_the_first(clone, is_killed):
    first = clone.start_and_pause("test")
    if is_killed:
        first.kill()
    second = clone.start("demo")
    assert second.stdout.readline().startswith("Waiting ")
    (clone.folder / "go").write_text("\n")
    first.communicate()
    output_of(second)
    assert clone.installations() == [TEST]
    assert clone.environments() == 1


def test_the_lowest_versions_are_installed_into_a_separate_environment(clone):
    clone.run("test --lowest")
    assert clone.installations() == [[".venv-lowest.txt", *TEST]]
    assert not (clone.folder / ".venv").exists()
    pinned = (clone.folder / ".venv-lowest.txt").read_text().split()
    allowed = (ROOT / "requirements.txt").read_text()
    assert len(pinned) == len(re.findall(r"^[\w-]+", allowed, re.MULTILINE))
    assert all(line.replace("==", ">=") in allowed for line in pinned)


@pytest.mark.parametrize("name", ["demo", "test"])
def test_help_installs_nothing(clone, name):
    output = clone.run(f"{name} --help")
    assert f"./{name}.sh" in output
    assert not (clone.folder / "made").exists()
    if name == "demo":
        flags = re.findall(r'Flag\("(\w+)"', (ROOT / "albert_tf/cli/demo.py").read_text())
        assert all(f"--{flag}=" in output for flag in flags)


def test_an_unsupported_python_is_named(clone):
    clone.add_program("old", "#!/bin/sh\necho 3.9\n")
    for python, found in (("old", "(3.9)"), ("no-such-python", "(does not run)")):
        process = clone.start("demo", PYTHON=python)
        output, _ = process.communicate(timeout=60)
        assert process.returncode != 0
        assert f"Found: {python} {found}" in output
        assert not (clone.folder / ".venv").exists()
