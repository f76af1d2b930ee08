"""Times masking while training against reading alone and against a training step.

Reading and masking run here one batch after the other in one thread; in training they run beside
the step, so the shares printed are the most they can cost on a CPU, and nothing on an accelerator
whose host has cores to spare.

    python -m benchmarks.online_masking --preset=base_v2 --shapes=32x128,8x512
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
from absl import app, flags

from albert_tf.config import AlbertConfig, OptimizerConfig, TrainerConfig
from albert_tf.data.records import parse_batch
from albert_tf.data.tfrecord import encode_examples, frame_records
from albert_tf.pretraining.instances import plain_feature_specs, pretraining_feature_specs
from albert_tf.pretraining.masking import MaskingSettings
from albert_tf.pretraining.online_masking import OnlineMasking
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.training.distribution import create_strategy
from albert_tf.training.trainer import Trainer
from benchmarks.timing import seconds

flags.DEFINE_string("preset", "base_v2", "Model.")
flags.DEFINE_list("shapes", ["32x128", "8x512"], "Examples x positions of a batch.")
flags.DEFINE_float("masked_lm_prob", 0.15, "Fraction of the tokens to mask.")
flags.DEFINE_integer("batches", 40, "Batches of a timing of the input.")
flags.DEFINE_integer("steps", 3, "Training steps to time; 0 leaves them out.")
FLAGS = flags.FLAGS


def plain_records(config: AlbertConfig, count: int, S: int) -> list[bytes]:
    """Full sequences of two segments; three tokens in four start a word, as in English."""
    rng = np.random.default_rng(0)
    columns = {
        "input_ids": rng.integers(5, config.vocab_size, (count, S)),
        "input_mask": np.ones((count, S), np.int64),
        "segment_ids": (np.arange(S) >= rng.integers(2, S - 1, (count, 1))).astype(np.int64),
        "token_boundary": (rng.random((count, S)) < 0.75).astype(np.int64),
        "next_sentence_labels": rng.integers(0, 2, (count, 1)),
    }
    return encode_examples(columns, plain_feature_specs(pretraining_feature_specs(S, 1)))


def input_seconds(
    records: list[bytes], config: AlbertConfig, B: int, S: int, masking: OnlineMasking
) -> tuple[float, float]:
    """Seconds a batch of parsing alone, and of parsing and masking, one thread each."""
    specs = plain_feature_specs(pretraining_feature_specs(S, 1, config.vocab_size))
    ways: list[Callable[..., dict[str, tf.Tensor]]] = [
        lambda _, serialized: parse_batch(serialized, specs),
        lambda numbers, serialized: masking(parse_batch(serialized, specs), numbers, seed=0),
    ]
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    batches = tf.data.Dataset.from_tensor_slices(records).repeat().enumerate()
    batches = batches.batch(B, drop_remainder=True)
    readers = [iter(batches.map(way).with_options(options)) for way in ways]
    times: list[list[float]] = [[], []]
    for _ in range(5):
        for reader, taken in zip(readers, times, strict=True):
            next(reader)
            taken.append(seconds(lambda: _read(reader)) / FLAGS.batches)  # noqa: B023
    return statistics.median(times[0]), statistics.median(times[1])


def _read(reader: Iterator[dict[str, tf.Tensor]]) -> None:
    for _ in range(FLAGS.batches):
        next(reader)


def step_seconds(path: str, config: AlbertConfig, B: int, S: int, masking: OnlineMasking) -> float:
    """Median seconds of a training step on a batch of such records."""
    task = PretrainingTask(
        config,
        train_files=[path],
        max_seq_length=S,
        max_predictions_per_seq=masking.settings.max_predictions_per_seq,
        masking=masking,
    )
    with tempfile.TemporaryDirectory() as directory:
        trainer = Trainer(
            task, TrainerConfig(directory, B), OptimizerConfig(), create_strategy("one_device")
        )
    batch = next(iter(task.train_dataset(B, seed=0)))
    run = lambda: trainer.train_step(batch)["gradient_norm"].numpy()  # noqa: E731
    run()
    return statistics.median(seconds(run) for _ in range(FLAGS.steps))


def main(_: list[str]) -> None:
    """Prints a line for each shape."""
    config = AlbertConfig.from_preset(FLAGS.preset)
    for shape in FLAGS.shapes:
        B, S = map(int, shape.split("x"))
        P = round(S * FLAGS.masked_lm_prob)
        masking = OnlineMasking(MaskingSettings(FLAGS.masked_lm_prob, P), 4, config.vocab_size)
        records = plain_records(config, 4 * B, S)
        parse, both = input_seconds(records, config, B, S, masking)
        print(
            f"{B} x {S}, {P} predictions: parsing {1e3 * parse:.2f} ms a batch, with masking "
            f"{1e3 * both:.2f} ms"
        )
        if not FLAGS.steps:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "records")
            with open(path, "wb") as file:
                file.writelines(frame_records(records))
            step = step_seconds(path, config, B, S, masking)
        print(
            f"  training step {step:.2f} s: masking takes {(both - parse) / step:.2%} of it, "
            f"parsing and masking {both / step:.2%}"
        )


if __name__ == "__main__":
    app.run(main)
