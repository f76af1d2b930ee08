"""How commands start and end."""

import os
import re
import subprocess
import sys

import pytest

from albert_tf.cli import command
from tests.programs import ROOT

OWN_FILES = {path.name for path in (ROOT / "albert_tf").rglob("*.py")}

# A command that imports a TensorFlow which, like the real one, writes before it looks at its level.
COMMAND = '''
"""Imports TensorFlow."""

import os
import warnings

from absl import logging

from albert_tf.cli.command import run_command


def define_flags():
    """There are none."""


def run():
    import tensorflow

    os.write(2, b"level %s\\n" % os.environ.get("TF_CPP_MIN_LOG_LEVEL", "none").encode())
    logging.warning("of another package")
    warnings.warn("of Python")
    logging.error("error of another package")


run_command(define_flags, run)
'''
PRINTING_COMMAND = '''
"""Answers as those commands do that predict."""

from albert_tf.cli.command import run_command
from albert_tf.data.streams import open_output


def define_flags():
    """There are none."""


def run(texts):
    with open_output(None) as file:
        file.write(texts[0].encode())


run_command(define_flags, run, takes_paths=True)
'''
TENSORFLOW = 'import os\nos.write(2, b"WARNING: at its start\\n")\n'


def environment(**variables: str) -> dict[str, str]:
    """That of a user who has set these variables alone."""
    settings = ("TF_CPP_MIN_LOG_LEVEL", "CUDA_VISIBLE_DEVICES", "PYTHONWARNINGS")
    kept = {name: value for name, value in os.environ.items() if name not in settings}
    return {**kept, **variables}


def test_a_reader_that_leaves_early_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = subprocess.run(
            [sys.executable, ROOT / "run_pretraining.py", "--help"],
            stdout=pipe,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == ""


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("output", "said"),
    [("> full", "error: the standard output "), (">&-", "error: The standard output ")],
)
def test_output_that_cannot_be_written_is_one_line(tmp_path, unbuffered, output, said):
    (tmp_path / "program.py").write_text(PRINTING_COMMAND)
    done = subprocess.run(
        # No file can be written to.
        [
            "sh",
            "-c",
            f'ulimit -f 0; "$0" "$@" {output}',
            sys.executable,
            "program.py",
            "x" * 100_000,
        ],
        cwd=tmp_path,
        env=environment(PYTHONPATH=str(ROOT), PYTHONUNBUFFERED=unbuffered),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(said)


def test_a_command_without_output_does_not_need_any(tmp_path):
    done = subprocess.run(
        ["sh", "-c", '"$0" "$@" >&-', sys.executable, ROOT / "create_pretraining_data.py",
         f"--input_file={ROOT}/README.md", f"--output_file={tmp_path}/records", "--dupe_factor=1",
         f"--vocab_file={ROOT}/tests/golden/data/tokenizer/vocab.txt", "--num_workers=1"],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_an_export_in_a_fresh_process_shows_lines_of_its_own_alone(golden, tmp_path):
    done = subprocess.run(
        [
            sys.executable,
            ROOT / "export_to_tfhub.py",
            f"--albert_directory={golden / 'hub' / 'albert_directory'}",
            f"--export_path={tmp_path / 'encoder'}",
        ],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    sources = [re.match(r"[IW]\d{4} [\d:.]+ \d+ (\w+\.\w+):\d+\] ", line) for line in lines]
    assert [line for line, source in zip(lines, sources, strict=True) if source is None] == []
    assert {source[1] for source in sources} <= OWN_FILES
    assert sum("] devices=" in line for line in lines) == 1


@pytest.mark.parametrize(
    ("arguments", "variables", "shown", "hidden"),
    [
        ([], {}, {"level 3"}, {"at its start", "] of another package", "of Python"}),
        (["--verbosity=1"], {},
         {"level none", "at its start", "] of another package", "of Python"}, set()),
        ([], {"TF_CPP_MIN_LOG_LEVEL": "1"},
         {"level 1", "at its start"}, {"] of another package", "of Python"}),
        ([], {"PYTHONWARNINGS": "default"}, {"level 3", "of Python"}, {"at its start"}),
    ],
)  # fmt: skip
def test_what_others_say_is_shown_on_demand(tmp_path, arguments, variables, shown, hidden):
    (tmp_path / "program.py").write_text(COMMAND)
    (tmp_path / "tensorflow.py").write_text(TENSORFLOW)
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py", *arguments],
        env=environment(PYTHONPATH=str(ROOT), CUDA_VISIBLE_DEVICES="-1", **variables),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "error of another package" in done.stderr
    assert {text for text in shown | hidden if text in done.stderr} == shown


@pytest.mark.parametrize(
    ("devices", "visible", "found"),
    [(["/dev/nvidia0"], None, True), (["/dev/nvidia0"], "0", True), (["/dev/nvidia0"], "-1", False),
     ([], None, False)],
)  # fmt: skip
def test_errors_of_a_gpu_stay_visible(monkeypatch, devices, visible, found):
    monkeypatch.setattr(command.glob, "glob", lambda pattern: devices)
    monkeypatch.setattr(command.os.path, "exists", lambda path: False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert command._has_nvidia_device() == found
