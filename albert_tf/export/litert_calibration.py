"""Texts that show a converter how large the numbers in a model become."""

from __future__ import annotations

import numpy as np

from albert_tf.data.sequences import TokenSequences
from albert_tf.data.streams import (
    STANDARD_INPUT,
    can_be_read_twice,
    open_input,
    read_lines,
)
from albert_tf.data.text_examples import TextExample
from albert_tf.data.text_features import text_sequences
from albert_tf.data.utf8 import decode_utf8
from albert_tf.tokenization import Tokenizer

MOST_SEQUENCES = 100  # ranges hardly move after some dozens
_FLAG = "--calibration_file"


def calibration_sequences(path: str, tokenizer: Tokenizer, max_seq_length: int) -> TokenSequences:
    """Reads texts as the model will be given them.

    Args:
        path: UTF-8 text (--calibration_file), a text a line, or two with a tab between them: a
            pair, or a question and its context. Blank lines are passed over. Of many lines 100
            are taken, at equal distances.
        tokenizer: the model's.
        max_seq_length: tokens of a sequence at most.

    Returns:
        A sequence for each text.

    Raises:
        ValueError: there is no such file, no text in it, a line that is not UTF-8, or one with
            more than two texts.
    """
    if path != STANDARD_INPUT:
        can_be_read_twice(path, _FLAG, "a text file")
    with open_input(path) as file:
        lines = [line for group in read_lines(file) for line in group]
    texts = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not texts:
        raise ValueError(f"{_FLAG} {path!r} has no text in it. Give some dozens of lines.")
    count = min(len(texts), MOST_SEQUENCES)
    chosen = np.linspace(0, len(texts) - 1, count).round().astype(int).tolist()
    examples = [_example(path, *texts[place]) for place in chosen]
    return text_sequences(examples, tokenizer, max_seq_length)


def _example(path: str, number: int, line: bytes) -> TextExample:
    text = decode_utf8(line.removesuffix(b"\r"), f"{_FLAG} {path!r}", line=number)
    parts = text.split("\t")
    if len(parts) > 2:
        raise ValueError(
            f"{_FLAG} {path!r}, line {number}: expected a text, or two with one tab between them. "
            f"Received {len(parts) - 1} tabs: {text[:80]!r}"
        )
    return TextExample(str(number), *parts)
