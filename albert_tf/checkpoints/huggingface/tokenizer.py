"""Reads the tokenizer in a Hugging Face directory.

English models have a `spiece.model`, Chinese models a `vocab.txt`. Transformers 5 saves only a
`tokenizer.json`. One of the first two files is created in the cache if there is only the last one,
if special tokens have other names, or if tokens occur twice. The ids remain the same.
"""

import base64
import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
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
from albert_tf.checkpoints.huggingface.tokenizer_rules import (
    BYTE_PIECES,
    WORDPIECE,
    Differences,
    keeps_accents,
)
from albert_tf.checkpoints.stored_model import StoredTokenizer
from albert_tf.data.errors import UserError
from albert_tf.data.files import decode_utf8, file_exists, read_file
from albert_tf.data.strict_json import JsonValue, is_encodable, is_number
from albert_tf.tokenization.loading import first_words

SENTENCEPIECE_FILE = "spiece.model"
WORDPIECE_FILE = "vocab.txt"
JSON_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
_VOCABULARIES = (SENTENCEPIECE_FILE, WORDPIECE_FILE, JSON_FILE)
_ADDED_FILE = "added_tokens.json"
_SETTINGS = (_ADDED_FILE, "special_tokens_map.json", CONFIG_FILE)

# The special tokens of this package by their keys in `tokenizer_config.json`.
_ROLES = {
    "pad_token": ("<pad>", "[PAD]"),
    "unk_token": ("<unk>", "[UNK]"),
    "cls_token": ("[CLS]",),
    "sep_token": ("[SEP]",),
    "mask_token": ("[MASK]",),
}
_SPECIAL = {name for names in _ROLES.values() for name in names}


class _Files:
    """The tokenizer files in a directory: their paths by name, and their settings."""

    def __init__(self, directory: str, chosen: str | None) -> None:
        paths = {name: os.path.join(directory, name) for name in (*_VOCABULARIES, *_SETTINGS)}
        self.paths = {name: path for name, path in paths.items() if file_exists(path)}
        self.settings = {n: read_content(self.paths[n]) for n in _SETTINGS if n in self.paths}
        self.config = self.settings[CONFIG_FILE].value if CONFIG_FILE in self.settings else {}
        lower_case = self.config.get("do_lower_case")
        self.lower_case = lower_case if isinstance(lower_case, bool) else None
        accents = self.config.get("keep_accents")
        self.keep_accents = accents if isinstance(accents, bool) else None
        # The file with the vocabulary; "" if there is none.
        self.main = chosen or next((name for name in _VOCABULARIES if name in self.paths), "")

    @property
    def is_only_json(self) -> bool:
        """Whether the vocabulary is in a `tokenizer.json`."""
        return self.main == JSON_FILE


def read_tokenizer(
    directory: str, chosen: str | None = None
) -> tuple[StoredTokenizer, bool | None]:
    """Returns the tokenizer in a directory, and whether it lower-cases text. `None` if unknown.

    If this package does not reproduce the rules of the tokenizer, there are no tokenizer files,
    unless `chosen` names the file to use. All differences are logged as warnings.
    """
    files = _Files(directory, chosen)
    if not files.main:
        return StoredTokenizer(), files.lower_case
    source, lower_case, note = files.paths[files.main], files.lower_case, ""
    try:
        tokenizer, lower_case, found = _read(files)
    except (ValueError, OSError) as error:
        # An error of the file itself is raised later.
        tokenizer = StoredTokenizer(() if files.is_only_json else [source])
        note = f"{error} Pass `spm_model_file` or `vocab_file`."
    else:
        if found.refused:
            tokenizer = tokenizer if chosen else StoredTokenizer()
            note = (
                f"{source}: this package does not reproduce {'; '.join(found.refused)}. To use "
                f"this vocabulary with the rules of this package, pass {source} as "
                "`spm_model_file` or `vocab_file`."
            )
        elif found.noted:
            note = f"{source}: the ids of some texts differ: {'; '.join(found.noted)}."
    if note:
        logging.warning("%s", note)
    return dataclasses.replace(tokenizer, source=source, note=note), lower_case


