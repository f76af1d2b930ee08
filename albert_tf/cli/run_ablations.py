r"""Pretrains the models of the paper's ablation studies on custom records.

The models are trained one after the other. Each differs from a base model in one respect and is
trained the same way. Arguments after -- are passed to every run of run_pretraining. The same
command resumes an interrupted study. The table in --output_dir is updated after each run.

    albert_tf run_ablations --albert_config_file=base.json \
        --input_file='records/train.tfrecord*' --eval_input_file='records/held_out.tfrecord*' \
        --output_dir=ablations --num_train_steps=2000 \
        -- --max_seq_length=128 --train_batch_size=32
"""

import dataclasses
from collections.abc import Sequence

from albert_tf.cli.app import command
from albert_tf.cli.flags import Flags
from albert_tf.data.errors import UserError
from albert_tf.tools.ablation_settings import AblationSettings

# Set by this command for each run.
_OWN_FLAGS = frozenset(
    {"input_file", "eval_input_file", "output_dir", "albert_config_file", "seed", "sentence_loss"}
    | {"num_train_steps", "do_train", "do_eval", "eval_checkpoint", "init_checkpoint"}
)


def run(settings: AblationSettings, training_flags: Sequence[str]) -> None:
    from albert_tf.tools.ablations import run_ablations

    for flag in training_flags:
        name = flag.lstrip("-").split("=")[0]
        if {name, name.removeprefix("no")} & _OWN_FLAGS:
            raise UserError(f"{flag!r} cannot be passed after --: run_ablations sets it.")
    run_ablations(dataclasses.replace(settings, training_flags=training_flags))


main = command(__name__, __doc__, Flags(AblationSettings), run, takes_arguments=True)
