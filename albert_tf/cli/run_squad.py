"""Fine-tunes and applies a model that answers questions: SQuAD and the like."""

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
    define_rate_flags,
    define_trainer_flags,
)
from albert_tf.config import SquadOptimizerConfig, TrainerConfig


def define_flags() -> None:
    """Defines the flags of this command."""
    _define_data_flags()
    flags.DEFINE_bool("do_train", False, "Train.")
    flags.DEFINE_bool(
        "do_predict",
        False,
        "Answer --predict_file. While training, and with --checkpoint=all, every saved checkpoint "
        "is scored by its answers, if it has any, and the best kept as model.ckpt-best.",
    )
    flags.DEFINE_string(
        "predict_json",
        None,
        "Contexts and questions to answer: JSON lines or a JSON list of context, question and, if "
        "wanted, id, or a file as of SQuAD; - is the standard input. Answers are JSON lines.",
    )
    flags.DEFINE_string(
        "predict_output_file", None, "What --predict_json gives, if not to the standard output."
    )
    define_checkpoint_flag("the best predicts, or the newest where none was chosen")
    define_export_flags()
    flags.DEFINE_bool(
        "export_tflite",
        True,
        "Write albert_model.tflite into --export_dir as well, as the original does: float32, one "
        "sequence of --max_seq_length; version 1 alone. export_litert makes others.",
    )
    define_padding_flag(
        "Scores of SQuAD 1.1 compete with those of padding in training, so its weights depend on "
        "it; max is what the original does, also when answers are chosen."
    )
    flags.DEFINE_integer(
        "predict_batch_size",
        8,
        "Windows of a batch of --max_seq_length when predicting; more of shorter ones.",
        lower_bound=1,
    )
    flags.DEFINE_float(
        "num_train_epochs",
        3.0,
        "Passes over the questions. As in the original a batch counts as so many questions, though "
        "it holds windows, of which long contexts have several each: steps = questions / "
        "--train_batch_size * this. The log says how often each window is trained on.",
    )
    flags.DEFINE_float("warmup_proportion", 0.1, "Share of the steps that warm up.")
    flags.DEFINE_integer(
        "n_best_size",
        20,
        "Candidates of each question that are written. Version 1 tries as many of the best starts "
        "and ends, so that a small number may leave no answer.",
    )
    flags.DEFINE_integer("max_answer_length", 30, "Tokens of the longest answer.")
    flags.DEFINE_integer("start_n_top", 5, "Starts for which ends are sought; version 2 alone.")
    flags.DEFINE_integer("end_n_top", 5, "Ends sought for each of them; version 2 alone.")
    flags.DEFINE_float(
        "dropout_prob", 0.1, "Dropout before the score of having no answer; version 2 alone."
    )
    flags.DEFINE_float(
        "null_score_diff_threshold",
        None,
        "Null odds from which on a question is left unanswered; version 2 alone. Not given: what "
        "gives the best F1 on --predict_file, or where that has no answers, what did so when the "
        "best checkpoint was chosen.",
    )
    flags.DEFINE_bool("use_einsum", True, "Accepted for older commands; changes nothing.")
    define_recipe_flag()
    define_trainer_flags(TrainerConfig("-", train_batch_size=32, save_checkpoints_steps=1000))
    define_fine_tuning_model_flags()
    define_rate_flags(SquadOptimizerConfig())
    define_device_flags()


def _define_data_flags() -> None:
    """The questions, and what becomes of them."""
    flags.DEFINE_integer(
        "squad_version",
        None,
        "1: every question has an answer (SQuAD 1.1, CMRC 2018). 2: some have none (SQuAD 2.0). "
        "Without it, that of the model in --output_dir.",
    )
    flags.DEFINE_string("train_file", None, "Questions with answers to train on, JSON as SQuAD's.")
    flags.DEFINE_string(
        "predict_file",
        None,
        "Questions to answer, JSON as SQuAD's. Where it has answers, they score the model, and "
        "while training they choose the best checkpoint.",
    )
    define_feature_file_flag("train_feature_file")
    define_feature_file_flag("predict_feature_file")
    flags.DEFINE_string(
        "predict_feature_left_file",
        None,
        "Accepted for older commands; neither read nor written: it was a Python pickle.",
    )
    flags.DEFINE_integer("max_seq_length", 384, "Longest window with its question, in tokens.")
    flags.DEFINE_integer("doc_stride", 128, "Tokens between the beginnings of two windows.")
    flags.DEFINE_integer("max_query_length", 64, "Tokens of a question; what is more is cut off.")
    flags.DEFINE_integer(
        "num_workers",
        None,
        "Processes that make features; what suits the data if not given. Changes no feature.",
        lower_bound=1,
    )


def run() -> None:
    """Does what the flags say; everything is checked before the first file is written."""
    from albert_tf.cli.squad_actions import run  # TensorFlow, which --help need not wait for

    run()


def main() -> None:
    """Runs the command."""
    run_command(define_flags, run)


if __name__ == "__main__":
    main()
