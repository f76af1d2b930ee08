"""Fine-tunes and applies a model that answers questions: SQuAD and the like.

An answer is a part of the text that comes with the question. Version 1 answers every question,
version 2 also says where a text has no answer. What is to be done is said by --do_train,
--do_predict, --predict_json and --export_dir, in any combination.

    run_squad --squad_version=2 --train_file=train-v2.0.json --predict_file=dev-v2.0.json
        --albert_hub_module_handle=albert_base --recipe=auto --do_train --do_predict
        --output_dir=squad2

    run_squad --output_dir=squad2 --predict_json=questions.jsonl
        --predict_output_file=answers.jsonl
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
    EXPORT,
    OPTIMIZER,
    PREDICTION,
    TRAINING,
    WHAT_TO_DO,
    WITHOUT_EFFECT,
    flag_group,
    set_units,
)
from albert_tf.cli.flags import (
    define_device_flags,
    define_rate_flags,
    define_trainer_flags,
)
from albert_tf.config import SquadOptimizerConfig, TrainerConfig

FEATURE_FILES = ("train_feature_file", "predict_feature_file", "predict_feature_left_file")


def define_flags() -> None:
    """Defines the flags of this command."""
    _define_action_flags()
    define_recipe_flag()
    _define_data_flags()
    define_checkpoint_flag("the best predicts, or the newest where none was chosen")
    _define_answer_flags()
    define_export_flags()
    with flag_group(EXPORT):
        flags.DEFINE_bool(
            "export_tflite",
            True,
            "Write albert_model.tflite into --export_dir as well, as the original does: float32, "
            "one sequence of --max_seq_length; version 1 alone. export_litert makes others.",
        )
    define_padding_flag(
        "Scores of SQuAD 1.1 compete with those of padding in training, so its weights depend on "
        "it; max is what the original does, also when answers are chosen."
    )
    define_trainer_flags(TrainerConfig("-", train_batch_size=32, save_checkpoints_steps=1000))
    _define_training_flags()
    define_fine_tuning_model_flags()
    define_rate_flags(SquadOptimizerConfig())
    define_device_flags()
    define_unneeded_flags(FEATURE_FILES)
    with flag_group(WITHOUT_EFFECT):
        flags.DEFINE_bool("use_einsum", True, "Changes nothing.")


def define_flags_of_version(version: int) -> None:
    """Defines the same flags for one version, which --squad_version may name but not change."""
    define_flags()
    flags.FLAGS.set_default("squad_version", version)
    flags.register_validator(
        "squad_version",
        lambda given: given in (None, version),
        f"This command is run_squad with --squad_version={version}. Leave the flag out, or call "
        "run_squad.",
    )


def _define_action_flags() -> None:
    with flag_group(WHAT_TO_DO):
        flags.DEFINE_bool("do_train", False, "Train on --train_file.")
        flags.DEFINE_bool(
            "do_predict",
            False,
            "Answer --predict_file. While training, and with --checkpoint=all, every saved "
            "checkpoint is scored by its answers, if the file has any, and the best kept as "
            "model.ckpt-best.",
        )
        flags.DEFINE_string(
            "predict_json",
            None,
            "Answer the questions of this file: JSON lines or a JSON list of context, question "
            "and, if wanted, id, or a file as of SQuAD; - is the standard input. Answers are JSON "
            "lines.",
        )
        flags.DEFINE_string(
            "predict_output_file",
            None,
            "Write what --predict_json gives there. Not given: to the standard output.",
        )
    define_dry_run_flag()


def _define_data_flags() -> None:
    """The questions, and what becomes of them."""
    with flag_group(DATA):
        flags.DEFINE_integer(
            "squad_version",
            None,
            "1: every question has an answer (SQuAD 1.1, CMRC 2018). 2: some have none (SQuAD "
            "2.0). Not given: that of the model in --output_dir.",
        )
        flags.DEFINE_string(
            "train_file", None, "Questions with answers to train on, JSON as SQuAD's."
        )
        flags.DEFINE_string(
            "predict_file",
            None,
            "Questions to answer, JSON as SQuAD's. Where it has answers, they score the model, and "
            "while training they choose the best checkpoint.",
        )
        flags.DEFINE_integer("max_seq_length", 384, "Longest window of a text with its question.")
        flags.DEFINE_integer(
            "doc_stride", 128, "Tokens between the beginnings of two windows of a text."
        )
        flags.DEFINE_integer("max_query_length", 64, "Longest question; what is more is cut off.")
        flags.DEFINE_integer(
            "num_workers",
            None,
            "Processes that make features. Not given: what suits the data. Changes no feature.",
            lower_bound=1,
        )
    set_units(
        max_seq_length="tokens",
        doc_stride="tokens",
        max_query_length="tokens",
        num_workers="processes",
    )


def _define_answer_flags() -> None:
    with flag_group(PREDICTION):
        flags.DEFINE_integer(
            "predict_batch_size",
            8,
            "Windows of a batch at --max_seq_length when predicting; more of shorter ones.",
            lower_bound=1,
        )
        flags.DEFINE_integer(
            "n_best_size",
            20,
            "Candidates of each question that are written. Version 1 tries as many of the best "
            "starts and ends, so that a small number may leave no answer.",
        )
        flags.DEFINE_integer("max_answer_length", 30, "Longest answer.")
        flags.DEFINE_integer("start_n_top", 5, "Starts for which ends are sought; version 2 alone.")
        flags.DEFINE_integer(
            "end_n_top", 5, "Ends sought for each of these starts; version 2 alone."
        )
        flags.DEFINE_float(
            "null_score_diff_threshold",
            None,
            "Null odds from which on a question is left unanswered; version 2 alone. Not given: "
            "what gives the best F1 on --predict_file, or where that has no answers, what did so "
            "when the best checkpoint was chosen.",
        )
    set_units(
        predict_batch_size="windows",
        n_best_size="answers",
        max_answer_length="tokens",
        start_n_top="tokens",
        end_n_top="tokens",
    )


def _define_training_flags() -> None:
    with flag_group(OPTIMIZER):
        flags.DEFINE_float(
            "num_train_epochs",
            3.0,
            "Passes over the questions. As in the original a batch counts as so many questions, "
            "though it holds windows, of which long contexts have several each: steps = questions "
            "/ --train_batch_size * this. The log says how often each window is trained on.",
        )
        flags.DEFINE_float("warmup_proportion", 0.1, "Part of the steps that warm up.")
    with flag_group(TRAINING):
        flags.DEFINE_float(
            "dropout_prob",
            0.1,
            "Dropout while training before the score of having no answer; version 2 alone.",
        )
    set_units(num_train_epochs="passes", warmup_proportion="fraction", dropout_prob="fraction")


def run() -> None:
    """Does what the flags say; everything is checked before the first file is written."""
    from albert_tf.cli.squad_actions import run  # TensorFlow, which --help need not wait for

    run()


def main() -> None:
    """Runs the command."""
    run_command(define_flags, run)


if __name__ == "__main__":
    main()
