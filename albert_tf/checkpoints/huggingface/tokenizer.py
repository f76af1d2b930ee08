"""Reads the tokenizer in a Hugging Face directory.

English models have a `spiece.model`, Chinese models a `vocab.txt`. Transformers 5 saves only a
`tokenizer.json`. If this package returns the ids of the tokenizers library for samples, a file of
the first two kinds is used; it is created in the cache if there is only the last one, if special
tokens have other names, or if tokens occur twice. Otherwise, the library runs `tokenizer.json`.
"""

import base64
import json
import os
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from absl import logging

from albert_tf.checkpoints.downloads import store_tokenizer
from albert_tf.checkpoints.huggingface.sentencepiece_messages import (
    BYTE,
    CONTROL,
    NORMAL,
    PENALTY,
    UNIGRAM,
    UNKNOWN,
    USER_DEFINED,
    model_class,
    parse_model,
    penalty,
)
from albert_tf.checkpoints.huggingface.tensors import read_content
from albert_tf.checkpoints.huggingface.tokenizer_writing import (
    SENTENCEPIECE_FILE,
    WORDPIECE_FILE,
    tokenizer_json,
    vocabulary_lines,
)
from albert_tf.checkpoints.stored_model import StoredTokenizer
from albert_tf.data.errors import UserError
from albert_tf.data.files import decode_utf8, file_exists, read_file
from albert_tf.data.strict_json import JsonValue
from albert_tf.tokenization.base import SPECIAL_TOKENS, WORD_START, Tokenizer
from albert_tf.tokenization.library import (
    CONFIG_FILE,
    JSON_FILE,
    has_accents,
    has_lower_case,
    library_errors,
    library_ids,
    name_files,
    open_library,
    special_names,
    vocabulary,
)
from albert_tf.tokenization.loading import first_words
from albert_tf.tokenization.word_piece import CONTINUATION

_VOCABULARIES = (SENTENCEPIECE_FILE, WORDPIECE_FILE, JSON_FILE)
_ADDED_FILE = "added_tokens.json"
_SPECIAL = {name for names in SPECIAL_TOKENS.values() for name in names}
_BYTE_PIECES = frozenset(f"<0x{byte:02X}>" for byte in range(256))

# Texts whose ids must be equal, and texts whose different ids are reported.
_USUAL = ["The", "King's", "it's", "a_b", "(x-y)", "3.5", "a.b.c", "#x", "the,king", "paid"]
_UNUSUAL = ["café Ñandú", "a  b", "ﬁ Ⅳ ½", "中文 a中b", "a\u200bb", "a [b] c.", "1,999 covid"]
_MOST_SAMPLES = 50  # ideographs, and words of ideographs
_LONG_PATTERN = re.compile(r'"Regex": "[^"]{400,}"')  # depends on Python's version of Unicode
_CLASSES = re.compile(r"((Albert|Auto|Bert|DistilBert|Electra)Tokenizer(Fast)?|\w+(Fast|Backend))")
# Settings of `tokenizer_config.json` that do not change a `tokenizer.json`, with the usual values.
_SETTINGS = {"do_basic_tokenize": True, "never_split": [], "remove_space": True}
_SETTINGS |= {"sp_model_kwargs": {}, "add_prefix_space": True}
# Settings of BertTokenizer by the rules of its normalizer, which they replace.
_BERT = {"lowercase": "do_lower_case", "strip_accents": "strip_accents"}
_BERT |= {"handle_chinese_chars": "tokenize_chinese_chars"}
_ADDED = {
    **dict.fromkeys(("single_word", "lstrip", "rstrip", "special"), False),
    "normalized": True,
}


class _Files:
    """The tokenizer files in a directory: their paths by name, and their settings."""

    def __init__(self, directory: str, chosen: str | None) -> None:
        names = (*_VOCABULARIES, _ADDED_FILE)
        paths = {name: os.path.join(directory, name) for name in names}
        self.paths = {name: path for name, path in paths.items() if file_exists(path)}
        # The file with the vocabulary; "" if there is none.
        self.main = chosen or next((name for name in _VOCABULARIES if name in self.paths), "")
        self.name_files = name_files(paths[JSON_FILE])
        self.settings = [*map(read_content, self.name_files)]
        is_config = self.name_files[-1:] == [os.path.join(directory, CONFIG_FILE)]
        self.config: Mapping[str, Any] = self.settings[-1].value if is_config else {}
        self.lower_case, self.keep_accents = (
            value if isinstance(value := self.config.get(key), bool) else None
            for key in ("do_lower_case", "keep_accents")
        )

    @property
    def is_only_json(self) -> bool:
        """Whether the vocabulary is in a `tokenizer.json`."""
        return self.main == JSON_FILE

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


