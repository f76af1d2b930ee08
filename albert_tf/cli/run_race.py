r"""Fine-tunes and applies a model for multiple choice, on RACE or custom data.

Custom data are JSON Lines with a context, a question, its options and the correct label.
By default the command trains and evaluates.

    albert_tf run_race --data_dir=race_data --albert_hub_module_handle=base_v2 --recipe=auto \
        --output_dir=race

    albert_tf run_race --train_choices=train.jsonl --dev_choices=dev.jsonl --train_step=1000 \
        --warmup_step=100 --albert_hub_module_handle=base_v2 --output_dir=exam

    albert_tf run_race --nodo_train --nodo_eval --do_predict --test_choices=test.jsonl \
        --output_dir=exam
"""

from albert_tf.cli.app import command, job
from albert_tf.cli.flags import DEVICES, FEATURE_FILE, Flags
from albert_tf.multiple_choice.settings import MultipleChoiceSettings

FLAGS = Flags(
    MultipleChoiceSettings,
    DEVICES | dict.fromkeys(("train_file", "eval_file", "predict_file"), FEATURE_FILE),
    {"num_keep_checkpoint": "keep_checkpoint_max"},
)
main = command(__name__, __doc__, FLAGS, job("run_multiple_choice"))
