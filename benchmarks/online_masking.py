"""Measures the input pipeline with masking during training: separately, and while a step runs.

A wait replaces the step of an accelerator. The time in excess of the wait is the time that the
input adds to a step. If other programs are running, use the processor time.

    python -m benchmarks.online_masking --shapes=4096x128,256x512
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import tensorflow as tf
from absl import app, flags

from albert_tf.config import AlbertConfig
from albert_tf.data.tfrecord import encode_examples, frame_records
from albert_tf.pretraining.instances import plain_feature_specs, pretraining_feature_specs
from albert_tf.pretraining.masking import MaskingSettings, OnlineMasking
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.training.strategies import create_strategy, split_batch
from albert_tf.training.trainer import TrainingInput

flags.DEFINE_list("shapes", ["4096x128", "4096x512"], "Examples x positions of a batch.")
flags.DEFINE_integer("records", 8192, "Number of records of the file, which is read repeatedly.")
flags.DEFINE_float("masked_lm_prob", 0.15, "Fraction of the tokens to mask; 0 masks nothing.")
flags.DEFINE_float("step_seconds", 0.5, "Duration of the wait that replaces a step.")
flags.DEFINE_integer("steps", 20, "Number of steps to time, and of batches without a step.")
FLAGS = flags.FLAGS


def plain_records(config: AlbertConfig, count: int, S: int) -> list[bytes]:
    """Returns records of unpadded pairs. 75% of the tokens start a word, as in English."""
    rng = np.random.default_rng(0)
    columns = {
        "input_ids": rng.integers(5, config.vocab_size, (count, S)),
        "input_mask": np.ones((count, S), np.int64),
        "segment_ids": (np.arange(S) >= rng.integers(2, S - 1, (count, 1))).astype(np.int64),
        "token_boundary": (rng.random((count, S)) < 0.75).astype(np.int64),
        "next_sentence_labels": rng.integers(0, 2, (count, 1)),
    }
    return encode_examples(columns, plain_feature_specs(pretraining_feature_specs(S, 1)))


def times_of(function: Callable[[], object]) -> tuple[float, float]:
    """Returns the median wall time and the mean processor time of a call, in seconds."""
    function()
    seconds, start = [], time.process_time()
    for _ in range(FLAGS.steps):
        before = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - before)
    return statistics.median(seconds), (time.process_time() - start) / FLAGS.steps


def new_input(path: str, config: AlbertConfig, B: int, S: int) -> TrainingInput:
    """Returns the training input that the trainer would create from the records."""
    P = round(S * FLAGS.masked_lm_prob)
    task = PretrainingTask(
        config,
        train_files=[path],
        max_seq_length=S,
        max_predictions_per_seq=P,
        masking=OnlineMasking(MaskingSettings(FLAGS.masked_lm_prob, P), 4, config.vocab_size),
    )
    return TrainingInput(iter(task.train_dataset(B, seed=0)), {})


def time_shape(B: int, S: int) -> None:
    """Prints the time of the input, and of steps with this input."""
    config, strategy = AlbertConfig.from_preset("base_v2"), create_strategy("mirrored")

    def split(batches: list[dict[str, tf.Tensor]]) -> object:
        return split_batch(strategy, batches[0])

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "records")
        with open(path, "wb") as file:
            file.writelines(frame_records(plain_records(config, FLAGS.records, S)))
        source = new_input(path, config, B, S)
        wall, processor = times_of(partial(source.take, 1, split))
        print(
            f"{B} x {S}, only the input: {1e3 * wall:.0f} ms per batch, "
            f"{B / wall:,.0f} sequences/s; processor time {1e3 * processor:.0f} ms, "
            f"{B / processor:,.0f} sequences/s"
        )

        def step(*, is_ahead: bool) -> None:
            source.take(1, split)
            if is_ahead:
                source.read_ahead(1, split)
            time.sleep(FLAGS.step_seconds)

        for variant, is_ahead in (("not read ahead", False), ("read ahead", True)):
            added = times_of(partial(step, is_ahead=is_ahead))[0] - FLAGS.step_seconds
            print(
                f"  {variant}: {1e3 * added:.1f} ms added to a step of {FLAGS.step_seconds:g} s "
                f"({added / FLAGS.step_seconds:.1%})",
                flush=True,
            )
        source.close()


def main(_: list[str]) -> None:
    """Prints the times for each shape."""
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    print(f"processors: {os.cpu_count()}, load average: {os.getloadavg()[0]:.1f}")
    for shape in FLAGS.shapes:
        time_shape(*map(int, shape.split("x")))


if __name__ == "__main__":
    app.run(main)