def _read(files: _Files) -> tuple[StoredTokenizer, bool | None, Differences]:
    """Returns the file to use, whether text is lower-cased, and the differences of the rules."""
    content, json_tokens, noted = _read_json(files)
    file = files.paths[files.main]
    tokens = json_tokens if files.is_only_json else _file_tokens(file)
    names = _special_names(files.settings)
    added = _added_tokens(files.settings, content, 0 if files.is_only_json else len(tokens))
    ours, theirs = (_named(row, names, added) for row in (tokens, json_tokens))
    special = {*_SPECIAL, *names.values()}

    kind = kind_of(content) if content else WORDPIECE if files.main == WORDPIECE_FILE else ""
    rule = lower_cases(content) if content else files.lower_case
    accents_rule = accents = None
    if kind != WORDPIECE:
        accents_rule = keeps_accents(content) if content else None
        accents = accents_rule if files.keep_accents is None else files.keep_accents
    found = Differences(kind, tokens, rule is not False, bool(accents), noted=noted)
    words = {token: i for token, i in added.items() if token not in special}
    _compare_rules(found, files, content, words)
    if files.lower_case not in (None, rule):
        # BertTokenizer uses its setting, and other classes use the file.
        text = f"do_lower_case={files.lower_case} in {CONFIG_FILE}, unlike {JSON_FILE}"
        (found.noted if kind == WORDPIECE else found.refused).append(text)
    if accents_rule not in (None, accents):
        found.refused.append(f"keep_accents={accents} in {CONFIG_FILE}, unlike {JSON_FILE}")

    if kind == WORDPIECE and (files.is_only_json or ours != tokens):
        file = store_tokenizer(WORDPIECE_FILE, vocabulary_lines(ours))
    elif content and files.is_only_json:
        model = sentencepiece_model(content, ours, special, found.has_prefix)
        file = store_tokenizer(SENTENCEPIECE_FILE, model)
    elif ours != tokens:
        model = _rename(parse_model(read_file(file), file), ours)
        file = store_tokenizer(SENTENCEPIECE_FILE, model)
    contradiction = ""
    if json_tokens and theirs != ours:
        contradiction = (
            f"{files.paths[files.main]} ({len(ours)} tokens) and {files.paths[JSON_FILE]} "
            f"({len(theirs)} tokens) belong to one model but contain different tokens or different "
            "ids. Delete the file that the model was not trained with, or pass the other file as "
            "the tokenizer."
        )
    lower_case = rule if files.lower_case is None else files.lower_case
    tokenizer = StoredTokenizer([file], contradiction=contradiction, keep_accents=accents)
    return tokenizer, lower_case, found


def _read_json(files: _Files) -> tuple[JsonValue | None, list[str], list[str]]:
    """Returns the content of `tokenizer.json`, its tokens, and notes.

    If another file contains the vocabulary, a `tokenizer.json` of another structure is ignored.
    """
    if JSON_FILE not in files.paths:
        return None, [], []
    content = read_content(files.paths[JSON_FILE])
    try:
        return content, _json_tokens(content), []
    except ValueError as error:
        if files.is_only_json:
            raise
        return None, [], [f"{JSON_FILE} cannot be compared ({error})"]


def _compare_rules(
    found: Differences, files: _Files, content: JsonValue | None, words: Mapping[str, int]
) -> None:
    """Compares all rules; `words` are the ids of added tokens, except special tokens."""
    if content:
        try:
            found.compare_json(content.value, files.is_only_json)
        except (AttributeError, LookupError, RecursionError, StopIteration, TypeError) as error:
            raise UserError(
                f"{files.paths[JSON_FILE]} has rules of another structure ({error!r})."
            ) from error
    found.compare_settings(files.config, content is not None)
    if files.main == SENTENCEPIECE_FILE and not found.has_prefix:
        path = files.paths[files.main]
        has_prefix = parse_model(read_file(path), path).normalizer_spec.add_dummy_prefix
        found.refused += ["no word start before texts"] if has_prefix else []
    found.compare_added(words, content.value if content else {})


