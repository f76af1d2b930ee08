"""A model as TF-Hub's users take it: an encoder and its preprocessor, or a module of TF1."""

from __future__ import annotations

import dataclasses
import os
from contextlib import ExitStack
from typing import Any

from albert_tf.checkpoints.model_source import stored_model
from albert_tf.conversion.convert import (
    Conversion,
    ConversionReport,
    check_target,
    new_directory,
    prepare_conversion,
)
from albert_tf.tokenization import Tokenizer, load_tokenizer

FORMATS = {"tf2": "tf2_hub", "tf1_hub": "tf1_hub"}  # the flag's values
DIRECTORY_FLAG = "--albert_directory"
EXPORT_FLAG = "--export_path"
PREPROCESSOR_FLAG = "--preprocessor_path"
_PREPROCESSOR_LENGTH = 128  # where a caller names none, as of TF-Hub's; less for short models


@dataclasses.dataclass(frozen=True)
class HubExport:
    """An export that has been checked, and of which nothing is written yet.

    Attributes:
        conversion: of the model.
        preprocessor_path: where a preprocessor goes; None where none is wanted.
        tokenizer: of the preprocessor, if there is to be one.
        length: of its results where a caller names none.
    """

    conversion: Conversion
    preprocessor_path: str | None = None
    tokenizer: Tokenizer | None = None
    length: int = _PREPROCESSOR_LENGTH

    def write(self) -> ConversionReport:
        """Writes it all, and checks in a fresh process that the model computes the same.

        Raises:
            ValueError: it computes something else.
            WriteError: it cannot be written.
        """
        with ExitStack() as stack:
            if self.preprocessor_path and self.tokenizer:
                from albert_tf.export import tf2_hub_preprocessor

                folder = new_directory(self.preprocessor_path, PREPROCESSOR_FLAG)
                directory = stack.enter_context(folder)
                tf2_hub_preprocessor.write(directory, self.tokenizer, self.length)
            # What comes of the encoder decides whether the preprocessor gets its name.
            return self.conversion.write()


def prepare_hub_export(
    model: str,
    format_name: str,
    export_path: str,
    preprocessor_path: str | None = None,
    do_lower_case: bool | None = None,
) -> HubExport:
    """Reads a model and checks that it can be written for TF-Hub; writes nothing.

    Args:
        model: of any format; is only read.
        format_name: "tf2", an encoder, or "tf1_hub", a module as the original writes it.
        export_path: must not exist, or be empty; has everything in the end, or is as it was.
        preprocessor_path: for "tf2", the same for a preprocessor, from texts to the encoder's
            inputs; None writes none.
        do_lower_case: whether texts are lower-cased; None takes what the model says of itself, and
            True where it says nothing.

    Raises:
        ValueError: the model cannot be read or exported, or a target is not empty.
        WriteError: nothing may be written there.
    """
    check_target(export_path, EXPORT_FLAG)
    wanted: dict[str, Any] = {}
    if preprocessor_path:
        _check_preprocessor(preprocessor_path, format_name, export_path)
        tokenizer, length = _preprocessor(model, do_lower_case)
        wanted = {
            "preprocessor_path": preprocessor_path,
            "tokenizer": tokenizer,
            "length": length,
        }
    conversion = prepare_conversion(
        model,
        FORMATS[format_name],
        export_path,
        output_flag=EXPORT_FLAG,
        flag=DIRECTORY_FLAG,
        do_lower_case=do_lower_case,
    )
    return HubExport(conversion, **wanted)


def export_to_tfhub(
    model: str,
    format_name: str,
    export_path: str,
    preprocessor_path: str | None = None,
    do_lower_case: bool | None = None,
) -> ConversionReport:
    """Writes a model for TF-Hub, and checks in a fresh process that it computes the same.

    Args:
        model: see `prepare_hub_export`.
        format_name: see `prepare_hub_export`.
        export_path: see `prepare_hub_export`.
        preprocessor_path: see `prepare_hub_export`.
        do_lower_case: see `prepare_hub_export`.

    Raises:
        ValueError: see `prepare_hub_export`; or it computes something else.
        WriteError: it cannot be written.
    """
    return prepare_hub_export(
        model, format_name, export_path, preprocessor_path, do_lower_case
    ).write()


def _check_preprocessor(path: str, format_name: str, export_path: str) -> None:
    if format_name != "tf2":
        raise ValueError(
            f"{PREPROCESSOR_FLAG} belongs to --format=tf2: modules of TF1 take token ids and bring "
            f"the tokenizer as a file. Received: --format={format_name}"
        )
    targets = [os.path.abspath(target) for target in (path, export_path)]
    if os.path.commonpath(targets) in targets:
        raise ValueError(
            f"{PREPROCESSOR_FLAG} and {EXPORT_FLAG} must be different directories, neither in the "
            f"other. Received: {path} and {export_path}"
        )
    check_target(path, PREPROCESSOR_FLAG)


def _preprocessor(model: str, do_lower_case: bool | None) -> tuple[Tokenizer, int]:
    """The tokenizer of a preprocessor, and the length of its results."""
    from albert_tf.export.tf2_hub_preprocessor import check_length  # tensorflow-text

    stored = stored_model(model, DIRECTORY_FLAG)
    if stored is None or stored.tokenizer_file is None:
        raise ValueError(
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
