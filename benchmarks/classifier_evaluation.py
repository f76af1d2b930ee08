"""Measures classifier evaluation with minimal padding and with padding to the maximum length.

Both are measured alternately in this process, on a model with random weights and without startup
and tracing. To limit the time, padding to the maximum uses only a sample of the rows. The lower
bound is the time of the matrix products of the real tokens (see benchmarks/matmul.py).

    python -m benchmarks.classifier_evaluation --data_dir=GLUE --spm_model_file=30k-clean.model
"""

from __future__ import annotations

import statistics

import numpy as np
from absl import app, flags

from albert_tf.classification.data import GlueData
from albert_tf.config import AlbertConfig
from albert_tf.data.sequences import TokenSequences
from albert_tf.data.splits import DEV
from albert_tf.finetuning.predictor import Predictor
from albert_tf.finetuning.texts import text_sequences
from albert_tf.modeling.models import AlbertForClassification
from albert_tf.tokenization.loading import tokenizer_from_files
from albert_tf.training.strategies import create_strategy
from benchmarks.matmul import encoder_operations, matmul_rate
from benchmarks.timing import seconds

flags.DEFINE_string("data_dir", None, "Directory of the GLUE data, or of the task.", required=True)
flags.DEFINE_string("spm_model_file", None, "SentencePiece model.", required=True)
flags.DEFINE_string("task_name", "MRPC", "Task whose development set is evaluated.")
flags.DEFINE_string("preset", "base_v2", "Model.")
flags.DEFINE_integer("max_seq_length", 512, "Length to which sequences are padded.")
flags.DEFINE_integer("tokens_per_batch", 4096, "Number of positions of a batch.")
flags.DEFINE_integer("max_rows", 16, "Number of sequences to pad to the maximum.")
flags.DEFINE_integer("rounds", 3, "Number of timings of each variant; the median is printed.")
FLAGS = flags.FLAGS


def dev_sequences() -> TokenSequences:
    """Returns the token sequences of the development set."""
    tokenizer = tokenizer_from_files(spm_model_file=FLAGS.spm_model_file)
    examples = GlueData(FLAGS.task_name, FLAGS.data_dir).read(DEV)
    return text_sequences(examples, tokenizer, FLAGS.max_seq_length)


def some_rows(sequences: TokenSequences, count: int) -> TokenSequences:
    """Returns `count` evenly spaced sequences."""
    rows = np.unique(np.linspace(0, len(sequences) - 1, count).astype(int))
    starts, ends = sequences.starts[rows], sequences.starts[rows + 1]
    parts = [sequences.tokens[start:end] for start, end in zip(starts, ends, strict=True)]
    return TokenSequences(
        np.concatenate(parts),
        np.concatenate([[0], np.cumsum(ends - starts)]),
        sequences.first_lengths[rows],
    )


def main(_: list[str]) -> None:
    """Prints examples per second, their ratio, and the share of the matmul peak."""
    config = AlbertConfig.from_preset(FLAGS.preset)
    sequences = dev_sequences()
    subsets = {"longest": sequences, "max": some_rows(sequences, FLAGS.max_rows)}
    model = AlbertForClassification(config, num_labels=2)
    predictors = {
        padding: Predictor(
            model,
            create_strategy("one_device"),
            max_seq_length=FLAGS.max_seq_length,
            tokens_per_batch=FLAGS.tokens_per_batch,
            padding=padding,
        )
        for padding in subsets
    }
    for padding, predictor in predictors.items():
        first = some_rows(sequences, 2)
        print(f"{padding}: first run: {seconds(lambda p=predictor, f=first: p.predict(f)):.2f} s")
    rate = matmul_rate(config, FLAGS.tokens_per_batch)
    floor = encoder_operations(config, sequences.lengths)
    print(f"{len(sequences)} examples, {sequences.lengths.mean():.1f} tokens on average")
    speeds: dict[str, list[float]] = {padding: [] for padding in subsets}
    shares = []
    for _ in range(FLAGS.rounds):
        for padding, predictor in predictors.items():
            peak = rate()
            took = seconds(lambda p=predictor, s=subsets[padding]: p.predict(s))
            peak = (peak + rate()) / 2
            speeds[padding].append(len(subsets[padding]) / took)
            print(f"  {padding}: {speeds[padding][-1]:.2f} examples/s at {peak / 1e9:.0f} GFLOP/s")
            if padding == "longest":
                shares.append(floor / peak / took)
    medians = {padding: statistics.median(values) for padding, values in speeds.items()}
    for padding, median in medians.items():
        print(f"padding={padding}: {median:.2f} examples/s (median)")
    print(f"ratio: {medians['longest'] / medians['max']:.1f}")
    print(f"lower bound divided by measured time: {statistics.median(shares):.2f} (median)")


if __name__ == "__main__":
    app.run(main)
