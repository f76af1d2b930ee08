"""Writes the tokenizer of a Hugging Face directory.

The normalizers of a `tokenizer.json` use Python's tables of characters, because `StripAccents` of
the tokenizers library also removes vowel signs, `Lowercase` has no final sigma, and `Precompiled`
does not compose characters. Regular expressions contain the characters themselves: Python (through
Oniguruma) and JavaScript share no escape sequence for them.
"""

import base64
import json
import os
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain, groupby
from typing import Any

import sentencepiece
from absl import logging

from albert_tf.checkpoints.formats.huggingface import sentencepiece_messages as messages
from albert_tf.config import AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.data.files import file_exists, write_file
from albert_tf.tokenization.base import SPECIAL_TOKENS, WORD_START, Tokenizer
from albert_tf.tokenization.library import (
    CONFIG_FILE,
    JSON_FILE,
    LibraryTokenizer,
    read_library_tokenizer,
    require_own_rules,
)
from albert_tf.tokenization.sentence_piece import SentencePieceTokenizer
from albert_tf.tokenization.word_piece import MAX_WORD_LENGTH, WordPieceTokenizer, word_character

Rules = dict[str, Any]
SENTENCEPIECE_FILE = "spiece.model"
WORDPIECE_FILE = "vocab.txt"

# The other planes of Unicode contain no punctuation, controls, marks or ideographs of WordPiece.
_CODES = (range(0xD800), range(0xE000, 0x30000), range(0xE0000, 0xE1000))


def write_tokenizer(directory: str, tokenizer: Tokenizer, config: AlbertConfig) -> None:
    """Writes the files that `AutoTokenizer.from_pretrained` needs."""
    if isinstance(tokenizer, LibraryTokenizer):
        write_file(os.path.join(directory, JSON_FILE), tokenizer.content)
    else:
        name, content = WORDPIECE_FILE, vocabulary_lines(tokenizer.tokens)
        if isinstance(tokenizer, SentencePieceTokenizer):
            name, content = SENTENCEPIECE_FILE, tokenizer.model_proto
        write_file(os.path.join(directory, name), content)
        try:
            write_json(directory, JSON_FILE, tokenizer_json(tokenizer))
        except UserError as error:
            logging.warning("%s is not written, so `AutoTokenizer` fails: %s", JSON_FILE, error)
    # The AlbertTokenizer and BertTokenizer of transformers 5 would ignore the rules of the file.
    settings = _settings(tokenizer, config, "PreTrainedTokenizerFast")
    write_json(directory, CONFIG_FILE, settings)


def vocabulary_lines(tokens: Sequence[str]) -> bytes:
    """Returns the content of a `vocab.txt`."""
    return "".join(f"{token}\n" for token in tokens).encode()


def javascript_files(tokenizer: Tokenizer, config: AlbertConfig) -> dict[str, Rules]:
    """Returns the files of the tokenizer for transformers.js by their names.

    Libraries in JavaScript ignore the content of `Precompiled` and normalize all text as `nmt_nfkc`
    does, but with other zero-width characters. Equivalent replacements are written instead. Raises
    `ValueError` if JavaScript cannot reproduce the ids.
    """
    require_own_rules(tokenizer, "The model for transformers.js")
    rules = tokenizer_json(tokenizer)
    steps: list[Rules] = []
    if rules["model"]["type"] == "Unigram" and rules["model"]["byte_fallback"]:
        raise UserError("transformers.js does not support byte_fallback of SentencePiece.")
    for rule in rules["normalizer"]["normalizers"]:
        is_map = rule["type"] == "Precompiled"
        steps += _replacements(tokenizer, steps) if is_map else [rule]
    rules["normalizer"]["normalizers"] = steps
    # In JavaScript, only this class returns segment ids. Without them, results of pairs are wrong.
    settings = _settings(tokenizer, config, "AlbertTokenizer")
    return {JSON_FILE: rules, CONFIG_FILE: settings}


def _settings(tokenizer: Tokenizer, config: AlbertConfig, tokenizer_class: str) -> Rules:
    """Returns the content of `tokenizer_config.json`."""
    accents: Rules = {"strip_accents": None}
    if isinstance(tokenizer, SentencePieceTokenizer):
        accents = {"keep_accents": tokenizer.keep_accents}
    lower_case = {"do_lower_case": tokenizer.do_lower_case}
    if isinstance(tokenizer, LibraryTokenizer):  # set by its normalizer
        accents = lower_case = {}
    return {
        "tokenizer_class": tokenizer_class,
        **accents,
        **{name: getattr(tokenizer, name) for name in SPECIAL_TOKENS},
        **lower_case,
        "model_max_length": config.max_position_embeddings,
        # transformers 5 omits segment ids by default, which changes the results of pairs.
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
    }


