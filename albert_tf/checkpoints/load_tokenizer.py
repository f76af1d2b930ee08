"""Loads the tokenizer of a model of any format, or of tokenizer files."""

import dataclasses
import os

from albert_tf.data.errors import UserError
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.loading import tokenizer_from_files

_FILE_ENDINGS = (".model", ".spm", ".vocab", ".txt", "tokenizer.json")


def load_tokenizer(
    path: str | os.PathLike | None = None,
    *,
    spm_model_file: str | os.PathLike | None = None,
    vocab_file: str | os.PathLike | None = None,
    do_lower_case: bool | None = None,
    keep_accents: bool | None = None,
) -> Tokenizer:
    """Loads the tokenizer of a model, or of files.

    Args:
        path: a model of any format (see `load`), or a SentencePiece model or vocabulary whose name
            ends in .model, .spm, .vocab, .txt or tokenizer.json. If given, omit the next two
            arguments.
        spm_model_file: a SentencePiece model.
        vocab_file: a vocabulary, or a `tokenizer.json`, whose own rules are used.
        do_lower_case: whether to lower-case text. If `None`, the value stored with the model is
            used. The default of models without a value is `True`.
        keep_accents: whether to keep accents and other marks, for SentencePiece. If `None`, the
            value stored with the model is used. The default of models without a value is `False`.

    Returns:
        The tokenizer. Its `files` are the paths to copy next to a model.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: `path` and files, or neither, are given, the model does not exist or has no
            tokenizer, a file is not a tokenizer, or the model has another `keep_accents`.
    """
    if path is not None and (spm_model_file or vocab_file):
        raise UserError(
            "load_tokenizer takes the path of a model, or spm_model_file and vocab_file, not both."
            f" Received: {path!r}, {spm_model_file!r}, {vocab_file!r}"
        )
    if path is not None and os.fspath(path).endswith(_FILE_ENDINGS):
        path, vocab_file = None, path
    if path is None:
        given = {"spm_model_file": spm_model_file, "vocab_file": vocab_file}
        files = {name: os.fspath(file) for name, file in given.items() if file}
        return tokenizer_from_files(
            **files, do_lower_case=do_lower_case is not False, keep_accents=bool(keep_accents)
        )
    # Files do not need TensorFlow, which these modules import.
    from albert_tf.checkpoints.facts import Meeting, settle
    from albert_tf.checkpoints.formats.choose import open_model

    stored = open_model(os.fspath(path))
    asked = {"do_lower_case": do_lower_case, "keep_accents": keep_accents}
    rules = settle({"the arguments": asked, stored.path: stored.rules}, Meeting.GIVEN)
    stored = dataclasses.replace(stored, **rules)
    if stored.tokenizer is None:
        note = stored.stored_tokenizer.note
        raise UserError(f"There is no tokenizer in the model {path!r}. {note}".rstrip())
    return stored.tokenizer
