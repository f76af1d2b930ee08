"""Opens files of tensors that transformers stores: safetensors, PyTorch, HDF5, and their shards.

The names of variables are PyTorch's. Transformers' TensorFlow classes store other names, such as

    tf_albert_model/albert/encoder/albert_layer_groups_._0/albert_layers_._0/ffn/kernel:0

and kernels [in, out], the transpose of PyTorch's.
"""

import io
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from albert_tf.checkpoints.errors import DamagedError, LoadError
from albert_tf.checkpoints.formats.huggingface.torch_file import read_tensors
from albert_tf.checkpoints.report import check_version
from albert_tf.data.files import (
    file_exists,
    is_remote,
    open_binary,
    read_file,
    reason_of,
    write_file,
)
from albert_tf.data.strict_json import JsonValue, read_json, shown

HDF5_FILE = "tf_model.h5"
SAFETENSORS = "model.safetensors"
INDEX_ENDING = ".index.json"

# In the order of preference.
WEIGHTS_FILES = (
    SAFETENSORS,
    SAFETENSORS + INDEX_ENDING,
    "pytorch_model.bin",
    "pytorch_model.bin" + INDEX_ENDING,
    HDF5_FILE,
    HDF5_FILE + INDEX_ENDING,
)
# The first parts are the name of the model, which can be missing, and the group in an HDF5 file.
_NAME = re.compile(
    r"(?:.*/)?((?:embeddings|encoder|pooler|predictions|sop_classifier|qa_outputs"
    r"|(?<!sop_classifier/)classifier)/.+):\d+"
)
_KERNEL = re.compile(r".*/kernel:\d+")
_LEAVES = {"kernel": "weight", "gamma": "weight", "beta": "bias", "embeddings": "weight"}


class Tensors(NamedTuple):
    """Stored tensors: their shapes, and a function that reads a tensor by name."""

    shapes: dict[str, list[int]]
    get: Callable[[str], np.ndarray]


def read_content(path: str) -> JsonValue:
    """Reads a JSON object. Raises `DamagedError` if the file contains something else."""
    try:
        content = JsonValue(read_json(path, repr(path)), repr(path))
        content.members()
    except (OSError, tf.errors.OpError) as error:
        raise LoadError(f"{path!r} cannot be read: {error}") from error
    except ValueError as error:
        raise DamagedError(str(error)) from error
    return content


def open_tensors(path: str) -> Tensors:
    """Opens a file of weights (.safetensors, .bin, .h5), or an index of files (.index.json).

    Raises `LoadError` if a file cannot be read, `DamagedError` if it is damaged.
    """
    if path.endswith(INDEX_ENDING):
        return _open_shards(path)
    try:
        if path.endswith(".h5"):
            return _with_torch_names(path, _open_hdf5(path))
        if path.endswith(".safetensors"):
            return _with_torch_names(path, _open_safetensors(path))
        return _open_torch(path)
    except LoadError:
        raise
    except (OSError, tf.errors.OpError) as error:
        raise LoadError(f"{path!r} cannot be read: {error}") from error
    except Exception as error:  # PyTorch raises errors of many classes
        raise DamagedError(
            f"{path!r} is damaged, not a file of weights, or contains code, which is rejected: "
            f"{reason_of(error)}. Use another copy, or store the weights without other objects."
        ) from error


def _open_shards(path: str) -> Tensors:
    folder, entries = os.path.dirname(path), read_content(path)["weight_map"].members()
    files = {_torch_name(name): file.text() for name, file in entries.items()}
    shards = {}
    for file in sorted(set(files.values())):
        if file != os.path.basename(file) or file.endswith(INDEX_ENDING):
            raise LoadError(
                f"{path!r} contains {shown(file)}; expected a file of weights in its directory."
            )
        if not file_exists(os.path.join(folder, file)):
            raise LoadError(f"{path!r} lists {shown(file)}, which is missing. Download it.")
        shards[file] = open_tensors(os.path.join(folder, file))
    for name, file in files.items():
        if name not in shards[file].shapes:
            raise DamagedError(
                f"{path!r}: {shown(name)} must be in {shown(file)}, but it is missing."
            )
    shapes = {name: shards[file].shapes[name] for name, file in files.items()}
    return Tensors(shapes, lambda name: shards[files[name]].get(name))


