"""A model as TF-Hub's users take it: an encoder and its preprocessor, or a module of TF1."""

from __future__ import annotations

import os
from functools import partial

from albert_tf.checkpoints.convert import ConversionReport, check_target, convert, new_directory
from albert_tf.checkpoints.model_source import stored_model
from albert_tf.data.errors import UserError
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.loading import load_tokenizer

FORMATS = {"tf2": "tf2_hub", "tf1_hub": "tf1_hub"}  # the flag's values
DIRECTORY_FLAG = "`albert_directory`"
PREPROCESSOR_FLAG = "`preprocessor_path`"
_PREPROCESSOR_LENGTH = 128  # where a caller names none, as of TF-Hub's; less for short models


def export_to_tfhub(
    model: str,
    format_name: str,
    export_path: str,
    preprocessor_path: str | None = None,
    do_lower_case: bool | None = None,
    *,
    dry_run: bool = False,
) -> ConversionReport:
    """Writes a model for TF-Hub, and checks in a fresh process that it computes the same.

    Args:
        model: of any format; is only read.
        format_name: "tf2", an encoder, or "tf1_hub", a module as the original writes it.
        export_path: must not exist, or be empty; has everything in the end, or is as it was.
        preprocessor_path: for "tf2", the same for a preprocessor, from texts to the encoder's
            inputs; None writes none.
        do_lower_case: whether texts are lower-cased; None takes what the model says of itself, and
            True where it says nothing.
        dry_run: check all that can be known before, and write nothing.

    Raises:
        ValueError: the model cannot be read or exported, a target is not empty, or what was
            written computes something else.
        WriteError: it cannot be written.
    """
    check_target(export_path)
    if preprocessor_path:
        _check_preprocessor(preprocessor_path, format_name, export_path)
        tokenizer, length = _preprocessor(model, do_lower_case)
    export = partial(
        convert,
        model,
        FORMATS[format_name],
        export_path,
        dry_run=dry_run,
        do_lower_case=do_lower_case,
    )
    if dry_run or not preprocessor_path:
        return export()
    from albert_tf.serving import preprocessor

    with new_directory(preprocessor_path) as directory:
        preprocessor.write(directory, tokenizer, length)
        # What comes of the encoder decides whether the preprocessor gets its name.
        return export()


def _check_preprocessor(path: str, format_name: str, export_path: str) -> None:
    if format_name != "tf2":
        raise UserError(
            f"{PREPROCESSOR_FLAG} belongs to `format`=tf2: TF1 modules take token ids and include "
            f"the tokenizer as a file. Received: `format`={format_name}"
        )
    targets = [os.path.abspath(target) for target in (path, export_path)]
    if os.path.commonpath(targets) in targets:
        raise UserError(
            f"{PREPROCESSOR_FLAG} and `export_path` must be different directories, neither in the "
            f"other. Received: {path} and {export_path}"
        )
    check_target(path)


def _preprocessor(model: str, do_lower_case: bool | None) -> tuple[Tokenizer, int]:
    """The tokenizer of a preprocessor, and the length of its results."""
    from albert_tf.serving.preprocessor import check_length  # tensorflow-text

    stored = stored_model(model)
    if stored is None or stored.tokenizer_file is None:
        raise UserError(
            f"{PREPROCESSOR_FLAG} needs a tokenizer, and {DIRECTORY_FLAG}={model} has none."
        )
    if do_lower_case is None:
        do_lower_case = stored.do_lower_case is not False
    tokenizer = load_tokenizer(vocab_file=stored.tokenizer_file, do_lower_case=do_lower_case)
    length = _PREPROCESSOR_LENGTH
    if stored.config is not None:
        length = min(length, stored.config.max_position_embeddings)
    check_length(length)
    return tokenizer, length
