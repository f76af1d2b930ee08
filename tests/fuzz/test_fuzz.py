"""A sample of the fuzzers' inputs, and that no reader of files is forgotten."""

import os
import subprocess
import time

from tests.fuzz import coverage, running
from tests.fuzz.independent import UNKNOWN
from tests.fuzz.parsers import PARSERS, Parser
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


def read(folder):
    content = (folder / "file.txt").read_bytes()
    if content == b"abort":
        os.abort()
    if content == b"sleep":
        time.sleep(60)
    if content == b"memory":
        return len(bytearray(b"x") * (300 << 20)) and content
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


def read_otherwise(folder):
    content = (folder / "file.txt").read_bytes()
    return {b"another answer": b"", b"read": UNKNOWN}.get(content, content)


def test_whatever_becomes_of_an_input_is_told(monkeypatch):
    """The inputs are called by what becomes of them."""
    kinds = [
        "equal",
        "abort",
        "read",
        "clear error",
        "stack trace",
        "sleep",
        "several lines",
        "no file named",
        "long message",
        "another answer",
        "memory",
        "equal",
    ]
    parser = Parser("fake", "file.txt", lambda: [b"seed"], read, (), independent=read_otherwise)
    monkeypatch.setattr(running, "PARSERS", {"fake": parser})
    monkeypatch.setattr(running, "MAX_SECONDS", 2.0)
    monkeypatch.setattr(running, "damaged", lambda parser, seeds, n: kinds[n].encode())
    outcomes = list(running.run([running.Part("fake", range(len(kinds)))], processes=2))
    found = {outcome.number: outcome.kind for outcome in outcomes}
    assert found.pop(kinds.index("abort")) == "killed by SIGABRT"
    assert found.pop(kinds.index("sleep")) == "more than 2 s"
    assert found == {n: kind for n, kind in enumerate(kinds) if kind not in ("abort", "sleep")}


def test_an_input_is_a_function_of_its_number():
    parser = PARSERS["config"]
    inputs = [running.damaged(parser, parser.seeds(), number) for number in range(50)]
    assert inputs == [running.damaged(parser, parser.seeds(), number) for number in range(50)]
    assert len(set(inputs)) > 45


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
