r"""Creates pretraining records from text, on all cores or with Apache Beam.

The text has one sentence per line and an empty line between documents. It is cut into segments and
masked --dupe_factor times. With --masked_lm_prob=0, masking happens during training. With --runner,
Apache Beam creates the same records on many machines. Pass options of Beam after --.

    albert_tf create_pretraining_data --input_file='text/*.txt' \
        --output_file=records/train.tfrecord@8 --spm_model_file=vocab/30k.model \
        --max_seq_length=512 --dupe_factor=10

    albert_tf create_pretraining_data --input_file='text/*.txt' \
        --output_file=records/plain.tfrecord@8 --spm_model_file=vocab/30k.model \
        --dupe_factor=1 --masked_lm_prob=0
"""

import dataclasses
from collections.abc import Sequence

from albert_tf.cli.app import command
from albert_tf.cli.flags import Flags
from albert_tf.pretraining.create_data import create_pretraining_data
from albert_tf.pretraining.settings import PretrainingDataSettings


def run(settings: PretrainingDataSettings, beam_options: Sequence[str]) -> None:
    create_pretraining_data(dataclasses.replace(settings, beam_options=beam_options))


_MODE = {"input_file_mode": ("r", "No effect: files are read as UTF-8 in either mode.")}
FLAGS = Flags(PretrainingDataSettings, _MODE)
main = command(__name__, __doc__, FLAGS, run, takes_arguments=True)
