"""Fine-tunes and applies a text classifier: GLUE's tasks, your own data.

Files of one's own are TSV, CSV or JSON lines with a column of texts and one of labels, or of
numbers (--regression). What is to be done is said by --do_train, --do_eval, --do_predict,
--predict_file and --export_dir, in any combination.

    run_classifier --task_name=mrpc --data_dir=GLUE --albert_hub_module_handle=albert_base
        --recipe=auto --do_train --do_eval --output_dir=mrpc

    run_classifier --task_name=custom --train_file=train.csv --dev_file=dev.csv
        --albert_hub_module_handle=albert_base --do_train --do_eval --max_seq_length=128
        --train_step=1000 --warmup_step=100 --output_dir=topics

    run_classifier --output_dir=topics --predict_file=texts.txt --predict_output_file=labels.tsv
"""

from __future__ import annotations

import math

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
    EXPORT,
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

FEATURE_FILES = ("cached_dir",)


def define_flags() -> None:
    """Defines the flags of this command."""
    _define_action_flags()
    define_recipe_flag()
    _define_data_flags()
    define_checkpoint_flag("all are evaluated, and the best predicts")
    _define_batch_flags()
    define_export_flags()
    with flag_group(EXPORT):
        flags.DEFINE_float(
            "threshold_to_export",
            math.nan,
            "A number the exported model hands out as the output threshold; nan for none.",
        )
    define_padding_flag()
    define_trainer_flags(TrainerConfig("-", train_batch_size=32, save_checkpoints_steps=1000))
    with flag_group(TRAINING):
        flags.DEFINE_float(
            "classifier_dropout_prob",
            0.1,
            "Dropout while training of what the encoder gives to the head.",
        )
    define_unneeded_flags(FEATURE_FILES)
    define_fine_tuning_model_flags()
    define_optimizer_flags(FineTuningOptimizerConfig())
    define_device_flags()
    set_units(classifier_dropout_prob="fraction")


def _define_action_flags() -> None:
    with flag_group(WHAT_TO_DO):
        flags.DEFINE_bool("do_train", False, "Train on the training set.")
        flags.DEFINE_bool(
            "do_eval",
            False,
            "Evaluate on the development set and keep the best checkpoint as model.ckpt-best: at "
            "every saved step while training, or --checkpoint without training.",
        )
        flags.DEFINE_bool("do_predict", False, "Predict the test set into test_results.tsv.")
        flags.DEFINE_string(
            "predict_file",
            None,
            "Predict the texts of this file, one a line, the two of a pair with a tab between "
            "them; - is the standard input.",
        )
        flags.DEFINE_string(
            "predict_output_file",
            None,
            "Write what --predict_file gives there. Not given: to the standard output.",
        )
    define_dry_run_flag()


def _define_data_flags() -> None:
    """The task and its files."""
    with flag_group(DATA):
        flags.DEFINE_string(
            "task_name",
            None,
            "A task of GLUE (CoLA, MNLI, MisMNLI, MRPC, QNLI, QQP, RTE, SST-2, STS-B, WNLI, AX), "
            "or custom for --train_file and the like. Not given: that of the model in "
            "--output_dir.",
        )
        flags.DEFINE_string(
            "data_dir",
            None,
            "GLUE's download, with a folder for each task, or the task's own folder.",
        )
        for name, action in (("train", "train"), ("dev", "eval"), ("test", "predict")):
            flags.DEFINE_string(
                f"{name}_file",
                None,
                f"The {name} set of --task_name=custom, for --do_{action}: TSV, CSV or JSON lines.",
            )
        flags.DEFINE_string(
            "text_a_column",
            "text_a",
            "Column of the text: its name, or its number (from 0) in files without a first line "
            "of names.",
        )
        flags.DEFINE_string(
            "text_b_column",
            None,
            "Column of the second text of a pair. Not given: there is one text.",
        )
        flags.DEFINE_string("label_column", "label", "Column of the label.")
        flags.DEFINE_bool(
            "regression", False, "The labels are numbers to predict, not names of classes."
        )
        flags.DEFINE_integer(
            "max_seq_length",
            512,
            "Longest sequence; texts are cut to it. Not given: as a trained model was trained.",
        )
    set_units(max_seq_length="tokens")


def _define_batch_flags() -> None:
    with flag_group(EVALUATION):
        flags.DEFINE_integer(
            "eval_batch_size",
            8,
            "Examples of an evaluation batch at --max_seq_length; more of shorter ones.",
            lower_bound=1,
        )
    with flag_group(PREDICTION):
        flags.DEFINE_integer(
            "predict_batch_size",
            8,
            "Examples of a batch at --max_seq_length when predicting; more of shorter ones.",
            lower_bound=1,
        )
    set_units(eval_batch_size="examples", predict_batch_size="examples")


def run() -> None:
    """Does what the flags say; everything is checked before the first file is written."""
    from albert_tf.cli.classifier_actions import run  # TensorFlow, which --help need not wait for

    run()


def main() -> None:
    """Runs the command."""
    run_command(define_flags, run)


if __name__ == "__main__":
    main()