def read_tokenizer(
    directory: str, chosen: str | None = None
) -> tuple[StoredTokenizer, bool | None]:
    """Returns the tokenizer in a directory, and whether it lower-cases text. `None` if unknown.

    There are no tokenizer files if the tokenizer is damaged, or if its rules are unknown. If
    `chosen` names a file, its rules are used even if only the ids of unusual texts differ;
    otherwise, such a difference is logged as a warning.
    """
    files = _Files(directory, chosen)
    if not files.main:
        return StoredTokenizer(), files.lower_case
    source, lower_case = files.paths[files.main], files.lower_case
    try:
        tokenizer, lower_case = _read(files, is_exact=chosen is not None)
    except (ValueError, OSError) as error:
        # An error of the file itself is raised later.
        note = f"{error} Pass `spm_model_file` or `vocab_file`."
        tokenizer = StoredTokenizer(() if files.is_only_json else [source], note=note)
    if tokenizer.note:
        logging.warning("%s", tokenizer.note)
    return replace(tokenizer, source=source), lower_case


def usable_file(path: str) -> str:
    """Returns the path, or the path of a file with the same ids that needs no library."""
    directory, name = os.path.split(path)
    if name != JSON_FILE or not file_exists(path):
        return path
    tokenizer, _ = read_tokenizer(directory, chosen=JSON_FILE)
    if not tokenizer.files:
        raise UserError(tokenizer.note)
    return tokenizer.files[0]


def _read(files: _Files, *, is_exact: bool) -> tuple[StoredTokenizer, bool | None]:
    """Returns the file to use, and whether text is lower-cased."""
    source, names = files.paths[files.main], special_names(files.name_files)
    content = read_content(files.paths[JSON_FILE]) if JSON_FILE in files.paths else None
    if files.is_only_json:
        assert content is not None
        return _choose(files, names, content, "", is_exact=is_exact)
    tokens = _file_tokens(source)
    words = files.added_tokens(content, len(tokens))
    file = source
    if (renamed := _named(tokens, names, words)) != tokens:
        data = vocabulary_lines(renamed)
        if files.main == SENTENCEPIECE_FILE:
            data = _rename(parse_model(read_file(source), source), renamed)
        file = store_tokenizer(files.main, data)
    accents = files.keep_accents if files.main == SENTENCEPIECE_FILE else None
    stored = StoredTokenizer([file], keep_accents=accents)
    own = stored.load(files.lower_case is not False)
    assert own is not None
    if content is not None:
        if _is_written_from(own, content.value):
            return stored, own.do_lower_case
        try:
            return _choose(files, names, content, file, is_exact=is_exact)
        except ValueError as error:
            note = f"{source}: {JSON_FILE} cannot be compared ({error})."
            return replace(stored, note=note), files.lower_case
    name = str(files.config.get("tokenizer_class") or "AutoTokenizer")
    if not _CLASSES.fullmatch(name):
        note = f"{source}: the rules of {name} are only supported with a {JSON_FILE}."
        return StoredTokenizer(note=note), files.lower_case
    words = {word: i for word, i in words.items() if word not in {*_SPECIAL, *names.values()}}
    if rules := _unusual_rules(own, files.config, words):
        built = JsonValue(rules, f"{source} with {CONFIG_FILE}")
        return _choose(files, {}, built, file, is_exact=is_exact)
    unusual = {key: files.config.get(key) for key in _SETTINGS}
    shown = [f"{k}={v!r}" for k, v in unusual.items() if v not in (None, _SETTINGS[k])]
    note = f"{source}: the ids of some texts may differ: {', '.join(shown)}." if shown else ""
    return replace(stored, note=note), files.lower_case


