"""Fine-tunes and applies a classifier of texts: GLUE's tasks, your own files."""

from __future__ import annotations

import math

from absl import flags

from albert_tf.cli.command import run_command
from albert_tf.cli.fine_tuning_flags import (
    define_checkpoint_flag,
    define_export_flags,
    define_fine_tuning_model_flags,
    define_padding_flag,
    define_recipe_flag,
)
from albert_tf.cli.flags import (
    define_device_flags,
    define_optimizer_flags,
    define_trainer_flags,
)
from albert_tf.config import FineTuningOptimizerConfig, TrainerConfig


def define_flags() -> None:
    """Defines the flags of this command."""
    _define_data_flags()
    flags.DEFINE_bool("do_train", False, "Train.")
    flags.DEFINE_bool(
        "do_eval",
        False,
        "Evaluate on the development set and keep the best checkpoint as model.ckpt-best: at every "
        "saved step while training, or --checkpoint without training.",
    )
    flags.DEFINE_bool("do_predict", False, "Predict the test set into test_results.tsv.")
    flags.DEFINE_string(
        "predict_file",
        None,
        "Texts to predict, one a line, the two of a pair with a tab between them; - is the "
        "standard input.",
    )
    flags.DEFINE_string(
        "predict_output_file", None, "What --predict_file gives, if not to the standard output."
    )
    define_checkpoint_flag("all are evaluated, and the best predicts")
    define_export_flags()
    flags.DEFINE_float(
        "threshold_to_export",
        math.nan,
        "A number the exported model hands out as the output threshold.",
    )
    flags.DEFINE_integer(
        "max_seq_length",
        512,
        "Longest sequence, in tokens. Where it is not given, a trained model's own counts.",
    )
    define_padding_flag()
    flags.DEFINE_integer(
        "eval_batch_size",
        8,
        "Examples of an evaluation batch at --max_seq_length; more of shorter ones.",
        lower_bound=1,
    )
    flags.DEFINE_integer("predict_batch_size", 8, "The same for predicting.", lower_bound=1)
    flags.DEFINE_float("classifier_dropout_prob", 0.1, "Dropout of what the head is given.")
    flags.DEFINE_string(
        "cached_dir", None, "Keep the features of the data there, as records the original reads."
    )
    define_recipe_flag()
    define_trainer_flags(TrainerConfig("-", train_batch_size=32, save_checkpoints_steps=1000))
    define_fine_tuning_model_flags()
    define_optimizer_flags(FineTuningOptimizerConfig())
    define_device_flags()


def _define_data_flags() -> None:
    """The task and its files."""
    flags.DEFINE_string(
        "task_name",
        None,
        "A task of GLUE, or custom for --train_file and the like; without it, that of "
        "--output_dir.",
    )
    flags.DEFINE_string(
        "data_dir", None, "GLUE's download, with a folder for each task, or the task's own folder."
    )
    for name in ("train", "dev", "test"):
        flags.DEFINE_string(
            f"{name}_file", None, f"TSV, CSV or JSON lines of the {name} set of --task_name=custom."
        )
    flags.DEFINE_string("text_a_column", "text_a", "Column of the text: its name, or its number.")
    flags.DEFINE_string("text_b_column", None, "Column of the second text of a pair.")
    flags.DEFINE_string("label_column", "label", "Column of the label.")
    flags.DEFINE_bool("regression", False, "The labels are numbers to predict.")


def run() -> None:
    """Does what the flags say; everything is checked before the first file is written."""
    from albert_tf.cli.classifier_actions import run  # TensorFlow, which --help need not wait for

    run()


def main() -> None:
    """Runs the command."""
    run_command(define_flags, run)


if __name__ == "__main__":
    main()
