"""Flags for the parts of a model that do not lie with it; imports nothing that takes long."""

from __future__ import annotations

from typing import Any

from absl import flags

from albert_tf.cli.flag_groups import MODEL, flag_group


def define_model_part_flags() -> None:
    """Defines the flags that complete what --model names."""
    with flag_group(MODEL):
        flags.DEFINE_string(
            "albert_config_file", None, "Configuration (albert_config.json), if --model has none."
        )
        flags.DEFINE_string("spm_model_file", None, "SentencePiece model, if --model has none.")
        flags.DEFINE_string("vocab_file", None, "WordPiece vocabulary, if --model has none.")
        flags.DEFINE_bool(
            "do_lower_case",
            True,
            "Whether the model's text is lower-cased. Not given: as the model says of itself.",
        )


def model_parts_from_flags(values: flags.FlagValues) -> dict[str, Any]:
    """Returns the arguments of `read_contents` that these flags give."""
    return {
        "albert_config_file": values.albert_config_file,
        "spm_model_file": values.spm_model_file,
        "vocab_file": values.vocab_file,
        "do_lower_case": values.do_lower_case if values["do_lower_case"].present else None,
    }
