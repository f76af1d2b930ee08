"""Two `python`s that have already imported TensorFlow, which saves five CPU seconds per program.

    python warm_python.py FOLDER PROCESS ROOT MODULE...

starts two servers, which fork a process for each program. The server in FOLDER/isolated has only
imported TensorFlow; the server in FOLDER/warm has also imported the modules, with ROOT on its path.
A program has its own arguments, environment, working directory and open files. For programs that
start other programs, FOLDER/warm/bin/python runs `-m`, `-c` or a script like any `python`. The
servers end with the process of the given ID.
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_CLIENT = """#!{python} -IS
import sys
sys.path.insert(0, {here!r})
import warm_python
warm_python.main_of_client({folder!r})
"""


def run(
    server: Path,
    arguments: Sequence[str],
    folder: str,
    environment: Mapping[str, str],
    files: Sequence[int],
) -> tuple[socket.socket, int]:
    """Starts a program.

    Args:
        server: folder of the server.
        arguments: a script, `-m` and a module, or `-c` and code, followed by its arguments.
        folder: the working directory.
        environment: the environment variables.
        files: descriptors of standard input, output and error.

    Returns:
        A connection and the process ID. `status_of` waits for the end of the program. If the
        connection is closed earlier, the program is killed.
    """
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(_address(server))
    request = json.dumps([arguments, folder, dict(environment)]).encode()
    socket.send_fds(connection, [len(request).to_bytes(4, "big")], files)
    connection.sendall(request)
    return connection, int.from_bytes(connection.recv(4), "big")


def status_of(connection: socket.socket) -> int:
    """Waits for the end of a program. Returns its exit status, or minus the number of a signal."""
    return os.waitstatus_to_exitcode(int.from_bytes(connection.recv(4), "big"))


def main_of_client(server: str) -> None:
    """Runs the arguments of this process, forwards signals, and ends in the same way."""
    connection, program = run(Path(server), sys.argv[1:], os.getcwd(), os.environ, [0, 1, 2])
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, frame: os.kill(program, number))
    status = status_of(connection)
    if status < 0:
        if status != -signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


def main(folder: str, process: str, root: str, *modules: str) -> None:
    """Imports TensorFlow and, in another process, modules. Runs programs in both processes."""
    sys.path.pop(0)  # the directory of this file
    with contextlib.suppress(ImportError):
        importlib.import_module("triton")  # of PyTorch; must be imported before TensorFlow
    importlib.import_module("tensorflow")
    name = "isolated"
    if os.fork() == 0:
        name = "warm"
        sys.path.insert(0, root)
        for module in modules:
            importlib.import_module(module)
        importlib.import_module("tests.pictures").skip()
    # Collections in a program would copy the pages of a million objects, one CPU second in total.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    _serve(Path(folder, name), os.pidfd_open(int(process)))
    shutil.rmtree(folder, ignore_errors=True)


def _serve(folder: Path, process: int) -> None:
    """Runs programs until a process ends. Does not return in the processes of programs."""
    client = folder / "bin" / "python"
    client.parent.mkdir(parents=True)
    here = str(Path(__file__).parent)
    client.write_text(_CLIENT.format(python=sys.executable, here=here, folder=str(folder)))
    client.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{_address(folder)}.new")
        server.listen()
        os.rename(f"{_address(folder)}.new", _address(folder))  # clients wait for this name
        while process not in select.select([server, process], [], [])[0]:
            connection, _ = server.accept()
            if os.fork() == 0:
                break
            connection.close()
            with contextlib.suppress(ChildProcessError):  # no children are left
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
        else:
            return
    program = _start(connection, str(client))
    with contextlib.suppress(OSError):  # the client was killed
        connection.sendall(program.to_bytes(4, "big"))
        connection.sendall(_wait(program, connection).to_bytes(4, "big"))
    os._exit(0)


def _address(folder: str | Path) -> str:
    return os.path.join(folder, "socket")


def _start(connection: socket.socket, executable: str) -> int:
    """Reads a request and forks: one process runs the program, the other returns its ID."""
    size, files, _, _ = socket.recv_fds(connection, 4, 3)
    request = b""
    while len(request) < int.from_bytes(size, "big"):
        request += connection.recv(1 << 16)
    arguments, folder, environment = json.loads(request)
    if program := os.fork():
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
    kind, *others = (argument for argument in arguments if argument != "-u")
    if kind == "-m":
        sys.argv = others
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *others[1:]]
        exec(others[0], {"__name__": "__main__"})
    else:
        sys.argv = [kind, *others]
        runpy.run_path(kind, run_name="__main__")
    sys.exit()


def _wait(program: int, connection: socket.socket) -> int:
    """Waits for the end of a program and returns its status. Kills it if the client ends."""
    ended = os.pidfd_open(program)
    if ended not in select.select([ended, connection], [], [])[0]:
        os.kill(program, signal.SIGKILL)
    return os.waitpid(program, 0)[1]


if __name__ == "__main__":
    main(*sys.argv[1:])
