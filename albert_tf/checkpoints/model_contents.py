"""A stored model of any format (`StoredModel`), and a complete model in memory (`ModelContents`).

Weights have the names of the original release; every format module maps its own names to them.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from albert_tf.checkpoints.report import LoadError
from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.config import AlbertConfig
from albert_tf.tokenization.base import Tokenizer

_PROJECTION = "bert/encoder/embedding_hidden_mapping_in"
_KERNEL, _BIAS = f"{_PROJECTION}/kernel", f"{_PROJECTION}/bias"


@dataclasses.dataclass(frozen=True)
class ModelContents:
    """A complete model in memory."""

    config: AlbertConfig  # configuration of the model
    # Encoder and heads by the original's names, float32 or float16. May include optimizer slots
    # (`<variable>/adam_m`, `adam_v`).
    weights: Mapping[str, np.ndarray]
    tokenizer: Tokenizer | None = None  # its `files` are copied
    do_lower_case: bool = True  # whether text is lower-cased
    global_step: int = 0  # training step, 0 if unknown
    task: StoredTask | None = None  # task of a fine-tuned model. `None` if unknown.
    tokenizer_note: str = ""  # see `StoredModel`


class WeightsReader(Protocol):
    """Reads weights by the original's names, as TensorFlow's checkpoint reader does.

    Variables that the original does not have keep their names.
    """

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Returns the original's shape of every variable, without reading values."""

    def get_tensor(self, name: str) -> np.ndarray:
        """Returns the value of a variable, in the original's layout."""


class LoadedWeights(dict[str, np.ndarray]):
    """A `WeightsReader` of values in memory."""

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Returns the shapes by name."""
        return {name: list(value.shape) for name, value in self.items()}

    get_tensor = dict.__getitem__


def identity_projection(size: int) -> dict[str, np.ndarray]:
    """Returns the projection of embeddings for E = H, which only other libraries store."""
    return {_KERNEL: np.eye(size, dtype=np.float32), _BIAS: np.zeros(size, np.float32)}


def remove_identity_projection(weights: dict[str, Any], reader: WeightsReader, path: str) -> None:
    """Removes the projection if E equals H. Raises `LoadError` if it is not an identity."""
    shapes = reader.get_variable_to_shape_map()
    sizes = set(shapes.get(_KERNEL, ()))
    if len(sizes) != 1 or _BIAS not in shapes:
        return
    size = sizes.pop()
    for name, expected in identity_projection(size).items():
        if not np.array_equal(reader.get_tensor(name), expected):
            raise LoadError(
                f"{path!r} projects embeddings although embedding_size and hidden_size are equal "
                f"({size}). The original does not support this."
            )
        del weights[name]


@dataclasses.dataclass(frozen=True)
class StoredModel:
    """The parts of a stored model. Missing parts are `None` or empty."""

    path: str  # the directory, or the `.keras` file
    checkpoint: str  # file of the weights, or prefix of TensorFlow's files
    format: str = ""  # "keras", or one of `formats.FORMAT_NAMES`; set by `formats.open_model`
    config: AlbertConfig | None = None  # configuration of the model
    config_file: str | None = None  # file of the configuration
    # The first file is used; the others must contain the same tokens.
    tokenizer_files: Sequence[str] = ()
    tokenizer_source: str = ""  # the file from which the first was created, if it is another
    tokenizer_note: str = ""  # how the tokenizer differs from the library of the format
    tokenizer_contradiction: str = ""  # error if the files of the tokenizer contradict each other
    do_lower_case: bool | None = None  # whether text is lower-cased
    task: StoredTask | None = None  # task that the head was trained for
    # Opens the weights. If `None`, `open_weights` of the format's module is used.
    open_reader: Callable[[], WeightsReader] | None = dataclasses.field(default=None, compare=False)
    is_handle: bool = False  # whether `albert_hub_module_handle` named the model
    given: str = ""  # the path or name that was given

    @property
    def tokenizer_file(self) -> str | None:
        """The SentencePiece model or vocabulary."""
        return next(iter(self.tokenizer_files), None)

    @cached_property
    def weights(self) -> tuple[WeightsReader, dict[str, list[int]]]:
        """Reader and shapes of the weights, opened once. The shapes are sorted by name."""
        assert self.open_reader is not None, self.format
        reader = self.open_reader()
        return reader, dict(sorted(reader.get_variable_to_shape_map().items()))
