"""Reads the tokenizer in a Hugging Face directory.

English models have a `spiece.model`, Chinese models a `vocab.txt`. Transformers 5 saves only a
`tokenizer.json`. One of the first two files is created in the cache if there is only the last one,
if special tokens have other names, or if tokens occur twice. The ids remain the same.
"""

import base64
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from absl import logging

from albert_tf.checkpoints.downloads import store_tokenizer
from albert_tf.checkpoints.huggingface.sentencepiece_messages import (
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
from albert_tf.checkpoints.huggingface.tokenizer_rules import WORDPIECE, Differences
from albert_tf.checkpoints.huggingface.weights import read_content
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


def read_tokenizer(directory: str, chosen: str | None = None) -> dict[str, Any]:
    """Returns the fields of `StoredModel` that describe the tokenizer in a directory.

    If this package does not reproduce the rules of the tokenizer, there are no tokenizer files,
    unless `chosen` names the file to use. All differences are logged as warnings.
    """
    paths = {name: os.path.join(directory, name) for name in (*_VOCABULARIES, *_SETTINGS)}
    paths = {name: path for name, path in paths.items() if file_exists(path)}
    settings = {name: read_content(paths[name]) for name in _SETTINGS if name in paths}
    values = settings[CONFIG_FILE].value if CONFIG_FILE in paths else {}
    lower_case = values.get("do_lower_case")
    lower_case = lower_case if isinstance(lower_case, bool) else None
    fields: dict[str, Any] = {"do_lower_case": lower_case}
    main = chosen or next((name for name in _VOCABULARIES if name in paths), None)
    if main is None:
        return fields
    source, refused, noted, note = paths[main], "", "", ""
    try:
        found, read = _read(paths, main, settings, values, lower_case)
        refused, noted = "; ".join(found.refused), "; ".join(found.noted)
        fields |= read
    except (ValueError, OSError) as error:
        note = f"{error} Pass `spm_model_file` or `vocab_file`."
        if main != JSON_FILE:  # an error of the file itself is raised later
            fields["tokenizer_files"] = [source]
    if refused:
        note = (
            f"{source}: this package does not reproduce {refused}. To use this vocabulary with the "
            f"rules of this package, pass {source} as `spm_model_file` or `vocab_file`."
        )
        fields = fields if chosen else {"do_lower_case": fields["do_lower_case"]}
    elif noted:
        note = f"{source}: the ids of some texts differ: {noted}."
    if note:
        logging.warning("%s", note)
    return {**fields, "tokenizer_source": source, "tokenizer_note": note}


def _read(
    paths: Mapping[str, str],
    main: str,
    settings: Mapping[str, JsonValue],
    values: Mapping[str, Any],
    lower_case: bool | None,
) -> tuple[Differences, dict[str, Any]]:
    """Returns the differences, and fields with the file to use, which may be created."""
    content = read_content(paths[JSON_FILE]) if JSON_FILE in paths else None
    file, json_tokens, noted = paths[main], [], []
    try:
        json_tokens = _json_tokens(content) if content else []
    except ValueError as error:
        if main == JSON_FILE:
            raise
        content, noted = None, [f"{JSON_FILE} cannot be compared ({error})"]
    tokens = json_tokens if main == JSON_FILE else _file_tokens(file)
    names = _special_names(settings)
    special = {*_SPECIAL, *names.values()}
    added = _added_tokens(settings, content, 0 if main == JSON_FILE else len(tokens))
    ours, theirs = (_named(row, names, added) for row in (tokens, json_tokens))
    kind = kind_of(content) if content else WORDPIECE if main == WORDPIECE_FILE else ""
    rule = lower_cases(content) if content else lower_case
    found = Differences(kind, tokens, rule is not False, noted=noted)
    try:
        if content:
            found.compare_json(content.value, main == JSON_FILE)
    except (AttributeError, LookupError, RecursionError, StopIteration, TypeError) as error:
        raise UserError(
            f"{paths[JSON_FILE]} has rules of another structure ({error!r})."
        ) from error
    found.compare_settings(values, content is not None)
    if main == SENTENCEPIECE_FILE and not found.has_prefix:
        spec = parse_model(read_file(file), file).normalizer_spec
        found.refused += ["no word start before texts"] if spec.add_dummy_prefix else []
    words = {token: i for token, i in added.items() if token not in special}
    found.compare_added(words, content.value if content else {})
    if lower_case not in (None, rule):
        # BertTokenizer uses its setting, and other classes use the file.
        text = f"do_lower_case={lower_case} in {CONFIG_FILE}, unlike {JSON_FILE}"
        (found.noted if kind == WORDPIECE else found.refused).append(text)
    if kind == WORDPIECE and (main == JSON_FILE or ours != tokens):
        file = store_tokenizer(WORDPIECE_FILE, vocabulary_lines(ours))
    elif content and main == JSON_FILE:
        model = sentencepiece_model(content, ours, special, found.has_prefix)
        file = store_tokenizer(SENTENCEPIECE_FILE, model)
    elif ours != tokens:
        model = _rename(parse_model(read_file(file), file), ours)
        file = store_tokenizer(SENTENCEPIECE_FILE, model)
    fields: dict[str, Any] = {"tokenizer_files": [file]}
    fields["do_lower_case"] = rule if lower_case is None else lower_case
    if json_tokens and theirs != ours:
        fields["tokenizer_contradiction"] = (
            f"{paths[main]} ({len(ours)} tokens) and {paths[JSON_FILE]} ({len(theirs)} tokens) "
            "belong to one model but contain different tokens or different ids. Delete the file "
            "that the model was not trained with, or pass the other file as the tokenizer."
        )
    return found, fields


def usable_file(path: str) -> str:
    """Returns the path, or the path of the file that is created from a `tokenizer.json`."""
    directory, name = os.path.split(path)
    if name != JSON_FILE or not file_exists(path):
        return path
    fields = read_tokenizer(directory, chosen=JSON_FILE)
    if "tokenizer_files" not in fields:
        raise UserError(fields["tokenizer_note"])
    return fields["tokenizer_files"][0]


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
    for i, (piece, score) in enumerate(pieces):
        kind = NORMAL
        if i == unk_id:
            kind = UNKNOWN
        elif piece in special:
            kind = CONTROL
        elif score == 0 or piece in added:  # trained pieces have negative scores
            kind = USER_DEFINED
        restored = penalty(piece) if score < -PENALTY else 0.0
        model.pieces.add(piece=piece, score=score + restored, type=kind)
    places = {piece: i for i, (piece, _) in enumerate(pieces)}
    spec = model.trainer_spec
    spec.model_type, spec.vocab_size = UNIGRAM, len(pieces)
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
