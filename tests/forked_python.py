"""A server that runs Python commands in processes forked from one that has imported TensorFlow.

`documented_python` hands it what it was given, which saves the seconds of the import each time. The
standard streams are those of the process that asks, by the kernel's names of them.
"""

import contextlib
import json
import os
import runpy
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.programs import new_process

_LONGEST = 600  # seconds of a command


@contextlib.contextmanager
def serving(path: Path) -> Iterator[None]:
    """Serves requests at a socket, one at a time.

    Args:
        path: of the socket, which must be short.
    """
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=_serve, args=(listener,), daemon=True)
        thread.start()
        yield
        # Closing does not wake a thread that waits; half a connection does.
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(str(path))
        thread.join()


def _serve(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        with connection, connection.makefile() as file:
            line = file.readline()
            if not line:
                return
            process = new_process(_run, json.loads(line))
            process.join(_LONGEST)
            if process.is_alive():
                process.kill()
                process.join()
            connection.sendall(f"{process.exitcode}\n".encode())


def _run(request: dict[str, Any]) -> None:
    for number in (0, 1, 2):
        flags = os.O_WRONLY | os.O_APPEND if number else os.O_RDONLY
        os.dup2(os.open(f"/proc/{request['pid']}/fd/{number}", flags), number)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    words = request["command"]
    if words[0] == "-m":
        sys.argv = words[1:]
        sys.path.insert(0, request["folder"])
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")
