"""Which sentence loss the model of a directory was pretrained with, by its `run_config.json`.

A checkpoint alone tells a model with a sentence-order head from one without. What the head learnt,
the order of segments or whether one follows the other, leaves no trace in it.
"""

from __future__ import annotations

import os

from absl import logging

from albert_tf.data.segments import SENTENCE_LOSSES
from albert_tf.run_records import read_run_config

SENTENCE_LOSS_KEY = "sentence_loss"  # in the settings of a run


def trained_sentence_loss(directory: str) -> str | None:
    """Returns one of `SENTENCE_LOSSES`, or None where the directory does not say."""
    known = read_run_config(directory).get(SENTENCE_LOSS_KEY)
    return known if known in SENTENCE_LOSSES else None


def check_continued_loss(output_dir: str, sentence_loss: str) -> None:
    """Refuses to go on with another loss than the run began with.

    Raises:
        ValueError: names the flag.
    """
    known = trained_sentence_loss(output_dir)
    if known not in (None, sentence_loss):
        raise ValueError(
            f"--output_dir {output_dir!r} holds a run with --sentence_loss={known}, which cannot go"
            f" on with --sentence_loss={sentence_loss}. Give the same loss; or a fresh --output_dir"
            ", with a checkpoint of that run as --init_checkpoint."
        )


def warn_of_another_loss(checkpoint: str, sentence_loss: str) -> None:
    """Says so when a checkpoint to be evaluated was trained with another loss.

    Args:
        checkpoint: its prefix.
        sentence_loss: what it is evaluated as.
    """
    known = trained_sentence_loss(os.path.dirname(checkpoint))
    if known not in (None, sentence_loss):
        logging.warning(
            "%s was trained with --sentence_loss=%s and is evaluated with --sentence_loss=%s",
            checkpoint,
            known,
            sentence_loss,
        )
