r"""Splits raw text into sentences, for vocabularies and pretraining.

The input is plain text (a paragraph per line), files of a Wikipedia extractor, or JSON Lines. The
output has one sentence per line and an empty line between documents. All cores are used.

    albert_tf prepare_text --input_file=raw --output_file=text/part@8.txt --language=de

    xzcat corpus.xz | albert_tf prepare_text --input_file=- --output_file=text.txt --language=hi
"""

from albert_tf.cli.app import command, job
from albert_tf.cli.flags import Flags
from albert_tf.pretraining.settings import PrepareTextSettings

main = command(__name__, __doc__, Flags(PrepareTextSettings), job("prepare_text"))
