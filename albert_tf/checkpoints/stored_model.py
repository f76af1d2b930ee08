"""`StoredModel`: the parts of a model of any format. Tokenizer and weights are opened on first use.

Weights have the names and layouts of the original release; every format maps its own names to them.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.checkpoints.errors import DamagedError, LoadError
from albert_tf.checkpoints.facts import Meeting, settle, stated
from albert_tf.checkpoints.model_directory import (
    ACCENTS_KEY,
    LOWER_CASE_KEY,
    check_vocabulary,
    with_rules,
)
from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.config import AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.data.files import reason_of
from albert_tf.tokenization.base import Tokenizer
from albert_tf.tokenization.loading import tokenizer_from_files

GLOBAL_STEP = "global_step"

# Raised by TensorFlow's checkpoint reader, depending on the damage.
READ_ERRORS = (tf.errors.OpError, ValueError, RuntimeError, IndexError)

# Temporary errors, and missing permissions.
_OTHER_ERRORS = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.PermissionDeniedError,
    tf.errors.ResourceExhaustedError,
    tf.errors.UnauthenticatedError,
    tf.errors.UnavailableError,
)
_PROJECTION = "bert/encoder/embedding_hidden_mapping_in"
_KERNEL, _BIAS = f"{_PROJECTION}/kernel", f"{_PROJECTION}/bias"


def kind_of_error(error: Exception) -> type[LoadError]:
    """Returns the class for an error of TensorFlow's reader."""
    return LoadError if isinstance(error, _OTHER_ERRORS) else DamagedError


class Weights(Mapping[str, np.ndarray]):
    """Weights by the original's names. Values are read when they are accessed.

    Variables that the original does not have keep their names. Access raises `LoadError` if a value
    cannot be read.

    Attributes:
        source: file of the weights, or prefix of TensorFlow's files.
        shapes: the original's shape of every variable, sorted by name.
    """

    def __init__(
        self,
        source: str,
        shapes: Mapping[str, Sequence[int]],
        read: Callable[[str], np.ndarray],
    ) -> None:
        self.source = source
        self.shapes = {name: list(shapes[name]) for name in sorted(shapes)}
        self.read = read

    @classmethod
    def in_memory(cls, values: Mapping[str, np.ndarray], source: str = "") -> "Weights":
        """Returns values in memory as weights, in the given order."""
        weights = cls(source, {}, values.__getitem__)
        weights.shapes = {name: list(value.shape) for name, value in values.items()}
        return weights

    def __getitem__(self, name: str) -> np.ndarray:
        try:
            return self.read(name)
        except LoadError:
            raise
        except READ_ERRORS as error:
            raise kind_of_error(error)(
                f"The checkpoint {self.source!r} is damaged: {reason_of(error)}"
            ) from error

    def __contains__(self, name: object) -> bool:
        return name in self.shapes

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    def __str__(self) -> str:
        return self.source

    @property
    def global_step(self) -> int:
        """The training step, or 0 if it is not stored."""
        return int(self[GLOBAL_STEP]) if GLOBAL_STEP in self else 0


def identity_projection(size: int) -> dict[str, np.ndarray]:
    """Returns the projection of embeddings for E = H, which only other libraries store."""
    return {_KERNEL: np.eye(size, dtype=np.float32), _BIAS: np.zeros(size, np.float32)}


def without_identity_projection(weights: Weights) -> Weights:
    """Removes the projection if E equals H. Raises `LoadError` if it is not an identity."""
    sizes = set(weights.shapes.get(_KERNEL, ()))
    if len(sizes) != 1 or _BIAS not in weights:
        return weights
    size = sizes.pop()
    for name, expected in identity_projection(size).items():
        if not np.array_equal(weights[name], expected):
            raise LoadError(
                f"{weights.source!r} projects embeddings although embedding_size and hidden_size "
                f"are equal ({size}). The original does not support this."
            )
    shapes = {name: weights.shapes[name] for name in weights if name not in (_KERNEL, _BIAS)}
    return Weights(weights.source, shapes, weights.read)


