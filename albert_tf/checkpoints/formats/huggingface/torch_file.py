"""Reads the weights in a file of PyTorch, without running code in it."""

import sys
import zipfile
from collections.abc import Iterator, Mapping
from pickle import UnpicklingError
from typing import Any

from albert_tf.checkpoints.errors import DamagedError, LoadError
from albert_tf.data.files import is_remote, open_binary
from albert_tf.data.strict_json import listed

EMBEDDINGS = "embeddings.word_embeddings.weight"  # ending of a name in every encoder
_RUNS_CODE = sys.stdlib_module_names - {"argparse"}  # whose Namespace contains settings


class _Inert:
    """Replaces an object of any class in a file, such as settings, and runs nothing."""

    def __init__(self, *args: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


def read_tensors(path: str) -> dict[str, Any]:
    """Returns the tensors of a dictionary or a checkpoint by name.

    Raises `LoadError` unless there is one model. PyTorch raises errors of many classes.
    """
    found = [*_dictionaries(_read(path))]
    models = [t for t in found if any(name.endswith(EMBEDDINGS) for name in t)] or found[:1]
    if len(models) != 1:
        raise LoadError(
            f"{path!r} must contain the weights of one model. Received: {len(models)} dictionaries "
            "of weights. Store one of them: torch.save(model.state_dict(), 'pytorch_model.bin')"
        )
    return models[0]


def _read(path: str) -> Any:
    import torch

    settings: dict[str, Any] = {"map_location": "cpu", "weights_only": True}
    is_zip = not is_remote(path) and zipfile.is_zipfile(path)  # the format since PyTorch 1.6
    try:
        if is_zip:
            return torch.load(path, mmap=True, **settings)
        with open_binary(path, "rb") as file:
            return torch.load(file, **settings)
    except UnpicklingError as error:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(path) if is_zip else []
        if not names or any(name.split(".")[0] in _RUNS_CODE for name in names):
            raise DamagedError(
                f"{path!r} is damaged, or contains objects that may run code "
                f"({listed(names) or 'unknown'}). Store only the weights: "
                "torch.save(model.state_dict(), 'pytorch_model.bin')"
            ) from error
    # The classes are not even imported.
    with torch.serialization.safe_globals([(type("_", (_Inert,), {}), n) for n in names]):
        return torch.load(path, mmap=True, **settings)


def _dictionaries(content: Any) -> Iterator[dict[str, Any]]:
    """Yields the dictionaries with tensors in a checkpoint, outer ones first."""
    import torch

    if isinstance(content, Mapping):
        if tensors := {str(k): v for k, v in content.items() if isinstance(v, torch.Tensor)}:
            yield tensors
        for value in content.values():
            yield from _dictionaries(value)
