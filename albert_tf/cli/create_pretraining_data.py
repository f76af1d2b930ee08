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
from albert_tf.cli.flags import DRY_RUN, NGRAMS, Flag, Groups, settings_from_flags
from albert_tf.pretraining.create_data import PretrainingDataSettings, create_pretraining_data
from albert_tf.pretraining.instances import ORIGINAL, SENTENCE_LOSSES, SENTENCE_PAIRS

FLAGS: Groups = {
    "Data": {
        Flag("input_file", required=True): "Required. Text to read: comma-separated files or "
        "globs. UTF-8, one sentence per line, an empty line between documents.",
        Flag("max_seq_length", 512): "Number of tokens of a sequence, including special tokens.",
        Flag("short_seq_prob", 0.1): "Fraction of the documents that are cut into shorter "
        "sequences, of random length.",
        Flag("sentence_loss", choices=SENTENCE_LOSSES): "Objective of the records in addition to "
        "masked tokens. sop (default): pairs of segments, half of them swapped (sentence-order "
        "prediction). nsp: pairs, half of them with a second segment from another document "
        "(next-sentence prediction). none: a single segment per sequence.",
        Flag("random_next_sentence", False): "The name of --sentence_loss=nsp in the original "
        "release.",
        Flag("sentence_pairs", ORIGINAL, choices=SENTENCE_PAIRS): "How the pairs of sop are "
        "created. original: as in the original release. Some second segments come from another "
        "document, and the lengths of the segments predict the order better than chance. adjacent: "
        "always two adjacent runs of sentences, whose lengths do not predict the order. "
        "Recommended for short sequences.",
        Flag("dupe_factor", 40): "Number of passes over the text, each with different segments and "
        "masks.",
        Flag("random_seed", 12345): "Random seed. The same seed gives byte-identical records.",
    },
    "Masking": {
        Flag("masked_lm_prob", 0.15): "Fraction of tokens to mask and predict. 0: no masking, for "
        "records that run_pretraining --masked_lm_prob masks during training.",
        Flag("max_predictions_per_seq", 20): "Maximum number of tokens to mask in a sequence; "
        "should be at least --masked_lm_prob times --max_seq_length.",
        **NGRAMS,
        Flag("do_permutation", False): "Also select as many other tokens as are masked, permute "
        "them, and predict them. This doubles the number of prediction slots in the records.",
    },
    "Model": {
        Flag("spm_model_file"): "SentencePiece model (English models).",
        Flag("vocab_file"): "WordPiece vocabulary (Chinese models). Either this or "
        "--spm_model_file is required.",
        Flag("do_lower_case", True): "Lower-case the text.",
    },
    "Output": {
        Flag("output_file", required=True): "Required. TFRecord file to write, or several "
        "comma-separated files, to which the records are written in turn. name@3 stands for "
        "name-00000-of-00003, name-00001-of-00003 and name-00002-of-00003.",
    },
    "Devices": {
        Flag("num_workers", int, at_least=1): "Number of processes. Default: one per processor "
        "core. Does not change the records.",
        Flag("runner"): "Apache Beam runner that creates the same records, such as DataflowRunner, "
        "FlinkRunner, SparkRunner or DirectRunner. Pass options of Beam after --. Default: "
        "processes on this machine, without Beam.",
    },
    "Accepted without effect": {
        Flag("input_file_mode", "r"): "No effect: files are read as UTF-8 in either mode.",
    },
    "Actions": DRY_RUN,
}


def run(beam_options: Sequence[str]) -> None:
    settings = settings_from_flags(PretrainingDataSettings)
    create_pretraining_data(dataclasses.replace(settings, beam_options=beam_options))


main = command(__name__, __doc__, FLAGS, run, takes_arguments=True)
