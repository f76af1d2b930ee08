r"""Trains a SentencePiece vocabulary on text.

The settings are those of the released English models.

    albert_tf train_sentencepiece --input_file='text/*.txt' --model_prefix=vocab/30k \
        --vocab_size=30000
"""

from collections.abc import Iterator, Sequence

from absl import flags, logging

from albert_tf.cli.app import command
from albert_tf.cli.flags import DRY_RUN, Flag, define, is_dry_run
from albert_tf.data.files import check_file, match_files, open_binary
from albert_tf.tokenization.sentence_piece import NO_TEXT, model_files, train_sentence_piece


def define_flags() -> None:
    """Defines the flags of this command."""
    define(
        {
            "Data": {
                Flag("input_file", required=True): "Required. Text to read: comma-separated files "
                "or globs. UTF-8, one sentence per line.",
                Flag("do_lower_case", True): "Lower-case the text; must be the same when the "
                "tokenizer is used.",
                Flag("vocab_size", 30000, at_least=1): "Number of pieces, including special "
                "symbols.",
            },
            "Output": {
                Flag("model_prefix", required=True): "Required. Path of the files to write, "
                "without their extensions .model and .vocab.",
            },
            "Actions": DRY_RUN,
        }
    )


def run() -> None:
    """Learns the vocabulary that the flags ask for."""
    values = flags.FLAGS
    files = match_files(values.input_file)
    for path in model_files(values.model_prefix):
        check_file(path, "--model_prefix")
    if not any(map(str.strip, _lines(files))):
        raise ValueError(NO_TEXT)
    if is_dry_run(values):
        return
    train_sentence_piece(
        _lines(files), values.model_prefix, values.vocab_size, values.do_lower_case
    )
    logging.info(
        "vocab_size=%d model=%s.model input_files=%d",
        values.vocab_size,
        values.model_prefix,
        len(files),
    )


def _lines(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        with open_binary(path, "rb") as file:
            for line in file:
                yield line.decode(errors="replace")


main = command(define_flags, run)


if __name__ == "__main__":
    main()
