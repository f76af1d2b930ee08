"""Fine-tunes and applies a model of multiple choice: RACE, your own data.

Data of one's own are JSON lines of a context, a question, its options and the label of the right
one. Without flags that say otherwise it trains and evaluates.

    run_race --data_dir=race_data --albert_hub_module_handle=albert_base --recipe=auto
        --output_dir=race

    run_race --train_choices=train.jsonl --dev_choices=dev.jsonl --train_step=1000
        --warmup_step=100 --albert_hub_module_handle=albert_base --output_dir=exam

    run_race --nodo_train --nodo_eval --do_predict --test_choices=test.jsonl --output_dir=exam
"""

from __future__ import annotations

from absl import flags

from albert_tf.cli.command import run_command
from albert_tf.cli.dry_run import define_dry_run_flag
from albert_tf.cli.fine_tuning_flags import (
    define_checkpoint_flag,
    define_export_flags,
    define_fine_tuning_model_flags,
    define_padding_flag,
    define_recipe_flag,
    define_unneeded_flags,
)
from albert_tf.cli.flag_groups import (
    DATA,
    EVALUATION,
    OUTPUT,
    PREDICTION,
    TRAINING,
    WHAT_TO_DO,
    flag_group,
    set_units,
)
from albert_tf.cli.flags import (
    define_device_flags,
    define_optimizer_flags,
    define_trainer_flags,
)
from albert_tf.config import FineTuningOptimizerConfig, TrainerConfig

FEATURE_FILES = ("train_file", "eval_file", "predict_file")


def define_flags() -> None:
    """Defines the flags of this command."""
    with flag_group(WHAT_TO_DO):
        flags.DEFINE_bool("do_train", True, "Train on the training set.")
        flags.DEFINE_bool(
            "do_eval",
            True,
            "Evaluate on the development set and keep the best checkpoint as model.ckpt-best: at "
            "every saved step while training, or --checkpoint without training.",
        )
        flags.DEFINE_bool(
            "do_predict",
            False,
            "Choose an option for every question of the test set, in predictions.tsv; where it "
            "has labels, its scores are in predict_results.txt.",
        )
    define_recipe_flag()
    _define_data_flags()
    define_checkpoint_flag("all are evaluated, and the best predicts")
    _define_batch_flags()
    define_export_flags()
    define_padding_flag()
    define_trainer_flags(TrainerConfig("-", train_batch_size=32, save_checkpoints_steps=100))
    with flag_group(TRAINING):
        flags.DEFINE_float(
            "dropout_prob", 0.1, "Dropout while training of what the encoder gives to the head."
        )
    with flag_group(OUTPUT):
        flags.DEFINE_alias("num_keep_checkpoint", "keep_checkpoint_max")
    define_fine_tuning_model_flags()
    define_unneeded_flags(FEATURE_FILES)
    define_optimizer_flags(
        FineTuningOptimizerConfig(learning_rate=1e-5, num_train_steps=12000, num_warmup_steps=1000)
    )
    define_device_flags()
    set_units(dropout_prob="fraction", num_keep_checkpoint="checkpoints")
    define_dry_run_flag()


def _define_data_flags() -> None:
    """The questions, and what becomes of them."""
    with flag_group(DATA):
        flags.DEFINE_string(
            "task_name", "race", "There is one: race, with RACE or questions of your own."
        )
        flags.DEFINE_string(
            "data_dir",
            None,
            "What holds the folder RACE with train, dev and test, or that folder. Not needed with "
            "--train_choices and the like.",
        )
        flags.DEFINE_bool("high_only", False, "Of RACE take the high-school level alone, not both.")
        flags.DEFINE_bool(
            "middle_only", False, "Of RACE take the middle-school level alone, not both."
        )
        for split in ("train", "dev", "test"):
            flags.DEFINE_string(
                f"{split}_choices",
                None,
                f"The {split} set in place of RACE's: JSON lines of context, question, options (2 "
                "to 26) and label.",
            )
        flags.DEFINE_integer(
            "max_seq_length",
            512,
            "Longest sequence of context, question and option; the context is cut to it.",
        )
        flags.DEFINE_integer(
            "max_qa_length",
            128,
            "Longest question with option; what is more is cut off at the front.",
        )
    set_units(max_seq_length="tokens", max_qa_length="tokens")


def _define_batch_flags() -> None:
    with flag_group(EVALUATION):
        flags.DEFINE_integer(
            "eval_batch_size",
            8,
            "Questions of an evaluation batch at --max_seq_length; more of shorter ones.",
            lower_bound=1,
        )
    with flag_group(PREDICTION):
        flags.DEFINE_integer(
            "predict_batch_size",
            8,
            "Questions of a batch at --max_seq_length when predicting; more of shorter ones.",
            lower_bound=1,
        )
    set_units(eval_batch_size="questions", predict_batch_size="questions")


def run() -> None:
    """Does what the flags say; everything is checked before the first file is written."""
    from albert_tf.cli.race_actions import run  # TensorFlow, which --help need not wait for

    run()


def main() -> None:
    """Runs the command."""
    run_command(define_flags, run)


if __name__ == "__main__":
    main()
