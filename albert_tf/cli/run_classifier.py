r"""Fine-tunes and applies a text classifier, on GLUE tasks or custom data.

Custom files are TSV, CSV or JSON Lines with a column of texts and a column of labels (numbers with
--regression). Select any combination of --do_train, --do_eval, --do_predict,
--predict_file and --export_dir.

    albert_tf run_classifier --task_name=mrpc --data_dir=GLUE \
        --albert_hub_module_handle=albert_base --recipe=auto --do_train --do_eval \
        --output_dir=mrpc

    albert_tf run_classifier --task_name=custom --train_file=train.csv --dev_file=dev.csv \
        --albert_hub_module_handle=albert_base --do_train --do_eval --max_seq_length=128 \
        --train_step=1000 --warmup_step=100 --output_dir=topics

    albert_tf run_classifier --output_dir=topics --predict_file=texts.txt \
        --predict_output_file=labels.tsv
"""

import math

from albert_tf.cli.app import command
from albert_tf.cli.flags import (
    CLASSIFIER_TRAINING,
    DRY_RUN,
    Flag,
    Groups,
    development_flags,
    fine_tuning_flags,
    merged,
    settings_from_flags,
    unneeded,
)

_OWN: Groups = {
    "Actions": {
        Flag("do_predict", False): "Write predictions for the test set to test_results.tsv.",
        Flag("predict_file"): "Classify the texts in this file: one per line, with a tab between "
        "the two texts of a pair. - reads the standard input.",
        Flag("predict_output_file"): "File for the predictions of --predict_file. Default: the "
        "standard output.",
        **DRY_RUN,
    },
    "Data": {
        Flag("task_name"): "A task of GLUE (CoLA, MNLI, MisMNLI, MRPC, QNLI, QQP, RTE, SST-2, "
        "STS-B, WNLI, AX), or custom, with --train_file, --dev_file and --test_file. Default: the "
        "task of the model in --output_dir.",
        Flag("data_dir"): "Directory of the GLUE data, with a subdirectory for each task, or the "
        "subdirectory of the task.",
        **{
            Flag(f"{name}_file"): f"The {name} set of --task_name=custom, for "
            f"--do_{action}: TSV, CSV or JSON Lines."
            for name, action in (("train", "train"), ("dev", "eval"), ("test", "predict"))
        },
        Flag("text_a_column", "text_a"): "Column of the text: its name, or its number in files "
        "without a header, starting at 0.",
        Flag("text_b_column"): "Column of the second text of a pair. Default: single texts.",
        Flag("label_column", "label"): "Column of the label.",
        Flag("regression", False): "The labels are numbers to predict instead of names of classes.",
        Flag("multi_label", False): "Texts have any number of labels, separated by | in a cell, or "
        "in a list in JSON Lines. An empty cell means no labels.",
        Flag("multi_label_threshold", 0.5): "Minimum probability at which a label is predicted "
        "with --multi_label. If not set, a trained model keeps the threshold used in training.",
        Flag("max_seq_length", 512): "Maximum number of tokens per sequence. Longer texts are "
        "truncated. If not set, a trained model keeps the length used in training.",
    },
    "Export": {
        Flag("threshold_to_export", math.nan): "Number that the exported model returns in an "
        "additional output, named threshold. nan: no such output.",
    },
    "Training": CLASSIFIER_TRAINING,
    "Accepted without effect": unneeded("cached_dir"),
}
FLAGS = merged(development_flags("examples"), fine_tuning_flags("examples"), _OWN)


def run() -> None:
    from albert_tf.classification import run

    run.run_classification(settings_from_flags(run.ClassificationSettings))


main = command(__name__, __doc__, FLAGS, run)
