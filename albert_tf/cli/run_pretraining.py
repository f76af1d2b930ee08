"""Pretrains and evaluates ALBERT on the records of `create_pretraining_data`.

It trains from random weights, from --init_checkpoint, or on from the newest checkpoint in
--output_dir. With --do_eval every checkpoint is evaluated and the best one kept as
model.ckpt-best. The configuration, the tokenizer, metrics.jsonl and the logs of TensorBoard lie
beside the checkpoints.

    run_pretraining --input_file='records/train.tfrecord*' --albert_config_file=albert_config.json
        --spm_model_file=vocab/30k.model --output_dir=pretrained --train_batch_size=32
        --num_train_steps=10000 --num_warmup_steps=500 --learning_rate=0.0005

    run_pretraining --nodo_train --do_eval --eval_checkpoint=all --output_dir=pretrained
        --input_file='records/held_out.tfrecord*'
"""

from __future__ import annotations

from absl import flags

from albert_tf.cli.command import run_command
from albert_tf.cli.dry_run import define_dry_run_flag
from albert_tf.cli.flag_groups import (
    DATA,
    EVALUATION,
    OPTIMIZER,
    TRAINING,
    WHAT_TO_DO,
    flag_group,
    set_units,
)
from albert_tf.cli.flags import (
    define_device_flags,
    define_model_flags,
    define_optimizer_flags,
    define_trainer_flags,
)
from albert_tf.cli.masking_flags import define_online_masking_flags
from albert_tf.config import OptimizerConfig, TrainerConfig
from albert_tf.data.segments import SENTENCE_LOSSES, SOP


def define_flags() -> None:
    """Defines the flags of this command."""
    with flag_group(WHAT_TO_DO):
        flags.DEFINE_bool("do_train", True, "Train.")
        flags.DEFINE_bool(
            "do_eval",
            False,
            "Evaluate: every checkpoint while training, or --eval_checkpoint without training.",
        )
    _define_data_flags()
    define_online_masking_flags()
    _define_evaluation_flags()
    define_trainer_flags(TrainerConfig("-"))
    with flag_group(TRAINING):
        flags.DEFINE_string(
            "depth_schedule",
            "",
            "Train fewer layers first: layers:first_step pairs with commas, as "
            "2:0,4:20000,6:40000, which end with all layers. For models whose layers share all "
            "parameters. Not given: all layers in all steps.",
        )
    define_model_flags()
    define_optimizer_flags(OptimizerConfig())
    with flag_group(OPTIMIZER):
        flags.DEFINE_integer(
            "num_decay_steps",
            None,
            "Keep the rate constant after the warm-up, and let it fall to 0 in so many last steps. "
            "Not given: it falls from step 0 on, as the original's.",
        )
        flags.DEFINE_integer(
            "scale_from_batch_size",
            None,
            "Batch that --learning_rate, --num_train_steps, --num_warmup_steps, "
            "--start_warmup_step and --num_decay_steps are meant for; the published ones: 4096. "
            "They are scaled to --train_batch_size, and what is used is printed: the rate by the "
            "square root of the batches' ratio, the steps so that as many examples are seen. Not "
            "given: they are used as they are.",
            lower_bound=1,
        )
    set_units(num_decay_steps="steps", scale_from_batch_size="examples")
    define_device_flags()
    define_dry_run_flag()


def _define_data_flags() -> None:
    """The records, and what is in them."""
    with flag_group(DATA):
        flags.DEFINE_string(
            "input_file",
            None,
            "Records to train on, and to evaluate on unless --eval_input_file is given: files or "
            "globs, with commas.",
            required=True,
        )
        flags.DEFINE_string(
            "eval_input_file",
            None,
            "Records to evaluate on: files or globs, with commas. Not given: those of "
            "--input_file.",
        )
        flags.DEFINE_integer("max_seq_length", 512, "Positions of a sequence, as in the records.")
        flags.DEFINE_integer(
            "max_predictions_per_seq",
            20,
            "Prediction slots of a sequence, as in the records; twice the number given to "
            "create_pretraining_data if that permuted tokens. With --masked_lm_prob: most tokens "
            "to predict in a sequence.",
        )
        flags.DEFINE_enum(
            "sentence_loss",
            SOP,
            SENTENCE_LOSSES,
            "What is learnt of pairs of segments, as in the records. sop: which comes first. nsp: "
            "whether the second follows. none: nothing; the model has no sentence-order head.",
        )
        flags.DEFINE_integer(
            "shuffle_buffer_size",
            1000,
            "Records among which the next training example is drawn.",
            lower_bound=1,
        )
        flags.DEFINE_bool(
            "skip_damaged_records",
            False,
            "Leave out records of --input_file that cannot be read while training, and name and "
            "count them, instead of ending with an error.",
        )
    set_units(
        max_seq_length="tokens", max_predictions_per_seq="tokens", shuffle_buffer_size="records"
    )


def _define_evaluation_flags() -> None:
    with flag_group(EVALUATION):
        flags.DEFINE_integer(
            "eval_batch_size", 64, "Examples of an evaluation batch.", lower_bound=1
        )
        flags.DEFINE_integer(
            "max_eval_steps",
            100,
            "Most batches to evaluate on; fewer records are read once.",
            lower_bound=1,
        )
        flags.DEFINE_string(
            "eval_checkpoint",
            "newest",
            "What --do_eval --nodo_train evaluates: newest or best of --output_dir; all of it, of "
            "which the best is kept as model.ckpt-best, as training with --do_eval does; or, where "
            "it has none, --init_checkpoint. Or the path of a checkpoint.",
        )
        flags.DEFINE_float(
            "watch_secs",
            0.0,
            "With --eval_checkpoint=all: wait for further checkpoints of a running training, until "
            "that of --num_train_steps or for so many seconds after the last new one. 0: do not "
            "wait.",
        )
    set_units(eval_batch_size="examples", max_eval_steps="batches", watch_secs="seconds")


def run() -> None:
    """Trains and evaluates as the flags say."""
    from albert_tf.cli.pretraining_actions import run  # TensorFlow, which --help need not wait for

    run()


def main() -> None:
    """Runs the command."""
    run_command(define_flags, run)


if __name__ == "__main__":
    main()
