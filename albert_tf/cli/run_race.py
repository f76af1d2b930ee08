r"""Fine-tunes and applies a model for multiple choice, on RACE or custom data.

Custom data are JSON Lines with a context, a question, its options and the correct label.
By default the command trains and evaluates.

    albert_tf run_race --data_dir=race_data --albert_hub_module_handle=albert_base --recipe=auto \
        --output_dir=race

    albert_tf run_race --train_choices=train.jsonl --dev_choices=dev.jsonl --train_step=1000 \
        --warmup_step=100 --albert_hub_module_handle=albert_base --output_dir=exam

    albert_tf run_race --nodo_train --nodo_eval --do_predict --test_choices=test.jsonl \
        --output_dir=exam
"""

from albert_tf.cli.app import command
from albert_tf.cli.flags import (
    DRY_RUN,
    Flag,
    Groups,
    development_flags,
    fine_tuning_flags,
    merged,
    settings_from_flags,
    unneeded,
)
from albert_tf.config import FineTuningOptimizerConfig

_OPTIMIZER = FineTuningOptimizerConfig(
    learning_rate=1e-5, num_train_steps=12000, num_warmup_steps=1000
)
_OWN: Groups = {
    "Actions": {
        Flag("do_predict", False): "Write the selected options for the test set to "
        "predictions.tsv. If the test set has labels, write its scores to predict_results.txt.",
        **DRY_RUN,
    },
    "Data": {
        Flag("task_name", "race"): "Must be race, for the RACE data and for custom questions.",
        Flag("data_dir"): "The directory RACE, which contains train, dev and test, or its parent "
        "directory. Not required with --train_choices, --dev_choices or --test_choices.",
        Flag("high_only", False): "Use only the high-school level of RACE.",
        Flag("middle_only", False): "Use only the middle-school level of RACE.",
        **{
            Flag(f"{split}_choices"): f"The {split} set to use instead of RACE: JSON "
            "Lines with context, question, options (2 to 26) and label."
            for split in ("train", "dev", "test")
        },
        Flag("max_seq_length", 512): "Maximum number of tokens of a sequence, which consists of "
        "context, question and option. The context is truncated to fit.",
        Flag("max_qa_length", 128): "Maximum number of tokens of a question with an option. Longer "
        "texts are truncated at the front.",
    },
    "Training": {
        Flag("dropout_prob", 0.1): "Dropout rate of the input of the head during training.",
    },
    "Accepted without effect": unneeded("train_file", "eval_file", "predict_file"),
    "Output": {
        Flag("num_keep_checkpoint", alias_of="keep_checkpoint_max"): "The name of "
        "--keep_checkpoint_max in the original release.",
    },
}
FLAGS = merged(
    development_flags("questions", optimizer=_OPTIMIZER, is_default=True),
    fine_tuning_flags("questions", save_checkpoints_steps=100),
    _OWN,
)


def run() -> None:
    from albert_tf.multiple_choice import run

    run.run_multiple_choice(settings_from_flags(run.MultipleChoiceSettings))


main = command(__name__, __doc__, FLAGS, run)
