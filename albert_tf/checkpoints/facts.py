"""What is known about a model, and what happens if two places state different values.

Sources state facts: a configuration, a tokenizer, `labels.json`, `run_config.json`, records, a
released model, arguments. `compare` finds differences between sources, and `settle` reports them
and returns one value per fact. The kind of a fact determines the treatment wherever sources meet.
"""

import json
import operator
from collections.abc import Callable, Container, Mapping
from enum import Enum
from typing import Any, NamedTuple

from absl import logging

from albert_tf.checkpoints.errors import LoadError
from albert_tf.config import GROWING, AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.data.strict_json import parse_json, shown
from albert_tf.data.tfrecord import RecordError

ANY = "any"  # value of a fact that agrees with all values


class Kind(Enum):
    """What a wrong value does. The value is the reason in messages."""

    SHAPE = "the weights do not fit"
    OUTPUT = "the same weights compute other outputs, which their shapes do not show"
    EMBEDDING = "some tokens have no word embedding"
    VOCABULARY = "tokens have other ids than in training"
    IDS = "texts get other token ids than in training"
    CASE = "texts are lower-cased differently than in training"
    HEAD = "the head was trained for other answers"
    LOSS = "the head was trained with another loss"
    UNIT = "the head was trained for numbers of another unit"
    LENGTH = "texts are truncated to another length than in training"
    SCORES = "scores cannot be compared"
    TRAINING = "the settings or files of the run differ"


class Meeting(Enum):
    """Where sources meet. The value is the advice in messages."""

    LOAD = "Restore the changed file. If the change is intended, correct or delete the other file."
    FORMAT = "The first value is used, as in the program of the format."
    RELEASE = "Check these values: wrong values silently change the outputs."
    GIVEN = "Omit the argument to use the value of the model."
    RESUME = "Use the same value, or a new `output_dir`."
    EVALUATE = "Compare only scores of the same data and loss."
    RECORDS = "Use the tokenizer and the settings of the records, or create the records again."
    WORKERS = "Use the same settings, files and shared `output_dir` (such as gs://) on all workers."
    ARGUMENTS = "Omit one of the arguments."


# What a difference of a kind causes in each meeting. E: an error. W: a warning. S: an error if a
# source is strict, otherwise a warning. -: the kind is not compared there.
# The columns are the meetings in their order: LOAD, FORMAT, RELEASE, ..., ARGUMENTS.
_TREATMENT = {
    Kind.SHAPE: "E - W S E - - - -",  # given sizes may differ with `init_from_group0`
    Kind.OUTPUT: "E - W S E - - - -",
    Kind.EMBEDDING: "E - - E E - - - -",
    Kind.VOCABULARY: "E - - S E - E - -",
    Kind.IDS: "E W - E E - E - -",
    Kind.CASE: "E W - W E - E - -",  # scripts for the original always pass `do_lower_case`
    Kind.HEAD: "E - - E E - - - -",
    Kind.LOSS: "E - - E E W E - -",
    Kind.UNIT: "E - - W W - - - -",
    Kind.LENGTH: "W - - W W - - - -",
    Kind.SCORES: "- - - - W W - - -",
    Kind.TRAINING: "- - - - W - - E E",
}
_ERRORS = {Meeting.LOAD: LoadError, Meeting.RECORDS: RecordError}


def is_same_unit(known: tuple[float, float], found: tuple[float, float]) -> bool:
    """Returns whether numbers with another mean and deviation probably have the same unit."""
    (mean, deviation), (other_mean, other_deviation) = known, found
    is_near = abs(other_mean - mean) <= 3 * deviation
    return is_near and deviation / 5 <= other_deviation <= 5 * deviation


class Fact(NamedTuple):
    """A row of `RULES`: the kind, when two values are the same, and how a value is shown."""

    kind: Kind
    is_same: Callable[[Any, Any], bool] = operator.eq
    show: Callable[[Any], str] = shown


