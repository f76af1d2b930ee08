"""Fine-tunes and applies a model of multiple choice: RACE, your own data."""

from __future__ import annotations

from absl import flags

from albert_tf.cli.command import run_command
from albert_tf.cli.fine_tuning_flags import (
    define_checkpoint_flag,
    define_export_flags,
    define_feature_file_flag,
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
    flags.DEFINE_bool("do_train", True, "Train.")
    flags.DEFINE_bool(
        "do_eval",
        True,
        "Evaluate on the development set and keep the best checkpoint as model.ckpt-best: at every "
        "saved step while training, or --checkpoint without training.",
    )
    flags.DEFINE_bool(
        "do_predict",
        False,
        "Choose an option for every question of the test set, in predictions.tsv; where it has "
        "labels, its scores are in predict_results.txt.",
    )
    define_checkpoint_flag("all are evaluated, and the best predicts")
    define_export_flags()
    define_padding_flag()
    flags.DEFINE_integer(
        "eval_batch_size",
        8,
        "Questions of an evaluation batch at --max_seq_length; more of shorter ones.",
        lower_bound=1,
    )
    flags.DEFINE_integer("predict_batch_size", 8, "The same for predicting.", lower_bound=1)
    flags.DEFINE_float("dropout_prob", 0.1, "Dropout of what the head is given.")
    define_recipe_flag()
    define_trainer_flags(TrainerConfig("-", train_batch_size=32, save_checkpoints_steps=100))
    flags.DEFINE_alias("num_keep_checkpoint", "keep_checkpoint_max")
    define_fine_tuning_model_flags()
    define_optimizer_flags(
        FineTuningOptimizerConfig(learning_rate=1e-5, num_train_steps=12000, num_warmup_steps=1000)
    )
    define_device_flags()


def _define_data_flags() -> None:
    """The questions, and what becomes of them."""
    flags.DEFINE_string(
        "task_name", "race", "There is one: race, with RACE or questions of your own."
    )
    flags.DEFINE_string(
        "data_dir", None, "What holds the folder RACE with train, dev and test, or that folder."
    )
    flags.DEFINE_bool("high_only", False, "Of RACE take the high-school level alone.")
    flags.DEFINE_bool("middle_only", False, "Of RACE take the middle-school level alone.")
    for split in ("train", "dev", "test"):
        flags.DEFINE_string(
            f"{split}_choices",
            None,
            f"The {split} set in place of RACE's: JSON lines of context, question, options (2 to "
            "26) and label.",
        )
    for name in ("train_file", "eval_file", "predict_file"):
        define_feature_file_flag(name)
    flags.DEFINE_integer("max_seq_length", 512, "Longest sequence, in tokens.")
    flags.DEFINE_integer(
        "max_qa_length", 128, "Tokens of question and option; those at the front are cut off."
    )


def run() -> None:
    """Does what the flags say; everything is checked before the first file is written."""
    from albert_tf.cli.race_actions import run  # TensorFlow, which --help need not wait for

    run()


def main() -> None:
    """Runs the command."""
    run_command(define_flags, run)


if __name__ == "__main__":
    main()
