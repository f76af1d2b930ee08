"""Compares the rules of a Hugging Face tokenizer with the tokenizers of this package.

The rules of a `tokenizer.json` are applied to samples and to the characters of the vocabulary.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from albert_tf.data.errors import UserError
from albert_tf.data.strict_json import JsonValue, listed, shown
from albert_tf.tokenization.base import WORD_START
from albert_tf.tokenization.sentence_piece import clean_text
from albert_tf.tokenization.word_piece import (
    CONTINUATION,
    clean_character,
    split_punctuation,
    split_words,
)

Rules = Mapping[str, Any]
WORDPIECE = "WordPiece"
BYTE_PIECES = frozenset(f"<0x{byte:02X}>" for byte in range(256))
_USUAL = ["The King's", "it's a_b (x-y) 3.5", "1,999 a.b.c #x"]
_UNUSUAL = ["café Ñandú", "a  b", "ﬁ Ⅳ ½", "中文 a中b", "a\u200bb"]
_WORD = re.compile(f"{WORD_START}?[^{WORD_START}]+|{WORD_START}")
_SIMPLE = re.compile(r"(\[(\\.|[^\\\]])+\]|\\?.)(\+|\{\d,\})?", re.DOTALL)  # a class of characters
_PHRASE = re.compile(f"[^\n{WORD_START}]{WORD_START}")
_JAMO = re.compile("[\u1100-\u11ff]")
_CLASSES = re.compile(r"((Albert|Auto|Bert|DistilBert|Electra)Tokenizer(Fast)?|\w+(Fast|Backend))")
# As in `str.lower`, a capital sigma is final after a cased letter and before none. Case-ignorable
# characters between them do not count; at most three before the sigma are recognized, because
# some libraries need expressions of limited length there.
_CASED, _IGNORED = r"[^\P{Cased}\p{Case_Ignorable}]", r"\p{Case_Ignorable}"
_AFTER_CASED = "|".join(f"(?<={_CASED}{_IGNORED * count}Σ)" for count in range(4))
FINAL_SIGMA = f"Σ(?:{_AFTER_CASED})(?!{_IGNORED}*{_CASED})"
# Settings of `tokenizer_config.json`, and the values that this package reproduces.
_SETTINGS = {"do_basic_tokenize": True, "never_split": [], "remove_space": True}
_SETTINGS |= {"sp_model_kwargs": {}, "add_prefix_space": True}


@dataclass
class Differences:
    """Collects the rules of a tokenizer that this package does not reproduce."""

    kind: str  # type of the model
    tokens: Sequence[str]  # vocabulary
    lower_case: bool  # whether texts are lower-cased
    keep_accents: bool = False  # whether accents are kept, for SentencePiece
    refused: list[str] = field(default_factory=list)  # rules that change the ids of usual texts
    noted: list[str] = field(default_factory=list)  # rules that change the ids of some texts
    has_prefix: bool = True  # whether texts begin with a word start

    @cached_property
    def _has_phrases(self) -> bool:
        """Whether a piece can contain several words."""
        return _PHRASE.search("\n".join(self.tokens)) is not None

    def compare_json(self, content: Rules, is_only: bool) -> None:
        """Compares a `tokenizer.json`; `is_only` if there is no other file of the tokenizer."""
        names = (
            ", ".join(map(_described, steps(content.get(key)))) or "null"
            for key in ("normalizer", "pre_tokenizer")
        )
        rules = "the normalizer {} and the pre-tokenizer {}".format(*names)
        self._compare_words(content, rules, is_only)
        prefix = content["model"].get("continuing_subword_prefix", CONTINUATION)
        if self.kind == WORDPIECE and prefix != CONTINUATION:
            self.refused.append(f"the prefix {shown(prefix)} instead of {CONTINUATION!r}")
        if content["model"].get("byte_fallback") and not {*self.tokens} >= BYTE_PIECES:
            self.refused.append("byte_fallback without pieces for all bytes")
        match content.get("post_processor"):
            case {"type": "BertProcessing"}:
                return
            case {"type": "TemplateProcessing", "single": single, "pair": pair}:
                parts = [next(iter(part.values()))["id"] for part in (*single, *pair)]
                if parts == [*parts[:3], *parts[:3], "B", parts[2]] and parts[1] == "A":
                    return
        self.noted.append("the post-processor, which is not [CLS] A [SEP] B [SEP]")

    def compare_settings(self, values: Rules, has_json: bool) -> None:
        """Compares the values of a `tokenizer_config.json`."""
        name = str(values.get("tokenizer_class") or "AutoTokenizer")
        if not (has_json or _CLASSES.fullmatch(name)):
            self.refused.append(f"the rules of {name}")
        self.noted += _unusual(values, _SETTINGS)
        chinese, accents = values.get("tokenize_chinese_chars"), values.get("strip_accents")
        rules = _unusual(values, {"tokenize_chinese_chars": True, "strip_accents": self.lower_case})
        if rules and self.kind == WORDPIECE:
            normalizer = {"type": "BertNormalizer", "lowercase": self.lower_case}
            normalizer |= {"handle_chinese_chars": chinese is not False, "strip_accents": accents}
            content = {"normalizer": normalizer, "pre_tokenizer": {"type": "BertPreTokenizer"}}
            self._compare_words(content, ", ".join(rules), True)

    def compare_added(self, added: Mapping[str, int], content: Rules) -> None:
        """Compares tokens that are found before texts are split, given their ids."""
        if words := [word for word, i in added.items() if [word] != self.tokens[i : i + 1]]:
            self.refused.append(f"the added tokens {listed(words)}")
        elif added:
            first, mark = next(iter(added)), WORD_START
            is_split = "WhitespaceSplit" in str(content.get("pre_tokenizer"))
            before = "" if is_split else f"{mark} "
            example = f": 'a {first}b' becomes '{mark}a {before}{first} {mark}b'"
            example += f", and in SentencePiece and this package '{mark}a {mark} {first} b'"
            example = "" if self.kind == WORDPIECE else example
            self.noted.append(f"the added tokens {listed(added)} split texts{example}")

    def _compare_words(self, content: Rules, rules: str, is_only: bool) -> None:
        """Compares how texts are split into words by rules, which `rules` describes."""
        characters = sorted(c for c in {*"".join(self.tokens)} - {WORD_START} if not c.isascii())
        # All ideographs have the same rules, and all Hangul syllables.
        others = [c for c in characters if not "\u3400" <= c <= "\ud7ff"]
        others += [c for c in characters if "가" <= c <= "힣"][:1]
        # A vocabulary that was trained without vowel signs does not contain them.
        blocks = {ord(c) & ~0x7F for c in others if c >= "\u0590" and is_only}
        others += [chr(block + i) for block in blocks for i in range(0x80) if _is_vowel(block + i)]
        others += [t for t in self.tokens if len(t) > 1 and "一" <= t[0] <= t[1] <= "鿿"][:50]
        try:
            self.has_prefix = self.kind == WORDPIECE or _words(content, "a")[0] != "a"
            usual, unusual, found = (
                self._first_difference(content, samples) for samples in (_USUAL, _UNUSUAL, others)
            )
        except (UserError, re.error) as error:
            usual = unusual = found = str(error)
        if usual or (found and is_only):
            self.refused.append(f"{rules}: {usual or found}")
        elif found or unusual:
            self.noted.append(f"{rules}: {found or unusual}")

    def _first_difference(self, content: Rules, samples: Sequence[str]) -> str | None:
        if not (samples and self._difference(content, " ".join(samples))):  # faster
            return None
        return next(filter(None, (self._difference(content, sample) for sample in samples)), None)

    def _difference(self, content: Rules, sample: str) -> str | None:
        """Describes how the words of a sample differ."""
        found = _words(content, sample)
        if self.kind == WORDPIECE:
            expected = split_words(sample, self.lower_case)
            is_same = found == expected
        else:
            text = clean_text(sample, self.lower_case, keep_accents=self.keep_accents)
            text = text.replace(" ", WORD_START)
            text = WORD_START * self.has_prefix + text
            # The tokenizers library does not compose Hangul.
            if any(step["type"] == "Precompiled" for step in steps(content["normalizer"])):
                text = unicodedata.normalize("NFKC", text)
                found = [w if _JAMO.search(w) else unicodedata.normalize("NFKC", w) for w in found]
            expected = _WORD.findall(text)
            is_same = found == [text] or (found == expected and not self._has_phrases)
            # The pieces of BPE models do not depend on this division.
            is_same = is_same or (self.kind == "BPE" and "".join(found) == text)
        return None if is_same else f"{sample!r} becomes {found} instead of {expected}"


def _described(step: Rules) -> str:
    return str(step["type"]) + "".join(f" {key}=false" for key in step if step[key] is False)


def _is_vowel(code: int) -> bool:
    """Returns whether a character is a mark that the original keeps, such as Indic vowel signs."""
    return unicodedata.category(chr(code)) == "Mn" and not unicodedata.combining(chr(code))


def _unusual(values: Rules, usual: Rules) -> list[str]:
    found = {key: values.get(key) for key in usual}
    return [f"{k}={shown(v)}" for k, v in found.items() if v is not None and v != usual[k]]


def keeps_accents(content: JsonValue) -> bool | None:
    """Returns whether a `tokenizer.json` keeps accents; `None` if its rules are not supported."""
    try:
        words = _words({"normalizer": content.value.get("normalizer")}, "\u00e9")
    except (UserError, AttributeError, LookupError, RecursionError, TypeError, re.error):
        return None
    return any(map(unicodedata.combining, unicodedata.normalize("NFD", "".join(words))))


def steps(part: Any) -> list[Rules]:
    """Returns the steps of a normalizer or pre-tokenizer."""
    match part:
        case None:
            return []
        case {"normalizers": [*inner]} | {"pretokenizers": [*inner]}:
            return [step for value in inner for step in steps(value)]
        case {"type": str()}:
            return [part]
    raise UserError(f"{shown(part)} is not a rule")


def _words(content: Rules, text: str) -> list[str]:
    """Returns the words of a text before they are split into pieces."""
    for step in steps(content.get("normalizer")):
        text = _normalize(step, text)
    words = [text]
    for step in steps(content.get("pre_tokenizer")):
        words = [w for i, word in enumerate(words) for w in _split(step, word, i == 0)]
    return [word for word in words if word]


def _normalize(step: Rules, text: str) -> str:
    match step:
        case {"type": "NFC" | "NFD" | "NFKC" | "NFKD" as form}:
            return unicodedata.normalize(form, text)
        case {"type": "Lowercase"}:
            return text.lower()
        case {"type": "StripAccents"}:
            return "".join(c for c in text if unicodedata.category(c) != "Mn")
        case {"type": "Prepend", "prepend": str(prefix)}:
            return prefix + text
        case {"type": "Replace", "pattern": pattern, "content": str(content)}:
            return re.sub(_expression(pattern), lambda _: content, text)
        case {"type": "Precompiled" | "Strip"}:
            return text
        case {"type": "BertNormalizer"}:
            lower, accents = step.get("lowercase", True), step.get("strip_accents")
            for character in {*text}:
                new = clean_character(ord(character))
                key = "handle_chinese_chars" if new.strip() else "clean_text"
                text = text.replace(character, new) if step.get(key, True) else text
            if accents or (accents is None and lower):
                text = _normalize({"type": "StripAccents"}, unicodedata.normalize("NFD", text))
            return text.lower() if lower else text
    raise UserError(f"{shown(step)} is not supported")


def _split(step: Rules, word: str, is_first: bool) -> list[str]:
    match step:
        case {"type": "WhitespaceSplit"}:
            return word.split()
        case {"type": "BertPreTokenizer"}:
            return "".join(split_punctuation(ord(c)) for c in word).split()
        case {"type": "Punctuation", **rest} if rest.get("behavior", "Isolated") == "Isolated":
            marks = re.escape("".join(c for c in {*word} if split_punctuation(ord(c)) != c))
            return re.split(f"([{marks}])", word) if marks else [word]
        case {"type": "Split", "pattern": pattern, "behavior": "Isolated"}:
            return re.split(f"({_expression(pattern)})", word)
        case {"type": "Metaspace"} if step.get("replacement", WORD_START) == WORD_START:
            usual = "always" if step.get("add_prefix_space", True) else "never"
            scheme = step.get("prepend_scheme", usual)
            word = word.replace(" ", WORD_START)
            if scheme == "always" or (scheme == "first" and is_first):
                word = WORD_START + word.removeprefix(WORD_START)
            return _WORD.findall(word) if step.get("split", True) else [word]
    raise UserError(f"{shown(step)} is not supported")


def _expression(pattern: Any) -> str:
    """Returns a regular expression that cannot take long."""
    match pattern:
        case {"String": str(text)}:
            return re.escape(text)
        case {"Regex": str(text)} if text == FINAL_SIGMA:  # `str.lower` recognizes it
            return "$^"
        case {"Regex": str(text)} if _SIMPLE.fullmatch(text):
            return text
    raise UserError(f"the pattern {shown(pattern)} is not supported")
