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

from albert_tf.cli.app import command
from albert_tf.cli.flags import (
    DEVICES,
    DRY_RUN,
    NGRAMS,
    WEIGHTS,
    Flag,
    Groups,
    merged,
    optimizer_flags,
    settings_from_flags,
    trainer_flags,
)
from albert_tf.config import OptimizerConfig, TrainerConfig
from albert_tf.pretraining.instances import SENTENCE_LOSSES

_OWN: Groups = {
    "Actions": {
        Flag("do_train", True): "Train.",
        Flag("do_eval", False): "Evaluate: every checkpoint during training, or --eval_checkpoint "
        "without training.",
        **DRY_RUN,
    },
    "Data": {
        Flag("input_file", required=True): "Required. Records to train on: comma-separated "
        "files or globs. Without --eval_input_file, they are also used for evaluation.",
        Flag("eval_input_file"): "Records to evaluate on: comma-separated files or globs. Default: "
        "--input_file.",
        Flag("max_seq_length", 512): "Number of tokens of a sequence in the records.",
        Flag("max_predictions_per_seq", 20): "Number of prediction slots per sequence in the "
        "records. For records created with --do_permutation, this is twice the value that was "
        "passed to create_pretraining_data. With --masked_lm_prob: maximum number of tokens to "
        "mask in a sequence.",
        Flag("sentence_loss", choices=SENTENCE_LOSSES): "Loss on pairs of segments, which must "
        "match the records. sop: which segment comes first. nsp: whether the second segment "
        "follows the first. none: no such loss and no sentence-order head. Default: the loss for "
        "which the records were created; sop if the records do not contain it.",
        Flag("shuffle_buffer_size", 1000, at_least=1): "Number of records from which the next "
        "training example is drawn at random.",
    },
    "Masking": {
        Flag("masked_lm_prob", 0.0): "Fraction of tokens to mask during training, differently in "
        "every epoch; usually 0.15. This requires records created with "
        "create_pretraining_data --masked_lm_prob=0. With the default, 0, the records must already "
        "be masked.",
        Flag("masked_lm_budget", 0.0): "The name of --masked_lm_prob in the original release.",
        **NGRAMS,
    },
    "Evaluation": {
        Flag("eval_batch_size", 64, at_least=1): "Number of examples per batch in evaluation.",
        Flag("max_eval_steps", 100, at_least=1): "Maximum number of batches to evaluate on; the "
        "records are read at most once.",
        Flag("eval_checkpoint", "newest"): "Checkpoint to evaluate with --do_eval --nodo_train: "
        "newest or best in --output_dir, or a path. all: every checkpoint in --output_dir; the "
        "best is kept as model.ckpt-best, as during training. If --output_dir has none, "
        "--init_checkpoint is used.",
        Flag("watch_secs", 0.0): "With --eval_checkpoint=all: wait for new checkpoints of a "
        "training run in progress until the checkpoint of --num_train_steps exists, but at most "
        "this number of seconds after the last new checkpoint. 0: do not wait.",
    },
    "Model": {
        Flag("albert_config_file"): "Model configuration (albert_config.json). Default: the "
        "configuration in --output_dir, or the configuration of --init_checkpoint.",
        **WEIGHTS,
    },
    "Optimizer": {
        Flag("num_decay_steps", int): "Keep the learning rate constant after the warm-up, and "
        "decay it to 0 over this number of steps at the end. Default: the decay starts at step 0, "
        "as in the original.",
        Flag("scale_from_batch_size", int, at_least=1): "Batch size for which --learning_rate, "
        "--num_train_steps, --num_warmup_steps, --start_warmup_step and --num_decay_steps were "
        "chosen; 4096 for the published settings. They are scaled to --train_batch_size, and the "
        "result is logged. The learning rate is scaled by the square root of the ratio, and the "
        "steps so that the number of examples stays the same. Default: no scaling.",
    },
}
FLAGS = merged(trainer_flags(TrainerConfig("-")), optimizer_flags(OptimizerConfig()), _OWN, DEVICES)


def run() -> None:
    from albert_tf.pretraining import run

    run.run_pretraining(settings_from_flags(run.PretrainingSettings))


main = command(__name__, __doc__, FLAGS, run)
