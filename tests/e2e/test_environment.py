"""The environment script behind demo.sh, docs.sh and test.sh: itself, and in these scripts."""

import ast
import functools
import importlib.metadata
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

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "environment.sh"

DEMO = ["requirements.txt"]
DOCS = ["requirements.txt", "docs.txt", "beam.txt"]
TEST = ["requirements.txt", "requirements-dev.txt", "beam.txt", "keras-hub.txt", "litert.txt"]
ALL = ["requirements.txt", "requirements-dev.txt",
       "beam.txt", "docs.txt", "hf.txt", "keras-hub.txt", "litert.txt"]  # fmt: skip
JAX = ["jax.txt"]  # into a directory of its own

# Stands for Python, venv and pip. A package is a requirements file in site-packages. Like the real
# pip, it leaves half an installation when it is killed, and never mends one that it finds. Where
# $PAUSE says, it notes that it is there, and waits for a line of the named pipe `go`.
PYTHON = """#!/usr/bin/env bash
venv=.venv
case "$0 $*" in *.venv-lowest*) venv=.venv-lowest ;; esac
site=$venv/lib/python3.11/site-packages
pause() {
  [ "${PAUSE:-}" != "$1" ] || { echo "$1" >>paused; read -r line <go; }
}
needs() {
  local file
  for file; do
    [ -f "$site/$file" ] || { echo "No module named ${file%.txt}" >&2; exit 1; }
  done
  [ ! -f "$site/half" ] || { echo "half installed" >&2; exit 1; }
}
case "$*" in
  "-c "*) echo 3.11 ;;
  "-I -S -c "*) exec REAL_PYTHON "$@" ;;
  "-m venv --clear $venv")
    echo made >>made
    cp "$0" python
    rm -rf "$venv" && mkdir -p "$venv/bin" "$site" && mv python "$venv/bin/python"
    touch "$site/half"
    pause venv
    rm "$site/half" ;;
  "-m pip --version") ;;
  "-m pip install "*)
    files=()
    for argument; do
      case "$argument" in --requirement=*) files+=("${argument#*=}") ;; esac
    done
    echo "${files[@]##*/}" >>installations
    pause pip_started
    was_half=$(ls "$site/half" 2>/dev/null)
    touch "$site/half"
    pause pip_installing
    cp "${files[@]}" "$site"
    [ -n "$was_half" ] || rm "$site/half" ;;
  "-m albert_tf.cli.demo"*) pause demo; needs DEMO_FILES ;;
  "-m sphinx "*) needs DOCS_FILES ;;
  *) needs TEST_FILES ;;
esac
"""
# One file after the other, and slowly.
CKSUM = """#!/usr/bin/env bash
set -e
for file; do
  "$(PATH=${PATH#*:} command -v cksum)" "$file"
  sleep 0.02
done
"""


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


@pytest.mark.slow
def test_it_is_made_once_and_installed_into_until_the_requirements_are_there(checkout):
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

    (checkout / "requirements.txt").write_text("./not-there\n")
    for _ in range(2):
        failed = make_environment(checkout, sys.executable)
        assert failed.returncode != 0
        assert "not-there" in failed.stderr
        assert "Making .venv" not in failed.stdout


def test_an_unfit_python_is_named(checkout):
    old = checkout / "old-python"
    old.write_text("#!/bin/sh\necho 3.9\n")
    old.chmod(0o755)
    for python, found in ((str(old), "(3.9)"), ("no-such-python", "(does not run)")):
        result = make_environment(checkout, python)
        assert result.returncode != 0
        assert f"Found: {python} {found}" in result.stderr
        assert not (checkout / ".venv").exists()


