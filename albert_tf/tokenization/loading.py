"""From files to a tokenizer: its content decides, not its name."""

import errno
import os
from typing import NamedTuple

from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.data.files import file_exists, open_binary
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.sentence_piece import WORD_START, SentencePieceTokenizer
from albert_tf.tokenization.word_piece import CONTINUATION, WordPieceTokenizer


def load_tokenizer(
    *,
    spm_model_file: str | os.PathLike | None = None,
    vocab_file: str | os.PathLike | None = None,
    do_lower_case: bool = True,
) -> Tokenizer:
    """Makes the tokenizer that fits the file.

    Either argument suffices, and either may name any of: a SentencePiece model, the .vocab beside
    one, or a WordPiece vocabulary (one token a line; further columns are ignored). With both, the
    SentencePiece model is used and the other file must list the same tokens; see `existing_files`
    where it is missing.

    Args:
        spm_model_file: path, usually of a SentencePiece model (--spm_model_file).
        vocab_file: path, usually of a vocabulary (--vocab_file).
        do_lower_case: whether text is lower-cased (--do_lower_case).

    Returns:
        The tokenizer; its `files` are the paths to copy beside a model.

    Raises:
        FileNotFoundError: a path does not exist.
        ValueError: no path given; a file is empty, neither text nor a SentencePiece model, or
            without one of the special tokens; the two files do not agree.
    """
    paths = existing_files(spm_model_file, vocab_file)
    if not paths:
        raise UserError("A tokenizer needs `spm_model_file` or `vocab_file`; neither is given.")
    assets = [_read_asset(path) for path in paths.values()]
    if not any(asset.is_model for asset in assets):
        assets = [_model_beside(asset) if asset.is_piece_list else asset for asset in assets]
    assets.sort(key=lambda asset: asset.is_model, reverse=True)
    chosen, *others = assets
    tokenizer = _make_tokenizer(chosen, others, do_lower_case)
    for other in others:
        _check_agreement(tokenizer, other)
    return tokenizer


def existing_files(
    spm_model_file: str | os.PathLike | None,
    vocab_file: str | os.PathLike | None,
    file_of_model: str | None = None,
) -> dict[str, str]:
    """Returns the given paths by argument, except missing files that are not needed.

    Scripts made for the original release name files that it never opened: a vocabulary beside a
    SentencePiece model, and any beside a TF-Hub module, whose tokenizer is `file_of_model`. A
    warning tells of each.
    """
    given = {"spm_model_file": spm_model_file, "vocab_file": vocab_file}
    paths = {name: os.fspath(path) for name, path in given.items() if path}
    missing = [name for name, path in paths.items() if not file_exists(path)]
    used = file_of_model or (None if "spm_model_file" in missing else paths.get("spm_model_file"))
    if used:
        for name in missing:
            logging.warning("there is no file %s; %s is used", paths.pop(name), used)
    return paths


def read_vocabulary(text: str) -> list[str]:
    """Reads the lines of a WordPiece vocabulary: the tokens in the order of their ids.

    The token of a line is its first word; a line of blanks only gives the token " "; a token seen
    before takes no id.

    Source: `load_vocab` of the original's tokenization module.
    """
    lines = text.removesuffix("\n").split("\n")
    return list(dict.fromkeys((line.split() or [" "])[0] for line in lines))


class _Asset(NamedTuple):
    """A file a tokenizer can be made from: bytes for a SentencePiece model, str for a list."""

    path: str
    content: bytes | str

    @property
    def is_model(self) -> bool:
        return isinstance(self.content, bytes)

    @property
    def is_piece_list(self) -> bool:
        """Whether it is the .vocab that SentencePiece writes beside a model."""
        if isinstance(self.content, bytes):
            return False
        pieces = _listed_pieces(self.content)
        marked = any(len(piece) > 1 and piece.startswith(WORD_START) for piece in pieces)
        return marked and not any(piece.startswith(CONTINUATION) for piece in pieces)


def _read_asset(path: str) -> _Asset:
    if not file_exists(path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    with open_binary(path, "rb") as file:
        data = file.read()
    if not data.strip():
        raise UserError(f"{path} is empty.")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return _Asset(path, data)
    # A SentencePiece model is never plain text: it holds the bytes of floating-point scores.
    return _Asset(path, data if "\0" in text else text)


def _model_beside(piece_list: _Asset) -> _Asset:
    path = os.path.splitext(piece_list.path)[0] + ".model"
    if not file_exists(path):
        raise UserError(
            f"{piece_list.path} only lists the pieces of a SentencePiece model, and {path} does "
            "not exist next to it. Pass the model itself as `spm_model_file`."
        )
    with open_binary(path, "rb") as file:
        return _Asset(path, file.read())


def _make_tokenizer(chosen: _Asset, others: list[_Asset], do_lower_case: bool) -> Tokenizer:
    if isinstance(chosen.content, str):
        tokens = read_vocabulary(chosen.content)
        tokenizer = WordPieceTokenizer(tokens, do_lower_case, [chosen.path])
        lines = chosen.content.removesuffix("\n").count("\n") + 1
        if lines != len(tokens):
            logging.warning(
                "%s has %d lines and %d tokens: duplicate lines get no id, so ids differ from line "
                "numbers (as in the original release).",
                chosen.path,
                lines,
                len(tokens),
            )
        return tokenizer
    listings = [other.path for other in others if not other.is_model]
    beside = os.path.splitext(chosen.path)[0] + ".vocab"
    if not listings and file_exists(beside):
        listings = [beside]
    return SentencePieceTokenizer(chosen.content, do_lower_case, [chosen.path, *listings])


def _check_agreement(tokenizer: Tokenizer, other: _Asset) -> None:
    """Raises ValueError unless the other file names the same tokens with the same ids."""
    if isinstance(other.content, bytes):
        tokens = SentencePieceTokenizer(other.content, files=[other.path]).tokens
    elif isinstance(tokenizer, SentencePieceTokenizer):
        tokens = _listed_pieces(other.content)
    else:
        tokens = read_vocabulary(other.content)
    if tokens == tokenizer.tokens:
        return
    raise UserError(
        f"{tokenizer.files[0]} ({tokenizer.vocab_size} tokens) and {other.path} ({len(tokens)} "
        "tokens) are different vocabularies. Pass only one of `spm_model_file` and `vocab_file`, "
        "or two that belong together."
    )


def _listed_pieces(text: str) -> list[str]:
    """The first column of a .vocab file; pieces may hold any blank but a tab."""
    return [line.split("\t")[0] for line in text.removesuffix("\n").split("\n")]
