"""A `python` that has already imported TensorFlow, for programs that start other programs.

Each process that `albert_tf.cli.demo`, `run_glue.sh` or a notebook starts would spend five seconds
of a processor on imports. This one is a file that runs like any `python` (`-m`, `-c` or a script),
but hands its arguments, environment, folder and open files to a server, which forks. What a program
computes with is its own, as in a process made anew; nothing but imported modules is shared.

    python -I warm_python.py FOLDER MODULE...

is such a server that has imported these modules and knows nothing of ours, until its input ends.
"""

import contextlib
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

# Signals reach the program; how it ends, and by which signal, is how the client ends.
CLIENT = """#!{python} -IS
import json, os, signal, socket, struct, sys

server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [struct.pack("!i", len(request))], [0, 1, 2])
server.sendall(request)
for number in (signal.SIGINT, signal.SIGTERM):
    if signal.getsignal(number) is not signal.SIG_IGN:
        signal.signal(number, lambda number, frame: server.send(bytes([number])))
status = os.waitstatus_to_exitcode(struct.unpack("!i", server.recv(4))[0])
if status < 0:
    if -status != signal.SIGKILL:
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


def write_client(folder: Path) -> Path:
    """Writes the executable that replaces `python`. `serve` must use the same folder."""
    client = folder / "bin" / "python"
    client.parent.mkdir()
    client.write_text(CLIENT.format(python=sys.executable, address=_address(folder)))
    client.chmod(0o755)
    return client


def serve(folder: Path, parent: int) -> None:
    """Runs programs until `parent` becomes readable, because its process has ended."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(_address(folder))
        server.listen()
        while parent not in select.select([server, parent], [], [])[0]:
            connection, _ = server.accept()
            if os.fork() == 0:
                break
            connection.close()
            with contextlib.suppress(ChildProcessError):  # none is left
                while os.waitpid(-1, os.WNOHANG)[0]:  # those that ended
                    pass
        else:
            return
    program = _start(connection, str(folder / "bin" / "python"))
    with contextlib.suppress(OSError):  # the client was killed
        connection.sendall(_watch(program, connection).to_bytes(4, "big"))
    os._exit(0)


def _address(folder: Path) -> str:
    return str(folder / "s")


def _start(connection: socket.socket, executable: str) -> int:
    """Reads a request and forks: one process runs the program, the other returns its id."""
    size, files, _, _ = socket.recv_fds(connection, 4, 3)
    request = b""
    while len(request) < int.from_bytes(size, "big"):
        request += connection.recv(1 << 16)
    arguments, folder, environment = json.loads(request)
    program = os.fork()
    if program:
        return program
    connection.close()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdin = os.fdopen(0)
    sys.executable = executable
    sys.path[:0] = [folder, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    _run(arguments)
    sys.exit()


def _run(arguments: Sequence[str]) -> None:
    kind, *others = arguments
    if kind == "-m":
        sys.argv = others
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *others[1:]]
        exec(others[0], {"__name__": "__main__"})
    else:
        sys.argv = list(arguments)
        runpy.run_path(kind, run_name="__main__")


def _watch(program: int, connection: socket.socket) -> int:
    """Forwards signals until the program ends; returns its status. Kills it without a client."""
    ended = os.pidfd_open(program)
    while ended not in (ready := select.select([ended, connection], [], [])[0]):
        numbers = connection.recv(1) if ready else b""
        os.kill(program, numbers[0] if numbers else signal.SIGKILL)
        if not numbers:
            break
    return os.waitpid(program, 0)[1]


if __name__ == "__main__":
    for module in sys.argv[2:]:
        importlib.import_module(module)
    serve(Path(sys.argv[1]), sys.stdin.fileno())