@dataclasses.dataclass(frozen=True)
class StoredTokenizer:
    """The tokenizer of a stored model."""

    # The first file is used; the others must contain the same tokens.
    files: Sequence[str] = ()
    source: str = ""  # the file from which the first was created, if it is another
    note: str = ""  # differences from the library of the format, or why there is no tokenizer
    # Fingerprints of the vocabularies in further files, by path
    others: Mapping[str, str] = dataclasses.field(default_factory=dict)
    loaded: Tokenizer | None = None  # used instead of files
    # Rules that the format sets. `None` if unknown.
    do_lower_case: bool | None = None
    keep_accents: bool | None = None

    def load(
        self, do_lower_case: bool | None = None, keep_accents: bool | None = None
    ) -> Tokenizer | None:
        """Returns the tokenizer, or `None` if there is none.

        If a rule is `None`, the rule of the format is used. Raises `ValueError` if a file is
        invalid, or the files contain different tokens.
        """
        if self.loaded is not None or not self.files:
            return self.loaded
        first, source = self.files[0], self.source or self.files[0]
        lower_case = self.do_lower_case if do_lower_case is None else do_lower_case
        accents = self.keep_accents if keep_accents is None else keep_accents
        try:
            tokenizer = tokenizer_from_files(
                vocab_file=first, do_lower_case=lower_case is not False, keep_accents=bool(accents)
            )
        except UserError as error:  # names the file of the user, not a file in the cache
            raise UserError(str(error).replace(first, source)) from error
        tokenizer.source = source
        found = {path: tokenizer_from_files(vocab_file=path).fingerprint for path in self.files[1:]}
        found = {source: tokenizer.fingerprint, **found, **self.others}
        settle(stated("vocabulary", found), Meeting.LOAD)
        return tokenizer


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class StoredModel:
    """The parts of a model, on disk or in memory. Missing parts are `None` or empty."""

    path: str = ""  # the path or name that was given; set by `formats.open_model`
    format: str = ""  # "keras", or one of `formats.FORMAT_NAMES`; set by `formats.open_model`
    config: AlbertConfig | None = None
    config_file: str | None = None
    stored_tokenizer: StoredTokenizer = StoredTokenizer()
    do_lower_case: bool | None = None  # whether text is lower-cased. `None` if unknown.
    keep_accents: bool | None = None  # whether accents are kept. `None` if unknown.
    task: StoredTask | None = None  # task that the head was trained for. `None` if unknown.
    checkpoint: str = ""  # file of the weights, or prefix of TensorFlow's files
    # Opens the weights. If `None`, `open_weights` of the format's module is used.
    open_weights: Callable[[], Weights] | None = None
    global_step: int = 0  # of a model in memory
    is_strict: bool = False  # whether the parts must not be replaced, see `settle`
    dtype: str | None = None  # Keras policy of models to build. `None`: the current policy.

    @classmethod
    def in_memory(
        cls,
        config: AlbertConfig,
        weights: Mapping[str, np.ndarray],
        tokenizer: Tokenizer | None = None,
        **parts: Any,
    ) -> "StoredModel":
        """Returns a model in memory; `parts` are further fields.

        `weights` are encoder and heads, float32 or float16. They may include optimizer slots
        (`<variable>/adam_m`, `adam_v`).
        """
        rules = tokenizer.rules if tokenizer else {"do_lower_case": True}
        return cls(
            config=with_rules(config, {ACCENTS_KEY: rules.get(ACCENTS_KEY)}),
            stored_tokenizer=StoredTokenizer(loaded=tokenizer),
            open_weights=lambda: Weights.in_memory(weights, parts.get("path", "")),
            **{**rules, **parts},
        )

    def with_weights(self, weights: Mapping[str, np.ndarray]) -> "StoredModel":
        """Returns the model with weights in memory."""
        return dataclasses.replace(self, open_weights=lambda: Weights.in_memory(weights))

    @property
    def rules(self) -> dict[str, Any]:
        """The settings of the tokenizer that are stored with the model."""
        return {LOWER_CASE_KEY: self.do_lower_case, ACCENTS_KEY: self.keep_accents}

    @property
    def required_config(self) -> AlbertConfig:
        """The configuration. Raises `LoadError` if there is none."""
        if self.config is None:
            raise LoadError(
                f"{self.path} contains no configuration. Pass it as `albert_config_file`."
            )
        return self.config

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer, loaded once. `None` if there is none."""
        tokenizer = self.stored_tokenizer.load(self.do_lower_case, self.keep_accents)
        if tokenizer is not None:
            check_vocabulary(self.config, tokenizer)
        return tokenizer

    @property
    def required_tokenizer(self) -> Tokenizer:
        """The tokenizer. Raises `ValueError` if there is none."""
        if self.tokenizer is None:
            raise UserError(
                f"No tokenizer is given, and none exists next to the model ({self.config_file}): "
                f"pass `spm_model_file` or `vocab_file`. {self.stored_tokenizer.note}".rstrip()
            )
        return self.tokenizer

    @cached_property
    def weights(self) -> Weights:
        """The weights, opened once."""
        assert self.open_weights is not None, self.format
        return self.open_weights()