def _choose(
    files: _Files, names: Mapping[str, str], content: JsonValue, file: str, *, is_exact: bool
) -> tuple[StoredTokenizer, bool]:
    """Returns a file with the ids of a `tokenizer.json`, or this file; and if it lower-cases.

    `file` is a file with the same tokens, which is created if it is "".
    """
    source, path = files.paths[files.main], files.paths.get(JSON_FILE)
    rules, replaced = _with_settings(content.value, files.config if path else {})
    data = json.dumps(rules).encode()
    if path and not replaced:
        data = read_file(path)
    library = open_library(data, content.where)
    lower_case, accents = has_lower_case(library), has_accents(library)
    words = files.added_tokens(content, 0)
    theirs = [t if t.split() else " " for t in vocabulary(library, with_added=False)]
    tokens = _named(theirs, names, words)
    special = {*_SPECIAL, *names.values()}
    words = {word: i for word, i in words.items() if word not in special}
    samples = [] if path and file else _samples(theirs)
    file = file or _created_file(library, content, tokens, special)
    stored = StoredTokenizer([file] * bool(file))
    if not file.endswith(WORDPIECE_FILE):
        stored = replace(stored, keep_accents=accents)
    try:
        own, reason = stored.load(lower_case), "this package has no such model"
    except UserError as error:
        own, reason = None, str(error)
    if own is not None and own.tokens != tokens:
        contradiction = (
            f"{source} ({own.vocab_size} tokens) and {path} ({len(tokens)} tokens) belong to one "
            "model but contain different tokens or different ids. Delete the file that the model "
            "was not trained with, or pass the other file as the tokenizer."
        )
        return replace(stored, contradiction=contradiction), lower_case
    if own is not None:
        unusual = [*(f"a {word}b" for word in words), *_UNUSUAL]
        usual = [text for text in _USUAL if not any(word in text for word in words)] + samples
        usual += [word for word, i in words.items() if [word] != tokens[i : i + 1]]
        reason = _difference(own, library, usual + unusual * is_exact)
        if not reason:
            noted = (_difference(own, library, unusual), _other_template(own, library), replaced)
            note = "; ".join(filter(None, noted))
            if note:
                note = f"{source}: the ids of some texts differ: {note}."
                note += f" Pass {path} as `vocab_file` to use its rules." * bool(path)
            return replace(stored, note=note), lower_case
    logging.info("The tokenizers library runs %s: %s", source, reason)
    if not path or replaced:
        settings = {CONFIG_FILE: json.dumps(names).encode()}
        path = store_tokenizer(JSON_FILE, data, settings)
    return StoredTokenizer([path], keep_accents=accents), lower_case


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