def usable_file(path: str) -> str:
    """Returns the path, or the path of the file that is created from a `tokenizer.json`."""
    directory, name = os.path.split(path)
    if name != JSON_FILE or not file_exists(path):
        return path
    tokenizer, _ = read_tokenizer(directory, chosen=JSON_FILE)
    if not tokenizer.files:
        raise UserError(tokenizer.note)
    return tokenizer.files[0]


def _file_tokens(path: str) -> list[str]:
    if path.endswith(SENTENCEPIECE_FILE):
        return [piece.piece for piece in parse_model(read_file(path), path).pieces]
    return first_words(decode_utf8(read_file(path), path))


def _json_tokens(content: JsonValue) -> list[str]:
    if kind_of(content) == WORDPIECE or content["model"].get("merges"):
        return wordpiece_tokens(content)
    return [piece for piece, _ in _pieces(content)]


def _special_names(settings: Mapping[str, JsonValue]) -> dict[str, str]:
    """Returns the names of special tokens by their keys. `tokenizer_config.json` has priority."""
    names = {}
    for values in [settings[name] for name in _SETTINGS[1:] if name in settings]:
        for role in _ROLES:
            if name := values.get(role):
                names[role] = (name["content"] if isinstance(name.value, dict) else name).text()
    return names


def _added_tokens(
    settings: Mapping[str, JsonValue], content: JsonValue | None, size: int = 0
) -> dict[str, int]:
    """Returns the ids of tokens that transformers finds before it splits a text.

    Special tokens with ids below `size` are omitted.
    """
    added: dict[str, int] = {}
    entries: list[tuple[int, JsonValue]] = []
    for name, values in settings.items():
        if name == _ADDED_FILE:
            added |= {token: i.whole_number(0) for token, i in values.members().items()}
        elif decoder := values.get("added_tokens_decoder"):
            entries += [(int(i), entry) for i, entry in decoder.members().items() if i.isdecimal()]
    if content and (listed := content.get("added_tokens")):
        entries += [(entry["id"].whole_number(0), entry) for entry in listed.elements()]
    for i, entry in entries:
        special = entry.get("special")
        if i >= size or not (special and special.truth_value()):
            added[entry["content"].text()] = i
    return added


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
    usual = {role: next((n for n in ours if n in places), None) for role, ours in _ROLES.items()}
    renames: dict[str, str] = {}
    for role, ours in _ROLES.items():
        theirs, there = names.get(role), usual[role]
        if theirs in places and theirs not in (*renames, *usual.values()):
            renames[theirs] = there or ours[0]
            if there:
                renames[there] = theirs
    if not renames and len(places) == len(tokens):
        return tokens
    return [
        renames.get(token, token) if places[token] == i else _unused(i)
        for i, token in enumerate(tokens)
    ]


def _unused(i: int) -> str:
    return f"[unused_{i}]"


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


def vocabulary_lines(tokens: Sequence[str]) -> bytes:
    """Returns the content of a `vocab.txt`."""
    return "".join(f"{token}\n" for token in tokens).encode()


def sentencepiece_model(
    content: JsonValue,
    tokens: Sequence[str] = (),
    special: Collection[str] = _SPECIAL,
    has_prefix: bool = True,
) -> bytes:
    """Converts the `tokenizer.json` of an English ALBERT into a serialized SentencePiece model.

    `tokens` are new names of the tokens, `special` are tokens that are not found in texts, and
    `has_prefix` is whether texts begin with a word start. Raises `ValueError` for other kinds of
    tokenizers and for invalid values.
    """
    pieces = _pieces(content)
    unk_id = content["model"]["unk_id"].whole_number(0)
    if unk_id >= len(pieces):
        raise content["model"]["unk_id"].error(f"below {len(pieces)}, the number of pieces")
    added = _added_tokens({}, content)
    model = model_class()()
    has_bytes = bool(content["model"].value.get("byte_fallback"))
    for i, (piece, score) in enumerate(pieces):
        kind = NORMAL
        if i == unk_id:
            kind = UNKNOWN
        elif piece in special:
            kind = CONTROL
        elif has_bytes and piece in BYTE_PIECES:
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
    charsmap = _charsmap(content)
    model.normalizer_spec.name = "user_defined" if charsmap else "identity"
    model.normalizer_spec.precompiled_charsmap = charsmap
    model.normalizer_spec.add_dummy_prefix = has_prefix
    return _rename(model, tokens) if tokens else model.SerializeToString()


