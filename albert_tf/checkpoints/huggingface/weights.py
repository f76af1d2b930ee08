"""Weights of a Hugging Face model under the original release's names, and written from those."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from albert_tf.checkpoints.huggingface.files import Tensors, open_tensors, write_safetensors
from albert_tf.checkpoints.huggingface.names import (
    MAPPING_BIAS,
    MAPPING_KERNEL,
    TIED,
    WORD_EMBEDDINGS,
    Counterpart,
    hugging_face_name,
    is_buffer,
    original_name,
    plain_name,
)
from albert_tf.checkpoints.report import LoadError

_TOKEN_CLASSIFIER = "AlbertForTokenClassification"


class HuggingFaceWeights:
    """A reader of weights by the original's names, in its layout; always float32.

    What the original has no name for keeps its own: a token classifier, say.

    Args:
        path: of a file of weights or of an index, see `open_tensors`.
        architecture: the class that stored them, as far as it is known.

    Raises:
        LoadError: the weights cannot be read, or are of a model that the original cannot be.
    """

    def __init__(self, path: str, architecture: str | None = None) -> None:
        self._path = path
        self._tensors: Tensors = open_tensors(path)
        self._shapes = self._tensors.shapes
        self._stored: dict[str, Counterpart] = {}
        copies = {}
        for name in self._shapes:
            plain = plain_name(name)
            if plain in TIED:
                copies[name] = TIED[plain]
            elif not is_buffer(plain):
                found = None if _is_of_tokens(plain, architecture) else original_name(plain)
                self._add(name, found or Counterpart(name))
        self._check_copies(copies)
        self._drop_identity()

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Returns the shape of every variable, as the original has it, without reading values."""
        return {
            name: list(reversed(self._shapes[there])) if turned else list(self._shapes[there])
            for name, (there, turned) in self._stored.items()
        }

    def get_tensor(self, name: str) -> np.ndarray:
        """Returns the value of a variable, in the original's layout."""
        there, turned = self._stored[name]
        values = self._floats(there)
        return np.ascontiguousarray(values.T) if turned else values

    def _add(self, name: str, found: Counterpart) -> None:
        if found.name in self._stored:
            raise LoadError(
                f"{self._path!r} has {found.name} twice: as {self._stored[found.name].name!r} and "
                f"as {name!r}. Expected the weights of one model."
            )
        self._stored[found.name] = Counterpart(name, found.is_transposed)

    def _floats(self, there: str) -> np.ndarray:
        values = self._tensors.get(there)
        if values.dtype.kind != "f":
            raise LoadError(
                f"{self._path}: the values of {there!r} are {values.dtype}; expected float32, "
                "float16, bfloat16 or float64, as in a model that is not quantized."
            )
        return np.asarray(values, np.float32)

    def _check_copies(self, copies: Mapping[str, str]) -> None:
        """Refuses a masked-LM head with weights of its own; takes a bias that is there once."""
        for there, name in copies.items():
            if name not in self._stored:
                self._stored[name] = Counterpart(there)
            elif not np.array_equal(self._floats(there), self.get_tensor(name)):
                raise LoadError(
                    f"{self._path!r}: {there!r} differs from {self._stored[name].name!r}. In ALBERT"
                    " they are the same (tie_word_embeddings); a masked-LM head with weights of its"
                    " own cannot be taken over."
                )

    def _drop_identity(self) -> None:
        """Leaves out a map from E to H that changes nothing: where E is H the original has none.

        Raises:
            LoadError: it changes something.
        """
        shapes = self.get_variable_to_shape_map()
        kernel = shapes.get(MAPPING_KERNEL)
        if kernel is None or MAPPING_BIAS not in shapes or kernel[0] != kernel[-1]:
            return
        is_identity = np.array_equal(self.get_tensor(MAPPING_KERNEL), np.eye(kernel[0]))
        if not is_identity or self.get_tensor(MAPPING_BIAS).any():
            raise LoadError(
                f"{self._path!r} is of a model whose embedding_size is its hidden_size "
                f"({kernel[0]}) and that maps one to the other all the same. The original has no "
                "such map, so the model cannot be taken over."
            )
        del self._stored[MAPPING_KERNEL], self._stored[MAPPING_BIAS]


def _is_of_tokens(plain: str, architecture: str | None) -> bool:
    """Whether a classifier judges tokens: its names and shapes are those of one of texts."""
    return architecture == _TOKEN_CLASSIFIER and plain.startswith("classifier.")


def write_weights(path: str, weights: Mapping[str, np.ndarray]) -> list[str]:
    """Writes weights as a safetensors file for Hugging Face.

    Args:
        path: where to.
        weights: by the original's names, of a model that shares parameters by groups; stored as
            float16 or float32, as they are.

    Returns:
        The names of those that have no place there.
    """
    found = {name: hugging_face_name(name, has_heads=True) for name in weights}
    has_heads = any(there and not name.startswith("bert/") for name, there in found.items())
    sources = {}
    for name in weights:
        there = hugging_face_name(name, has_heads)
        if there:
            sources[there.name] = (np.asarray(weights[name]), there.is_transposed)
    if MAPPING_KERNEL not in weights:
        sources.update(_identity(weights, has_heads))
    write_safetensors(
        path,
        {there: values.T if turned else values for there, (values, turned) in sources.items()},
    )
    return names_without_place(weights)


def names_without_place(weights: Iterable[str]) -> list[str]:
    """Returns those of the original's names that Hugging Face has none for."""
    return [name for name in weights if hugging_face_name(name, has_heads=True) is None]


def _identity(
    weights: Mapping[str, np.ndarray], has_heads: bool
) -> dict[str, tuple[np.ndarray, bool]]:
    """A map from E to H that changes nothing, which Hugging Face has where E is H as well."""
    size = weights[WORD_EMBEDDINGS].shape[1]
    values = {
        MAPPING_KERNEL: np.eye(size, dtype=np.float32),
        MAPPING_BIAS: np.zeros(size, np.float32),
    }
    names = {name: hugging_face_name(name, has_heads) for name in values}
    return {there.name: (values[name], False) for name, there in names.items() if there}
