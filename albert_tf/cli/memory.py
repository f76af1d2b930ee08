"""Prints the number of parameters and the training memory of a model.

The memory is estimated for one training step on one device, without building the model.

    albert_tf memory --preset=base_v2 --max_seq_length=512 --train_batch_size=8 --memory_gb=16
"""

from absl import flags

from albert_tf.cli.app import command
from albert_tf.cli.flags import Flag, Groups, settings_from_flags
from albert_tf.data.errors import UserError

FLAGS: Groups = {
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
        Flag("train_batch_size", 8, at_least=1): "Number of examples per step, on one device.",
        Flag("gradient_accumulation_steps", 1, at_least=1): "Number of micro-batches into which "
        "--train_batch_size is split.",
        Flag("remat", False): "Recompute the blocks in the backward pass.",
    },
    "Devices": {
        Flag("precision", "float32", choices=("float32", "bfloat16", "float16")): "Precision of "
        "matrix products.",
        Flag("xla", False): "Estimate the memory of a step that XLA compiles for a GPU or TPU.",
        Flag("memory_gb", float): "Memory of the device in GB (10^9 bytes), for which the largest "
        "batch size is printed. Default: no batch size is printed.",
    },
}


def run() -> None:
    from albert_tf.checkpoints.huggingface import read_config
    from albert_tf.config import AlbertConfig
    from albert_tf.training.memory import TrainingSetting, memory_report

    values = flags.FLAGS
    if bool(values.albert_config_file) == bool(values.preset):
        raise UserError(
            "Exactly one of --albert_config_file and --preset must be given. Received: "
            f"--albert_config_file={values.albert_config_file} --preset={values.preset}"
        )
    preset, file = values.preset, values.albert_config_file
    config = AlbertConfig.from_preset(preset) if preset else read_config(file)
    print(memory_report(config, settings_from_flags(TrainingSetting), values.memory_gb))


main = command(__name__, __doc__, FLAGS, run)