def _open_safetensors(path: str) -> Tensors:
    file = _safe_open(path)

    def get(name: str) -> np.ndarray:
        try:
            values = file.get_tensor(name)
        except (AttributeError, TypeError, SafetensorError) as error:
            kind = file.get_slice(name).get_dtype()
            raise LoadError(
                f"{path}: {name!r} must be F32, F16, BF16 or F64. Received: {kind}. Quantized "
                "models cannot be loaded."
            ) from error
        return values.astype(np.float32) if values.dtype == tf.bfloat16 else values

    return Tensors({name: file.get_slice(name).get_shape() for name in file.offset_keys()}, get)


def _safe_open(path: str) -> Any:
    """Opens a local file, or a local copy of a remote file."""
    if not is_remote(path):
        return safe_open(path, framework="np")
    with tempfile.NamedTemporaryFile() as copy, open_binary(path, "rb") as file:
        shutil.copyfileobj(file, copy)
        copy.flush()
        return safe_open(copy.name, framework="np")  # remains open after the file is deleted


def _open_torch(path: str) -> Tensors:
    """Opens a file that `torch.save` wrote, without running code in it."""
    try:
        import torch
    except ImportError as error:
        raise LoadError(
            f"{path!r} is in PyTorch's format, and PyTorch is not installed. Install PyTorch (pip "
            f"install torch), or use a model with a {SAFETENSORS}."
        ) from error
    check_version(torch, "2.6", repr(path))
    tensors = read_tensors(path)

    def get(name: str) -> np.ndarray:
        value = tensors[name].detach()
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy()

    return Tensors({name: list(value.shape) for name, value in tensors.items()}, get)


def _torch_name(name: str) -> str:
    """Returns PyTorch's name of a variable, without "albert."; other names stay unchanged."""
    match = _NAME.fullmatch(name)
    if match is None:
        return name
    scope, _, leaf = match[1].replace("_._", ".").replace("/", ".").rpartition(".")
    return f"{scope}.{_LEAVES.get(leaf, leaf)}"


def _with_torch_names(path: str, tensors: Tensors) -> Tensors:
    """Returns tensors by PyTorch's names, in PyTorch's layout."""
    names: dict[str, str] = {}
    for name in tensors.shapes:
        other = names.setdefault(_torch_name(name), name)
        # Each layer of an HDF5 file is a group. Two layers contain the embeddings.
        if other != name and other.partition("/")[2] != name.partition("/")[2]:
            raise LoadError(f"{path!r} contains a variable twice: as {other!r} and {name!r}.")
    kernels = {name for name, stored in names.items() if _KERNEL.fullmatch(stored)}
    shapes = {n: tensors.shapes[there][:: -1 if n in kernels else 1] for n, there in names.items()}

    def get(name: str) -> np.ndarray:
        values = tensors.get(names[name])
        return values.T if name in kernels else values

    return Tensors(shapes, get)


def _open_hdf5(path: str) -> Tensors:
    """Opens the datasets in a file. Links, and values outside of the file, are not read."""
    import h5py

    file = h5py.File(io.BytesIO(read_file(path)) if is_remote(path) else path, "r", locking=False)
    found: dict[str, Any] = {}
    file.visititems(found.__setitem__)  # does not follow links
    datasets = {name: item for name, item in found.items() if isinstance(item, h5py.Dataset)}

    def get(name: str) -> np.ndarray:
        data = datasets[name]
        start = data.id.get_offset()  # `None` unless all values are in one place in this file
        if start is None or start + data.nbytes > file.id.get_filesize() or data.dtype.hasobject:
            raise LoadError(
                f"{path!r}: {name!r} is compressed, incomplete, or stored in another file. "
                f"Expected a {HDF5_FILE} as `save_pretrained` of transformers writes it."
            )
        return np.asarray(data[()])

    return Tensors({name: list(data.shape) for name, data in datasets.items()}, get)


def write_safetensors(path: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes tensors by name as a safetensors file."""
    # `save_file` of the library would create a file that only its owner can read.
    content = save(
        # The library ignores the strides of views.
        {name: np.ascontiguousarray(values) for name, values in tensors.items()},
        metadata={"format": "pt"},  # required by transformers
    )
    write_file(path, content)
