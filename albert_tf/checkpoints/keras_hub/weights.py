"""The weights of a KerasHub preset: HDF5 files, read into the original's names and written."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import h5py
import numpy as np
import tensorflow as tf

from albert_tf.checkpoints.keras_hub.layout import PROJECTION, Entry
from albert_tf.checkpoints.report import DamagedError, LoadError
from albert_tf.data.files import is_remote, open_binary

_LAYERS = "layers/"
_EARLIER_LAYERS = "_layer_checkpoint_dependencies/"  # what Keras 2 wrote in place of it
_FEW = 4  # names in a message
# What h5py raises, depending on the damage.
_READ_ERRORS = (OSError, RuntimeError, KeyError, ValueError, TypeError, tf.errors.OpError)


class _Stored(NamedTuple):
    """A data set in a file; `layer` is None where the file does not say whose it is."""

    path: str
    key: str
    shape: tuple[int, ...]
    is_float: bool
    layer: str | None


class PresetWeights:
    """The weights of one or more HDF5 files under the original's names: a `WeightsReader`.

    Nothing is read before it is asked for; keys, shapes, types and names of layers are checked at
    once. What is not of a layer, such as the state of an optimizer, keeps its own name.

    Args:
        files: paths of the files of one model or one head, with what they are to hold.

    Raises:
        LoadError: they hold something else.
        DamagedError: they cannot be read.
    """

    def __init__(self, files: Iterable[tuple[list[str], list[Entry]]]) -> None:
        self._places: dict[str, tuple[_Stored, Entry | None]] = {}
        for paths, entries in files:
            self._add(paths, entries)

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Returns the shape of every weight, as the original has it."""
        return {
            name: list(entry.shape if entry else stored.shape)
            for name, (stored, entry) in self._places.items()
        }

    def get_tensor(self, name: str) -> np.ndarray:
        """Returns a weight in the original's layout, float32.

        Raises:
            KeyError: there is none of this name.
            DamagedError: the file cannot be read.
        """
        stored, entry = self._places[name]
        with _opened(stored.path) as file:
            value = _value(file[stored.key])
        return value if entry is None else entry.to_original(value)

    def _add(self, paths: list[str], entries: list[Entry]) -> None:
        stored = _stored(paths)
        missing = [entry.key for entry in entries if entry.key not in stored]
        expected = {entry.key for entry in entries}
        unknown = [key for key in stored if key.startswith(_LAYERS) and key not in expected]
        if missing or unknown:
            raise LoadError(
                f"{_listed(paths)} does not hold the weights that its configuration describes: "
                f"{_counted('missing', missing)}; {_counted('not expected', unknown)}."
            )
        for entry in entries:
            _check(stored[entry.key], entry)
            self._places[entry.name] = stored.pop(entry.key), entry
        self._places.update({key: (dataset, None) for key, dataset in stored.items()})

    def drop_identity(self) -> None:
        """Takes out a projection of the embeddings that changes nothing.

        Raises:
            LoadError: it changes something.
        """
        kernel, bias = (self.get_tensor(f"{PROJECTION}/{part}") for part in ("kernel", "bias"))
        path = self._places[f"{PROJECTION}/kernel"][0].path
        if bias.any() or not np.array_equal(kernel, np.eye(len(bias), dtype=np.float32)):
            raise LoadError(
                f"{path}: embedding_dim and hidden_dim are both {len(bias)}, and KerasHub's layer "
                "'embedding_projection' between them is not the identity. The original release "
                "has no such layer where they are equal, so the model cannot be held. (What is "
                "written here for KerasHub has the identity there, which training changes.)"
            )
        for part in ("kernel", "bias"):
            del self._places[f"{PROJECTION}/{part}"]


