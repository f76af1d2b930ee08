"""The flags that the commands for fine-tuning share beside those of `cli/flags.py`."""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from albert_tf.cli.flag_groups import (
    EVALUATION,
    EXPORT,
    MODEL,
    TRAINING,
    WHAT_TO_DO,
    WITHOUT_EFFECT,
    flag_group,
    set_units,
)
from albert_tf.cli.flags import define_weight_flags
from albert_tf.data.sequences import PADDINGS


def define_fine_tuning_model_flags() -> None:
    """The model to fine-tune, from wherever it comes, and its dropout."""
    with flag_group(MODEL):
        flags.DEFINE_string(
            "albert_hub_module_handle",
            None,
            "Model to start from, with its configuration and tokenizer: directory or URL of a "
            "TF-Hub module, a model of another format, a released tar file, or mini, which comes "
            "with albert_tf.",
        )
        flags.DEFINE_string(
            "albert_config_file",
            None,
            "Configuration of the model (albert_config.json). Not given: that of "
            "--albert_hub_module_handle, or the one beside --init_checkpoint or in --output_dir.",
        )
    define_weight_flags()
    with flag_group(MODEL):
        flags.DEFINE_bool(
            "do_lower_case",
            True,
            "Lower-case the texts. Not given: as the model says of itself.",
        )
    with flag_group(TRAINING):
        flags.DEFINE_float(
            "encoder_dropout_prob",
            None,
            "Dropout inside the encoder while training, of hidden states and attention. Not given: "
            "as the configuration says.",
        )
    set_units(encoder_dropout_prob="fraction")


def define_checkpoint_flag(not_given: str) -> None:
    """Which checkpoint to evaluate, to predict with and to export.

    Args:
        not_given: what is taken without the flag.
    """
    with flag_group(EVALUATION):
        flags.DEFINE_string(
            "checkpoint",
            None,
            "What to evaluate without training, and to predict with or export: all, best or newest "
            f"of --output_dir, or a path. Not given: {not_given}. Where --output_dir has none, "
            "--init_checkpoint is taken.",
        )


def define_export_flags() -> None:
    """What to write for programs that serve the model."""
    with flag_group(EXPORT):
        flags.DEFINE_string(
            "export_dir",
            None,
            "Export a SavedModel into a numbered folder of this directory. Not given: nothing is "
            "exported.",
        )
        flags.DEFINE_bool(
            "export_text_model",
            False,
            "Export one that takes texts as well, in the folder text of --export_dir. It answers "
            "as this command does and needs the operations of TensorFlow Text.",
        )


def define_padding_flag(changes: str = "Changes no result.") -> None:
    """How long batches are.

    Args:
        changes: what depends on it.
    """
    with flag_group(TRAINING):
        flags.DEFINE_enum(
            "padding",
            "longest",
            PADDINGS,
            "Length of a batch. longest: what its longest sequence needs. buckets: one of a few "
            f"lengths, for TPUs. max: always --max_seq_length. {changes}",
        )


def define_unneeded_flags(names: Sequence[str]) -> None:
    """Where the original keeps features between runs.

    Args:
        names: flags.
    """
    with flag_group(WITHOUT_EFFECT):
        for name in names:
            flags.DEFINE_string(
                name,
                None,
                "Changes nothing: features are made anew, which is faster than reading them back.",
            )


def define_recipe_flag() -> None:
    """Published settings."""
    with flag_group(WHAT_TO_DO):
        flags.DEFINE_enum(
            "recipe",
            "none",
            ["none", "auto", "v1", "v2"],
            "Take the published settings of the task for all flags that are not given. v1, v2: "
            "those for models of that version. auto: of the version that the model's configuration "
            "looks like. none: the defaults below.",
        )
