"""The environment of demo.sh, docs.sh and test.sh, with stubs of Python and pip."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_flags import mistake_in
from tests.programs import ROOT, TIMEOUT

DEMO = ["requirements.txt", "languages.txt"]
DOCS = ["requirements.txt", "docs.txt", "beam.txt", "onnx.txt"]
TEST = ["requirements.txt", "requirements-dev.txt",
        "beam.txt", "keras-hub.txt", "languages.txt", "litert.txt", "onnx.txt"]  # fmt: skip
ALL = ["requirements.txt", "requirements-dev.txt",
       "beam.txt", "docs.txt", "hf.txt", "keras-hub.txt", "languages.txt",
       "litert.txt", "onnx.txt"]  # fmt: skip
JAX = ["jax.txt", "jax-tpu.txt"]

# Logs calls of venv, pip and programs. If it is killed, it leaves a half-installed package that the
# next call does not repair, like the real pip. With $PAUSE, pip waits until it is killed.
PYTHON = """#!/usr/bin/env bash
site=.venv/lib/python3.11/site-packages
case "$*" in
  "-c "*) echo 3.11 ;;
  "-I -S -c "*) exec REAL_PYTHON "$@" ;;
  "-m venv --clear "*)
    echo made >>made
    cp "$0" python && rm -rf .venv && mkdir -p .venv/bin "$site" && mv python .venv/bin ;;
  "-m pip --version") ;;
  "-m pip install "*)
    files=$(printf '%s\\n' "$@" | sed -n 's/^--requirement=//p' | xargs -n1 basename)
    [[ " $* " == *" --editable=. "* || $* == *--target=* ]] || files="no package"
    echo $files >>installations
    was_half=$(ls "$site/half" 2>/dev/null)
    touch "$site/half"
    [ -z "${PAUSE:-}" ] || { touch paused; sleep 3600; }
    [ -n "$was_half" ] || rm "$site/half" ;;
  *)
    echo "$*" >>programs
    ! [ -f "$site/half" ] ;;
esac
"""


class Clone:
    """A copy of the scripts and requirements files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "requirements", folder / "requirements")
        for name in ("scripts/environment.sh", "benchmarks/jax.txt", "benchmarks/jax-tpu.txt",
                     "demo.sh", "docs.sh", "test.sh", "requirements.txt",
                     "requirements-dev.txt", "pyproject.toml"):  # fmt: skip
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
        self.add_program("python3", PYTHON.replace("REAL_PYTHON", sys.executable))
        self.started: list[subprocess.Popen[str]] = []

    def add_program(self, name: str, text: str) -> None:
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def start(self, script: str, **environment: str) -> subprocess.Popen[str]:
        """Starts a script, such as "test --all", in a new process group."""
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

    def run(self, script: str) -> None:
        process = self.start(script)
        output, _ = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 0, output

    def installations(self) -> list[list[str]]:
        """Returns the requirements files of each call of pip."""
        return [line.split() for line in (self.folder / "installations").read_text().splitlines()]

    def environments(self) -> int:
        """Returns how often an environment was created."""
        return len((self.folder / "made").read_text().splitlines())


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Clone]:
    clone = Clone(tmp_path)
    yield clone
    for process in clone.started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def test_scripts_install_only_missing_requirements(clone):
    for script in ("demo", "test", "demo", "test", "test --all", "docs", "test --all"):
        clone.run(script)
    assert clone.installations() == [DEMO, TEST, ALL, JAX]
    with open(clone.folder / "requirements" / "docs.txt", "a") as file:
        file.write("# changed\n")
    for script in ("demo", "docs", "docs"):
        clone.run(script)
    assert clone.installations()[4:] == [DOCS]
    assert clone.environments() == 1


def test_the_demo_passes_flags_to_pretrain(clone):
    clone.run("demo --num_train_steps=7 --output_dir=my_demo --size=mini")
    texts, pretrain, classifier = (clone.folder / "programs").read_text().splitlines()
    assert texts == "-m scripts.python_texts my_demo/texts"
    start = "-m albert_tf pretrain --text=my_demo/texts/text --output_dir=my_demo/language_model "
    assert pretrain.startswith(start)
    assert pretrain.endswith(" --num_train_steps=7 --size=mini")  # the last value counts
    assert "--train_file=my_demo/texts/train.csv --dev_file=my_demo/texts/dev.csv" in classifier
    assert "--output_dir=my_demo/classifier" in classifier
    for words in (pretrain, classifier):
        assert mistake_in(["python", *words.split()]) is None


def test_a_killed_installation_is_repeated(clone):
    clone.run("demo")
    process = clone.start("test", PAUSE="1")
    while not (clone.folder / "paused").exists():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    clone.run("test")
    assert clone.installations() == [DEMO, TEST, TEST]
    assert clone.environments() == 2


def test_an_unsupported_python_is_named(clone):
    clone.add_program("old", "#!/bin/sh\necho 3.9\n")
    for python, found in (("old", "(3.9)"), ("no-such-python", "(does not run)")):
        process = clone.start("demo", PYTHON=python)
        output, _ = process.communicate(timeout=TIMEOUT)
        assert process.returncode != 0
        assert f"Found: {python} {found}" in output
        assert not (clone.folder / ".venv").exists()
