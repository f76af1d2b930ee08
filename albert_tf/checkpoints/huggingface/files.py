"""The files of weights in a Hugging Face directory: safetensors or PyTorch's, one or several."""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from albert_tf.checkpoints.report import DamagedError, LoadError
from albert_tf.data.files import file_exists, is_remote, open_binary, reason_of
from albert_tf.data.strict_json import JsonError, JsonValue, read_json, shown

SAFETENSORS = "model.safetensors"
INDEX_ENDING = ".index.json"
# In the order in which they are looked for.
WEIGHTS_FILES = (
    SAFETENSORS,
    SAFETENSORS + INDEX_ENDING,
    "pytorch_model.bin",
    "pytorch_model.bin" + INDEX_ENDING,
)
# Weights of other frameworks, which are not read.
FOREIGN_FILES = ("tf_model.h5", "flax_model.msgpack", "model.onnx", "adapter_model.safetensors")


class Tensors(Protocol):
    """Tensors by name, as the files have them."""

    @property
    def shapes(self) -> dict[str, list[int]]:
        """The shape of every tensor."""

    def get(self, name: str) -> np.ndarray:
        """Returns the values of one."""


def open_tensors(path: str) -> Tensors:
    """Opens a file of weights, or the index of several.

    Args:
        path: ends in .safetensors, .bin, or one of these and .index.json.

    Raises:
        LoadError: it cannot be read, or a shard is missing.
        DamagedError: it, or a shard, is cut off or no such file.
    """
    if path.endswith(INDEX_ENDING):
        return _Shards(path)
    if not file_exists(path):
        raise LoadError(f"There is no file {path!r}.")
    return _SafetensorsFile(path) if path.endswith(".safetensors") else _TorchFile(path)


def read_content(path: str) -> JsonValue:
    """Reads a JSON object.

    Raises:
        LoadError: the file cannot be read.
        DamagedError: it is no JSON object.
    """
    try:
        content = JsonValue(read_json(path, repr(path)), repr(path))
        content.members()
    except (OSError, tf.errors.OpError) as error:
        raise LoadError(f"{path!r} cannot be read: {error}") from error
    except ValueError as error:
        raise DamagedError(str(error)) from error
    return content


class _Shards:
    """Several files, and an index that says which tensor is in which."""

    def __init__(self, path: str) -> None:
        folder = os.path.dirname(path)
        try:
            entries = read_content(path)["weight_map"].members()
            places = {name: place.text() for name, place in entries.items()}
        except JsonError as error:
            raise DamagedError(str(error)) from error
        files = sorted(set(places.values()))
        for name in files:
            if name != os.path.basename(name) or name.endswith(INDEX_ENDING):
                raise LoadError(
                    f"{path!r} names {shown(name)}; expected a file of weights in the same folder."
                )
        missing = [name for name in files if not file_exists(os.path.join(folder, name))]
        if missing:
            raise LoadError(
                f"{path!r} names {len(files)} files, of which {len(missing)} are missing: "
                f"{', '.join(map(shown, missing[:5]))}. Fetch them as well."
            )
        shards = {name: open_tensors(os.path.join(folder, name)) for name in files}
        self._shards = {name: shards[place] for name, place in places.items()}
        for name, place in places.items():
            if name not in shards[place].shapes:
                raise DamagedError(
                    f"{path!r} says that {shown(name)} is in {shown(place)}, but it is not."
                )

    @property
    def shapes(self) -> dict[str, list[int]]:
        """The shape of every tensor."""
        return {name: shard.shapes[name] for name, shard in self._shards.items()}

    def get(self, name: str) -> np.ndarray:
        """Returns the values of one."""
        return self._shards[name].get(name)


