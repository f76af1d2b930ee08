"""Token sequences and label ids of labelled texts."""

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
    """Features of N examples.

    Attributes:
        sequences: N sequences.
        label_ids: int32 [N] class ids, or float32 [N] numbers. `None` without labels.
        guids: N names.
    """

    sequences: TokenSequences
    label_ids: np.ndarray | None
    guids: list[str]


def text_features(
    examples: Sequence[TextExample], labels: Labels, tokenizer: Tokenizer, max_seq_length: int
) -> TextFeatures:
    """Tokenizes examples and encodes their labels.

    Raises:
        ValueError: see `text_sequences`; a label is unknown, or only some rows have a label.
    """
    found = given_labels([(example.guid, example.label) for example in examples], "rows")
    label_ids = labels.encode(found) if found else None
    sequences = text_sequences(examples, tokenizer, max_seq_length)
    return TextFeatures(sequences, label_ids, [example.guid for example in examples])
