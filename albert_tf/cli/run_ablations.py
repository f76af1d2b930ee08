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

from absl import flags

from albert_tf.cli.app import command
from albert_tf.cli.flags import DRY_RUN, Flag, Groups, settings_from_flags
from albert_tf.data.errors import UserError

# Set by this command for each run.
_OWN_FLAGS = frozenset(
    {"input_file", "eval_input_file", "output_dir", "albert_config_file", "seed", "sentence_loss"}
    | {"num_train_steps", "do_train", "do_eval", "eval_checkpoint", "init_checkpoint"}
)


FLAGS: Groups = {
    "Actions": {
        Flag(
            "comparisons",
            ("embedding_size", "sharing", "sentence_loss", "dropout", "depth", "width"),
        ): "Comparisons to run. Default: all.",
        Flag("embedding_sizes", ()): "Embedding sizes. Default: E/2, 2E and H of the base model.",
        Flag("depths", ()): "Numbers of layers. Default: 1, L/2 and 2L of the base model.",
        Flag("widths", ()): "Hidden sizes. Default: H/2 and 2H of the base model.",
        Flag("seeds", ("12345",)): "Seeds. Every model is trained with each of them.",
        Flag("base_seeds", ()): "Additional seeds of the base model. The spread of its scores "
        "estimates the noise in the table. Default: none.",
        **DRY_RUN,
    },
    "Data": {
        Flag("input_file", required=True): "Required. Records to train on, created with "
        "--sentence_loss=sop, the default: comma-separated files or globs.",
        Flag("eval_input_file", required=True): "Required. Held-out records to evaluate on: "
        "comma-separated files or globs.",
        Flag("nsp_input_file"): "Records created with --sentence_loss=nsp. Default: this loss is "
        "not compared.",
        Flag("nsp_eval_input_file"): "Held-out records created with --sentence_loss=nsp; required "
        "with --nsp_input_file.",
        Flag("none_input_file"): "Records created with --sentence_loss=none. Default: the model of "
        "this comparison uses only the masked tokens of --input_file.",
        Flag("none_eval_input_file"): "Held-out records created with --sentence_loss=none; "
        "required with --none_input_file.",
    },
    "Model": {
        Flag("albert_config_file", required=True): "Required. Configuration (albert_config.json) "
        "of the base model.",
    },
    "Training": {
        Flag("num_train_steps", int, at_least=1, required=True): "Required. Training steps of "
        "every run.",
    },
    "Output": {
        Flag("output_dir", required=True): "Required. Directory for the results, with a "
        "subdirectory for each run. Completed runs in it are not repeated, and interrupted runs "
        "are resumed.",
    },
}


def run(training_flags: list[str]) -> None:
    from albert_tf.tools.ablations import AblationSettings, run_ablations

    for flag in training_flags:
        name = flag.lstrip("-").split("=")[0]
        if {name, name.removeprefix("no")} & _OWN_FLAGS:
            raise UserError(f"{flag!r} cannot be passed after --: run_ablations sets it.")
    settings = dataclasses.replace(
        settings_from_flags(AblationSettings), training_flags=training_flags
    )
    run_ablations(settings, dry_run=flags.FLAGS.dry_run)


main = command(__name__, __doc__, FLAGS, run, takes_arguments=True)