class _SafetensorsFile:
    """A safetensors file, whose values are read one at a time."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._file = _safe_open(path)
        except SafetensorError as error:
            raise DamagedError(
                f"{path!r} is damaged, or not a safetensors file: {reason_of(error)}. Fetch "
                "it again, or take another copy."
            ) from error
        except (OSError, tf.errors.OpError) as error:
            raise LoadError(f"{path!r} cannot be read: {error}") from error

    @property
    def shapes(self) -> dict[str, list[int]]:
        """The shape of every tensor."""
        return {name: self._file.get_slice(name).get_shape() for name in self._file.offset_keys()}

    def get(self, name: str) -> np.ndarray:
        """Returns the values of one; those of bfloat16 as float32, others as they are.

        Raises:
            LoadError: NumPy has no such values.
        """
        try:
            values = self._file.get_tensor(name)
        except (AttributeError, TypeError, SafetensorError) as error:
            kind = self._file.get_slice(name).get_dtype()
            raise LoadError(
                f"{self._path}: the values of {name!r} are {kind}; those of a whole model are F32, "
                "F16, BF16 or F64. Expected a model that is not quantized."
            ) from error
        return values.astype(np.float32) if values.dtype == tf.bfloat16 else values


def _safe_open(path: str) -> Any:
    """Opens a file with the library, which knows local ones only: another is copied before."""
    if not is_remote(path):
        return safe_open(path, framework="np")
    with tempfile.NamedTemporaryFile() as copy, open_binary(path, "rb") as file:
        shutil.copyfileobj(file, copy)
        copy.flush()
        return safe_open(copy.name, framework="np")  # stays open when the name is gone


def write_safetensors(path: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes a safetensors file.

    Args:
        path: where to.
        tensors: by name.
    """
    # The library would write the memory behind a view, whatever its order; and as a file it would
    # make one that only its owner can read.
    content = save(
        {name: np.ascontiguousarray(values) for name, values in tensors.items()},
        metadata={"format": "pt"},  # without it transformers refuses the file
    )
    with open_binary(path, "wb") as file:
        file.write(content)


class _TorchFile:
    """What `torch.save` wrote of a model; needs PyTorch, and runs no code of the file."""

    def __init__(self, path: str) -> None:
        try:
            import torch
        except ImportError as error:
            raise LoadError(
                f"{path!r} is in PyTorch's format, and PyTorch is not installed. Install it (pip "
                f"install torch), or take the model with a {SAFETENSORS}, which needs nothing."
            ) from error
        loaded = _load_torch(torch, path)
        if not isinstance(loaded, dict):
            raise LoadError(f"{path!r} holds a {type(loaded).__name__}, not weights by name.")
        self._torch = torch
        self._tensors = {
            str(name): value for name, value in loaded.items() if isinstance(value, torch.Tensor)
        }

    @property
    def shapes(self) -> dict[str, list[int]]:
        """The shape of every tensor."""
        return {name: list(value.shape) for name, value in self._tensors.items()}

    def get(self, name: str) -> np.ndarray:
        """Returns the values of one; those of bfloat16 as float32, others as they are."""
        value = self._tensors[name].detach()
        if value.dtype == self._torch.bfloat16:
            value = value.float()
        return value.numpy()


def _load_torch(torch: Any, path: str) -> Any:
    """What lies in a file of PyTorch: read as it is needed, where its place and age allow that."""
    settings = {"map_location": "cpu", "weights_only": True}
    try:
        if not is_remote(path) and zipfile.is_zipfile(path):  # since PyTorch 1.6
            return torch.load(path, mmap=True, **settings)
        with open_binary(path, "rb") as file:
            return torch.load(file, **settings)
    except (OSError, tf.errors.OpError) as error:
        raise LoadError(f"{path!r} cannot be read: {error}") from error
    except Exception as error:  # the reader raises whatever it stumbles over
        raise DamagedError(
            f"{path!r} is damaged, not a file of PyTorch, or holds more than weights, which is not "
            f"run: {type(error).__name__}: {reason_of(error)}"
        ) from error
