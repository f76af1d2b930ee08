"""The command `run_ablations.py`: resuming and signals."""

import json
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.pretraining_run import PretrainingRun, assert_same_bits, read_checkpoint
from tests.programs import ROOT, TIMEOUT, command_line, run_program
from tests.run_in_process import assert_unchanged, tree

SCRIPT = "run_ablations.py"
PASSED = (
    "max_seq_length",
    "max_predictions_per_seq",
    "train_batch_size",
    "num_warmup_steps",
    "save_checkpoints_steps",
    "eval_batch_size",
)


def flags(run, output, **changes):
    """Flags for six steps of a base with two layers and a variant with one layer."""
    own = {
        "albert_config_file": run.folder / "model" / "albert_config.json",
        "input_file": run.folder / "train-*.tfrecord",
        "eval_input_file": run.eval_file,
        "output_dir": output,
        "comparisons": "depth",
        "depths": "1,2",
        "seeds": "3",
        "num_train_steps": 6,
        **changes,
    }
    given = run.flags(save_checkpoints_steps=2, num_warmup_steps=1)
    passed = {name: given[name] for name in PASSED}
    return {**own, "": True, **passed}  # the empty name becomes `--`


@pytest.mark.slow
def test_an_interrupted_comparison_resumes_bit_equal(tmp_path):
    run = PretrainingRun(tmp_path, hidden_dropout_prob=0.2, num_hidden_layers=2)
    output = tmp_path / "ablations"
    before = tree(tmp_path)
    result = run_program(SCRIPT, tmp_path, {"dry_run": True, **flags(run, output)})
    assert result.code == 0, result.output
    assert_unchanged(tmp_path, before)
    result = run_program(SCRIPT, tmp_path, flags(run, output))
    assert result.code == 0, result.output
    table = (output / "ablations.md").read_text()
    assert "| layers L | 1 |" in table
    assert table in result.output
    config = json.loads((output / "depth-1-seed3" / "albert_config.json").read_text())
    assert config["num_hidden_layers"] == 1
    unbroken = read_checkpoint(output / "depth-1-seed3" / "model.ckpt-6")

    cut_off = output / "depth-1-seed3"
    for path in [*cut_off.rglob("*6.*"), cut_off / "checkpoint", cut_off / "eval_results.txt"]:
        path.unlink()
    finished = (output / "base-seed3.log").read_bytes()
    result = run_program(SCRIPT, tmp_path, flags(run, output))
    assert result.code == 0, result.output
    assert (output / "base-seed3.log").read_bytes() == finished
    assert "at step 4" in (output / "depth-1-seed3.log").read_text()
    assert_same_bits(read_checkpoint(cut_off / "model.ckpt-6"), unbroken)


@pytest.mark.slow
def test_sigterm_ends_the_current_training(tmp_path):
    run = PretrainingRun(tmp_path)
    output = tmp_path / "ablations"
    log = output / "base-seed3.log"
    arguments = command_line(flags(run, output, num_train_steps=99999))
    with open(tmp_path / "printed.txt", "wb") as printed:
        program = subprocess.Popen(
            [sys.executable, SCRIPT, *arguments], cwd=ROOT, stdout=printed, stderr=printed
        )
    until = time.monotonic() + TIMEOUT
    while not (log.exists() and "random weights" in log.read_text()):
        assert time.monotonic() < until, (tmp_path / "printed.txt").read_text()
        time.sleep(0.2)
    assert processes_with(str(output)) == 2
    program.terminate()
    assert program.wait(TIMEOUT) == 128 + signal.SIGTERM
    assert processes_with(str(output)) == 0


def processes_with(text):
    """Returns the number of processes with a text in their command line."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # the process has ended
            found += text.encode() in path.read_bytes()
    return found
