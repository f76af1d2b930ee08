"""Kills a small pretraining run at random moments and compares its result with an unbroken run.

`run_pretraining.py` runs in separate processes, saves every second step, and is killed by SIGKILL
while it starts, trains, saves or removes old checkpoints. Its last checkpoint and its recorded
losses must be identical to those of an unbroken run, bit for bit.

    python -m benchmarks.kill_and_resume --kills=20
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

import tensorflow as tf

from tests.pretraining_run import PretrainingRun, assert_same_bits, read_checkpoint

EVERY = 2  # steps between checkpoints: much of the time is spent in saving
STEPS_A_KILL = 30  # more than pass before one
LONGEST_WAIT = 0.1  # seconds from a checkpoint to a kill, at most
RATES = {"time", "examples_per_second", "steps_per_second"}


def committed_step(output: Path) -> int:
    """The step of the newest checkpoint, 0 where there is none."""
    state = tf.train.get_checkpoint_state(str(output))
    return int(state.model_checkpoint_path.rsplit("-", 1)[1]) if state else 0


def kill_once(run: PretrainingRun, steps: int) -> str:
    """Starts the run, kills it at a random moment, and returns what it was doing."""
    program = run.start(**flags(steps))
    before = committed_step(run.output)
    if random.random() < 0.2:  # while it starts
        time.sleep(random.uniform(0.0, 5.0))
    else:
        wanted = before + EVERY * random.randint(1, 3)
        while committed_step(run.output) < wanted:
            assert program.is_running(), program.wait().output
            time.sleep(0.001)
        time.sleep(random.uniform(0.0, LONGEST_WAIT))
    program.kill()
    result = program.wait()
    assert result.code == -9, f"it ended before it was killed:\n{result.output}"
    step = committed_step(run.output)
    newer = {path.name for path in run.output.glob(f"*-{step + EVERY}.*")}
    if newer:
        return "saving"
    return "training" if step > before else "starting"


def flags(steps: int) -> dict[str, int]:
    """Returns the flags of the run in addition to the defaults of small runs."""
    return {"num_train_steps": steps, "save_checkpoints_steps": EVERY, "log_steps": EVERY}


def numbers(run: PretrainingRun) -> dict[int, dict[str, float]]:
    """Returns the metrics of each step, except for rates and times."""
    return {
        step: {name: value for name, value in record.items() if name not in RATES}
        for step, record in run.metrics().items()
    }


def main() -> None:
    """Kills, resumes and compares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None, help="Of the moments; random without.")
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        run = PretrainingRun(
            Path(folder), hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.3
        )
        kill_and_compare(run, arguments.kills)


def kill_and_compare(run: PretrainingRun, kills: int) -> None:
    """Makes an unbroken run and one with kills; fails where they differ."""
    steps = STEPS_A_KILL * kills
    run.must_work(**flags(steps))
    weights, recorded = read_checkpoint(run.output / f"model.ckpt-{steps}"), numbers(run)
    shutil.rmtree(run.output)
    found: Counter[str] = Counter()
    for number in range(1, kills + 1):
        found[kill_once(run, steps)] += 1
        print(f"kill {number}: newest checkpoint {committed_step(run.output)}", flush=True)
    run.must_work(**flags(steps))
    assert_same_bits(read_checkpoint(run.output / f"model.ckpt-{steps}"), weights)
    assert numbers(run) == recorded
    times = ", ".join(f"{count} while {what}" for what, count in sorted(found.items()))
    print(f"{kills} kills ({times}) in {steps} steps: the end is bit-equal")


if __name__ == "__main__":
    main()
