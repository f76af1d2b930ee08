"""Loads tokenizers. The content of a file, not its name, determines its format."""

import errno
import os

from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.data.files import file_exists, read_file
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.library import JSON_FILE, read_library_tokenizer
from albert_tf.tokenization.sentence_piece import WORD_START, SentencePieceTokenizer
from albert_tf.tokenization.word_piece import CONTINUATION, WordPieceTokenizer


def tokenizer_from_files(
    *,
    spm_model_file: str | os.PathLike | None = None,
    vocab_file: str | os.PathLike | None = None,
    do_lower_case: bool = True,
    keep_accents: bool = False,
) -> Tokenizer:
    """Loads a tokenizer.

    Each path may be a SentencePiece model, the .vocab file next to a model, a WordPiece vocabulary
    (one token per line; further columns are ignored), or a `tokenizer.json`, whose own rules are
    used. If both paths are passed, the SentencePiece model is used, and the other file must contain
    the same tokens; see `existing_files` if a file is missing. `keep_accents` needs a SentencePiece
    model; see `clean_text`. Raises FileNotFoundError or ValueError.
    """
    paths = existing_files(spm_model_file, vocab_file)
    if not paths:
        raise UserError("A tokenizer needs `spm_model_file` or `vocab_file`. Received: neither")
    contents = {path: _read(path) for path in paths.values()}
    if not _models(contents):
        found = [_model_path(path, content) for path, content in contents.items()]
        contents = {path: _read(path) for path in found}
    chosen = next(iter(_models(contents) or contents))
    content = contents.pop(chosen)
    tokenizer: Tokenizer
    if chosen.endswith(JSON_FILE):
        tokenizer = _read_library(chosen, do_lower_case, keep_accents)
    elif isinstance(content, bytes):
        lists = [path for path in contents if path not in _models(contents)]
        beside = os.path.splitext(chosen)[0] + ".vocab"
        files = [chosen, *(lists or filter(file_exists, [beside]))]
        tokenizer = SentencePieceTokenizer(content, do_lower_case, files, keep_accents)
    else:
        tokenizer = _read_word_piece(chosen, content, do_lower_case, keep_accents)
    for path, other in contents.items():
        _check_agreement(tokenizer, path, other)
    return tokenizer


def _read_library(path: str, do_lower_case: bool, keep_accents: bool) -> Tokenizer:
    """Loads a `tokenizer.json`; logs a warning if it has other rules."""
    tokenizer = read_library_tokenizer(path)
    ignored = {"do_lower_case=False": not do_lower_case and tokenizer.do_lower_case}
    ignored |= {"keep_accents=True": keep_accents and not tokenizer.keep_accents}
    if names := [name for name, is_ignored in ignored.items() if is_ignored]:
        logging.warning("%s is used with its own rules, not %s", path, " and ".join(names))
    return tokenizer


def _read_word_piece(path: str, text: str, do_lower_case: bool, keep_accents: bool) -> Tokenizer:
    if keep_accents:
        raise UserError(
            f"`keep_accents` needs a SentencePiece model. {path} is a WordPiece vocabulary, whose "
            "accents are kept with `do_lower_case`=False. Omit `keep_accents`."
        )
    tokenizer = WordPieceTokenizer(read_vocabulary(text), do_lower_case, [path])
    if (lines := len(first_words(text))) != len(tokenizer):
        logging.warning(
            "%s has %d lines and %d tokens. As in the original release, duplicate lines get no id, "
            "so ids differ from line numbers.",
            *(path, lines, len(tokenizer)),
        )
    return tokenizer


def existing_files(
    spm_model_file: str | os.PathLike | None,
    vocab_file: str | os.PathLike | None,
    file_of_model: str | None = None,
) -> dict[str, str]:
    """Returns the paths by argument, without missing files that are not needed.

    Scripts for the original release may name files that it never opened: a vocabulary in addition
    to a SentencePiece model, and any file in addition to a TF-Hub module. `file_of_model` is the
    tokenizer file of this module. A warning is logged for each missing file.
    """
    given = {"spm_model_file": spm_model_file, "vocab_file": vocab_file}
    paths = {name: os.fspath(path) for name, path in given.items() if path}
    missing = [name for name, path in paths.items() if not file_exists(path)]
    used = file_of_model or (None if "spm_model_file" in missing else paths.get("spm_model_file"))
    if used:
        for name in missing:
            logging.warning("The file %s does not exist, so %s is used", paths.pop(name), used)
    return paths


def read_vocabulary(text: str) -> list[str]:
    """Returns the tokens of a WordPiece vocabulary in the order of their ids.

    A token is the first word of a line, or " " for a blank line. Repeated tokens are ignored.

    Source: `load_vocab` of the original's tokenization module.
    """
    return list(dict.fromkeys(first_words(text)))


def first_words(text: str) -> list[str]:
    """Returns the first word of each line, or " " for a blank line."""
    lines = text.removesuffix("\n").split("\n")
    return [(line.split() or [" "])[0] for line in lines]


def _read(path: str) -> bytes | str:
    """Returns the content of a file: bytes for a SentencePiece model, text for a list of tokens."""
    if not file_exists(path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    data = read_file(path)
    if not data.strip():
        raise UserError(f"{path} is empty.")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return data
    # A SentencePiece model contains floating-point numbers, so it is never plain text.
    return data if "\0" in text else text


def _models(contents: dict[str, bytes | str]) -> list[str]:
    return [path for path, content in contents.items() if isinstance(content, bytes)]


def _model_path(path: str, content: bytes | str) -> str:
    """Returns the path of the model if the file is the .vocab file of a model, otherwise `path`."""
    pieces = _listed_pieces(str(content))
    is_marked = any(len(piece) > 1 and piece.startswith(WORD_START) for piece in pieces)
    if not is_marked or any(piece.startswith(CONTINUATION) for piece in pieces):
        return path
    model = os.path.splitext(path)[0] + ".model"
    if not file_exists(model):
        raise UserError(
            f"{path} only lists the pieces of a SentencePiece model, and {model} does not exist. "
            "Pass the model as `spm_model_file`."
        )
    return model


def _check_agreement(tokenizer: Tokenizer, path: str, content: bytes | str) -> None:
    """Raises ValueError if another file does not contain the same tokens in the same order."""
    if isinstance(content, bytes):
        tokens = SentencePieceTokenizer(content, files=[path]).tokens
    elif isinstance(tokenizer, SentencePieceTokenizer):
        tokens = _listed_pieces(content)
    else:
        tokens = read_vocabulary(content)
    if tokens != tokenizer.tokens:
        raise UserError(
            f"{tokenizer.files[0]} ({tokenizer.vocab_size} tokens) and {path} ({len(tokens)} "
            "tokens) are different vocabularies. Pass only one of `spm_model_file` and "
            "`vocab_file`, or two files of the same tokenizer."
        )


def _listed_pieces(text: str) -> list[str]:
    """Returns the first column of a .vocab file; pieces may contain blanks other than tabs."""
    return [line.split("\t")[0] for line in text.removesuffix("\n").split("\n")]
