"""From files to a tokenizer: what a file is decides, not the flag that named it."""

import os

from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.sentence_piece import SentencePieceTokenizer


def load_tokenizer(
    *,
    spm_model_file: str | None = None,
    vocab_file: str | None = None,
    do_lower_case: bool = True,
) -> Tokenizer:
    """Makes the tokenizer that fits the given file.

    Args:
        spm_model_file: path of a SentencePiece model.
        vocab_file: path of a vocabulary.
        do_lower_case: whether text is lower-cased.

    Returns:
        The tokenizer.

    Raises:
        ValueError: no file is given, or it holds no usable vocabulary.
    """
    path = spm_model_file or vocab_file
    if not path:
        raise ValueError("A tokenizer needs --spm_model_file or --vocab_file; neither is given.")
    with open(os.fspath(path), "rb") as file:
        return SentencePieceTokenizer(file.read(), do_lower_case, [path])
