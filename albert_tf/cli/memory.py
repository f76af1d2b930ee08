"""Prints the number of parameters and the training memory of a model.

The memory is estimated for one training step on one device, without building the model.

    albert_tf memory --preset=base_v2 --max_seq_length=512 --train_batch_size=8 --memory_gb=16
"""

from absl import flags

from albert_tf.cli.app import command
from albert_tf.cli.flags import Flag, define
from albert_tf.data.errors import UserError


def define_flags() -> None:
    """Defines the flags of this command."""
    define(
        {
            "Data": {
                Flag("max_seq_length", 512, at_least=1): "Number of tokens of a sequence.",
                Flag("max_predictions_per_seq", 20, at_least=0): "Prediction slots of a sequence.",
            },
            "Model": {
                Flag("preset"): "Name of a released model, such as base_v2. Either this or "
                "--albert_config_file is required.",
                Flag("albert_config_file"): "Model configuration (albert_config.json).",
            },
            "Training": {
                Flag("train_batch_size", 8, at_least=1): "Number of examples per step, on one "
                "device.",
                Flag("gradient_accumulation_steps", 1, at_least=1): "Number of micro-batches into "
                "which --train_batch_size is split.",
                Flag("remat", False): "Recompute the blocks in the backward pass.",
            },
            "Devices": {
                Flag(
                    "precision", "float32", choices=("float32", "bfloat16", "float16")
                ): "Precision of matrix products.",
                Flag("xla", False): "XLA compiles the step for a GPU or TPU.",
                Flag("memory_gb", float): "Memory of the device in GB (10^9 bytes), for which the "
                "largest batch size is printed. Default: no batch size is printed.",
            },
        }
    )


def run() -> None:
    """Prints the report."""
    from albert_tf.checkpoints.huggingface import read_config
    from albert_tf.config import AlbertConfig
    from albert_tf.training.memory import TrainingSetting, memory_report

    values = flags.FLAGS
    if bool(values.albert_config_file) == bool(values.preset):
        raise UserError(
            "Exactly one of --albert_config_file and --preset must be given. Received: "
            f"--albert_config_file={values.albert_config_file} --preset={values.preset}"
        )
    if values.preset:
        config = AlbertConfig.from_preset(values.preset)
    else:
        config = read_config(values.albert_config_file)
    setting = TrainingSetting(
        train_batch_size=values.train_batch_size,
        max_seq_length=values.max_seq_length,
        max_predictions_per_seq=values.max_predictions_per_seq,
        remat=values.remat,
        gradient_accumulation_steps=values.gradient_accumulation_steps,
        precision=values.precision,
        xla=values.xla,
    )
    print(memory_report(config, setting, values.memory_gb))


main = command(define_flags, run)


if __name__ == "__main__":
    main()
