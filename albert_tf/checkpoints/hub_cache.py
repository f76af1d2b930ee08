"""TF-Hub modules that are given by their URL, fetched into TF-Hub's cache."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from albert_tf.checkpoints.report import LoadError

_CACHE_VARIABLE = "TFHUB_CACHE_DIR"


def is_url(handle: str) -> bool:
    """Whether a handle is a URL, which only TF-Hub can resolve."""
    return re.match(r"https?://", handle) is not None


def is_fetched(url: str) -> bool:
    """Whether TF-Hub's cache holds a module."""
    from tensorflow_hub import resolver

    cache = resolver.tfhub_cache_dir(use_temp=True)
    return os.path.isdir(os.path.join(cache, hashlib.sha1(url.encode()).hexdigest()))


def fetch(url: str, flag: str, folder: str | None = None) -> str:
    """Returns the directory of a module, which `tensorflow_hub` fetches if need be.

    Args:
        url: of the module; what is fetched stays in TFHUB_CACHE_DIR.
        flag: the flag the URL came from, for messages.
        folder: where it is sought and put instead.

    Raises:
        LoadError: it cannot be fetched.
    """
    import tensorflow_hub  # seconds to import, and needed for URLs only

    try:
        with _cache_in(folder):
            return tensorflow_hub.resolve(url)
    except Exception as error:  # whatever the network, the archive or the server does
        raise LoadError(
            f"{flag}={url} cannot be fetched: {error}. On a machine without network, fetch the "
            "model elsewhere, and give its directory or its tar file."
        ) from error


@contextmanager
def _cache_in(folder: str | None) -> Iterator[None]:
    """Has `tensorflow_hub` keep what it fetches in a folder; None changes nothing."""
    before = os.environ.get(_CACHE_VARIABLE)
    if folder is not None:
        os.environ[_CACHE_VARIABLE] = folder
    try:
        yield
    finally:
        if folder is not None:
            os.environ.pop(_CACHE_VARIABLE)
        if folder is not None and before is not None:
            os.environ[_CACHE_VARIABLE] = before
