"""Labels of words: schemes, entities and scores.

* plain: a label is a class, such as a part of speech.
* IOB2: `B-PER` starts an entity of type PER, `I-PER` continues it, `O` is outside.
* IOB1: `I-PER` also starts an entity. `B-PER` is only used directly after an entity of this type.
* IOBES: like IOB2, but the last word of an entity has `E-PER`, and a single word `S-PER`. In BILOU,
  these are `L-PER` and `U-PER`. In BMES, `M-PER` is used instead of `I-PER`.

The type follows the first hyphen. If there is only one type, all labels may omit it: `B`, `I`, `O`.
`b-PER`, `B_PER` and `PER-B` are other forms of `B-PER`. Without types, single letters are a scheme
only if `B` occurs; the labels `I` and `O` are classes. The setting `label_scheme` overrides all of
this.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Final, NamedTuple

from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.data.strict_json import listed, shown

SCHEMES: Final = ("plain", "IOB1", "IOB2", "IOBES")
PLAIN, IOB1, IOB2, IOBES = SCHEMES
LABEL_SCHEMES: Final = {**dict(zip(SCHEMES, SCHEMES, strict=True)), "BILOU": IOBES, "BMES": IOBES}
OUTSIDE: Final = "O"
WORD_UNITS: Final = ("word", "character", "icu")  # into which texts are split
NO_LABEL: Final = ""  # of words that are only context: not trained and not scored
WITHOUT_LABEL: Final = (None, -100, "-100", "-")  # in data
_PREFIXES = frozenset("BIES")
_SAME_PREFIXES = {"L": "E", "U": "S", "M": "I"}  # BILOU and BMES
_UNTYPED = tuple({*letters, OUTSIDE} for letters in ("BIES", "BILU", "BMES"))
_FORMS = re.compile("([BIESLUM])[-_/:](.+)|(.+)[-_/:]([BIESLUM])", re.IGNORECASE | re.DOTALL)
_MOST_SLIPS, _MOST_PLACES = 0.01, 5  # share of words; places shown
_IOB = "IOB1 or IOB2"
_Pair = tuple[str, str]  # labels of adjacent words
_REMEDY = "Use one scheme for all files, or set `label_scheme`."


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of at least one word, with optional labels."""

    guid: str  # file and line of the first word
    words: tuple[str, ...]  # as in the file; words may be empty
    # As in the file, or IOB2 labels of the entities. Words may have `NO_LABEL`.
    labels: tuple[str, ...] | None = None
    text: str | None = None  # `text` in JSON Lines
    offsets: tuple[tuple[int, int], ...] | None = None  # of the words in `text`, end exclusive
    lines: tuple[int, ...] = ()  # of the words; empty for JSON Lines

    def where(self, index: int) -> str:
        """Returns the file and line of a word, for errors."""
        if not self.lines:
            return f"{self.guid}, word {index + 1}"
        return f"{self.guid.rpartition(':')[0]}:{self.lines[index]}"


class Entity(NamedTuple):
    """An entity that consists of the words `start` to `end`, end exclusive."""

    type: str
    start: int
    end: int


def recognize_scheme(sentences: Iterable[Sentence], given: str | None = None) -> str:
    """Detects the scheme of the labels of all sentences, one of `SCHEMES`.

    If one of `LABEL_SCHEMES` is `given`, nothing is detected; all labels must have its form. For
    plain labels see `scheme_of`. In all schemes, `I-` after a word of another type starts an
    entity, as in conlleval. In IOBES, `I-` and `E-` after `O` also start an entity. Sentences
    without labels are ignored. Raises ValueError, with labels and lines, if labels follow two
    schemes in more than 1% of the words; fewer are logged.
    """
    labels = _AdjacentLabels(sentences)
    names = dict.fromkeys(right for _, right in labels.counts if right != NO_LABEL)
    malformed = _malformed(names, given)
    if malformed is None:
        if not given:
            _warn_of_unknown_forms(names)
        return PLAIN
    if malformed:
        [first, *_] = labels.places(pair for pair in labels.counts if pair[1] == malformed[0])
        raise UserError(
            f"{first} must be O, or B-, I-, E- or S- with a type, like other labels of the file, "
            f"or as `label_scheme` requires. {_REMEDY}"
        )
    if given:
        return LABEL_SCHEMES[given]
    return IOBES if labels.choose(IOBES, _IOB) == IOBES else labels.choose(IOB1, IOB2)


