"""Trains a model on raw text, evaluates it and exports it.

It splits the text into sentences, holds out a part, trains a vocabulary, creates records, trains
the model in stages, evaluates it on the held-out part, and writes it to --output_dir/model, which
all commands and other libraries can load. The plan is printed first. The same command continues an
interrupted run. The flags of prepare_text, train_sentencepiece, create_pretraining_data and
run_pretraining are accepted, too, and replace the planned settings.

    albert_tf pretrain --text=texts/ --language=de --output_dir=german --hours=3
"""

from albert_tf.cli.app import command, job
from albert_tf.cli.flags import Flags
from albert_tf.tools.pretrain_settings import PretrainSettings

main = command(__name__, __doc__, Flags(PretrainSettings), job("pretrain"))