_OF_HEADS = ("task", "labels", "num_labels", "pairs", "architecture", "problem_type")
_NAMES = {
    Kind.SHAPE: "vocab_size embedding_size hidden_size intermediate_size num_hidden_groups "
    "inner_group_num max_position_embeddings type_vocab_size shape",
    Kind.OUTPUT: "num_hidden_layers num_attention_heads hidden_act parameter_sharing num_blocks",
    Kind.VOCABULARY: "vocabulary_size",
    Kind.IDS: "keep_accents",
    Kind.CASE: "do_lower_case",
    Kind.LENGTH: "max_seq_length",
    Kind.SCORES: "evaluation",
}
# By name, or by the part of a name before a dot.
RULES: Mapping[str, Fact] = {
    **{name: Fact(kind) for kind, names in _NAMES.items() for name in names.split()},
    # Embeddings, which must be the first source, and tokens
    "num_tokens": Fact(Kind.EMBEDDING, operator.ge),
    "vocabulary": Fact(Kind.VOCABULARY, show=lambda fingerprint: f"{fingerprint!s:.16}..."),
    "tokenizer": Fact(Kind.VOCABULARY, lambda a, b: a.is_same_as(b), lambda one: one.source),
    "head": Fact(Kind.HEAD, lambda one, other: not {*one}.isdisjoint(other), ", ".join),
    "sentence_loss": Fact(Kind.LOSS, lambda one, other: one == other or ANY in (one, other)),
    "scale": Fact(Kind.UNIT, is_same_unit, "mean {0[0]:g} and deviation {0[1]:g}".format),
    **dict.fromkeys(_OF_HEADS, Fact(Kind.HEAD, show=str)),
}
_GROWING = {"vocab_size", "max_position_embeddings", "vocabulary", "vocabulary_size", "num_tokens"}
_OTHER = Fact(Kind.TRAINING)
_MOST_REPORTED = 9


# The facts that each place states, by the place. `None` means that a value is unknown.
Sources = Mapping[str, Mapping[str, Any]]


class Difference(NamedTuple):
    """A fact that two sources state differently."""

    name: str
    kind: Kind
    is_error: bool
    text: str


def compare(sources: Sources, meeting: Meeting, strict: Container[str] = ()) -> list[Difference]:
    """Compares each source with the first source that states the same fact.

    `strict` contains the places of strict sources, see `_TREATMENT`.
    """
    seen: dict[str, tuple[str, Any]] = {}
    found, column = [], [*Meeting].index(meeting)
    for where, facts in sources.items():
        for name, value in facts.items():
            rule = RULES.get(name) or RULES.get(name.split(".")[0], _OTHER)
            treatment = _TREATMENT[rule.kind].split()[column]
            if value is None or treatment == "-":
                continue
            first, known = seen.setdefault(name, (where, value))
            if not rule.is_same(known, value):
                text = f"{name} is {rule.show(known)} in {first}, but {rule.show(value)} in {where}"
                is_strict = treatment == "S" and (where in strict or first in strict)
                found.append(Difference(name, rule.kind, treatment == "E" or is_strict, text))
    return found


def settle(
    sources: Sources, meeting: Meeting, *, advice: str = "", strict: Container[str] = ()
) -> dict[str, Any]:
    """Returns the value of each fact in the first source that states it.

    Raises `ValueError`, or logs a warning, if there are differences. `advice` replaces the value
    of the meeting; for `strict`, see `compare`.
    """
    found = compare(sources, meeting, strict)
    if reported := [one for one in found if one.is_error] or found:
        harm = " and ".join(dict.fromkeys(one.kind.value for one in reported))
        texts = [one.text for one in reported[:_MOST_REPORTED]]
        texts += ["..."] * (len(reported) > len(texts))
        text = f"{'; '.join(texts)}: {harm}. {advice or meeting.value}"
        if meeting is Meeting.GIVEN and {one.name for one in reported} <= _GROWING:
            text += f" {GROWING}"
        if reported[0].is_error:
            raise _ERRORS.get(meeting, UserError)(text)
        logging.warning("%s", text)
    values: dict[str, Any] = {}
    for facts in sources.values():
        values |= {name: v for name, v in facts.items() if values.get(name) is None}
    return values


def stated(name: str, values: Mapping[str, Any]) -> Sources:
    """Returns sources of one fact, given its value by place."""
    return {where: {name: value} for where, value in values.items()}


def config_facts(config: AlbertConfig) -> dict[str, Any]:
    """Returns the values of a configuration, except unknown keys."""
    return {name: value for name, value in vars(config).items() if name != "extra"}


def changed_settings(settings: Sources, meeting: Meeting) -> list[str]:
    """Describes the differences of settings, which are compared as they are stored in JSON."""
    texts = {where: json.dumps(values, default=str) for where, values in settings.items()}
    facts = {where: _leaves(parse_json(text, where)) for where, text in texts.items()}
    return [one.text for one in compare(facts, meeting)]


def _leaves(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Flattens nested settings: {"optimizer": {"beta_1": b}} -> {"optimizer.beta_1": b}."""
    leaves: dict[str, Any] = {}
    for name, value in settings.items():
        below = _leaves(value) if isinstance(value, dict) else {"": value}
        leaves |= {f"{name}.{key}".rstrip("."): leaf for key, leaf in below.items()}
    return {name: "null" if value is None else value for name, value in leaves.items()}
