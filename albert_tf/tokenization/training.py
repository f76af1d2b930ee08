"""Learning a SentencePiece vocabulary, with the settings of the released English models."""

import io
import os
from collections.abc import Iterable
from itertools import chain

import sentencepiece

from albert_tf.data.files import write_then_rename
from albert_tf.tokenization.cleaning import clean_text

CONTROL_SYMBOLS = ["[CLS]", "[SEP]", "[MASK]"]
USER_SYMBOLS = ["(", ")", '"', "-", ".", "–", "£", "€"]
CHARACTER_COVERAGE = 0.99995
SAMPLED_SENTENCES = 10_000_000
NO_TEXT = "There is nothing to train on: --input_file has no line of text."


def train_sentence_piece(
    sentences: Iterable[str],
    model_prefix: str | os.PathLike,
    vocab_size: int,
    do_lower_case: bool = True,
) -> None:
    """Learns a unigram vocabulary and writes `<model_prefix>.model` and `<model_prefix>.vocab`.

    The text goes through the tokenizer's own clean-up first, for that is what the tokenizer will
    feed to the model. `<pad>` gets id 0, `<unk>` 1, then come [CLS], [SEP] and [MASK].

    Args:
        sentences: raw text; of more than SAMPLED_SENTENCES lines so many are sampled.
        model_prefix: path of both files, without the ending.
        vocab_size: V, special and user symbols included.
        do_lower_case: whether the tokenizer will lower-case its text.

    Raises:
        ValueError: the text does not yield so many (or so few) pieces, or there is no text.

    Source: the training command in the README of the original release.
    """
    cleaned = filter(None, (clean_text(sentence, do_lower_case) for sentence in sentences))
    first = next(cleaned, None)
    if first is None:
        raise ValueError(NO_TEXT)
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=chain([first], cleaned),
            model_writer=model,
            vocab_size=vocab_size,
            model_type="unigram",
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            control_symbols=CONTROL_SYMBOLS,
            user_defined_symbols=USER_SYMBOLS,
            character_coverage=CHARACTER_COVERAGE,
            input_sentence_size=SAMPLED_SENTENCES,
            shuffle_input_sentence=True,
            minloglevel=1,
        )
    except RuntimeError as error:
        raise ValueError(
            f"Cannot train a vocabulary with --vocab_size={vocab_size}: {error}"
        ) from error
    model_file, list_file = model_files(model_prefix)
    with write_then_rename(model_file) as file:
        file.write(model.getvalue())
    with write_then_rename(list_file) as file:
        file.write(piece_list(model.getvalue()).encode())


def model_files(model_prefix: str | os.PathLike) -> tuple[str, str]:
    """The files of a vocabulary: the model, and the list of its pieces."""
    return f"{model_prefix}.model", f"{model_prefix}.vocab"


def piece_list(model_proto: bytes) -> str:
    """Returns the content of a .vocab file: a piece and its score a line, in id order.

    Args:
        model_proto: content of the SentencePiece .model file.
    """
    processor = sentencepiece.SentencePieceProcessor(model_proto=model_proto)
    rows = ((processor.id_to_piece(i), processor.get_score(i)) for i in range(len(processor)))
    return "".join(f"{piece}\t{score:g}\n" for piece, score in rows)
