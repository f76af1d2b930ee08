"""The tokenizer of a model, whatever the model's format, or of the files that are named."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from albert_tf import tokenization

if TYPE_CHECKING:
    from albert_tf.tokenization.base import Tokenizer


_FILE_ENDINGS = (".model", ".spm", ".vocab", ".txt")


def load_tokenizer(
    path: str | os.PathLike | None = None,
    *,
    spm_model_file: str | os.PathLike | None = None,
    vocab_file: str | os.PathLike | None = None,
    do_lower_case: bool | None = None,
) -> Tokenizer:
    """Makes the tokenizer of a model, or of files.

    Args:
        path: a model of any format, see `load`; or a SentencePiece model or vocabulary, known by
            its ending (.model, .spm, .vocab, .txt). Nothing else is given then.
        spm_model_file: see `tokenization.load_tokenizer`.
        vocab_file: as well.
        do_lower_case: whether text is lower-cased; None takes what the model says, and True where
            nothing says it.

    Returns:
        The tokenizer; its `files` are the paths to copy beside a model.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: nothing or too much is given; there is no model, or no tokenizer in it; a file
            is none of a tokenizer, see `tokenization.load_tokenizer`.
    """
    if path is None:
        return tokenization.load_tokenizer(
            spm_model_file=spm_model_file,
            vocab_file=vocab_file,
            do_lower_case=do_lower_case is not False,
        )
    if spm_model_file or vocab_file:
        raise ValueError(
            "load_tokenizer takes the path of a model, or spm_model_file and vocab_file, not both."
            f" Received: {path!r}, {spm_model_file!r}, {vocab_file!r}"
        )
    path = os.fspath(path)
    if path.endswith(_FILE_ENDINGS):
        return tokenization.load_tokenizer(
            vocab_file=path, do_lower_case=do_lower_case is not False
        )
    # TensorFlow, not needed for files
    from albert_tf.checkpoints.model_source import load_stored_tokenizer, stored_model

    stored = stored_model(path)
    if stored is None or stored.tokenizer_file is None:
        raise ValueError(f"There is no tokenizer in the model {path!r}.")
    if do_lower_case is None:
        do_lower_case = stored.do_lower_case is not False
    return load_stored_tokenizer(stored, do_lower_case)
