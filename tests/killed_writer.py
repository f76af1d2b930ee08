"""Processes that can be killed while they write."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

_WRITE = """
import os, sys
from albert_tf.data.files import temporary_folder, write_then_rename
is_folder, path = sys.argv[1] == "folder", sys.argv[2]
with temporary_folder(path) if is_folder else write_then_rename(path) as made:
    if is_folder:
        with open(os.path.join(made, "half"), "wb") as file:
            file.write(b"half")
    else:
        made.write(b"half")
        made.flush()
    print("written", flush=True)
    sys.stdin.read()
    if is_folder:
        os.rename(made, path)
"""


class Writer:
    """A process that has written a part of a "file" or "folder" with this final path."""

    def __init__(self, kind: str, path: str | os.PathLike) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WRITE, kind, str(path)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout.readline() == b"written\n"

    def finish(self) -> int:
        """Lets the process finish; returns its exit status."""
        self._process.communicate()
        return self._process.returncode

    def kill(self) -> None:
        """Kills the process without cleanup."""
        self._process.kill()
        self._process.communicate()
