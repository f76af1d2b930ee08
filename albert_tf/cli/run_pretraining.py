r"""Pretrains and evaluates ALBERT on the records of create_pretraining_data.

Training starts from random weights or from --init_checkpoint, or resumes from the newest checkpoint
in --output_dir. With --do_eval every checkpoint is evaluated and the best is kept as
model.ckpt-best. Configuration, tokenizer, metrics.jsonl and TensorBoard logs are written next to
the checkpoints.

    albert_tf run_pretraining --input_file='records/train.tfrecord*' \
        --albert_config_file=albert_config.json --spm_model_file=vocab/30k.model \
        --output_dir=pretrained --train_batch_size=32 --num_train_steps=10000 \
        --num_warmup_steps=500 --learning_rate=0.0005

    albert_tf run_pretraining --nodo_train --do_eval --eval_checkpoint=all \
        --output_dir=pretrained --input_file='records/held_out.tfrecord*'
"""

from __future__ import annotations

from absl import flags

from albert_tf.cli.app import run_command
from albert_tf.cli.dry_run import define_dry_run_flag
from albert_tf.cli.flags import (
    define_device_flags,
    define_model_flags,
    define_online_masking_flags,
    define_optimizer_flags,
    define_trainer_flags,
    flag_group,
    settings_from_flags,
)
from albert_tf.config import OptimizerConfig, TrainerConfig
from albert_tf.pretraining.segments import SENTENCE_LOSSES, SOP


def define_flags() -> None:
    """Defines the flags of this command."""
    with flag_group("Actions"):
        flags.DEFINE_bool("do_train", True, "Train.")
        flags.DEFINE_bool(
            "do_eval",
            False,
            "Evaluate: every checkpoint during training, or --eval_checkpoint without training.",
        )
    _define_data_flags()
    define_online_masking_flags()
    _define_evaluation_flags()
    define_trainer_flags(TrainerConfig("-"))
    with flag_group("Training"):
        flags.DEFINE_string(
            "depth_schedule",
            "",
            "Train fewer layers first: comma-separated pairs layers:first_step, such as "
            "2:0,4:20000,6:40000, of which the last names all layers. For models whose layers "
            "share all parameters. Default: all layers in all steps.",
        )
    define_model_flags()
    define_optimizer_flags(OptimizerConfig())
    with flag_group("Optimizer"):
        flags.DEFINE_integer(
            "num_decay_steps",
            None,
            "Keep the learning rate constant after the warm-up, and let it decay to 0 over this "
            "number of last steps. Default: it decays from step 0 on, as in the original.",
        )
        flags.DEFINE_integer(
            "scale_from_batch_size",
            None,
            "Batch size for which --learning_rate, --num_train_steps, --num_warmup_steps, "
            "--start_warmup_step and --num_decay_steps are given; 4096 for the published settings. "
            "They are scaled to --train_batch_size, and the result is logged: the learning rate by "
            "the square root of the ratio, the steps so that the number of examples is the same. "
            "Default: no scaling.",
            lower_bound=1,
        )
    define_device_flags()
    define_dry_run_flag()


def _define_data_flags() -> None:
    with flag_group("Data"):
        flags.DEFINE_string(
            "input_file",
            None,
            "Required. Records to train on, and to evaluate on without --eval_input_file: "
            "comma-separated files or globs.",
            required=True,
        )
        flags.DEFINE_string(
            "eval_input_file",
            None,
            "Records to evaluate on: comma-separated files or globs. Default: --input_file.",
        )
        flags.DEFINE_integer(
            "max_seq_length", 512, "Number of tokens of a sequence in the records."
        )
        flags.DEFINE_integer(
            "max_predictions_per_seq",
            20,
            "Number of prediction slots of a sequence in the records, which is twice the value "
            "given to create_pretraining_data if that permuted tokens. With --masked_lm_prob: "
            "maximum number of tokens to mask in a sequence.",
        )
        flags.DEFINE_enum(
            "sentence_loss",
            SOP,
            SENTENCE_LOSSES,
            "Loss on pairs of segments, as in the records. sop: which segment comes first. nsp: "
            "whether the second follows the first. none: no such loss and no sentence-order head.",
        )
        flags.DEFINE_integer(
            "shuffle_buffer_size",
            1000,
            "Number of records among which the next training example is drawn.",
            lower_bound=1,
        )
        flags.DEFINE_bool(
            "skip_damaged_records",
            False,
            "Skip, report and count records of --input_file that cannot be read during training, "
            "instead of ending with an error.",
        )


def _define_evaluation_flags() -> None:
    with flag_group("Evaluation"):
        flags.DEFINE_integer(
            "eval_batch_size", 64, "Number of examples per batch in evaluation.", lower_bound=1
        )
        flags.DEFINE_integer(
            "max_eval_steps",
            100,
            "Maximum number of batches to evaluate on; the records are read at most once.",
            lower_bound=1,
        )
        flags.DEFINE_string(
            "eval_checkpoint",
            "newest",
            "Checkpoint that --do_eval --nodo_train evaluates: newest or best of --output_dir, or "
            "a path. all: every checkpoint of --output_dir, of which the best is kept as "
            "model.ckpt-best, as during training. If --output_dir has none, --init_checkpoint is "
            "used.",
        )
        flags.DEFINE_float(
            "watch_secs",
            0.0,
            "With --eval_checkpoint=all: wait for new checkpoints of a running training until that "
            "of --num_train_steps, but at most this number of seconds after the last new one. 0: "
            "do not wait.",
        )


def run() -> None:
    """Does what the flags say."""
    from albert_tf.pretraining import run  # TensorFlow, which --help need not wait for

    run.run(settings_from_flags(run.PretrainingSettings))


def main() -> None:
    """Runs the command."""
    run_command(define_flags, run)


if __name__ == "__main__":
    main()
