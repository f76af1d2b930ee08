"""Settings of `run_token_classification`. Does not import TensorFlow."""

from collections.abc import Mapping
from dataclasses import dataclass

from albert_tf.finetuning.settings import (
    StepSettings,
    batch_size_setting,
    class_weights_setting,
    classifier_dropout_setting,
)
from albert_tf.settings import changed, setting
from albert_tf.token_classification.labels import LABEL_SCHEMES, WORD_UNITS


@dataclass(frozen=True, kw_only=True)
class TokenClassificationSettings(StepSettings):
    """Settings of `run_token_classification`, named after the flags in docs/flags.md.

    `output_dir` and at least one action are required: `do_train`, `do_eval`, `do_predict`,
    `predict_file` or `export_dir`. Training also needs `train_file` and a model to start from:
    `albert_hub_module_handle`, or `init_checkpoint` with the settings for its configuration and
    tokenizer. For errors see `ClassificationSettings`.
    """

    do_predict: bool = setting(False, "Actions")("""
        Write the test set with predicted labels to test_results, in the format of the test set.""")
    predict_batch_size: int = batch_size_setting("Prediction", "windows")
    eval_batch_size: int = batch_size_setting("Evaluation", "windows")
    max_seq_length: int = changed(
        StepSettings,
        "max_seq_length",
        help="""
        Maximum number of tokens per sequence. Longer sentences are split into overlapping windows.
        If not set, a trained model keeps the length used in training.""",
    )
    train_file: str | None = setting(None, "Data")("""
        The train set, for --do_train: columns as in CoNLL, or JSON.""")
    dev_file: str | None = setting(None, "Data")("""
        The dev set, for --do_eval: columns as in CoNLL, or JSON.""")
    test_file: str | None = setting(None, "Data")("""
        The test set, for --do_predict: columns as in CoNLL, or JSON.""")
    token_column: int = setting(0, "Data", depends=True)("""
        Number of the column of words, starting at 0. Negative numbers count from the last
        column.""")
    label_column: int = setting(-1, "Data", depends=True)("Number of the column of labels.")
    word_unit: str = setting("word", "Data", depends=True, choices=WORD_UNITS)("""
        Into what texts are split: words at blanks, punctuation and ideographs; characters, for
        entities inside words; or dictionary words of ICU (pip install "albert_tf[languages]").""")
    label_scheme: str | None = setting(None, "Data", depends=True, choices=(*LABEL_SCHEMES,))("""
        Scheme of the labels; plain: each label is a class. If not set, it is detected.""")
    predict_file: str | None = setting(None, "Actions")("""
        Label this file, which has the format of --test_file, and write it in the same format. -
        reads texts from the standard input, one per line, and writes JSON Lines, as for a .txt file
        of texts.""")
    predict_output_file: str | None = setting(None, "Actions")("""
        File for the predictions of --predict_file. Default: the standard output.""")
    classifier_dropout_prob: float = classifier_dropout_setting()
    class_weights: Mapping[str, float] | str | None = class_weights_setting()
