"""Measures the forward pass and the training step of pretraining relative to the matmul peak.

The lower bound is the time of the matrix products at the rate of one large float32 product, which
is measured in the same process between the rounds. A training step counts as three forward passes.
With --gradient_accumulation_steps, the step with micro-batches is compared with the step without.
Steps with fused and with plain operations are timed alternately. Their processor times are also
compared, because other programs affect processor time less. The reported peak memory is the peak
of the process so far, so the step that requires the least memory runs first.

    python -m benchmarks.pretraining_step --preset=base_v2 --batch_size=8 --max_seq_length=128
    python -m benchmarks.pretraining_step --batch_size=16 --gradient_accumulation_steps=4
    python -m benchmarks.pretraining_step --precision=bfloat16 --albert_config_file=config.json
"""

from __future__ import annotations

import statistics
import time

import tensorflow as tf
from absl import app, flags

from albert_tf.checkpoints.formats.huggingface import read_config
from albert_tf.config import FLOAT32, PRECISIONS, AlbertConfig
from albert_tf.modeling.ops import PLAIN
from albert_tf.modeling.ops_fused import FusedOps
from albert_tf.training.trainer import Trainer
from benchmarks.matmul import matmul_rate, pretraining_operations
from benchmarks.pretraining import pretraining_trainer, random_batch
from benchmarks.timing import peak_memory, seconds

flags.DEFINE_string("preset", "base_v2", "Model.")
flags.DEFINE_string("albert_config_file", None, "Model, instead of a preset.")
flags.DEFINE_integer("batch_size", 8, "Number of examples.")
flags.DEFINE_integer("max_seq_length", 128, "Sequence length.")
flags.DEFINE_integer("max_predictions_per_seq", 20, "Prediction slots per sequence.")
flags.DEFINE_integer("gradient_accumulation_steps", 1, "Number of micro-batches to compare.")
flags.DEFINE_integer("rounds", 5, "Number of timings; the median ratio is printed.")
flags.DEFINE_enum("precision", FLOAT32, PRECISIONS, "As in run_pretraining.py.")
flags.DEFINE_bool("xla", False, "As in run_pretraining.py.")
FLAGS = flags.FLAGS


def make_trainer(config: AlbertConfig, micro_batches: int) -> Trainer:
    """Returns a trainer with the settings of the flags."""
    return pretraining_trainer(
        config,
        FLAGS.max_seq_length,
        FLAGS.max_predictions_per_seq,
        train_batch_size=FLAGS.batch_size,
        jit_compile=FLAGS.xla,
        precision=FLAGS.precision,
        gradient_accumulation_steps=micro_batches,
    )


def name_of_parts(micro_batches: int) -> str:
    """Returns the name of a step with micro-batches."""
    return f"step in {micro_batches} micro-batches"


def main(_: list[str]) -> None:
    """Prints the ratios."""
    path = FLAGS.albert_config_file
    config = read_config(path) if path else AlbertConfig.from_preset(FLAGS.preset)
    B, S, P = FLAGS.batch_size, FLAGS.max_seq_length, FLAGS.max_predictions_per_seq
    A = FLAGS.gradient_accumulation_steps
    batch = random_batch(config, B, S, P)
    rate = matmul_rate(config, B * S)
    trainer = make_trainer(config, 1)
    forward = tf.function(lambda: trainer.model(batch)["masked_lm_logits"])
    runs = {
        "forward": lambda: forward().numpy(),
        "step": lambda: trainer.train_step(batch)["gradient_norm"].numpy(),
    }
    operations = pretraining_operations(config, B, S, P)
    floors = {"forward": operations, "step": 3 * operations}
    if A > 1:
        in_parts = make_trainer(config, A)
        floors = {name_of_parts(A): 3 * operations, **floors}
        runs[name_of_parts(A)] = lambda: in_parts.train_step(batch)["gradient_norm"].numpy()
    is_fused = isinstance(trainer._training.ops, FusedOps)
    if is_fused:
        plain = make_trainer(config, 1)
        plain._training.ops = PLAIN
        floors["plain step"] = 3 * operations
        runs["plain step"] = lambda: plain.train_step(batch)["gradient_norm"].numpy()
    print(f"models and optimizers: peak memory {peak_memory():.2f} GB")
    for name in floors:
        took = seconds(runs[name])
        print(
            f"{name}: first run, tracing and compiling included: {took:.2f} s; "
            f"peak memory {peak_memory():.2f} GB"
        )
    ratios: dict[str, list[float]] = {name: [] for name in floors}
    processor_times: dict[str, list[float]] = {name: [] for name in floors}
    for _ in range(FLAGS.rounds):
        peak = rate()
        for name, floor in floors.items():
            before = time.process_time()
            took = seconds(runs[name])
            processor_times[name].append(time.process_time() - before)
            ratios[name].append(floor / peak / took)
            print(f"  {name}: {took:.3f} s, {ratios[name][-1]:.2f} of {peak / 1e9:.0f} GFLOP/s")
    for name, values in ratios.items():
        print(f"{name}: {statistics.median(values):.2f} of the matmul peak (median)")
    if A > 1:
        slower = statistics.median(
            whole / parts
            for parts, whole in zip(ratios[name_of_parts(A)], ratios["step"], strict=True)
        )
        print(f"{name_of_parts(A)}: {slower:.2f} times the step without micro-batches (median)")
    if is_fused:
        pairs = zip(processor_times["plain step"], processor_times["step"], strict=True)
        share = statistics.median(fused / plain for plain, fused in pairs)
        print(f"step: {share:.2f} times the processor time of plain operations (median)")


if __name__ == "__main__":
    app.run(main)
