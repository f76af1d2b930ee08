"""Measures half precision: the time of a step, and the losses of a training run.

Without `--input_file`, a step on random tokens is timed in float32 and in `--precision`. With it, a
small model is trained on these records in both precisions, and in float32 with another seed. The
precision should change the losses much less than the seed does. All runs read the same batches. The
loss curves are drawn into `--curves`. Each run has its own process.

    python -m benchmarks.precision --precision=bfloat16 --preset=base_v2
    python -m benchmarks.precision --precision=bfloat16 --input_file=enwiki.tfrecord \
        --max_seq_length=64 --max_predictions_per_seq=10 --batch_size=16
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import islice

import numpy as np
from absl import app, flags

from albert_tf.config import FLOAT32, PRECISIONS, AlbertConfig

flags.DEFINE_enum("precision", "bfloat16", PRECISIONS, "Precision to compare with float32.")
flags.DEFINE_string("preset", "base_v2", "Model whose step is timed.")
flags.DEFINE_string("input_file", None, "Records of pretraining; with them losses are compared.")
flags.DEFINE_integer("vocab_size", 30000, "Of the records.")
flags.DEFINE_integer("batch_size", 8, "Examples.")
flags.DEFINE_integer("max_seq_length", 128, "Positions of a sequence.")
flags.DEFINE_integer("max_predictions_per_seq", 20, "Prediction slots of a sequence.")
flags.DEFINE_integer(
    "steps", None, "Steps; of timed ones (6) the first is left out, of others 200."
)
flags.DEFINE_string("curves", "precision.png", "Where the curves of the losses are drawn.")
flags.DEFINE_bool("xla", False, "As in run_pretraining.py.")
flags.DEFINE_integer("seed", None, "Run this seed alone, in this process.")
FLAGS = flags.FLAGS

_RESULT = "result: "
_WINDOW = 20  # steps whose mean is a point of a curve


def timed_steps() -> list[tuple[float, float]]:
    """Seconds on the clock and of processors that each step took."""
    from benchmarks.pretraining import pretraining_trainer, random_batch

    config = AlbertConfig.from_preset(FLAGS.preset)
    B, S, P = FLAGS.batch_size, FLAGS.max_seq_length, FLAGS.max_predictions_per_seq
    trainer = pretraining_trainer(
        config, S, P, train_batch_size=B, precision=FLAGS.precision, jit_compile=FLAGS.xla
    )
    batch, times = random_batch(config, B, S, P), []
    for _ in range(FLAGS.steps or 6):
        wall, processor = time.perf_counter(), time.process_time()
        trainer.train_step(batch)["gradient_norm"].numpy()
        times.append((time.perf_counter() - wall, time.process_time() - processor))
    return times[1:]


def losses_of_training() -> list[float]:
    """The loss of each step of a training; the order of the batches is always the same."""
    from albert_tf.config import OptimizerConfig, TrainerConfig
    from albert_tf.data.files import match_files
    from albert_tf.pretraining.task import PretrainingTask
    from albert_tf.training.distribution import create_strategy
    from albert_tf.training.trainer import Trainer

    S, P, steps = FLAGS.max_seq_length, FLAGS.max_predictions_per_seq, FLAGS.steps or 200
    task = PretrainingTask(
        AlbertConfig(
            vocab_size=FLAGS.vocab_size,
            embedding_size=64,
            hidden_size=128,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=512,
            max_position_embeddings=S,
        ),
        train_files=match_files(FLAGS.input_file),
        max_seq_length=S,
        max_predictions_per_seq=P,
    )
    with tempfile.TemporaryDirectory() as directory:
        config = TrainerConfig(
            directory,
            FLAGS.batch_size,
            seed=FLAGS.seed,
            precision=FLAGS.precision,
            jit_compile=FLAGS.xla,
        )
        optimizer = OptimizerConfig(
            learning_rate=0.005, num_train_steps=steps, num_warmup_steps=steps // 10
        )
        trainer = Trainer(task, config, optimizer, create_strategy("one_device"))
    batches = islice(task.train_dataset(FLAGS.batch_size, seed=1), steps)
    sums = [trainer.train_step(batch)["sums"] for batch in batches]
    return [float(task.total_loss(step)) for step in sums]


def run_elsewhere(precision: str, seed: int) -> list:
    """Returns the result of a run in a separate process."""
    command = [sys.executable, "-m", "benchmarks.precision", *sys.argv[1:]]
    command += [f"--precision={precision}", f"--seed={seed}"]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    (line,) = (line for line in output.splitlines() if line.startswith(_RESULT))
    return json.loads(line.removeprefix(_RESULT))


def compare_times() -> None:
    """Prints the medians of both precisions and their ratios."""
    single, half = (
        [statistics.median(column) for column in zip(*run_elsewhere(p, seed=1), strict=True)]
        for p in (FLOAT32, FLAGS.precision)
    )
    for number, what in enumerate(("seconds", "processor seconds")):
        print(
            f"{what} of a step: float32 {single[number]:.3f}, {FLAGS.precision} "
            f"{half[number]:.3f}: {single[number] / half[number]:.2f} times as fast"
        )


def compare_losses() -> None:
    """Prints how far the curves are apart, and draws them."""
    curves = {
        f"{precision}, seed {seed}": smoothed(run_elsewhere(precision, seed))
        for precision, seed in ((FLOAT32, 1), (FLOAT32, 2), (FLAGS.precision, 1))
    }
    single, other_seed, half = curves.values()
    for name, curve in curves.items():
        print(f"{name}: {curve[0]:.3f} in the beginning, {curve[-1]:.3f} at the end")
    for name, curve in (("another seed", other_seed), (FLAGS.precision, half)):
        apart = np.abs(curve - single)
        print(f"{name} is apart by {apart.mean():.4f} in the mean, {apart.max():.4f} at most")
    draw(curves)


def smoothed(losses: list[float]) -> np.ndarray:
    """Means over windows of steps, one for each place of the window."""
    return np.convolve(losses, np.full(_WINDOW, 1 / _WINDOW), mode="valid")


def draw(curves: dict[str, np.ndarray]) -> None:
    """Draws the curves into `--curves`."""
    from matplotlib.figure import Figure

    axes = (figure := Figure(figsize=(8, 5), layout="constrained")).add_subplot()
    for (name, curve), style in zip(curves.items(), ("-", ":", "--"), strict=True):
        axes.plot(np.arange(len(curve)) + _WINDOW, curve, style, label=name)
    axes.set(xlabel="step", ylabel=f"loss, mean of {_WINDOW} steps")
    axes.legend()
    figure.savefig(FLAGS.curves, dpi=100)
    print(f"The curves are in {FLAGS.curves}")


def main(_: list[str]) -> None:
    """Runs the comparison."""
    if FLAGS.seed is not None:
        result = losses_of_training() if FLAGS.input_file else timed_steps()
        print(_RESULT + json.dumps(result))
    elif FLAGS.input_file:
        compare_losses()
    else:
        compare_times()


if __name__ == "__main__":
    app.run(main)
