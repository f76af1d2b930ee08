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
from dataclasses import replace
from typing import Any

from absl import logging

from albert_tf.checkpoints.downloads import store_tokenizer
from albert_tf.checkpoints.formats.huggingface.sentencepiece_messages import (
    CONTROL,
    UNKNOWN,
    parse_model,
)
from albert_tf.checkpoints.formats.huggingface.tensors import read_content
from albert_tf.checkpoints.formats.huggingface.tokenizer_writing import (
    SENTENCEPIECE_FILE,
    WORDPIECE_FILE,
    tokenizer_json,
    vocabulary_lines,
)
from albert_tf.checkpoints.stored_model import StoredTokenizer
from albert_tf.data.errors import UserError
from albert_tf.data.files import decode_utf8, file_exists, read_file
from albert_tf.data.strict_json import JsonValue
from albert_tf.tokenization.base import SPECIAL_TOKENS, Tokenizer
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
_ADDED = {
    **dict.fromkeys(("single_word", "lstrip", "rstrip", "special"), False),
    "normalized": True,
}


class _Files:
    """The tokenizer files in a directory: their paths by name, and their settings."""

    def __init__(self, directory: str) -> None:
        names = (*_VOCABULARIES, _ADDED_FILE)
        paths = {name: os.path.join(directory, name) for name in names}
        self.paths = {name: path for name, path in paths.items() if file_exists(path)}
        # The file with the vocabulary; "" if there is none.
        self.main = next((name for name in _VOCABULARIES if name in self.paths), "")
        self.name_files = name_files(paths[JSON_FILE])
        self.settings = [*map(read_content, self.name_files)]
        is_config = self.name_files[-1:] == [os.path.join(directory, CONFIG_FILE)]
        self.config: Mapping[str, Any] = self.settings[-1].value if is_config else {}
        self.lower_case, self.keep_accents = (
            value if isinstance(value := self.config.get(key), bool) else None
            for key in ("do_lower_case", "keep_accents")
        )

    def added_tokens(self, content: JsonValue | None, size: int) -> dict[str, int]:
        """Returns the ids of tokens that transformers finds before it splits a text.

        Special tokens with ids below `size` are omitted.
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
        if content and (listed := content.get("added_tokens")):
            entries += [(entry["id"].whole_number(0), entry) for entry in listed.elements()]
        for i, entry in entries:
            special = entry.get("special")
            if i >= size or not (special and special.truth_value()):
                added[entry["content"].text()] = i
        return added


def read_tokenizer(directory: str) -> tuple[StoredTokenizer, bool | None]:
    """Returns the tokenizer in a directory, and whether it lower-cases text. `None` if unknown.

    There are no tokenizer files if the tokenizer is damaged, or if its rules are unknown. If only
    the ids of unusual texts differ from the tokenizers library, a warning shows an example.
    """
    files = _Files(directory)
    if not files.main:
        return StoredTokenizer(), files.lower_case
    source, lower_case = files.paths[files.main], files.lower_case
    try:
        tokenizer, lower_case = _read(files)
    except (ValueError, OSError) as error:
        # An error of the file itself is raised later.
        note = f"{error} Pass `spm_model_file` or `vocab_file`."
        tokenizer = StoredTokenizer(() if files.main == JSON_FILE else [source], note=note)
    if tokenizer.note:
        logging.warning("%s", tokenizer.note)
    return replace(tokenizer, source=source), lower_case


def _read(files: _Files) -> tuple[StoredTokenizer, bool | None]:
    """Returns the file to use, and whether text is lower-cased."""
    source, json_path = files.paths[files.main], files.paths.get(JSON_FILE, "")
    content = read_content(json_path) if json_path else None
    if files.main == JSON_FILE:
        return _of_library(files, read_library_tokenizer(json_path, read_file(json_path)))
    names, tokens = special_names(files.name_files), _file_tokens(source)
    added = files.added_tokens(content, len(tokens))
    file, renamed = source, _named(tokens, names, added)
    if renamed != tokens:
        data = vocabulary_lines(renamed)
        if files.main == SENTENCEPIECE_FILE:
            data = _rename(parse_model(read_file(source), source), renamed)
        file = store_tokenizer(files.main, data)
    accents = files.keep_accents if files.main == SENTENCEPIECE_FILE else None
    stored, lower_case = StoredTokenizer([file], keep_accents=accents), files.lower_case
    own = stored.load(lower_case is not False)
    assert own is not None
    words = {word: i for word, i in added.items() if word not in {*_SPECIAL, *names.values()}}
    if content is None:
        name = str(files.config.get("tokenizer_class") or "AutoTokenizer")
        if not _CLASSES.fullmatch(name):
            note = f"{source}: the rules of {name} are only supported with a {JSON_FILE}."
            return StoredTokenizer(note=note), lower_case
        rules = _unusual_rules(own, files.config, words)
        if rules is None:
            note = _noted(source, *_unusual_settings(files.config))
            return replace(stored, note=note), lower_case
        json_path = store_tokenizer(JSON_FILE, json.dumps(rules).encode())
    elif _is_written_from(own, content.value):
        return stored, own.do_lower_case
    try:
        library = read_library_tokenizer(json_path, read_file(json_path))
    except ValueError as error:
        note = f"{source}: {JSON_FILE} cannot be compared ({error})."
        return replace(stored, note=note), lower_case
    stored = replace(stored, keep_accents=library.keep_accents if own.word_start else None)
    own = stored.load(library.do_lower_case)
    assert own is not None
    theirs = [token if token.split() else " " for token in library.tokens]  # as in a vocab.txt
    theirs = _named(theirs, names, added)
    if theirs[: own.vocab_size] != own.tokens or {*theirs[own.vocab_size :]} - added.keys():
        contradiction = (
            f"{source} ({own.vocab_size} tokens) and {json_path} ({len(theirs)} tokens) belong to "
            "one model but contain different tokens or different ids. Delete the file that the "
            "model was not trained with, or pass the other file as the tokenizer."
        )
        return replace(stored, contradiction=contradiction), library.do_lower_case
    usual = [text for text in _USUAL if not any(word in text for word in words)]
    usual += [word for word, i in words.items() if [word] != own.tokens[i : i + 1]]
    usual += [t for t in own.tokens if len(t) > 1 and "一" <= t[0] <= t[1] <= "鿿"][:_MOST_WORDS]
    if reason := _difference(own, library, usual):
        logging.info("The tokenizers library is used for %s: %s", source, reason)
        return _of_library(files, library)
    unusual = _difference(own, library, [*(f"a {word}b" for word in words), *_UNUSUAL])
    note = _noted(source, unusual, *_ignored(files, library))
    return replace(stored, note=note), library.do_lower_case


def _of_library(files: _Files, library: LibraryTokenizer) -> tuple[StoredTokenizer, bool]:
    note = _noted(library.source, *_ignored(files, library))
    stored = StoredTokenizer(library.files[:1], keep_accents=library.keep_accents, note=note)
    return stored, library.do_lower_case


def _noted(source: str, *differences: str) -> str:
    """Returns a warning, or "" if there are no differences."""
    found = "; ".join(filter(None, differences))
    return found and f"{source}: the ids of some texts may differ: {found}."


def _ignored(files: _Files, library: Tokenizer) -> list[str]:
    """Describes settings that contradict the rules in a `tokenizer.json`."""
    given = {"do_lower_case": files.lower_case, "keep_accents": files.keep_accents}
    return [
        f"{key}={value} in {CONFIG_FILE} contradicts {JSON_FILE}, which is used"
        for key, value in given.items()
        if value not in (None, library.rules[key])
    ]


def _unusual_settings(config: Mapping[str, Any]) -> list[str]:
    values = {key: config.get(key) for key in _SETTINGS}
    return [f"{k}={v!r}" for k, v in values.items() if v not in (None, _SETTINGS[k])]


def _file_tokens(path: str) -> list[str]:
    if path.endswith(SENTENCEPIECE_FILE):
        return [piece.piece for piece in parse_model(read_file(path), path).pieces]
    return first_words(decode_utf8(read_file(path), path))


def _is_written_from(own: Tokenizer, rules: Mapping[str, Any]) -> bool:
    """Returns whether this package wrote a `tokenizer.json`, whose ids are then equal."""
    try:
        texts = (json.dumps(values, sort_keys=True) for values in (tokenizer_json(own), rules))
        written, given = (_LONG_PATTERN.sub("", text) for text in texts)
    except UserError:
        return False
    return written == given


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
    rules["added_tokens"] += [{"id": i, "content": word, **_ADDED} for word, i in tokens]
    return rules


def _difference(own: Tokenizer, library: Tokenizer, texts: Sequence[str]) -> str:
    """Describes the first text that gets other ids; "" if there is none."""
    rows = (tokenizer.encode_batch(texts) for tokenizer in (own, library))
    for text, *ids in zip(texts, *rows, strict=True):
        if ids[0] != ids[1]:
            ours, theirs = (" ".join(library.convert_ids_to_tokens(row)) for row in ids)
            return f"{text!r} becomes {theirs!r} instead of {ours!r}"
    return ""


def _named(tokens: Sequence[str], names: Mapping[str, str], added: Mapping[str, int]) -> list[str]:
    """Returns the tokens with the special names of this package, and without repeated tokens.

    Includes special tokens that were added at the end. Only the last of repeated tokens is used by
    transformers; the others get unused names.
    """
    tokens = [*tokens]
    by_id = {added.get(name): name for name in names.values()}
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
