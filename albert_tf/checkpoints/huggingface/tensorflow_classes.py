"""Reads the weights of transformers' TensorFlow classes: HDF5 files, and the names of variables.

    tf_albert_model/albert/encoder/albert_layer_groups_._0/albert_layers_._0/ffn/kernel:0

Names are translated to PyTorch's names. Kernels are [in, out], the transpose of PyTorch's.
"""

import io
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from albert_tf.checkpoints.report import LoadError
from albert_tf.data.files import is_remote, read_file

Opened = tuple[dict[str, list[int]], Callable[[str], np.ndarray]]  # shapes, and a reader by name
HDF5_FILE = "tf_model.h5"

# The first parts are the name of the model, which can be missing, and the group in an HDF5 file.
_NAME = re.compile(
    r"(?:.*/)?((?:embeddings|encoder|pooler|predictions|sop_classifier|qa_outputs"
    r"|(?<!sop_classifier/)classifier)/.+):\d+"
)
_KERNEL = re.compile(r".*/kernel:\d+")
_LEAVES = {"kernel": "weight", "gamma": "weight", "beta": "bias", "embeddings": "weight"}


def torch_name(name: str) -> str:
    """Returns PyTorch's name of a variable, without "albert."; other names stay unchanged."""
    match = _NAME.fullmatch(name)
    if match is None:
        return name
    scope, _, leaf = match[1].replace("_._", ".").replace("/", ".").rpartition(".")
    return f"{scope}.{_LEAVES.get(leaf, leaf)}"


def with_torch_names(
    path: str, shapes: Mapping[str, list[int]], get: Callable[[str], np.ndarray]
) -> Opened:
    """Returns shapes and values by PyTorch's names, in PyTorch's layout."""
    names: dict[str, str] = {}
    for name in shapes:
        other = names.setdefault(torch_name(name), name)
        # Each layer of an HDF5 file is a group. Two layers contain the embeddings.
        if other != name and other.partition("/")[2] != name.partition("/")[2]:
            raise LoadError(f"{path!r} contains a variable twice: as {other!r} and {name!r}.")
    kernels = {name for name, stored in names.items() if _KERNEL.fullmatch(stored)}
    return (
        {n: shapes[stored][:: -1 if n in kernels else 1] for n, stored in names.items()},
        lambda n: get(names[n]).T if n in kernels else get(names[n]),
    )


def open_hdf5(path: str) -> Opened:
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

    return {name: list(data.shape) for name, data in datasets.items()}, get
