r"""Fine-tunes and applies a token classifier, for example for named entities.

Files are in the column format of CoNLL (one word per line, blank lines between sentences) or in
JSON Lines. Select any combination of --do_train, --do_eval, --do_predict, --predict_file and
--export_dir.

    albert_tf run_token_classifier --train_file=train.conll --dev_file=dev.conll \
        --albert_hub_module_handle=albert_base --do_train --do_eval --max_seq_length=128 \
        --train_step=1000 --warmup_step=100 --output_dir=entities

    albert_tf run_token_classifier --output_dir=entities --predict_file=- < texts.txt
"""

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
)

_OWN: Groups = {
    "Actions": {
        Flag("do_predict", False): "Write the test set with predicted labels to test_results, in "
        "the format of the test set.",
        Flag("predict_file"): "Label this file, which has the format of --test_file, and write it "
        "in the same format. - reads texts from the standard input, one per line, and writes JSON "
        "Lines.",
        Flag("predict_output_file"): "File for the predictions of --predict_file. Default: the "
        "standard output.",
        **DRY_RUN,
    },
    "Data": {
        **{
            Flag(f"{name}_file"): f"The {name} set, for --do_{action}: columns as in "
            "CoNLL, or JSON Lines."
            for name, action in (("train", "train"), ("dev", "eval"), ("test", "predict"))
        },
        Flag("token_column", 0): "Number of the column of words, starting at 0. Negative numbers "
        "count from the last column.",
        Flag("label_column", -1): "Number of the column of labels.",
        Flag("max_seq_length", 512): "Maximum number of tokens per sequence. Longer sentences are "
        "split into overlapping windows. If not set, a trained model keeps the length used in "
        "training.",
    },
    "Training": CLASSIFIER_TRAINING,
}
FLAGS = merged(development_flags("windows"), fine_tuning_flags("windows"), _OWN)


def run() -> None:
    from albert_tf.token_classification import run

    run.run_token_classification(settings_from_flags(run.TokenClassificationSettings))


main = command(__name__, __doc__, FLAGS, run)
