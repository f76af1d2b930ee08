"""Settings of `run_squad`. Does not import TensorFlow."""

from dataclasses import dataclass

from albert_tf.finetuning.settings import (
    FineTuningSettings,
    batch_size_setting,
    checkpoint_setting,
    padding_setting,
)
from albert_tf.settings import setting


@dataclass(frozen=True, kw_only=True)
class SquadSettings(FineTuningSettings):
    """Settings of `run_squad`, named after the flags in docs/flags.md.

    `output_dir` and at least one action are required: `do_train`, `do_predict`, `predict_json` or
    `export_dir`. Training also needs `squad_version`, `train_file` and an initial model:
    `albert_hub_module_handle`, or `init_checkpoint` with the settings for its configuration and
    tokenizer. For errors see `ClassificationSettings`.
    """

    STEP_SETTINGS = ("num_train_epochs", "warmup_proportion")

    do_train: bool = setting(False, "Actions")("Train on --train_file.")
    do_predict: bool = setting(False, "Actions")("""
        Answer the questions in --predict_file. If the file contains answers, every saved
        checkpoint is scored on it during training and with --checkpoint=all. The best checkpoint
        is kept as model.ckpt-best.""")
    checkpoint: str | None = checkpoint_setting(
        "predict with the best, or with the newest if there is none"
    )
    predict_batch_size: int = batch_size_setting("Prediction", "windows")
    padding: str = padding_setting(
        "For SQuAD 1.1, the softmax in training includes padding, so the weights depend on this "
        "flag. The original uses max, also for predictions."
    )
    squad_version: int | None = setting(None, "Data")("""
        1: every question has an answer (SQuAD 1.1, CMRC 2018). 2: some questions have no answer
        (SQuAD 2.0). Default: the version of the model in --output_dir.""")
    train_file: str | None = setting(None, "Data")("""
        Questions with answers to train on: the JSON format of SQuAD, or one question per row in
        JSON, JSON Lines, CSV or TSV.""")
    predict_file: str | None = setting(None, "Data")("""
        Questions to answer, in a format of --train_file. If the file contains answers, they are
        used to score the model and to select the best checkpoint.""")
    predict_json: str | None = setting(None, "Actions")("""
        Answer the questions of this file: JSON Lines or a JSON list of objects with context,
        question and optionally id, or a file in the format of SQuAD. - reads the standard input.
        Answers are written as JSON Lines.""")
    predict_output_file: str | None = setting(None, "Actions")("""
        File for the answers to --predict_json. Default: the standard output.""")
    max_seq_length: int = setting(384, "Data", depends=True)("""
        Maximum number of tokens of a window, which consists of the question and a part of the
        context.""")
    doc_stride: int = setting(128, "Data", at_least=1, depends=True)("""
        Number of tokens between the starts of two consecutive windows.""")
    max_query_length: int = setting(64, "Data", at_least=1, depends=True)("""
        Maximum number of tokens of a question; longer questions are truncated.""")
    num_workers: int | None = setting(None, "Data", at_least=1)("""
        Number of processes that create features. Default: depends on the size of the data. Does
        not change the features.""")
    n_best_size: int = setting(20, "Prediction", at_least=1)("""
        Number of candidate answers to write per question. In version 1, candidates combine this
        number of best start and best end positions of each window. If the number is too small,
        none of the combinations may be a valid answer.""")
    max_answer_length: int = setting(30, "Prediction", at_least=1)("""
        Maximum number of tokens of an answer.""")
    start_n_top: int = setting(5, "Prediction", at_least=1, depends=True)("""
        Number of start positions to consider; only for version 2.""")
    end_n_top: int = setting(5, "Prediction", at_least=1, depends=True)("""
        Number of end positions to consider per start position; only for version 2.""")
    null_score_diff_threshold: float | None = setting(None, "Prediction")("""
        Null odds at or above which a question is left unanswered; only for version 2. Default: the
        threshold with the best F1 on --predict_file. If that file has no answers, the threshold
        that was found when the best checkpoint was selected.""")
    num_train_epochs: float = setting(3.0, "Optimizer", above=0, depends=True)("""
        Number of epochs. As in the original, steps = questions / --train_batch_size * epochs,
        although batches contain windows, and long contexts have several windows. The log reports
        how often each window is used.""")
    warmup_proportion: float = setting(0.1, "Optimizer", at_least=0, at_most=1, depends=True)("""
        Fraction of the training steps used for the warm-up.""")
    dropout_prob: float = setting(0.1, "Training", at_least=0, below=1, depends=True)("""
        Dropout rate of the hidden layer of the no-answer score in training; only for version 2.""")
    export_tflite: bool = setting(True, "Export")("""
        Also write albert_model.tflite into --export_dir, as the original does: float32, one
        sequence of --max_seq_length tokens; only for version 1. export_litert writes other
        variants.""")
