"""Measures the time from the outputs for all windows of SQuAD's development set to the scores.

This includes selecting the answers, writing the files and scoring. The questions are read from a
file, and the outputs are random. With --peaks, they resemble the outputs of a trained model: a few
adjacent positions are likely, so many pairs of positions must be compared.

    python -m benchmarks.squad_answers --predict_file=dev-v1.1.json --spm_model_file=30k-clean.model
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from absl import app, flags

from albert_tf.finetuning.predictor import batches_by_length
from albert_tf.squad.answers import AnswerSelector, AnswerSettings, write_answers
from albert_tf.squad.data import read_squad
from albert_tf.squad.features import SquadFeatures, squad_features
from albert_tf.squad.metrics import v1_scores, v2_scores
from albert_tf.tokenization.loading import tokenizer_from_files

flags.DEFINE_string("predict_file", None, "Questions with answers.", required=True)
flags.DEFINE_string("spm_model_file", None, "SentencePiece model.", required=True)
flags.DEFINE_enum("squad_version", "1", ["1", "2"], "Version of SQuAD.")
flags.DEFINE_integer("max_seq_length", 384, "Maximum number of tokens per window.")
flags.DEFINE_integer("doc_stride", 128, "Tokens between the starts of windows.")
flags.DEFINE_integer("n_best_size", 20, "Candidates per question.")
flags.DEFINE_integer("max_answer_length", 30, "Maximum number of tokens per answer.")
flags.DEFINE_boolean("peaks", True, "Imitate the outputs of a trained model.")
FLAGS = flags.FLAGS

_BEAMS = 5


def logits(shape: tuple[int, int], generator: np.random.Generator) -> np.ndarray:
    """Returns random logits, float32 [n, S]."""
    values = generator.normal(size=shape)
    if FLAGS.peaks:
        places = generator.integers(0, shape[1], [shape[0], 1])
        values -= np.abs(np.arange(shape[1]) - places) / 3
    return values.astype(np.float32)


def outputs_of(shape: tuple[int, int], generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Returns random outputs for a batch."""
    starts, ends = logits(shape, generator), logits(shape, generator)
    if FLAGS.squad_version == "1":
        return {"start_logits": starts, "end_logits": ends}
    start_index, end_index = (
        np.argsort(-values, axis=1)[:, :_BEAMS].astype(np.int32) for values in (starts, ends)
    )
    return {
        "start_top_log_probs": np.take_along_axis(starts, start_index, axis=1),
        "start_top_index": start_index,
        "end_top_log_probs": np.tile(np.take_along_axis(ends, end_index, axis=1), [1, _BEAMS]),
        "end_top_index": np.tile(end_index, [1, _BEAMS]),
        "cls_logits": generator.normal(size=shape[0]).astype(np.float32),
    }


def batches(
    features: SquadFeatures, generator: np.random.Generator
) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Yields the outputs for all windows in batches."""
    length = FLAGS.max_seq_length
    for rows, batch_length in batches_by_length(
        features.sequences.lengths, 8 * length, max_seq_length=length, padding="longest"
    ):
        yield rows, outputs_of((len(rows), batch_length), generator)


@contextmanager
def timed(name: str) -> Iterator[None]:
    """Context manager that prints the time of its block."""
    begin = time.perf_counter()
    yield
    print(f"{name}: {time.perf_counter() - begin:.2f} s")


def main(_: list[str]) -> None:
    """Prints the time of each part in seconds."""
    version = int(FLAGS.squad_version)
    data = read_squad(FLAGS.predict_file, version=version, is_training=False)
    features = squad_features(
        data,
        tokenizer_from_files(spm_model_file=FLAGS.spm_model_file),
        max_seq_length=FLAGS.max_seq_length,
        doc_stride=FLAGS.doc_stride,
        max_query_length=64,
        is_training=False,
    )
    print(f"{len(data.questions)} questions, {len(features)} windows")
    settings = AnswerSettings(
        version, n_best_size=FLAGS.n_best_size, max_answer_length=FLAGS.max_answer_length
    )
    selector = AnswerSelector(data, features, settings)
    outputs = list(batches(features, np.random.default_rng(0)))
    with timed("best candidates of the windows"):
        for rows, values in outputs:
            selector.add(rows, values)
    with timed("answers"):
        answers = selector.answers()
    with timed("files"), tempfile.TemporaryDirectory() as folder:
        write_answers(folder, answers)
    with timed("scores"):
        if version == 1:
            v1_scores(data.questions, answers.predictions())
        else:
            v2_scores(data.questions, answers.predictions(), answers.null_odds_by_id())


if __name__ == "__main__":
    app.run(main)