def _pieces(content: JsonValue) -> list[tuple[str, float]]:
    """Returns the pieces of a Unigram model and their scores."""
    model = content.get("model")
    vocabulary = model and model.get("vocab")
    if vocabulary is None or not isinstance(vocabulary.value, list):
        raise UserError(
            f"{content.where}: its model is {kind_of(content)}, not Unigram with scores."
        )
    rows = vocabulary.value
    is_valid = all(
        isinstance(r, list) and len(r) == 2 and isinstance(r[0], str) and is_number(r[1])
        for r in rows
    )
    if is_valid and is_encodable("".join(piece for piece, _ in rows)):
        return [(piece, float(score)) for piece, score in rows]
    for entry in vocabulary.elements():
        pair = entry.elements()
        if len(pair) != 2:
            raise entry.error("a list of a piece and its score")
        pair[0].text(), pair[1].number()
    raise AssertionError(rows)


def wordpiece_tokens(content: JsonValue) -> list[str]:
    """Returns the WordPiece vocabulary in a `tokenizer.json` in the order of ids.

    Raises `ValueError` if ids are missing, or a token cannot be stored as a line of a file.
    """
    vocabulary = content["model"]["vocab"]
    ids = {i.whole_number(0): token for token, i in vocabulary.members().items()}
    size = max(ids, default=-1) + 1
    # Ids are missing if a line of the vocab.txt occurred twice.
    if len(ids) < len(vocabulary.members()) or size > 1.1 * len(ids):
        raise vocabulary.error("tokens whose ids are unique and consecutive, starting at 0")
    tokens = [ids.get(i, _unused(i)) for i in range(size)]
    tokens = [token if token.split() else " " for token in tokens]  # as in a vocab.txt
    if wrong := [t for t in tokens if (t.split() or [t]) != [t] or not is_encodable(t)]:
        raise vocabulary.error(f"tokens without blanks, line ends and surrogates, not {wrong[0]!a}")
    if tokens.count(" ") > 1:
        raise vocabulary.error("a vocabulary with at most one blank token")
    return tokens


def lower_cases(content: JsonValue) -> bool:
    """Returns whether a `tokenizer.json` lower-cases text."""
    for step in _steps(content):
        kind, lowercase = _type(step), step.get("lowercase")
        if kind == "Lowercase" or (
            kind == "BertNormalizer" and (lowercase is None or lowercase.truth_value())
        ):
            return True
    return False


def kind_of(content: JsonValue) -> str:
    """Returns the type of the model. Recognizes WordPiece in old files without a type."""
    model = content.get("model")
    if model is None:
        return "missing"
    if model.get("continuing_subword_prefix") and not model.get("merges"):
        return WORDPIECE
    return _type(model)


def _type(value: JsonValue) -> str:
    kind = value.get("type")
    return kind.text() if kind else "of no type"


def _steps(content: JsonValue) -> list[JsonValue]:
    normalizer = content.get("normalizer")
    steps = normalizer and normalizer.get("normalizers")
    return steps.elements() if steps else [normalizer] if normalizer else []


def _charsmap(content: JsonValue) -> bytes:
    for step in _steps(content):
        charsmap = step.get("precompiled_charsmap")
        if _type(step) == "Precompiled" and charsmap:
            try:
                return base64.b64decode(charsmap.text(), validate=True)
            except ValueError as error:
                raise charsmap.error("base64") from error
    return b""
