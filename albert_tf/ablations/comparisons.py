"""The paper's comparisons as configurations: a base model, and changes of one thing at a time.

The paper's sizes are those of models that train for days. Here sizes follow from the base, whatever
it is, unless they are given.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from albert_tf.config import SHARING_MODES, AlbertConfig
from albert_tf.data.segments import SENTENCE_LOSSES, SOP

BASE = "base"
_DROPOUT = 0.1  # of the first released models

Changes = Mapping[str, Any]  # fields of AlbertConfig


@dataclasses.dataclass(frozen=True)
class Variant:
    """A model of a comparison.

    Attributes:
        comparison: key of `COMPARISONS`; `BASE` for the base itself.
        value: what is compared, in this model; a number or a word.
        changes: in what the configuration differs from the base.
        sentence_loss: one of `SENTENCE_LOSSES`.
    """

    comparison: str
    value: str
    changes: Changes = dataclasses.field(default_factory=dict)
    sentence_loss: str = SOP

    @property
    def name(self) -> str:
        """A name for files and tables: "base", "depth-12"."""
        return BASE if self.comparison == BASE else f"{self.comparison}-{self.value}"

    def config(self, base: AlbertConfig) -> AlbertConfig:
        """The base with the changes.

        Raises:
            ValueError: no such model can be built.
        """
        return base.replace(**self.changes)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One question the paper asks.

    Attributes:
        title: what is compared.
        source: where the paper does it.
        base_value: what the base has.
        values: all that are compared, given the base; the base's may be among them.
        changes: fields of the configuration for one of the values, given the base.
    """

    title: str
    source: str
    base_value: Callable[[AlbertConfig], Any]
    values: Callable[[AlbertConfig], Sequence[Any]]
    changes: Callable[[AlbertConfig, Any], Changes]


def _half(size: int) -> int:
    return max(1, size // 2)


def _wider(base: AlbertConfig, width: int) -> Changes:
    """Heads keep their size and the feed-forward part its ratio, as in the paper."""
    return {
        "hidden_size": width,
        "num_attention_heads": max(1, width // base.head_size),
        "intermediate_size": width * base.intermediate_size // base.hidden_size,
    }


def _dropout(_: AlbertConfig, rate: float) -> Changes:
    return {"hidden_dropout_prob": rate, "attention_probs_dropout_prob": rate}


# Columns: title; table of the paper; value of the base; values to compare; what they change.
COMPARISONS: Mapping[str, Comparison] = {
    "embedding_size": Comparison(
        "embedding size E",
        "table 3",
        lambda base: base.embedding_size,
        lambda base: (_half(base.embedding_size), 2 * base.embedding_size, base.hidden_size),
        lambda base, size: {"embedding_size": size},
    ),
    "sharing": Comparison(
        "what layers share",
        "table 4",
        lambda base: base.parameter_sharing,
        lambda base: SHARING_MODES,
        lambda base, mode: {"parameter_sharing": mode},
    ),
    "sentence_loss": Comparison(
        "sentence loss",
        "table 5",
        lambda base: SOP,
        lambda base: SENTENCE_LOSSES,
        lambda base, loss: {},
    ),
    "dropout": Comparison(
        "dropout",
        "table 8",
        lambda base: base.hidden_dropout_prob,
        lambda base: (0.0, _DROPOUT),
        _dropout,
    ),
    "depth": Comparison(
        "layers L",
        "table 11",
        lambda base: base.num_hidden_layers,
        lambda base: (1, _half(base.num_hidden_layers), 2 * base.num_hidden_layers),
        lambda base, layers: {"num_hidden_layers": layers},
    ),
    "width": Comparison(
        "hidden size H",
        "table 12",
        lambda base: base.hidden_size,
        lambda base: (_half(base.hidden_size), 2 * base.hidden_size),
        _wider,
    ),
}


def choose_variants(
    base: AlbertConfig,
    comparisons: Iterable[str] = tuple(COMPARISONS),
    values: Mapping[str, Sequence[Any]] | None = None,
    losses: Sequence[str] = SENTENCE_LOSSES,
) -> list[Variant]:
    """Returns the models to train, the base first, each once.

    Args:
        base: what all are compared with.
        comparisons: keys of `COMPARISONS`.
        values: of a comparison, in place of those that follow from the base.
        losses: sentence losses there are records for.

    Raises:
        ValueError: there is no such comparison; a model cannot be built, and the message names it.
    """
    variants = [Variant(BASE, BASE)]
    for key in comparisons:
        if key not in COMPARISONS:
            raise ValueError(
                f"--comparisons: there is no {key!r}. Known ones: {', '.join(COMPARISONS)}"
            )
        variants += _variants(base, key, (values or {}).get(key), losses)
    for variant in variants:
        _check(variant, base)
    return variants


def _variants(
    base: AlbertConfig, key: str, chosen: Sequence[Any] | None, losses: Sequence[str]
) -> list[Variant]:
    """The models of one comparison without the base."""
    comparison = COMPARISONS[key]
    values = dict.fromkeys(chosen or comparison.values(base))
    values.pop(comparison.base_value(base), None)
    if key == "sentence_loss":
        return [Variant(key, loss, {}, loss) for loss in values if loss in losses]
    return [Variant(key, str(value), comparison.changes(base, value)) for value in values]


def _check(variant: Variant, base: AlbertConfig) -> None:
    try:
        variant.config(base)
    except ValueError as error:
        raise ValueError(f"The model {variant.name} cannot be built: {error}") from error
