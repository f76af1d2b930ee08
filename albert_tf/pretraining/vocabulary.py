"""Trains vocabularies: `train_sentencepiece`."""

from collections.abc import Iterator, Sequence
from typing import Any

from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.data.files import check_file, match_files, open_binary
from albert_tf.data.parallel import available_cores
from albert_tf.pretraining.corpus import LONGEST_LINE, check_text, cut_line
from albert_tf.pretraining.create_records import sample_counts
from albert_tf.pretraining.settings import VocabularySettings
from albert_tf.tokenization.loading import tokenizer_from_files
from albert_tf.tokenization.piece_counts import PieceCounts
from albert_tf.tokenization.sentence_piece import clean_text, model_files, train_sentence_piece

_RESERVED = "\u2585"  # SentencePiece ignores lines that contain this character
_LONGEST_INPUT = 64 << 20  # bytes of a line


def train_sentencepiece(
    input_file: str,
    model_prefix: str,
    vocab_size: int = 30000,
    do_lower_case: bool = True,
    **options: Any,
) -> None:
    """Trains a SentencePiece vocabulary, as `train_sentencepiece.py` does.

    Args:
        input_file: comma-separated paths or globs of UTF-8 text files with one sentence per line.
        model_prefix: path of the output files, without the extensions .model and .vocab.
        vocab_size: V, number of pieces, including special symbols.
        do_lower_case: whether the text is lower-cased. Use the same value with the tokenizer.
        options: further settings, named after the flags of the command, such as `keep_accents`,
            `character_coverage`, `user_defined_symbols`, `byte_fallback` and `dry_run`.

    Raises:
        TypeError: an argument has the wrong type or an unknown name.
        ValueError: a file is not UTF-8, there is no text, or `vocab_size` does not fit the text.
    """
    settings = VocabularySettings(
        input_file=input_file,
        model_prefix=model_prefix,
        vocab_size=vocab_size,
        do_lower_case=do_lower_case,
        **options,
    )
    files = match_files(settings.input_file)
    model, pieces = model_files(settings.model_prefix)
    for path in (model, pieces):
        check_file(path)
    blocks = check_text(files, available_cores())
    if settings.dry_run:
        return
    counts = PieceCounts()
    train_sentence_piece(
        _lines(files, settings, counts),
        settings.model_prefix,
        settings.vocab_size,
        character_coverage=settings.character_coverage,
        user_defined_symbols=list(settings.user_defined_symbols),
        input_sentence_size=settings.input_sentence_size,
        # An explicit default would be stored in the model.
        **({"byte_fallback": True} if settings.byte_fallback else {}),
    )
    tokenizer = tokenizer_from_files(
        spm_model_file=model,
        do_lower_case=settings.do_lower_case,
        keep_accents=settings.keep_accents,
    )
    counts.update(sample_counts(blocks, tokenizer, available_cores()))
    logging.info(
        "vocab_size=%d model=%s input_files=%d lines=%d lines_cut=%d lines_left_out=%d %s",
        *(settings.vocab_size, model, len(files), counts["lines"], counts["lines_cut"]),
        max(0, counts["lines"] - settings.input_sentence_size),
        counts.describe(),
    )
    for warning in counts.warnings(model, is_new=True):
        logging.warning("%s", warning)


def _lines(
    paths: Sequence[str], settings: VocabularySettings, counts: PieceCounts
) -> Iterator[str]:
    """Yields normalized lines, cuts those that SentencePiece would ignore, and counts them."""
    for path in paths:
        with open_binary(path, "rb") as file:
            for line in file:
                if len(line) > _LONGEST_INPUT:
                    raise UserError(
                        f"{path} has a line of {len(line):,} bytes. Split the text into sentences "
                        "with prepare_text."
                    )
                text = line.decode().replace(_RESERVED, " ")
                text = clean_text(text, settings.do_lower_case, keep_accents=settings.keep_accents)
                parts = list(cut_line(text, LONGEST_LINE)) if text else []
                counts.update(lines=len(parts), lines_cut=int(len(parts) > 1))
                yield from parts