class _AdjacentLabels:
    """The pairs of adjacent labels in all sentences, with their numbers and first places."""

    def __init__(self, sentences: Iterable[Sentence]) -> None:
        self.counts: Counter[_Pair] = Counter()
        self._places: dict[_Pair, list[tuple[Sentence, int]]] = {}
        self._num_words = 0
        for sentence in sentences:
            if sentence.labels:
                self._num_words += len(sentence.labels)
                for index, pair in enumerate(pairwise((OUTSIDE, *sentence.labels, OUTSIDE))):
                    self.counts[pair] += 1
                    if self.counts[pair] <= _MOST_PLACES:
                        self._places.setdefault(pair, []).append((sentence, index))

    def places(self, pairs: Iterable[_Pair], side: int = 1) -> list[str]:
        """Returns the first places of pairs. `side` is 0 or 1, the label that is shown."""
        return [
            f"{shown(pair[side])} ({sentence.where(index - 1 + side)})"
            for pair in pairs
            for sentence, index in self._places[pair]
        ]

    def choose(self, *schemes: str) -> str:
        """Returns the one of two schemes that more labels follow; logs the labels of the other."""
        evidence = _evidence(self.counts)
        numbers = {name: sum(self.counts[pair] for pair in evidence[name]) for name in schemes}
        few, many = sorted(schemes, key=numbers.__getitem__)
        # In IOB1 and IOB2, the last label of an entity is not E- or S-.
        first, other = (self.places(evidence[name], int(name != _IOB)) for name in (few, many))
        if numbers[few] > _MOST_SLIPS * self._num_words:
            raise UserError(
                f"The labels follow two schemes: {first[0]} follows {few}, but {other[0]} follows "
                f"{many}. {numbers[few]} of {self._num_words} words follow {few}; at most "
                f"{_MOST_SLIPS:.0%} are accepted. {_REMEDY}"
            )
        if first:
            logging.warning(
                "words=%d of %d violate the scheme of the labels and are read as in conlleval: %s",
                numbers[few],
                self._num_words,
                ", ".join(first[:_MOST_PLACES]),
            )
        return many


def _evidence(pairs: Iterable[_Pair]) -> dict[str, list[_Pair]]:
    """Returns the pairs of adjacent labels that only occur in each scheme."""
    found: dict[str, list[_Pair]] = {name: [] for name in (IOBES, _IOB, IOB1, IOB2)}
    for pair in pairs:
        if NO_LABEL in pair:
            continue
        (left, left_type), (right, right_type) = map(split_label, pair)
        is_same_type = left_type == right_type
        if right in ("E", "S"):
            found[IOBES].append(pair)
        if left in ("B", "I") and not (right in ("I", "E") and is_same_type):
            found[_IOB].append(pair)
        if right == "I" and left == OUTSIDE:
            found[IOB1].append(pair)
        if right == "B" and (left == OUTSIDE or not is_same_type):
            found[IOB2].append(pair)
    return found


def _warn_of_unknown_forms(names: Collection[str]) -> None:
    """Warns if plain labels look like labels of entities."""
    doubtful = [name for name in names if _FORMS.fullmatch(name) or "*" in name]
    if 2 * len(doubtful) > len(names):
        logging.warning(
            "labels such as %s are read as plain classes, not as entities. Labels of entities are "
            "written as B-PER, I-PER and O. Otherwise set `label_scheme`",
            listed(doubtful[:3]),
        )


def _malformed(names: Collection[str], given: str | None) -> list[str] | None:
    """Returns the labels that lack the prefix or type of others. `None` if labels are plain."""
    if given == PLAIN:
        return None
    starts = {name[:2] for name in names}
    is_typed = bool(starts & {"B-", "I-"}) or starts in ({"S-"}, {"S-", OUTSIDE})
    parts = {name: split_label(name) for name in names}
    others = [name for name, (prefix, _) in parts.items() if prefix != OUTSIDE]
    # Other forms are recognized if all labels have them.
    has_begin = any(parts[name][0] in ("B", "S") for name in others)
    is_untyped = "B" in names and any(letters.issuperset(names) for letters in _UNTYPED)
    if is_untyped or (given and set().union(*_UNTYPED).issuperset(map(str.upper, names))):
        return []
    if not (given or is_typed or (has_begin and all(map(_FORMS.fullmatch, others)))):
        return None
    return [name for name in others if parts[name][0] not in _PREFIXES or not parts[name][1]]


