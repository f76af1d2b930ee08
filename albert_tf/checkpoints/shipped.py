"""Pretrained models that are bundled with this package; their files are checked before use.

`albert_tf/pretrained/<name>/` is a Hugging Face directory with the SHA-256 of its files.
"""

from __future__ import annotations

import hashlib
import os
import re

from absl import logging

from albert_tf.checkpoints.report import DamagedError

NAMES = ("mini",)
CHECKSUMS = "SHA256SUMS"
CARD = "README.md"

_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "pretrained")
_LINE = re.compile(r"([0-9a-f]{64}) [ *]([^/\0]+)")


def is_shipped(name: str) -> bool:
    """Returns whether a name is the name of a bundled model. Existing paths have priority."""
    return name in NAMES and not is_path(name)


def is_path(name: str) -> bool:
    """Returns whether a path or checkpoint exists, and logs that it has priority over a model."""
    if not (os.path.exists(name) or os.path.exists(f"{name}.index")):
        return False
    logging.log_first_n(
        logging.WARNING,
        "%r refers to the existing path %s, not to the model of that name",
        1,
        name,
        os.path.abspath(name),
    )
    return True


def shipped_directory(name: str) -> str:
    """Returns the directory of a bundled model, one of `NAMES`.

    Raises:
        DamagedError: a file is missing or has another checksum.
    """
    directory = os.path.join(_FOLDER, name)
    try:
        check_sums(directory)
    except DamagedError as error:
        raise DamagedError(
            f"The model {name!r} bundled with albert_tf is damaged. {error} Install "
            "albert_tf again (pip install --force-reinstall --no-deps)."
        ) from error
    logging.log_first_n(
        logging.INFO, "%r is the model bundled with albert_tf, %s", 1, name, directory
    )
    return directory


def check_sums(directory: str) -> None:
    """Compares the files in a directory with its list of checksums, in the format of `sha256sum`.

    Raises:
        DamagedError: the list is damaged, or a file is missing, not listed or different.
    """
    path = os.path.join(directory, CHECKSUMS)
    sums = {}
    for line in _read(path).decode("utf-8", "replace").splitlines():
        found = _LINE.fullmatch(line)
        if found is None:
            raise DamagedError(f"{path} has the line {line[:80]!r}; expected a SHA-256 and a name.")
        sums[found[2]] = found[1]
    names = {name for name in os.listdir(directory) if not name.startswith(".")}
    unlisted = names - {CARD, CHECKSUMS, *sums}
    if unlisted:
        raise DamagedError(f"{path} has no checksum of {', '.join(sorted(unlisted))}.")
    for name, expected in sums.items():
        received = hashlib.sha256(_read(os.path.join(directory, name))).hexdigest()
        if received != expected:
            raise DamagedError(
                f"{os.path.join(directory, name)} is not the file that was released: expected "
                f"SHA-256 {expected}, received {received}."
            )


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise DamagedError(f"{path!r} cannot be read: {error.strerror}.") from error
