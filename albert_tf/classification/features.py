"""From labelled texts to token sequences and label ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from albert_tf.data.sequences import TokenSequences
from albert_tf.data.text_examples import Labels, TextExample, given_labels
from albert_tf.finetuning.texts import text_sequences
from albert_tf.tokenization.base import Tokenizer


@dataclass(frozen=True, eq=False)
class TextFeatures:
    """What a model is trained on, or predicts."""

    sequences: TokenSequences  # N sequences
    # int32 [N] class ids, or float32 [N] numbers; None for rows without labels
    label_ids: np.ndarray | None
    guids: list[str]  # what the rows are called


def text_features(
    examples: Sequence[TextExample], labels: Labels, tokenizer: Tokenizer, max_seq_length: int
) -> TextFeatures:
    """Tokenizes examples and looks their labels up.

    Raises:
        ValueError: as `text_sequences`, a label is none of the task's, or only some rows have one.
    """
    found = given_labels([(example.guid, example.label) for example in examples], "rows")
    label_ids = labels.encode(found) if found else None
    sequences = text_sequences(examples, tokenizer, max_seq_length)
    return TextFeatures(sequences, label_ids, [example.guid for example in examples])
