"""Settings of `run_classification`. Does not import TensorFlow."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from albert_tf.data.arguments import as_texts
from albert_tf.finetuning.settings import (
    StepSettings,
    class_weights_setting,
    classifier_dropout_setting,
)
from albert_tf.labels import LABEL_SEPARATOR, Labels
from albert_tf.settings import setting

TEXT_A, TEXT_B, LABEL = "text_a", "text_b", "label"  # default names of columns


@dataclass(frozen=True, kw_only=True)
class ClassificationSettings(StepSettings):
    """Settings of `run_classification`, named after the flags in docs/flags.md.

    `output_dir` and at least one action are required: `do_train`, `do_eval`, `do_predict`,
    `predict_file` or `export_dir`. Training also needs `task_name`, the data (`data_dir` for a GLUE
    task, or `train_file`, `dev_file` and `test_file` for "custom"), and a model to start from:
    `albert_hub_module_handle`, or `init_checkpoint` with the settings for its configuration and
    tokenizer.

    Raises:
        TypeError: a name is unknown, or a value has the wrong type.
        ValueError: a value is out of range.
    """

    do_predict: bool = setting(False, "Actions")("""
        Write predictions for the test set to test_results.tsv.""")
    task_name: str | None = setting(None, "Data")("""
        A task of GLUE (CoLA, MNLI, MisMNLI, MRPC, QNLI, QQP, RTE, SST-2, STS-B, WNLI, AX), or
        custom, with --train_file, --dev_file and --test_file. Default: the task of the model in
        --output_dir.""")
    data_dir: str | None = setting(None, "Data")("""
        Directory of the GLUE data, with a subdirectory for each task, or the subdirectory of the
        task.""")
    train_file: str | None = setting(None, "Data")("""
        The train set of --task_name=custom, for --do_train: TSV, CSV or JSON.""")
    dev_file: str | None = setting(None, "Data")("""
        The dev set of --task_name=custom, for --do_eval: TSV, CSV or JSON.""")
    test_file: str | None = setting(None, "Data")("""
        The test set of --task_name=custom, for --do_predict: TSV, CSV or JSON.""")
    text_a_column: str = setting(TEXT_A, "Data", depends=True)("""
        Column of the text: its name, or its number in files without a header, starting at 0.""")
    text_b_column: str | None = setting(None, "Data", depends=True)("""
        Column of the second text of a pair. Default: single texts.""")
    label_column: Sequence[str] | str = setting(LABEL, "Data", depends=True)("""
        Column of the label. With --multi_label also several columns, separated by commas, which
        have the names of the labels and contain 0 or 1, or false or true""")
    regression: bool = setting(False, "Data", depends=True)("""
        The labels are numbers to predict instead of names of classes.""")
    multi_label: bool = setting(False, "Data", depends=True)("""
        Texts have any number of labels, separated by | in a cell, or in a list in JSON Lines. An
        empty cell means no labels.""")
    multi_label_threshold: float = setting(
        Labels.threshold,
        "Data",
        above=0,
        below=1,
        depends=True,
    )("""
        Minimum probability at which a label is predicted with --multi_label. If not set, a trained
        model keeps the threshold used in training.""")
    predict_file: str | None = setting(None, "Actions")("""
        Classify the texts in this file: a table like --test_file, or a .txt file with one text or
        pair of texts, separated by a tab, per line. - reads such lines from the standard input.""")
    predict_output_file: str | None = setting(None, "Actions")("""
        File for the predictions of --predict_file. Default: the standard output.""")
    threshold_to_export: float = setting(math.nan, "Export")("""
        Number that the exported model returns in an additional output, named threshold. nan: no
        such output.""")
    classifier_dropout_prob: float = classifier_dropout_setting()
    class_weights: Mapping[str, float] | str | None = class_weights_setting()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.label_column is not None and not isinstance(self.label_column, str):
            joined = LABEL_SEPARATOR.join(as_texts("label_column", self.label_column))
            object.__setattr__(self, "label_column", joined)