def _with_settings(rules: dict[str, Any], config: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Returns rules with the settings of a BertTokenizer, which replace them, and a description."""
    normalizer = rules.get("normalizer")
    if not isinstance(normalizer, dict):
        return rules, ""
    *_, last = normalizer.get("normalizers") or [normalizer]
    if not isinstance(last, dict) or last.get("type") != "BertNormalizer":
        return rules, ""
    given = {rule: config[key] for rule, key in _BERT.items() if config.get(key) is not None}
    changed = {rule: value for rule, value in given.items() if value != last.get(rule)}
    names = [f"{_BERT[rule]}={value} in {CONFIG_FILE}" for rule, value in changed.items()]
    normalizer = {**last, **changed}
    return ({**rules, "normalizer": normalizer}, ", ".join(names)) if changed else (rules, "")


def _samples(tokens: Sequence[str]) -> list[str]:
    """Returns characters and words of a vocabulary in which the rules of scripts differ."""
    characters = sorted({c for c in "".join(tokens) if not c.isascii()} - {WORD_START})
    ideographs = [c for c in characters if "\u3400" <= c <= "\u9fff"][_MOST_SAMPLES:]
    words = [t for t in tokens if len(t) > 1 and "一" <= t[0] <= t[1] <= "鿿"][:_MOST_SAMPLES]
    # A vocabulary that was trained without vowel signs does not contain them.
    blocks = {ord(c) & ~0x7F for c in characters if c >= "\u0590"}
    codes = (chr(block + i) for block in blocks for i in range(0x80))
    signs = [c for c in codes if unicodedata.category(c) == "Mn" and not unicodedata.combining(c)]
    return [*sorted({*characters} - {*ideographs}), *words, *signs]


def _difference(own: Tokenizer, library: Any, texts: Sequence[str]) -> str:
    """Describes the first text that gets other ids; "" if there is none."""
    pairs = zip(own.encode_batch(texts), library_ids(library, texts, own.source), strict=True)
    for text, (ours, theirs) in zip(texts, pairs, strict=True):
        if ours != theirs:
            pieces = [" ".join(map(str, map(library.id_to_token, ids))) for ids in (theirs, ours)]
            return "{!r} becomes {!r} instead of {!r}".format(text, *pieces)
    return ""


def _other_template(own: Tokenizer, library: Any) -> str:
    """Describes a pair that is not [CLS] A [SEP] B [SEP]."""
    text = own.encode("a")
    with library_errors(own.source):
        found = library.encode("a", "a").ids
    is_same = found == [own.cls_id, *text, own.sep_id, *text, own.sep_id]
    return "" if is_same else "the post-processor, which is not [CLS] A [SEP] B [SEP]"


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


def _created_file(
    library: Any,
    content: JsonValue,
    tokens: Sequence[str],
    special: Collection[str],
) -> str:
    """Creates a file of this package in the cache with the tokens of a `tokenizer.json`, or ""."""
    model, kind = content.value["model"], type(library.model).__name__
    if kind == "Unigram" and model.get("unk_id") is not None:
        proto = sentencepiece_model(content.value, tokens, special, has_prefix=_has_prefix(library))
        return store_tokenizer(SENTENCEPIECE_FILE, proto)
    is_list = all(token == " " or token.split() == [token] for token in tokens)
    if kind != "WordPiece" or library.model.continuing_subword_prefix != CONTINUATION:
        return ""
    return store_tokenizer(WORDPIECE_FILE, vocabulary_lines(tokens)) if is_list else ""


def _has_prefix(library: Any) -> bool:
    """Returns whether texts begin with a word start."""
    text = library.normalizer.normalize_str("a") if library.normalizer else "a"
    if library.pre_tokenizer:
        text = library.pre_tokenizer.pre_tokenize_str(text)[0][0]
    return text != "a"


def sentencepiece_model(
    rules: Mapping[str, Any],
    tokens: Sequence[str] = (),
    special: Collection[str] = _SPECIAL,
    has_prefix: bool = True,
) -> bytes:
    """Converts the valid `tokenizer.json` of a Unigram model into a serialized SentencePiece model.

    `tokens` are new names of the tokens, `special` are tokens that are not found in texts, and
    `has_prefix` is whether texts begin with a word start.
    """
    pieces, unk_id = rules["model"]["vocab"], rules["model"]["unk_id"]
    added = {entry["content"] for entry in rules.get("added_tokens", ())}
    model = model_class()()
    has_bytes = bool(rules["model"].get("byte_fallback"))
    for i, (piece, score) in enumerate(pieces):
        kind = NORMAL
        if i == unk_id:
            kind = UNKNOWN
        elif piece in special:
            kind = CONTROL
        elif has_bytes and piece in _BYTE_PIECES:
            kind = BYTE
        elif score == 0 or piece in added:  # trained pieces have negative scores
            kind = USER_DEFINED
        restored = penalty(piece) if score < -PENALTY else 0.0
        model.pieces.add(piece=piece, score=score + restored, type=kind)
    places = {piece: i for i, (piece, _) in enumerate(pieces)}
    spec = model.trainer_spec
    spec.model_type, spec.vocab_size = UNIGRAM, len(pieces)
    spec.byte_fallback = has_bytes
    spec.unk_id, spec.unk_piece = unk_id, pieces[unk_id][0]
    spec.pad_id, spec.pad_piece = places.get("<pad>", -1), "<pad>"
    spec.bos_id, spec.bos_piece = places.get("[CLS]", -1), "[CLS]"
    spec.eos_id, spec.eos_piece = places.get("[SEP]", -1), "[SEP]"
    charsmap = _charsmap(rules.get("normalizer") or {})
    model.normalizer_spec.name = "user_defined" if charsmap else "identity"
    model.normalizer_spec.precompiled_charsmap = charsmap
    model.normalizer_spec.add_dummy_prefix = has_prefix
    return _rename(model, tokens) if tokens else model.SerializeToString()


def _charsmap(normalizer: Mapping[str, Any]) -> bytes:
    for step in normalizer.get("normalizers", [normalizer]):
        if step.get("type") == "Precompiled":
            return base64.b64decode(step["precompiled_charsmap"])
    return b""
