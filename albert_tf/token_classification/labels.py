"""Labels of words: schemes, and the entities that labels represent.

* plain: a label is a class, such as a part of speech.
* IOB2: `B-PER` starts an entity of type PER, `I-PER` continues it, `O` is outside.
* IOB1: `I-PER` also starts an entity; `B-PER` only directly after another entity of its type.
* IOBES: like IOB2, but the last word of an entity has `E-PER`, and a single word `S-PER`.

The type follows the first hyphen. If there is only one type, all labels may omit it: `B`, `I`, `O`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from albert_tf.data.errors import UserError
from albert_tf.data.strict_json import listed, shown

SCHEMES: Final = ("plain", "IOB1", "IOB2", "IOBES")
PLAIN, IOB1, IOB2, IOBES = SCHEMES
OUTSIDE: Final = "O"
_PREFIXES = frozenset("BIES")

# Labels of two adjacent words; `None` outside of the sentence.
_Pair = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True)
class Sentence:
    """At least one word, and optional labels.

    Attributes:
        guid: file and line of the first word.
        words: words as in the file; some may be empty.
        labels: one per word, as in the file, or IOB2 from entities. `None` without labels.
        text: the text of JSON Lines with `text`. Otherwise `None`.
        offsets: start and end of each word in the text, in characters, end exclusive.
        lines: line of each word; empty if all are on the line of `guid`.
    """

    guid: str
    words: tuple[str, ...]
    labels: tuple[str, ...] | None = None
    text: str | None = None
    offsets: tuple[tuple[int, int], ...] | None = None
    lines: Sequence[int] = ()

    def where(self, index: int) -> str:
        """Returns file and line of a word, for errors."""
        if not self.lines:
            return f"{self.guid}, word {index + 1}"
        return f"{self.guid.rpartition(':')[0]}:{self.lines[index]}"


class Entity(NamedTuple):
    """An entity of the words `start` to `end`, end exclusive."""

    type: str
    start: int
    end: int


def recognize_scheme(sentences: Iterable[Sentence]) -> str:
    """Returns the scheme in `SCHEMES` that the labels of all sentences follow.

    Labels are plain unless a label is `B-` or `I-` with a type, or all are `S-` or `O`. Labels
    without types are plain unless all are `B`, `I`, `E`, `S` or `O`, and one is `B` or `I`. Every
    entity distinguishes IOB1 from IOB2: only a file without entities could be both, and it is
    plain.

    `I-` after a word of another type starts an entity in every scheme, as in conlleval; so do `I-`
    and `E-` after `O` in IOBES.

    Args:
        sentences: read once; sentences without labels are ignored.

    Raises:
        ValueError: there are labels of two schemes; names a label of each and their lines.
    """
    first: dict[_Pair, tuple[Sentence, int]] = {}
    for sentence in sentences:
        if labels := sentence.labels:
            pairs = set(zip((None, *labels), (*labels, None), strict=True))
            if not pairs <= first.keys():
                for index, pair in enumerate(zip((None, *labels), (*labels, None), strict=True)):
                    first.setdefault(pair, (sentence, index))
    names = dict.fromkeys(label for _, label in first if label is not None)
    is_typed = any(name[:2] in ("B-", "I-") for name in names) or _are_single(names)
    if not is_typed and not _are_untyped(names):
        return PLAIN

    def place(pair: _Pair, is_left: bool = False) -> str:
        sentence, index = first[pair]
        label = pair[0] if is_left else pair[1]
        return f"{shown(label)} ({sentence.where(index - is_left)})"

    def begins(pair: _Pair, prefix: str) -> bool:
        """Whether `prefix` begins an entity where no other one of its type ends."""
        left, right = split_label(pair[0]), split_label(pair[1])
        return right[0] == prefix and (left[0] == "O" or (prefix == "B" and left[1] != right[1]))

    def is_open(pair: _Pair) -> bool:
        """Whether an entity ends behind `B-` or `I-`, as it does not in IOBES."""
        left, right = split_label(pair[0]), split_label(pair[1])
        return left[0] in ("B", "I") and (right[0] not in ("I", "E") or left[1] != right[1])

    for pair in first:
        if pair[1] is not None and not _is_chunk_label(pair[1], is_typed):
            chunks = (p for p in first if p[1] != OUTSIDE and _is_chunk_label(p[1], is_typed))
            if (other := next(chunks, None)) is None:
                raise UserError(
                    f"{place(pair)} has no type. Write B-TYPE and I-TYPE, or B and I "
                    "without a hyphen if there is only one type."
                )
            raise _two_schemes(
                f"{place(pair)} is plain, neither O nor B-, I-, E- or S- and a type, but "
                f"{place(other)} is",
            )
    closed = next((pair for pair in first if split_label(pair[1])[0] in ("E", "S")), None)
    if closed:
        if unclosed := next(filter(is_open, first), None):
            raise _two_schemes(
                f"no E- follows {place(unclosed, is_left=True)}, as in IOB1 and IOB2, but "
                f"{place(closed)} is of IOBES",
            )
        return IOBES
    iob1 = next((pair for pair in first if begins(pair, "I")), None)
    iob2 = next((pair for pair in first if begins(pair, "B")), None)
    if iob1 and iob2:
        raise _two_schemes(
            f"{place(iob1)} begins an entity as in IOB1, {place(iob2)} as in IOB2",
        )
    return IOB1 if iob1 else IOB2


def _two_schemes(found: str) -> ValueError:
    return UserError(
        f"labels of two schemes: {found}. Label all files in one scheme: plain, IOB1, IOB2 "
        "or IOBES (BILOU is IOBES with L- for E- and U- for S-)."
    )


def _is_chunk_label(label: str | None, is_typed: bool) -> bool:
    if label is None or label == OUTSIDE:
        return label is not None
    prefix, hyphen, kind = label.partition("-")
    return prefix in _PREFIXES and (bool(kind) if is_typed else not hyphen)


def _are_untyped(names: Iterable[str]) -> bool:
    return {*names} <= {*_PREFIXES, OUTSIDE} and not {"B", "I"}.isdisjoint(names)


def scheme_of(names: Sequence[str]) -> str:
    """Returns plain for the labels of a model as `recognize_scheme` does, otherwise IOB2.

    `entities` reads the schemes other than plain in the same way.

    Raises:
        ValueError: only some labels belong to such a scheme, as in some models of other libraries.
    """
    is_typed = any(name[:2] in ("B-", "I-") for name in names) or _are_single(names)
    if not is_typed and not _are_untyped(names):
        return PLAIN
    if other := [name for name in names if not _is_chunk_label(name, is_typed)]:
        raise UserError(
            f"The labels of the model are of two schemes: {listed(other)} are neither O nor B-, "
            "I-, E- or S- and a type, as the others are. Rename them; BILOU's L- is E-, its U- is "
            f"S-. Received: {listed(names)}"
        )
    return IOB2


def _are_single(names: Iterable[str]) -> bool:
    """Returns whether all entities have one word, in IOBES."""
    return {name[:2] for name in names} in ({"S-"}, {"S-", OUTSIDE})


@lru_cache(maxsize=4096)
def split_label(label: str | None) -> tuple[str, str]:
    """Splits a label of a scheme other than plain into prefix and type.

    `B-PER` is ("B", "PER"); `B` is ("B", ""); `O` and `None` are ("O", "").

    Raises:
        ValueError: the label has another prefix.
    """
    if label is None or label == OUTSIDE:
        return OUTSIDE, ""
    prefix, _, kind = label.partition("-")
    if prefix not in _PREFIXES:
        raise UserError(f"A label must be O or begin with B-, I-, E- or S-. Received: {label!r}")
    return prefix, kind


def entities(labels: Sequence[str], scheme: str) -> list[Entity]:
    """Finds the entities of a sentence like conlleval, also in invalid sequences.

    An entity ends after `E-` and `S-`, before `B-`, `S-` and `O`, and where the type changes; every
    other label except `O` continues it, or starts one. With plain labels every word is an entity,
    except `O`.

    Args:
        labels: one per word.
        scheme: one of `SCHEMES`; all except plain are read in the same way.

    Returns:
        Entities in the order of the words, without overlaps.

    Raises:
        ValueError: the scheme is unknown, or a label has none of its prefixes.

    Source: `startOfChunk` and `endOfChunk` of conlleval.pl (CoNLL-2000), and seqeval for `S-` and
        for `B-` after `E-`, which conlleval.pl lacks.
    """
    if scheme not in SCHEMES:
        raise UserError(f"scheme must be one of {', '.join(SCHEMES)}. Received: {scheme!r}")
    if scheme == PLAIN:
        return [Entity(label, i, i + 1) for i, label in enumerate(labels) if label != OUTSIDE]
    found: list[Entity] = []
    start, left, kind = -1, OUTSIDE, ""  # of the open entity; -1 if none is open
    for index, label in enumerate((*labels, OUTSIDE)):
        prefix, right = split_label(label)
        if start >= 0 and (left in "ES" or prefix in "BSO" or kind != right):
            found.append(Entity(kind, start, index))
            start = -1
        if start < 0 and prefix != OUTSIDE:
            start = index
        left, kind = prefix, right
    return found


def labels_of(entities: Iterable[Entity], num_words: int) -> list[str]:
    """Returns the labels of a sentence of `num_words` words, in IOB2.

    Raises:
        ValueError: an entity is empty, out of range or overlaps another.
    """
    labels = [OUTSIDE] * num_words
    for entity in entities:
        kind, start, end = entity
        if not 0 <= start < end <= num_words or {*labels[start:end]} != {OUTSIDE}:
            raise UserError(
                f"Entities must be of one or more of the {num_words} words, and not overlap. "
                f"Received: {entity}"
            )
        labels[start:end] = [f"B-{kind}"] + [f"I-{kind}"] * (end - start - 1)
    return labels