def library_ids(directory: str, texts: Sequence[str]) -> list[list[int]] | str:
    """Returns the ids of texts by the tokenizers library, or why they cannot be compared."""
    path = os.path.join(directory, JSON_FILE)
    if not file_exists(path):
        return f"no {JSON_FILE} was written for transformers, see the warning"
    return read_library_tokenizer(path).encode_batch(texts)


def write_json(directory: str, name: str, values: dict[str, Any]) -> None:
    """Writes a file of a Hugging Face directory."""
    text = json.dumps(values, indent=2, ensure_ascii=False)
    write_file(os.path.join(directory, name), f"{text}\n")


def tokenizer_json(tokenizer: Tokenizer) -> Rules:
    """Returns a `tokenizer.json` that produces the same ids as a tokenizer.

    The exceptions are special tokens in texts, which transformers recognizes, and pieces such as
    "9,". Raises `ValueError` if the tokenizers library cannot reproduce the ids.
    """
    special = {tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id}
    flags = {tokenizer.mask_id: ("special", "lstrip")}
    if isinstance(tokenizer, SentencePieceTokenizer):
        proto = messages.parse_model(tokenizer.model_proto, [*tokenizer.files, "The tokenizer"][0])
        special |= {i for i, p in enumerate(proto.pieces) if p.type == messages.CONTROL}
        rules = _sentencepiece(tokenizer, proto)
    else:
        assert isinstance(tokenizer, WordPieceTokenizer), tokenizer
        rules = _wordpiece(tokenizer)
    lists = {name: rules.pop(name) for name in ("normalizers", "pretokenizers", "decoders")}
    normalizers, pretokenizers, decoders = (
        _rule("Sequence", **{name: values}) if values else None for name, values in lists.items()
    )
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            added_token(i, tokenizer.tokens[i], *flags.get(i, ["special"]))
            for i in sorted({*special, *flags})
        ],
        "normalizer": normalizers,
        "pre_tokenizer": pretokenizers,
        "post_processor": _template(tokenizer),
        "decoder": decoders,
        **rules,
    }


def _replacements(tokenizer: Tokenizer, steps: Sequence[Rules]) -> list[Rules]:
    """Returns the changes that SentencePiece makes to text after other steps."""
    assert isinstance(tokenizer, SentencePieceTokenizer), tokenizer
    proto, kinds = messages.parse_model(tokenizer.model_proto, ""), {rule["type"] for rule in steps}
    spec = proto.normalizer_spec
    spec.add_dummy_prefix = spec.remove_extra_whitespaces = spec.escape_whitespaces = False
    serialized = proto.SerializeToString()
    normalize = sentencepiece.SentencePieceNormalizer(model_proto=serialized).normalize
    sources: dict[str, set[str]] = {}
    for character in map(chr, chain(*_CODES)):
        before = unicodedata.normalize("NFKC", character) if kinds & _COMPATIBLE else character
        before = before.lower() if "Lowercase" in kinds else before
        is_reached = before == character and unicodedata.category(character) != "Cn"
        if is_reached and (after := normalize(character)) != character:
            sources.setdefault(after, set()).add(character)
    return [_replace(_characters(found.__contains__), after) for after, found in sources.items()]


def _wordpiece(tokenizer: WordPieceTokenizer) -> Rules:
    normalizers = [_replace(_class(_is_dropped), "")]
    if tokenizer.do_lower_case:
        normalizers += [*_LOWERCASE, _rule("NFD"), _replace(_class(_is_mark), "")]
    return {
        "normalizers": normalizers,
        "pretokenizers": [_isolate(_class(_is_isolated)), _rule("WhitespaceSplit")],
        "decoders": [_rule("WordPiece", prefix="##", cleanup=True)],
        "model": _rule(
            "WordPiece",
            unk_token=tokenizer.unk_token,
            continuing_subword_prefix="##",
            max_input_chars_per_word=MAX_WORD_LENGTH,
            vocab={token: i for i, token in enumerate(tokenizer.tokens)},
        ),
    }


