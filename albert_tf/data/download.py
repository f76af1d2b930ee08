"""Files fetched from the web, by the standard library alone."""

from __future__ import annotations

import http.client
import os
import shutil
import urllib.request

from albert_tf.data.files import file_exists, write_then_rename

_SECONDS = 60.0  # without a byte


def download(url: str, path: str) -> str:
    """Fetches a file unless it is there; it gets its name when it is complete.

    Args:
        url: where it is.
        path: where it shall be.

    Returns:
        `path`.

    Raises:
        ValueError: it cannot be fetched.
    """
    if file_exists(path):
        return path
    print(f"Fetching {url}", flush=True)
    try:
        with (
            urllib.request.urlopen(url, timeout=_SECONDS) as source,
            write_then_rename(path) as file,
        ):
            shutil.copyfileobj(source, file)
            size = source.headers["Content-Length"]
            if size is not None and file.tell() != int(size):  # which urllib lets pass
                raise OSError(f"the connection ended after {file.tell():,} of {int(size):,} bytes")
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise ValueError(
            f"{url} cannot be fetched to {os.path.abspath(path)}: {error}. On a machine without "
            "network, fetch it elsewhere and give the path of a copy."
        ) from error
    return path
