"""Reads the tokenizer in a Hugging Face directory.

English models have a `spiece.model`, Chinese models a `vocab.txt`. This package uses these files if
it returns the ids of the tokenizers library for samples. They are created in the cache if special
tokens have other names, or if tokens occur twice. Otherwise, or if there is only a
`tokenizer.json`, the library is used.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

from absl import logging

from albert_tf.checkpoints.downloads import store_tokenizer
from albert_tf.checkpoints.facts import Meeting, compare
from albert_tf.checkpoints.formats.huggingface.sentencepiece_messages import (
    CONTROL,
    UNKNOWN,
    parse_model,
)
from albert_tf.checkpoints.formats.huggingface.tensors import read_content
from albert_tf.checkpoints.formats.huggingface.tokenizer_writing import (
    SENTENCEPIECE_FILE,
    WORDPIECE_FILE,
    added_token,
    tokenizer_json,
    vocabulary_lines,
)
from albert_tf.checkpoints.stored_model import StoredTokenizer
from albert_tf.data.errors import UserError
from albert_tf.data.files import decode_utf8, file_exists, read_file
from albert_tf.data.strict_json import JsonValue
from albert_tf.tokenization.base import SPECIAL_TOKENS, Tokenizer, vocabulary_fingerprint
from albert_tf.tokenization.library import (
    CONFIG_FILE,
    JSON_FILE,
    LibraryTokenizer,
    name_files,
    read_library_tokenizer,
    special_names,
)
from albert_tf.tokenization.loading import first_words

_VOCABULARIES = (SENTENCEPIECE_FILE, WORDPIECE_FILE, JSON_FILE)
_ADDED_FILE = "added_tokens.json"
_SPECIAL = {name for names in SPECIAL_TOKENS.values() for name in names}

# Texts whose ids must be equal, and texts whose different ids are reported.
_USUAL = ["The", "King's", "it's", "a_b", "(x-y)", "3.5", "a.b.c", "#x", "the,king", "paid"]
_UNUSUAL = ["café Ñandú", "a  b", "ﬁ Ⅳ ½", "中文 a中b", "a\u200bb", "a [b] c.", "1,999 covid"]
_MOST_WORDS = 50  # of ideographs
_LONG_PATTERN = re.compile(r'"Regex": "[^"]{400,}"')  # depends on Python's version of Unicode
_CLASSES = re.compile(r"((Albert|Auto|Bert|DistilBert|Electra)Tokenizer(Fast)?|\w+(Fast|Backend))")
# Settings of `tokenizer_config.json` that do not change a `tokenizer.json`, with the usual values.
_SETTINGS = {"do_basic_tokenize": True, "never_split": [], "remove_space": True}
_SETTINGS |= {"sp_model_kwargs": {}, "add_prefix_space": True}


class _Files:
    """The tokenizer files in a directory, and their settings."""

    def __init__(self, directory: str) -> None:
        names = (*_VOCABULARIES, _ADDED_FILE)
        paths = {name: os.path.join(directory, name) for name in names}
        self.paths = {name: path for name, path in paths.items() if file_exists(path)}
        # The file with the vocabulary; "" if there is none.
        self.main = next((name for name in _VOCABULARIES if name in self.paths), "")
        self.source = self.paths.get(self.main, "")
        self.name_files = name_files(paths[JSON_FILE])
        self.settings = [*map(read_content, self.name_files)]
        is_config = self.name_files[-1:] == [os.path.join(directory, CONFIG_FILE)]
        self.config: Mapping[str, Any] = self.settings[-1].value if is_config else {}
        self.rules = {
            key: value if isinstance(value := self.config.get(key), bool) else None
            for key in ("do_lower_case", "keep_accents")
        }

    @cached_property
    def content(self) -> JsonValue | None:
        """The content of the `tokenizer.json`."""
        return read_content(self.paths[JSON_FILE]) if JSON_FILE in self.paths else None

    @cached_property
    def tokens(self) -> list[str]:
        """The tokens in the vocabulary file."""
        data = read_file(self.source)
        if self.main == SENTENCEPIECE_FILE:
            return [piece.piece for piece in parse_model(data, self.source).pieces]
        return first_words(decode_utf8(data, self.source))

    @cached_property
    def names(self) -> dict[str, str]:
        """The names of special tokens by role."""
        return special_names(self.name_files)

    @cached_property
    def added(self) -> dict[str, int]:
        """The ids of tokens that transformers finds before it splits a text.

        Special tokens of the vocabulary file are omitted.
        """
        added: dict[str, int] = {}
        entries: list[tuple[int, JsonValue]] = []
        if _ADDED_FILE in self.paths:
            tokens = read_content(self.paths[_ADDED_FILE]).members()
            added |= {token: i.whole_number(0) for token, i in tokens.items()}
        for values in self.settings:
            decoder = values.get("added_tokens_decoder")
            members = decoder.members() if decoder else {}
            entries += [(int(i), entry) for i, entry in members.items() if i.isdecimal()]
        if self.content and (listed := self.content.get("added_tokens")):
            entries += [(entry["id"].whole_number(0), entry) for entry in listed.elements()]
        for i, entry in entries:
            special = entry.get("special")
            if i >= len(self.tokens) or not (special and special.truth_value()):
                added[entry["content"].text()] = i
        return added

    @property
    def words(self) -> dict[str, int]:
        """Those of the added tokens that are not special."""
        special = {*_SPECIAL, *self.names.values()}
        return {word: i for word, i in self.added.items() if word not in special}

    def stored(
        self, files: Sequence[str], rules: Mapping[str, Any], *differences: str
    ) -> StoredTokenizer:
        """Returns a tokenizer, with a note that describes how some ids differ."""
        if files and files[0].endswith(WORDPIECE_FILE):
            rules = {**rules, "keep_accents": None}
        found = "; ".join(filter(None, differences))
        note = found and f"{self.source}: the ids of some texts may differ: {found}."
        return StoredTokenizer(files, note=note, **rules)

    def of_library(
        self, library: LibraryTokenizer, files: Sequence[str], *differences: str
    ) -> StoredTokenizer:
        """Returns a tokenizer with the rules in a `tokenizer.json`."""
        sources = {JSON_FILE: library.rules, CONFIG_FILE: self.rules}
        ignored = [
            f"{one.text}, and the first value is used" for one in compare(sources, Meeting.FORMAT)
        ]
        return self.stored(files, library.rules, *differences, *ignored)


def read_tokenizer(directory: str) -> StoredTokenizer:
    """Returns the tokenizer in a directory.

    It has no files if it is damaged, or if its rules are unknown. If only the ids of unusual texts
    differ from the tokenizers library, a warning shows an example.
    """
    files = _Files(directory)
    try:
        tokenizer = _read(files)
    except (ValueError, OSError) as error:
        # An error of the file itself is raised later.
        tokenizer = files.stored([files.source] * (files.main != JSON_FILE), files.rules)
        tokenizer = replace(tokenizer, note=f"{error} Pass `spm_model_file` or `vocab_file`.")
    if tokenizer.note:
        logging.warning("%s", tokenizer.note)
    return replace(tokenizer, source=files.source)


def _read(files: _Files) -> StoredTokenizer:
    json_path = files.paths.get(JSON_FILE, "")
    if not files.main:
        return StoredTokenizer(do_lower_case=files.rules["do_lower_case"])
    if files.main == JSON_FILE:
        return files.of_library(read_library_tokenizer(json_path), [json_path])
    stored = files.stored([_with_usual_names(files)], files.rules)
    own = stored.load()
    assert own is not None
    if files.content is not None:
        if _is_written_from(own, files.content.value):
            return replace(stored, do_lower_case=own.do_lower_case)
    else:
        name = str(files.config.get("tokenizer_class") or "AutoTokenizer")
        if not _CLASSES.fullmatch(name):
            note = f"{files.source}: the rules of {name} are only supported with a {JSON_FILE}."
            return replace(stored, files=(), note=note)
        rules = _unusual_rules(own, files.config, files.words)
        if rules is None:
            values = ((k, usual, files.config.get(k)) for k, usual in _SETTINGS.items())
            unusual = [f"{k}={v!r}" for k, usual, v in values if v not in (None, usual)]
            return files.stored(stored.files, files.rules, *unusual)
        json_path = store_tokenizer(JSON_FILE, json.dumps(rules).encode())
    return _compared(files, stored.files, read_library_tokenizer(json_path))


def _with_usual_names(files: _Files) -> str:
    """Returns the vocabulary file, or a copy in the cache with the usual special tokens."""
    tokens = _named(files.tokens, files)
    if tokens == files.tokens:
        return files.source
    data = vocabulary_lines(tokens)
    if files.main == SENTENCEPIECE_FILE:
        data = _rename(parse_model(read_file(files.source), files.source), tokens)
    return store_tokenizer(files.main, data)


def _compared(files: _Files, paths: Sequence[str], library: LibraryTokenizer) -> StoredTokenizer:
    """Returns the tokenizer of this package if it agrees with the library on common texts."""
    stored = files.stored(paths, library.rules)
    own = stored.load()
    assert own is not None
    tokens = [token if token.split() else " " for token in library.tokens]  # as in a vocab.txt
    theirs = _named(tokens, files)
    if theirs[: own.vocab_size] != own.tokens or {*theirs[own.vocab_size :]} - files.added.keys():
        return replace(stored, others={library.files[0]: vocabulary_fingerprint(theirs)})
    words = files.words
    usual = [text for text in _USUAL if not any(word in text for word in words)]
    usual += [word for word, i in words.items() if [word] != own.tokens[i : i + 1]]
    usual += [t for t in own.tokens if len(t) > 1 and "一" <= t[0] <= t[1] <= "鿿"][:_MOST_WORDS]
    if reason := _difference(own, library, usual):
        logging.info("The tokenizers library is used for %s: %s", files.source, reason)
        return files.of_library(library, library.files[:1])
    unusual = _difference(own, library, [*(f"a {word}b" for word in words), *_UNUSUAL])
    return files.of_library(library, paths, unusual)


def _is_written_from(own: Tokenizer, rules: Mapping[str, Any]) -> bool:
    """Returns whether this package wrote a `tokenizer.json`, whose ids are then equal."""
    with suppress(UserError):
        texts = (json.dumps(values, sort_keys=True) for values in (tokenizer_json(own), rules))
        return len({_LONG_PATTERN.sub("", text) for text in texts}) == 1
    return False


def _unusual_rules(
    own: Tokenizer, config: Mapping[str, Any], words: Mapping[str, int]
) -> dict[str, Any] | None:
    """Returns the `tokenizer.json` for settings that files of this package cannot contain."""
    chinese, accents = config.get("tokenize_chinese_chars"), config.get("strip_accents")
    is_bert = not own.word_start
    is_unusual = chinese is False or accents not in (None, own.do_lower_case)
    if not (words or (is_bert and is_unusual)):
        return None
    rules = tokenizer_json(own)
    if is_bert:
        rules["normalizer"] = {"type": "BertNormalizer", "clean_text": True}
        rules["normalizer"] |= {"handle_chinese_chars": chinese is not False}
        rules["normalizer"] |= {"strip_accents": accents, "lowercase": own.do_lower_case}
        rules["pre_tokenizer"] = {"type": "BertPreTokenizer"}
    tokens = sorted(words.items(), key=lambda pair: pair[1])
    rules["added_tokens"] += [added_token(i, word, "normalized") for word, i in tokens]
    return rules


def _difference(own: Tokenizer, library: Tokenizer, texts: Sequence[str]) -> str:
    """Describes the first text that gets other ids; "" if there is none."""
    rows = (tokenizer.encode_batch(texts) for tokenizer in (own, library))
    for text, *ids in zip(texts, *rows, strict=True):
        if ids[0] != ids[1]:
            ours, theirs = (" ".join(library.convert_ids_to_tokens(row)) for row in ids)
            return f"{text!r} becomes {theirs!r} instead of {ours!r}"
    return ""


def _named(tokens: Sequence[str], files: _Files) -> list[str]:
    """Returns the tokens with the special names of this package, and without repeated tokens.

    Includes special tokens that were added at the end. Only the last of repeated tokens is used by
    transformers; the others get unused names.
    """
    tokens, names = [*tokens], files.names
    by_id = {files.added.get(name): name for name in names.values()}
    while name := by_id.get(len(tokens)):
        tokens.append(name)
    places = {token: i for i, token in enumerate(tokens)}
    usual = {
        role: next((n for n in ours if n in places), None) for role, ours in SPECIAL_TOKENS.items()
    }
    renames: dict[str, str] = {}
    for role, ours in SPECIAL_TOKENS.items():
        theirs, there = names.get(role), usual[role]
        if theirs in places and theirs not in (*renames, *usual.values()):
            renames[theirs] = there or ours[0]
            if there:
                renames[there] = theirs
    if not renames and len(places) == len(tokens):
        return tokens
    return [
        renames.get(token, token) if places[token] == i else f"[unused_{i}]"
        for i, token in enumerate(tokens)
    ]


def _rename(model: Any, tokens: Sequence[str]) -> bytes:
    """Returns a SentencePiece model with other names of special tokens, and more of them."""
    for piece, name in zip(model.pieces, tokens, strict=False):
        if piece.piece != name:
            piece.piece = name
            piece.type = UNKNOWN if piece.type == UNKNOWN else CONTROL
    for name in tokens[len(model.pieces) :]:
        model.pieces.add(piece=name, type=CONTROL)
    model.trainer_spec.vocab_size = len(tokens)
    return model.SerializeToString()
