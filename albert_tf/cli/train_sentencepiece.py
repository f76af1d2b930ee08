"""Learns a SentencePiece vocabulary from text.

The settings are those of the released English models.

    train_sentencepiece --input_file='text/*.txt' --model_prefix=vocab/30k --vocab_size=30000
"""

from collections.abc import Iterator, Sequence

from absl import flags, logging

from albert_tf.cli.command import run_command
from albert_tf.cli.dry_run import define_dry_run_flag, is_dry_run
from albert_tf.cli.flag_groups import DATA, OUTPUT, flag_group, set_units
from albert_tf.data.disk import check_file
from albert_tf.data.files import match_files, open_binary
from albert_tf.tokenization.training import NO_TEXT, model_files, train_sentence_piece


def define_flags() -> None:
    """Defines the flags of this command; nothing is defined by importing it."""
    with flag_group(DATA):
        flags.DEFINE_string(
            "input_file",
            None,
            "Text to read: files or globs, with commas. One sentence a line, UTF-8.",
            required=True,
        )
        flags.DEFINE_bool(
            "do_lower_case",
            True,
            "Lower-case the text; must be what the tokenizer will do later.",
        )
        flags.DEFINE_integer(
            "vocab_size", 30000, "Pieces, special symbols included.", lower_bound=1
        )
    with flag_group(OUTPUT):
        flags.DEFINE_string(
            "model_prefix",
            None,
            "Where to write: this path with .model and with .vocab at its end.",
            required=True,
        )
    set_units(vocab_size="pieces")
    define_dry_run_flag()


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


def main() -> None:
    """Runs the command."""
    run_command(define_flags, run)


if __name__ == "__main__":
    main()