def _sentencepiece(tokenizer: SentencePieceTokenizer, proto: Any) -> Rules:
    symbols = [p.piece for p in proto.pieces if p.type == messages.USER_DEFINED]
    scores = {p.piece: p.score for p in proto.pieces if p.type == messages.NORMAL}
    _check_supported(proto, symbols)
    normalize = sentencepiece.SentencePieceNormalizer(model_proto=tokenizer.model_proto).normalize
    # Whether pieces belong to one word, and whether "▁" is nothing but the start of a word.
    is_split = WORD_START in scores and not any(WORD_START in p[1:] for p in [*scores, *symbols])
    is_usual = normalize(f"{WORD_START}a") == normalize("a") == f"{WORD_START}a"
    normalizers = _clean(tokenizer, proto, normalize)
    if is_split and is_usual and proto.normalizer_spec.remove_extra_whitespaces:
        pretokenizers = [_rule("WhitespaceSplit"), _metaspace("always")]
    else:
        normalizers += _mark_words(proto.normalizer_spec)
        pretokenizers = [_metaspace("never")] if is_split else []
    byte_fallback = proto.trainer_spec.byte_fallback
    if proto.trainer_spec.model_type == messages.BPE:
        if symbols:
            pretokenizers.append(_isolate(f"[{''.join(map(_escaped, symbols))}]"))
        ids = {token: i for i, token in enumerate(tokenizer.tokens)}
        merges = _merges(scores)
        model = _rule("BPE", unk_token=tokenizer.unk_token, fuse_unk=True, vocab=ids, merges=merges)
    else:
        model = _rule("Unigram", unk_id=tokenizer.unk_id, vocab=_scores(proto))
    return {
        "normalizers": normalizers,
        "pretokenizers": pretokenizers,
        "decoders": [_rule("ByteFallback")] * byte_fallback + [_metaspace("always")],
        "model": {**model, "byte_fallback": byte_fallback},
    }


def _clean(tokenizer: SentencePieceTokenizer, proto: Any, normalize: Callable[[str], str]) -> list:
    """Returns the normalizers of `clean_text`, then SentencePiece's own."""
    rules = [_replace(f"{_class(str.isspace)}+", " "), _STRIP]
    if not tokenizer.keep_accents:
        rules += [_rule("NFKD"), _replace(_class(unicodedata.combining), "")]
    if tokenizer.do_lower_case or "a" in normalize("A"):
        rules += _LOWERCASE
    if content := proto.normalizer_spec.precompiled_charsmap:
        if "\uac00" in normalize("\u1100\u1161"):  # composes Hangul
            has_bytes = proto.trainer_spec.byte_fallback  # of every character
            alphabet = {*"".join(tokenizer.tokens), *"\uac00" * has_bytes}
            rules += [_rule("NFKC")] if tokenizer.keep_accents else _compose(alphabet)
        charsmap = base64.b64encode(content).decode()
        rules.append(_rule("Precompiled", precompiled_charsmap=charsmap))
    return rules


def _compose(alphabet: set[str]) -> list[Rules]:
    """Returns what NFC does to texts without combining characters, for pieces of an alphabet.

    OpenVINO supports no second form of Unicode, so NFC is only written for Hangul.
    """
    used = [(c, parts) for c, parts in _compositions() if not alphabet.isdisjoint(c + parts)]
    is_hangul = any("\uac00" <= c <= "\ud7a3" for c, _ in used)
    return [_rule("NFC")] if is_hangul else [_replace(parts, c) for c, parts in used]


@cache
def _compositions() -> list[tuple[str, str]]:
    """Returns characters and the parts that NFC composes, without combining ones; longest first."""
    pairs = ((c, unicodedata.normalize("NFD", c)) for c in map(chr, chain(*_CODES)))
    pairs = ((c, parts) for c, parts in pairs if not any(map(unicodedata.combining, parts)))
    found = (pair for pair in pairs if pair[1] != pair[0] == unicodedata.normalize("NFC", pair[1]))
    return sorted(found, key=lambda pair: -len(pair[1]))


def _mark_words(spec: Any) -> list[Rules]:
    """Returns normalizers that replace blanks with word starts."""
    rules = [_replace(" +", " "), _STRIP] if spec.remove_extra_whitespaces else []
    rules += [_rule("Prepend", prepend=WORD_START)] if spec.add_dummy_prefix else []
    return [*rules, _replace(" ", WORD_START)]


def _check_supported(proto: Any, symbols: Sequence[str]) -> None:
    """Raises `ValueError` if the tokenizers library does not support a SentencePiece model."""
    spec, options = proto.normalizer_spec, proto.trainer_spec
    for option, is_used in {
        "the model type": options.model_type not in (messages.UNIGRAM, messages.BPE),
        "treat_whitespace_as_suffix": options.treat_whitespace_as_suffix,
        "escape_whitespaces=false": not spec.escape_whitespaces,
        "unused pieces": any(p.type == messages.UNUSED for p in proto.pieces),
        "user-defined symbols of several characters in BPE": options.model_type == messages.BPE
        and len("".join(symbols)) > len(symbols),
    }.items():
        if is_used:
            raise UserError(f"The tokenizers library does not support {option} of SentencePiece.")


