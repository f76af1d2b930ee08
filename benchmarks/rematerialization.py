"""Measures time and peak memory of a pretraining step with and without rematerialization.

Each variant has its own process. The operating system (Linux) reports its peak memory. Startup,
tracing and compilation are included in the memory but not in the time. Processor time is also
printed, because other programs affect it less.

    python -m benchmarks.rematerialization --preset=base_v2 --batch_size=8 --max_seq_length=512
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

from absl import app, flags

from albert_tf.checkpoints.formats.huggingface import read_config
from albert_tf.config import AlbertConfig
from benchmarks.timing import peak_memory

flags.DEFINE_string("preset", "base_v2", "Model.")
flags.DEFINE_string("albert_config_file", None, "Model, instead of a preset.")
flags.DEFINE_integer("batch_size", 8, "Number of examples.")
flags.DEFINE_integer("max_seq_length", 512, "Sequence length.")
flags.DEFINE_integer("max_predictions_per_seq", 20, "Prediction slots per sequence.")
flags.DEFINE_integer("gradient_accumulation_steps", 1, "Number of micro-batches.")
flags.DEFINE_enum("optimizer", "lamb", ["lamb", "adamw"], "Optimizer.")
flags.DEFINE_bool("xla", False, "As in run_pretraining.py.")
flags.DEFINE_integer("steps", 4, "Number of steps; the first is not timed.")
flags.DEFINE_enum("remat", "both", ["both", "no", "yes"], "Variants to run.")
FLAGS = flags.FLAGS

_RESULT = "result: "


def run_steps(remat: bool) -> dict[str, float]:
    """Trains in this process. Returns median times in seconds and the peak memory in GB."""
    from benchmarks.pretraining import pretraining_trainer, random_batch

    path = FLAGS.albert_config_file
    config = read_config(path) if path else AlbertConfig.from_preset(FLAGS.preset)
    B, S, P = FLAGS.batch_size, FLAGS.max_seq_length, FLAGS.max_predictions_per_seq
    trainer = pretraining_trainer(
        config,
        S,
        P,
        optimizer=FLAGS.optimizer,
        train_batch_size=B,
        gradient_accumulation_steps=FLAGS.gradient_accumulation_steps,
        remat=remat,
        jit_compile=FLAGS.xla,
    )
    batch = random_batch(config, B, S, P)
    walls, processors = [], []
    for _ in range(FLAGS.steps):
        wall, processor = time.perf_counter(), time.process_time()
        norm = trainer.train_step(batch)["gradient_norm"].numpy()
        walls.append(time.perf_counter() - wall)
        processors.append(time.process_time() - processor)
    timed = slice(min(1, FLAGS.steps - 1), None)
    return {
        "seconds": statistics.median(walls[timed]),
        "processor_seconds": statistics.median(processors[timed]),
        "peak_gb": peak_memory(),
        "gradient_norm": float(norm),
    }


def run_separately(remat: bool) -> dict[str, float]:
    """Returns the results of `run_steps` in a separate process."""
    command = [sys.executable, "-m", "benchmarks.rematerialization", *sys.argv[1:]]
    command.append(f"--remat={'yes' if remat else 'no'}")
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    (line,) = (line for line in output.splitlines() if line.startswith(_RESULT))
    return json.loads(line.removeprefix(_RESULT))


def main(_: list[str]) -> None:
    """Prints the times and memory, and their ratios if both variants were run."""
    if FLAGS.remat != "both":
        print(_RESULT + json.dumps(run_steps(FLAGS.remat == "yes")))
        return
    kept, recomputed = run_separately(remat=False), run_separately(remat=True)
    for name, result in (("kept", kept), ("recomputed", recomputed)):
        print(
            f"blocks {name}: {result['seconds']:.2f} s per step "
            f"({result['processor_seconds']:.2f} s of processor time), "
            f"peak {result['peak_gb']:.2f} GB, gradient norm {result['gradient_norm']:.6f}"
        )
    for name in ("seconds", "processor_seconds", "peak_gb"):
        print(f"{name}: {recomputed[name] / kept[name]:.2f} times")


if __name__ == "__main__":
    app.run(main)