def write_weights(
    path: str, entries: Iterable[Entry], weights: Mapping[str, np.ndarray], learning_rate: float = 0
) -> None:
    """Writes an HDF5 file as Keras does.

    Args:
        path: of a file that is not there yet.
        entries: what to write.
        weights: values by the original's names.
        learning_rate: above 0, the state of a fresh optimizer is written too. KerasHub compiles
            every task, and warns where it is missing.
    """
    if not is_remote(path):
        _write(path, entries, weights, learning_rate)
        return
    with tempfile.TemporaryDirectory() as directory:  # HDF5 goes back and forth in a file
        local = os.path.join(directory, os.path.basename(path))
        _write(local, entries, weights, learning_rate)
        tf.io.gfile.copy(local, path)


def _write(
    path: str, entries: Iterable[Entry], weights: Mapping[str, np.ndarray], learning_rate: float
) -> None:
    with h5py.File(path, "w-") as file:
        for entry in entries:
            file[entry.key] = entry.to_stored(weights[entry.name])
            file[os.path.dirname(entry.key)].attrs["name"] = entry.layer
        if learning_rate:
            file["optimizer/vars/0"] = np.int64(0)  # steps done
            file["optimizer/vars/1"] = np.float32(learning_rate)


def _check(stored: _Stored, entry: Entry) -> None:
    """Refuses what is not the weight it stands for."""
    what = f"{stored.path}: {stored.key!r} ({entry.layer})"
    if stored.shape != entry.stored_shape:
        raise LoadError(
            f"{what} is {list(stored.shape)}, but {list(entry.stored_shape)} by the configuration "
            "beside it: they belong to different models."
        )
    if not stored.is_float:
        raise LoadError(
            f"{what} holds no floating-point numbers: quantised weights cannot be read. Save the "
            "preset before it is quantised."
        )
    if stored.layer not in (None, entry.layer):
        raise LoadError(
            f"{stored.path}: {stored.key!r} is of a layer {stored.layer!r} where {entry.layer!r} "
            "is expected: it is of another architecture."
        )


def _stored(paths: list[str]) -> dict[str, _Stored]:
    """All data sets, by the keys they have today."""
    found: dict[str, _Stored] = {}
    for path in paths:
        with _opened(path) as file:
            for key, dataset in _datasets(file):
                name = key.replace(_EARLIER_LAYERS, _LAYERS)
                if name in found:
                    raise LoadError(f"{path} and {found[name].path} both hold {key!r}.")
                layer = dataset.parent.attrs.get("name")
                found[name] = _Stored(path, key, dataset.shape, _is_float(dataset), layer)
    return found


def _datasets(file: Any) -> list[tuple[str, Any]]:
    """All that is in the file itself: a link may lead anywhere."""
    found: list[tuple[str, Any]] = []

    def visit(key: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and not (item.external or item.is_virtual):
            found.append((key, item))

    file.visititems(visit)
    return found


def _is_float(dataset: Any) -> bool:
    return _is_bfloat16(dataset) or np.issubdtype(dataset.dtype, np.floating)


def _is_bfloat16(dataset: Any) -> bool:
    return dataset.attrs.get("dtype") == "bfloat16"


def _value(dataset: Any) -> np.ndarray:
    """The numbers of a data set; HDF5 knows no bfloat16, which is the upper half of a float32."""
    if _is_bfloat16(dataset):
        bits = dataset[()].view(np.uint16).astype(np.uint32) << 16
        return bits.view(np.float32)
    return np.asarray(dataset[()])


@contextmanager
def _opened(path: str) -> Iterator[Any]:
    """An HDF5 file, read from wherever it is."""
    try:
        if is_remote(path):
            with open_binary(path, "rb") as content, h5py.File(content, "r") as file:
                yield file
        else:
            with h5py.File(path, "r") as file:
                yield file
    except LoadError:
        raise
    except _READ_ERRORS as error:
        raise DamagedError(f"{path!r} cannot be read as HDF5: {error}") from error


def _counted(what: str, keys: list[str]) -> str:
    more = f" and {len(keys) - _FEW} more" if len(keys) > _FEW else ""
    return f"{what}: {', '.join(keys[:_FEW])}{more}" if keys else f"{what}: nothing"


def _listed(paths: list[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{paths[0]} (and {len(paths) - 1} more files)"
