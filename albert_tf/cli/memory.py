"""Prints the number of parameters and the training memory of a model.

The model is not built; the estimate covers one training step on one device.

    albert_tf memory --preset=base_v2 --max_seq_length=512 --train_batch_size=8 --memory_gb=16
"""

from absl import flags

from albert_tf.cli.app import run_command
from albert_tf.cli.flags import flag_group


def define_flags() -> None:
    """Defines the flags of this command."""
    with flag_group("Data"):
        flags.DEFINE_integer(
            "max_seq_length", 512, "Number of tokens of a sequence.", lower_bound=1
        )
        flags.DEFINE_integer(
            "max_predictions_per_seq", 20, "Prediction slots of a sequence.", lower_bound=0
        )
    with flag_group("Model"):
        flags.DEFINE_string(
            "preset",
            None,
            "Name of a released model, such as base_v2. Either this or --albert_config_file is "
            "required.",
        )
        flags.DEFINE_string("albert_config_file", None, "Model configuration (albert_config.json).")
    with flag_group("Training"):
        flags.DEFINE_integer(
            "train_batch_size", 8, "Number of examples per step, on one device.", lower_bound=1
        )
        flags.DEFINE_integer(
            "gradient_accumulation_steps",
            1,
            "Number of micro-batches into which --train_batch_size is split.",
            lower_bound=1,
        )
        flags.DEFINE_bool("remat", False, "Recompute the blocks in the backward pass.")
    with flag_group("Devices"):
        flags.DEFINE_enum(
            "precision",
            "float32",
            ["float32", "bfloat16", "float16"],
            "Precision of matrix products.",
        )
        flags.DEFINE_float(
            "memory_gb",
            None,
            "Memory of the device in GB (10^9 bytes), for which the largest batch size is printed. "
            "Default: no batch size is printed.",
        )


def run() -> None:
    """Prints the report."""
    from albert_tf.config import AlbertConfig  # TensorFlow, which --help need not wait for
    from albert_tf.training.memory import TrainingSetting, memory_report

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
    )
    print(memory_report(config, setting, values.memory_gb))


def main() -> None:
    """Runs the command."""
    run_command(define_flags, run)


if __name__ == "__main__":
    main()
