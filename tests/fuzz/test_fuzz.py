"""A sample of the fuzzers' inputs, and that no reader of files is forgotten."""

import subprocess

from tests.fuzz import coverage
from tests.fuzz.parsers import PARSERS
from tests.programs import ROOT, warm_python

INPUTS = 60


def test_damaged_files_are_read_or_refused_in_one_line():
    """Fails, too, where a function that reads files is reached by no parser."""
    done = subprocess.run(
        [str(warm_python()), "-m", "tests.fuzz", f"--inputs={INPUTS}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = [line.split("|")[1:3] for line in done.stdout.splitlines() if line.startswith("| ")]
    assert {name.strip(): count.strip() for name, count in counts[1:]} == dict.fromkeys(
        PARSERS, str(INPUTS)
    )


SOURCE = """
import json
from albert_tf.data.files import open_binary

class Settings:
    def read(self, path):
        with open_binary(path, "rb") as file:
            return file.read()

    def write(self, path):
        with open_binary(path, "wb") as file:
            file.write(b"")

def parse(text):
    def inner():
        return json.loads(text)
    return inner()

def call(path):
    return Settings().read(path)
"""


def test_functions_that_read_are_found(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "module.py").write_text(SOURCE)
    found = [function.name for function in coverage.readers(tmp_path / "package")]
    assert found == ["package.module:Settings.read", "package.module:parse.inner"]


def test_functions_that_a_call_enters_are_known(tmp_path):
    source = tmp_path / "package" / "module.py"
    source.parent.mkdir()
    source.write_text(SOURCE)
    namespace = {}
    exec(compile(SOURCE, str(source), "exec"), namespace)
    found = coverage.readers(source.parent)
    entered = coverage.reached(found, lambda: namespace["parse"]("[]"))
    assert {function.name for function in entered} == {"package.module:parse.inner"}