def scheme_of(names: Sequence[str], given: str | None = None) -> str:
    """Returns "plain", or "IOB2" if the labels of a model follow IOB1, IOB2 or IOBES.

    Labels follow a scheme with types if any label starts with `B-` or `I-`, or if all labels except
    `O` start with `S-`. They follow a scheme without types if `B` occurs, and the other labels are
    from `I`, `E`, `S`, `O`, from `I`, `L`, `U`, `O`, or from `M`, `E`, `S`, `O`. All other labels
    are plain. One of `LABEL_SCHEMES` may be `given` instead. Raises ValueError if only some labels
    have types.
    """
    malformed = _malformed(names, given)
    if malformed:
        raise UserError(
            f"The labels of the model follow two schemes: {listed(malformed)} must be O, or B-, "
            "I-, E- or S- with a type, like the other labels. Rename them (in BILOU, L- to E- and "
            f"U- to S-). Received: {listed(names)}"
        )
    return PLAIN if malformed is None else IOB2


@cache
def split_label(label: str) -> tuple[str, str]:
    """Splits a label of a scheme other than plain: `B-PER` is ("B", "PER"), `O` is ("O", "")."""
    if form := _FORMS.fullmatch(label):
        prefix, kind = form[1] or form[4], form[2] or form[3]
    else:
        prefix, _, kind = label.partition("-")
    return _SAME_PREFIXES.get(prefix.upper(), prefix.upper()), kind


def entities(labels: Sequence[str], scheme: str) -> list[Entity]:
    """Returns the entities of a sentence, in order. Labels may violate their scheme.

    An entity ends after `E-` and `S-`, before `B-`, `S-` and `O`, and where the type changes. Any
    other label except `O` continues the entity, or starts a new entity. With plain labels, every
    word except `O` is an entity.

    Source: `startOfChunk` and `endOfChunk` of conlleval.pl (CoNLL-2000). `S-`, and `B-` after `E-`,
        are not supported by conlleval.pl and are handled as in seqeval.
    """
    if scheme == PLAIN:
        return [Entity(label, i, i + 1) for i, label in enumerate(labels) if label != OUTSIDE]
    found: list[Entity] = []
    start, left, kind = -1, OUTSIDE, ""  # `start` is -1 outside of entities
    for index, label in enumerate((*labels, OUTSIDE)):
        prefix, right = split_label(label)
        if start >= 0 and (left in "ES" or prefix in "BSO" or kind != right):
            found.append(Entity(kind, start, index))
            start = -1
        if start < 0 and prefix != OUTSIDE:
            start = index
        left, kind = prefix, right
    return found


def best_metric(scheme: str) -> str:
    """Returns the name of the score that selects the best checkpoint."""
    return "eval_accuracy" if scheme == PLAIN else "f1"


def scores(
    gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]], scheme: str
) -> dict[str, float]:
    """Compares predicted labels with the correct labels, `gold`; there must be a word.

    Returns:
        Numbers from 0 to 1; 0 if the denominator of a score is 0. `eval_accuracy` is the share of
        words with the correct label. Unless labels are plain, `precision`, `recall` and `f1` are
        scores of entities. An entity is correct if its type and range are correct. `precision_X`,
        `recall_X` and `f1_X` are scores of each type or plain label X that occurs.

    Source: conlleval.pl (CoNLL-2000), which reports percentages.
    """
    right: Counter[str] = Counter()
    found: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    num_words = num_right = 0
    for expected, labels in zip(gold, predicted, strict=True):
        same = [one for one, other in zip(expected, labels, strict=True) if one == other]
        num_words += len(expected)
        num_right += len(same)
        if scheme == PLAIN:
            wanted.update(expected)
            found.update(labels)
            right.update(same)
            continue
        of_gold, of_labels = entities(expected, scheme), entities(labels, scheme)
        wanted.update(entity.type for entity in of_gold)
        found.update(entity.type for entity in of_labels)
        right.update(entity.type for entity in {*of_gold} & {*of_labels})
    scored = {"eval_accuracy": num_right / num_words}
    if scheme != PLAIN:
        scored |= _scores(right.total(), found.total(), wanted.total())
    for name in filter(None, sorted({*wanted, *found})):  # the type is "" if labels omit it
        scored |= _scores(right[name], found[name], wanted[name], f"_{name}")
    return scored


def score_names(names: Sequence[str], scheme: str) -> list[str]:
    """Returns the names of all `scores` that can occur, given the labels of the model."""
    types = {*names} if scheme == PLAIN else {split_label(name)[1] for name in names} | {""}
    endings = [f"_{kind}" if kind else "" for kind in types]
    return ["eval_accuracy", *(name for ending in endings for name in _scores(0, 0, 0, ending))]


def _scores(right: int, found: int, wanted: int, ending: str = "") -> dict[str, float]:
    return {
        f"precision{ending}": right / found if found else 0.0,
        f"recall{ending}": right / wanted if wanted else 0.0,
        f"f1{ending}": 2 * right / (found + wanted) if found + wanted else 0.0,
    }
