"""Prints parameters and memory of a model in training, without building it.

memory --preset=base_v2 --max_seq_length=512 --train_batch_size=8 --memory_gb=16
"""

from absl import flags

from albert_tf.cli.command import run_command
from albert_tf.cli.flag_groups import (
    DATA,
    DEVICES,
    MODEL,
    OPTIMIZER,
    TRAINING,
    flag_group,
    set_units,
)


def define_flags() -> None:
    """Defines the flags of this command; nothing is defined by importing it."""
    with flag_group(DATA):
        flags.DEFINE_integer("max_seq_length", 512, "Positions of a sequence.")
        flags.DEFINE_integer("max_predictions_per_seq", 20, "Prediction slots of a sequence.")
    with flag_group(MODEL):
        flags.DEFINE_string(
            "preset",
            None,
            "A released model, such as base_v2. Give this or --albert_config_file.",
        )
        flags.DEFINE_string(
            "albert_config_file", None, "Configuration of the model (albert_config.json)."
        )
    with flag_group(TRAINING):
        flags.DEFINE_integer("train_batch_size", 8, "Examples of a step on one device.")
        flags.DEFINE_integer(
            "gradient_accumulation_steps",
            1,
            "Parts of --train_batch_size that are computed one after the other.",
        )
        flags.DEFINE_bool("remat", False, "Recompute blocks in the backward pass.")
    with flag_group(OPTIMIZER):
        flags.DEFINE_enum("optimizer", "lamb", ["lamb", "adamw"], "Update rule.")
    with flag_group(DEVICES):
        flags.DEFINE_enum(
            "precision",
            "float32",
            ["float32", "bfloat16", "float16"],
            "What matrix products are computed in.",
        )
        flags.DEFINE_float(
            "memory_gb",
            None,
            "Memory of the device: print the largest batch for it as well. Not given: that is "
            "left out.",
        )
    set_units(
        max_seq_length="tokens",
        max_predictions_per_seq="tokens",
        train_batch_size="examples",
        gradient_accumulation_steps="parts",
        memory_gb="GB of 10^9 bytes",
    )


def run() -> None:
    """Prints the report."""
    from albert_tf.config import AlbertConfig  # TensorFlow, which --help need not wait for
    from albert_tf.memory.estimate import TrainingSetting
    from albert_tf.memory.report import memory_report

    values = flags.FLAGS
    if bool(values.albert_config_file) == bool(values.preset):
        raise ValueError(
            "Exactly one of --albert_config_file and --preset must be given. Received: "
            f"--albert_config_file={values.albert_config_file} --preset={values.preset}"
        )
    if values.preset:
        config = AlbertConfig.from_preset(values.preset)
    else:
        config = AlbertConfig.from_json_file(values.albert_config_file)
    setting = TrainingSetting(
        train_batch_size=values.train_batch_size,
        max_seq_length=values.max_seq_length,
        max_predictions_per_seq=values.max_predictions_per_seq,
        remat=values.remat,
        gradient_accumulation_steps=values.gradient_accumulation_steps,
        precision=values.precision,
        optimizer=values.optimizer,
    )
    print(memory_report(config, setting, values.memory_gb))


def main() -> None:
    """Runs the command."""
    run_command(define_flags, run)


if __name__ == "__main__":
    main()