class Clone:
    """The scripts and their requirements, with stand-ins for what takes long."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "scripts").mkdir()
        shutil.copy(SCRIPT, folder / "scripts")
        shutil.copytree(ROOT / "requirements", folder / "requirements")
        (folder / "benchmarks").mkdir()
        shutil.copy(ROOT / "benchmarks" / "jax.txt", folder / "benchmarks")
        for name in ("demo.sh", "docs.sh", "test.sh", "requirements.txt", "requirements-dev.txt"):
            shutil.copy(ROOT / name, folder)
        python = PYTHON.replace("REAL_PYTHON", sys.executable)
        documented = ["requirements.txt", "docs.txt", *extras_imported_by_the_package()]
        for name, files in (("DEMO", DEMO), ("DOCS", documented), ("TEST", TEST)):
            python = python.replace(f"{name}_FILES", " ".join(files))
        (folder / "bin").mkdir()
        for name, program in (("python3", python), ("cksum", CKSUM)):
            (folder / "bin" / name).write_text(program)
            (folder / "bin" / name).chmod(0o755)
        os.mkfifo(folder / "go")
        self.started: list[subprocess.Popen[str]] = []

    def start(self, script: str, pause: str = "") -> subprocess.Popen[str]:
        """Starts a script, such as "demo" or "test --all", in a group of processes of its own."""
        name, *arguments = script.split()
        self.started.append(
            subprocess.Popen(
                [f"./{name}.sh", *arguments],
                cwd=self.folder,
                env={"PATH": f"{self.folder / 'bin'}:/usr/bin:/bin", "PAUSE": pause},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        )
        return self.started[-1]

    def run(self, script: str) -> str:
        return output_of(self.start(script))

    def pause(self, script: str, where: str) -> subprocess.Popen[str]:
        """Starts a script and waits until it is there."""
        process = self.start(script, pause=where)
        while not (self.folder / "paused").exists():
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.01)
        (self.folder / "paused").unlink()
        return process

    def go_on(self) -> None:
        """Lets a paused script continue."""
        (self.folder / "go").write_text("\n")

    def installations(self) -> list[list[str]]:
        """The files that pip was given, by its calls."""
        lines = (self.folder / "installations").read_text().splitlines()
        return [line.split() for line in lines]

    def environments(self) -> int:
        """How often an environment was made."""
        return len((self.folder / "made").read_text().splitlines())


def output_of(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    return output


@functools.cache
def extras_imported_by_the_package() -> list[str]:
    """Files of requirements that have a package which a module of ours imports at its top."""
    imported = set()
    for path in (ROOT / "albert_tf").rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").split(".")[0])
    distributions = importlib.metadata.packages_distributions()
    needed = {
        name.lower().replace("_", "-")
        for module in imported
        for name in distributions.get(module, ())
    }
    needed -= packages_of(ROOT / "requirements.txt")
    return [
        path.name for path in (ROOT / "requirements").glob("*.txt") if needed & packages_of(path)
    ]


def packages_of(path: Path) -> set[str]:
    """The names in a file of requirements."""
    return set(re.findall(r"^[\w-]+", path.read_text(), re.MULTILINE))


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Clone]:
    clone = Clone(tmp_path)
    yield clone
    for process in clone.started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.mark.parametrize(
    ("scripts", "installed"),
    [
        (["demo", "test", "demo"], [DEMO, TEST]),
        (["test", "demo"], [TEST]),
        (["docs"], [DOCS]),
        (["docs", "test --all", "test", "test --all"], [DOCS, ALL, JAX]),
    ],
    ids=["demo-test-demo", "test-demo", "docs", "docs-all-test-all"],
)
def test_each_script_finds_what_it_needs_which_is_installed_once(clone, scripts, installed):
    for script in scripts:
        clone.run(script)
    assert clone.installations() == installed
    assert clone.environments() == 1


def test_a_change_of_one_file_is_installed(clone):
    clone.run("test --all")
    with open(clone.folder / "requirements" / "docs.txt", "a") as file:
        file.write("# another\n")
    clone.run("demo")
    clone.run("docs")
    assert clone.installations() == [ALL, JAX, DOCS]


def test_the_lowest_versions_have_an_environment_of_their_own(clone):
    clone.run("test --lowest")
    assert clone.installations() == [[".venv-lowest.txt", *TEST]]
    assert not (clone.folder / ".venv").exists()
    pinned = (clone.folder / ".venv-lowest.txt").read_text().split()
    assert {line.split("==")[0] for line in pinned} == packages_of(ROOT / "requirements.txt")
    allowed = (ROOT / "requirements.txt").read_text()
    assert all(line.replace("==", ">=") in allowed for line in pinned)


@pytest.mark.parametrize("name", ["demo", "test"])
def test_help_installs_nothing(clone, name):
    output = clone.run(f"{name} --help")
    assert f"./{name}.sh" in output
    assert not (clone.folder / "made").exists()
    if name == "demo":
        flags = re.findall(r'Flag\("(\w+)"', (ROOT / "albert_tf/cli/demo.py").read_text())
        assert all(f"--{flag}=" in output for flag in flags)


@pytest.mark.parametrize("where", ["venv", "pip_installing"])
def test_of_two_scripts_at_once_one_waits_for_the_other(clone, where):
    first = clone.pause("test", where)
    second = clone.start("demo")
    assert second.stdout.readline().startswith("Waiting ")
    clone.go_on()
    output_of(first)
    output_of(second)
    assert clone.installations() == [TEST]
    assert clone.environments() == 1


def test_what_a_script_runs_does_not_hold_the_lock(clone):
    demo = clone.pause("demo", "demo")
    assert "Waiting" not in clone.run("test")
    clone.go_on()
    output_of(demo)


@pytest.mark.parametrize(
    ("before", "where", "remade"),
    [
        ([], "venv", 1),
        ([], "pip_installing", 1),
        (["demo"], "pip_installing", 1),
        (["demo"], "pip_started", 0),  # which has changed nothing yet
    ],
)
def test_killed_while_it_installs_it_installs_again(clone, before, where, remade):
    for script in before:
        clone.run(script)
    process = clone.pause("test", where)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    clone.run("test")
    assert clone.installations()[-1] == TEST
    assert clone.environments() == 1 + remade


def test_a_pip_that_outlives_its_script_holds_the_lock(clone):
    process = clone.pause("test", "pip_installing")
    process.kill()
    second = clone.start("test")
    assert second.stdout.readline().startswith("Waiting ")
    clone.go_on()
    process.communicate()
    output_of(second)
