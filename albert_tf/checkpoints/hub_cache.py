"""TF-Hub modules that are given by their URL, fetched into TF-Hub's cache."""

from __future__ import annotations

import re

from albert_tf.checkpoints.report import LoadError


def is_url(handle: str) -> bool:
    """Whether a handle is a URL, which only TF-Hub can resolve."""
    return re.match(r"https?://", handle) is not None


def fetch(url: str, flag: str) -> str:
    """Returns the directory of a module, which `tensorflow_hub` fetches if need be.

    Args:
        url: of the module; what is fetched stays in TFHUB_CACHE_DIR.
        flag: the flag the URL came from, for messages.

    Raises:
        LoadError: it cannot be fetched.
    """
    import tensorflow_hub  # seconds to import, and needed for URLs only

    try:
        return tensorflow_hub.resolve(url)
    except Exception as error:  # whatever the network, the archive or the server does
        raise LoadError(
            f"{flag}={url} cannot be fetched: {error}. On a machine without network, fetch the "
            "model elsewhere, and give its directory or its tar file."
        ) from error
