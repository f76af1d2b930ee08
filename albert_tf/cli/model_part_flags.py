"""Flags for the parts of a model that do not lie with it; imports nothing that takes long."""

from __future__ import annotations

from typing import Any

from absl import flags


def define_model_part_flags() -> None:
    """Defines the flags that complete what --model names."""
    flags.DEFINE_string(
        "albert_config_file", None, "Configuration (albert_config.json), if --model has none."
    )
    flags.DEFINE_string("spm_model_file", None, "SentencePiece model, if --model has none.")
    flags.DEFINE_string("vocab_file", None, "Vocabulary, if --model has none.")
    flags.DEFINE_bool(
        "do_lower_case",
        True,
        "Whether the model's text is lower-cased. Where it is not given, what the model says of "
        "itself counts.",
    )


def model_parts_from_flags(values: flags.FlagValues) -> dict[str, Any]:
    """Returns the arguments of `read_contents` that these flags give."""
    return {
        "albert_config_file": values.albert_config_file,
        "spm_model_file": values.spm_model_file,
        "vocab_file": values.vocab_file,
        "do_lower_case": values.do_lower_case if values["do_lower_case"].present else None,
    }
