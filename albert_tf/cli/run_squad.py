r"""Fine-tunes and applies a model for question answering, such as SQuAD.

Each question comes with a context, and its answer is a span of the context. In version 1 every
question has an answer; in version 2 some questions have none. Select any combination of --do_train,
--do_predict, --predict_json and --export_dir.

    albert_tf run_squad --squad_version=2 --train_file=train-v2.0.json \
        --predict_file=dev-v2.0.json --albert_hub_module_handle=albert_base --recipe=auto \
        --do_train --do_predict --output_dir=squad2

    albert_tf run_squad --output_dir=squad2 --predict_json=questions.jsonl \
        --predict_output_file=answers.jsonl
"""

from albert_tf.cli.app import command
from albert_tf.cli.flags import (
    DRY_RUN,
    Flag,
    Groups,
    fine_tuning_flags,
    merged,
    rate_flags,
    settings_from_flags,
    unneeded,
)
from albert_tf.config import SquadOptimizerConfig

_OWN: Groups = {
    "Actions": {
        Flag("do_train", False): "Train on --train_file.",
        Flag("do_predict", False): "Answer the questions in --predict_file. If the file contains "
        "answers, every saved checkpoint is scored on it during training and with "
        "--checkpoint=all. The best checkpoint is kept as model.ckpt-best.",
        Flag("predict_json"): "Answer the questions of this file: JSON Lines or a JSON list of "
        "objects with context, question and optionally id, or a file in the format of SQuAD. - "
        "reads the standard input. Answers are written as JSON Lines.",
        Flag("predict_output_file"): "File for the answers to --predict_json. Default: the "
        "standard output.",
        **DRY_RUN,
    },
    "Data": {
        Flag("train_file"): "Questions with answers to train on, in the JSON format of SQuAD.",
        Flag("predict_file"): "Questions to answer, in the JSON format of SQuAD. If the file "
        "contains answers, they are used to score the model and to select the best checkpoint.",
        Flag("max_seq_length", 384): "Maximum number of tokens of a window, which consists of the "
        "question and a part of the context.",
        Flag("doc_stride", 128, at_least=1): "Number of tokens between the starts of two "
        "consecutive windows.",
        Flag("max_query_length", 64, at_least=1): "Maximum number of tokens of a question; longer "
        "questions are truncated.",
        Flag("num_workers", int, at_least=1): "Number of processes that create features. Default: "
        "depends on the size of the data. Does not change the features.",
    },
    "Prediction": {
        Flag("n_best_size", 20, at_least=1): "Number of candidate answers to write per question. "
        "In version 1, candidates combine this number of best start and best end positions of each "
        "window. If the number is too small, none of the combinations may be a valid answer.",
        Flag("max_answer_length", 30, at_least=1): "Maximum number of tokens of an answer.",
        Flag("start_n_top", 5, at_least=1): "Number of start positions to consider; only for "
        "version 2.",
        Flag("end_n_top", 5, at_least=1): "Number of end positions to consider per start position; "
        "only for version 2.",
        Flag("null_score_diff_threshold", float): "Null odds at or above which a question is left "
        "unanswered; only for version 2. Default: the threshold with the best F1 on "
        "--predict_file. If that file has no answers, the threshold that was found when the best "
        "checkpoint was selected.",
    },
    "Export": {
        Flag("export_tflite", True): "Also write albert_model.tflite into --export_dir, as the "
        "original does: float32, one sequence of --max_seq_length tokens; only for version 1. "
        "export_litert writes other variants.",
    },
    "Optimizer": {
        Flag("num_train_epochs", 3.0): "Number of epochs. As in the original, steps = questions / "
        "--train_batch_size * epochs, although batches contain windows, and long contexts have "
        "several windows. The log reports how often each window is used.",
        Flag("warmup_proportion", 0.1): "Fraction of the training steps used for the warm-up.",
    },
    "Training": {
        Flag("dropout_prob", 0.1): "Dropout rate of the hidden layer of the no-answer score in "
        "training; only for version 2.",
    },
    "Accepted without effect": {
        **unneeded("train_feature_file", "predict_feature_file", "predict_feature_left_file"),
        Flag("use_einsum", True): "No effect.",
    },
}
_FINE_TUNING = fine_tuning_flags(
    "windows",
    checkpoint="predict with the best, or with the newest if there is none",
    padding="For SQuAD 1.1, the softmax in training includes padding, so the weights depend "
    "on this flag. The original uses max, also for predictions.",
)


def squad_flags(version: int | None = None) -> Groups:
    """Returns the flags of a command for one version, or for both if `version` is `None`."""
    flag = Flag("squad_version", version or int, at_least=version, at_most=version)
    meaning = (
        "1: every question has an answer (SQuAD 1.1, CMRC 2018). 2: some questions have no answer "
        "(SQuAD 2.0). Default: the version of the model in --output_dir."
    )
    if version:
        meaning = f"Must be {version} in this command; run_squad supports both versions."
    versions: Groups = {"Data": {flag: meaning}}
    rates = rate_flags(SquadOptimizerConfig())
    return merged(_FINE_TUNING, versions, _OWN, rates)


FLAGS = squad_flags()


def run() -> None:
    from albert_tf.squad import run

    run.run_squad(settings_from_flags(run.SquadSettings))


main = command(__name__, __doc__, FLAGS, run)
