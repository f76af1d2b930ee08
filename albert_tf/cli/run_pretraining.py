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

from albert_tf.cli.app import command, job
from albert_tf.cli.flags import DEVICES, Flags
from albert_tf.pretraining.settings import PretrainingSettings

main = command(__name__, __doc__, Flags(PretrainingSettings, DEVICES), job("run_pretraining"))
