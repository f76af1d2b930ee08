"""Signals outside of training steps: one line, status 128 + number, and no partial files."""

import glob
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.pretraining_run import PretrainingRun
from tests.programs import ROOT, TIMEOUT, command_line


def wait_until(condition, program):
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert program.poll() is None, program.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def start(*arguments):
    """Starts Python in a new session and process group."""
    environment = {name: os.environ[name] for name in os.environ if name != "TF_CPP_MIN_LOG_LEVEL"}
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def assert_stopped(status, printed, number):
    assert status == 128 + number, printed
    assert "Traceback" not in printed
    assert "Exception" not in printed
    assert printed.count(number.name) == 1


@pytest.mark.slow
def test_a_signal_before_the_first_step(tmp_path):
    run = PretrainingRun(tmp_path)
    program = run.start()
    while not (run.output / "run_config.json").exists():
        assert program.is_running(), program.wait().output
        time.sleep(0.005)
    program.send(signal.SIGTERM)
    result = program.wait()
    assert_stopped(result.code, result.output, signal.SIGTERM)
    assert run.files_of("*") == [
        ".training.lock",
        "albert_config.json",
        "log.txt",
        "run_config.json",
        "vocab.txt",
    ]


def test_a_signal_during_the_import_of_tensorflow(tmp_path):
    output = tmp_path / "output"
    program = start(
        "run_pretraining.py",
        *command_line({"input_file": "-", "output_dir": output, "albert_config_file": "-"}),
    )
    maps = Path(f"/proc/{program.pid}/maps")
    wait_until(lambda: "libtensorflow" in maps.read_text(), program)
    program.send_signal(signal.SIGINT)
    printed, _ = program.communicate(timeout=TIMEOUT)
    assert_stopped(program.returncode, printed, signal.SIGINT)
    assert not output.exists()


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_signal_stops_the_training_of_a_vocabulary(tmp_path, number):
    words = random.Random(2).randbytes(2_000_000).hex()
    lines = (words[place : place + 80] for place in range(0, len(words), 80))
    (text := tmp_path / "text.txt").write_text("\n".join(lines))
    flags = {"input_file": text, "model_prefix": tmp_path / "vocabulary", "vocab_size": 8000}
    before = sum(os.times()[2:4])  # CPU seconds of processes that ended
    program = start("-m", "albert_tf.cli.train_sentencepiece", *command_line(flags))
    # The trainer has started its threads, with which it needs 12 CPU seconds.
    wait_until(lambda: len(os.listdir(f"/proc/{program.pid}/task")) > 8, program)
    program.send_signal(number)
    printed, _ = program.communicate(timeout=TIMEOUT)
    assert_stopped(program.returncode, printed, number)
    assert sum(os.times()[2:4]) - before < 5
    assert os.listdir(tmp_path) == ["text.txt"]


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)]
)
def test_a_terminal_signal_stops_the_worker_processes_of_record_creation(tmp_path, number):
    """A terminal sends signals to all processes of a group."""
    run = PretrainingRun(tmp_path)
    text = "\n".join("a b c d. e f g h." for _ in range(100)) + "\n\n"
    (tmp_path / "text.txt").write_text(text * 3000)
    flags = {
        "input_file": tmp_path / "text.txt",
        "output_file": run.output / "records",
        "vocab_file": tmp_path / "model" / "vocab.txt",
        "num_workers": 2,
    }
    program = start("create_pretraining_data.py", *command_line(flags))
    tokens = f"{run.output}/.tokens.*/*"  # `glob` accepts that folders vanish, unlike pathlib
    wait_until(lambda: glob.glob(tokens, include_hidden=True), program)
    os.killpg(program.pid, number)
    printed, _ = program.communicate(timeout=TIMEOUT)
    assert_stopped(program.returncode, printed, number)
    (tmp_path / "text.txt").write_text(text)
    program = start("create_pretraining_data.py", *command_line(flags))
    assert program.wait(timeout=TIMEOUT) == 0, program.communicate()
    assert run.files_of("*") == [".records.vocabulary", "records"]