def _scores(proto: Any) -> list[list[Any]]:
    """Returns the pieces of a Unigram model and their scores."""
    # Pieces of bytes would be found in texts.
    penalties = (
        messages.PENALTY if p.type == messages.BYTE else messages.penalty(p.piece)
        for p in proto.pieces
    )
    return [[p.piece, p.score - lost] for p, lost in zip(proto.pieces, penalties, strict=True)]


def _merges(scores: dict[str, float]) -> list[tuple[str, str]]:
    """Returns all pairs of pieces that form a piece, in the order of its score.

    Pieces such as "9," are formed only if others, such as "9,000", contain them.
    """
    used = [p for p in scores if not messages.penalty(p) or any(p in q != p for q in scores)]
    ranked = sorted(used, key=scores.__getitem__, reverse=True)
    pairs = ((piece[:i], piece[i:]) for piece in ranked for i in range(1, len(piece)))
    return [pair for pair in pairs if scores.keys() >= {*pair}]


def _rule(kind: str, **values: Any) -> Rules:
    return {"type": kind, **values}


def _replace(pattern: str, content: str) -> Rules:
    return _rule("Replace", pattern={"Regex": pattern}, content=content)


def _isolate(pattern: str) -> Rules:
    return _rule("Split", pattern={"Regex": pattern}, behavior="Isolated", invert=False)


def _metaspace(scheme: str) -> Rules:
    return _rule("Metaspace", replacement=WORD_START, prepend_scheme=scheme, split=True)


# As in `str.lower`, a capital sigma is final after a cased letter and before none. Case-ignorable
# characters between them do not count; at most three before the sigma are recognized, because
# some libraries need expressions of limited length there.
_CASED, _IGNORED = r"[^\P{Cased}\p{Case_Ignorable}]", r"\p{Case_Ignorable}"
_AFTER_CASED = "|".join(f"(?<={_CASED}{_IGNORED * count}Σ)" for count in range(4))
FINAL_SIGMA = f"Σ(?:{_AFTER_CASED})(?!{_IGNORED}*{_CASED})"
_LOWERCASE = (_replace(FINAL_SIGMA, "ς"), _rule("Lowercase"))
_STRIP = _rule("Strip", strip_left=True, strip_right=True)
_COMPATIBLE = {"NFKC", "NFKD"}  # these rules leave no compatibility characters


def _characters(has_property: Callable[[str], Any]) -> str:
    """Returns a regular expression for all characters that have a property."""
    codes = [code for code in chain(*_CODES) if has_property(chr(code))]
    ranges = []
    for _, run in groupby(enumerate(codes), key=lambda pair: pair[1] - pair[0]):
        first, *rest = (_escaped(chr(code)) for _, code in run)
        ranges.append(f"{first}-{rest[-1]}" if rest else first)
    return f"[{''.join(ranges)}]"


_class = cache(_characters)


def _is_mark(character: str) -> bool:
    return unicodedata.category(character) == "Mn"


def _is_dropped(character: str) -> bool:
    return not word_character(character)


def _is_isolated(character: str) -> bool:
    return len(word_character(character)) > 1


def _escaped(character: str) -> str:
    return f"\\{character}" if character in r"[\]^-" else character


def added_token(i: int, token: str, *flags: str) -> Rules:
    """Returns a token that the library finds before it splits a text, with those flags set."""
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return {"id": i, "content": token, **{name: name in flags for name in names}}


def _template(tokenizer: Tokenizer) -> Rules:
    """Returns [CLS] A [SEP], and [CLS] A [SEP] B [SEP] with segment 1 for B and its separator."""
    marks = [(tokenizer.tokens[i], i) for i in (tokenizer.cls_id, tokenizer.sep_id)]
    cls_a, sep_a = ({"SpecialToken": {"id": mark, "type_id": 0}} for mark, _ in marks)
    text_a = {"Sequence": {"id": "A", "type_id": 0}}
    text_b = {"Sequence": {"id": "B", "type_id": 1}}
    sep_b = {"SpecialToken": {"id": tokenizer.tokens[tokenizer.sep_id], "type_id": 1}}
    return {
        "type": "TemplateProcessing",
        "single": [cls_a, text_a, sep_a],
        "pair": [cls_a, text_a, sep_a, text_b, sep_b],
        "special_tokens": {mark: {"id": mark, "ids": [i], "tokens": [mark]} for mark, i in marks},
    }
