"""Damaged files read by the thousand, in processes that may die of them."""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.fuzz import seeds
from tests.fuzz.independent import UNKNOWN
from tests.fuzz.mutations import damage_bytes
from tests.fuzz.parsers import PARSERS, Parser

EQUAL, READ, ERROR = "equal", "read", "clear error"
GOOD = (EQUAL, READ, ERROR)
MAX_PROCESSOR_SECONDS = 10.0  # for a file
MAX_SECONDS = 120.0  # for a file, waiting for a processor included
MAX_BYTES = 200 << 20  # of memory, beyond `MAX_TIMES` its size
MAX_TIMES = 10
_MAX_ERROR = 2000  # characters of a message that a person is to read
_INPUTS_A_PROCESS = 10_000  # memory that readers lose stays small


class Outcome(NamedTuple):
    """What became of an input: one of `GOOD`, or a failure with what is wrong."""

    parser: str
    number: int
    kind: str
    detail: str = ""


def damaged(parser: Parser, good: list[bytes], number: int) -> bytes:
    """The input of a number: a function of the parser, its good files and the number alone."""
    random = Random(f"{parser.name} {number}")
    mutation = random.choice((*parser.mutations, damage_bytes))
    return mutation(random, random.choice(good))


def run(names: list[str], numbers: range, processes: int = 2) -> Iterator[Outcome]:
    """Yields the outcome of every input of some parsers; what kills a process is one, too."""
    step = _INPUTS_A_PROCESS
    parts = [
        (name, numbers[start : start + step])
        for name in names
        for start in range(0, len(numbers), step)
    ]
    with get_context("fork").Pool(processes) as pool:
        for outcomes in pool.imap(_outcomes, parts):
            yield from outcomes


class Judge:
    """Reads inputs of one parser, and says what became of each.

    Args:
        parser: whose.
        folder: takes the files; made anew.
    """

    def __init__(self, parser: Parser, folder: Path) -> None:
        self.parser = parser
        self.seeds = parser.seeds()
        self._others = dict(parser.others())
        self._folder = folder
        self._make_folder()

    def _make_folder(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        for name, content in {**self._others, self.parser.file: b""}.items():
            path = self._folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def read_seeds(self) -> None:
        """Reads the good files, which must give no error, and must equal what others read."""
        for seed in self.seeds:
            kind, detail = self._judged(seed)
            if kind not in (EQUAL, READ):
                raise AssertionError(f"{self.parser.name}: a good file gives {kind}: {detail}")

    def judge(self, number: int) -> Outcome:
        content = damaged(self.parser, self.seeds, number)
        before, peak = _resident(), _peak()
        kind, detail = self._judged(content)
        used, allowed = _peak() - before, MAX_BYTES + MAX_TIMES * len(content)
        if _peak() > peak and used > allowed:
            kind, detail = "memory", f"{used >> 20} MB for {len(content)} bytes"
        return Outcome(self.parser.name, number, kind, detail)

    def _judged(self, content: bytes) -> tuple[str, str]:
        if self.parser.writes:
            self._make_folder()
        (self._folder / self.parser.file).write_bytes(content)
        try:
            ours = self.parser.read(self._folder)
        except (ValueError, OSError) as error:
            return self._judged_error(error)
        except BaseException as error:
            return "stack trace", _described(error)
        if self.parser.independent is None:
            return READ, ""
        try:
            theirs = self.parser.independent(self._folder)
        except Exception:
            return READ, ""
        if theirs is UNKNOWN:
            return READ, ""
        if self.parser.is_same(ours, theirs):
            return EQUAL, ""
        return "another answer", f"{ours!r:.300} instead of {theirs!r:.300}"

    def _judged_error(self, error: Exception) -> tuple[str, str]:
        message = str(error)
        if not any(name in message for name in self.parser.names):
            return "no file named", _described(error)
        if "\n" in message:
            return "several lines", _described(error)
        if len(message) > _MAX_ERROR:
            return "long message", _described(error)
        return ERROR, ""


def _described(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    place = next((f for f in reversed(frames) if "/albert_tf/" in f.filename), frames[-1])
    where = f"{os.path.basename(place.filename)}:{place.lineno}"
    return f"{where} {type(error).__name__}: {str(error)[:300]!r}"


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _outcomes(part: tuple[str, range]) -> list[Outcome]:
    """Of the inputs of a parser: a process reads them until one kills it, then another the rest."""
    name, numbers = part
    found: list[Outcome] = []
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="albert_tf-fuzz-", dir=memory) as folder:
        while len(found) < len(numbers):
            told, status, printed = _read_in_child(name, numbers[len(found) :], Path(folder))
            found += told
            if status:
                kind = f"exit {os.waitstatus_to_exitcode(status)}"
                if os.WIFSIGNALED(status):
                    kind = f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
                found.append(Outcome(name, numbers[len(found)], kind, printed))
    return found


def _read_in_child(name: str, numbers: range, folder: Path) -> tuple[list[Outcome], int, str]:
    """The outcomes that a process told before its end; how it ended, and what it printed last."""
    read, write = os.pipe()
    errors = folder / "printed.txt"
    child = os.fork()
    if not child:
        status = 1
        try:
            os.close(read)
            with os.fdopen(write, "wb", buffering=0) as pipe:
                _work(name, numbers, folder, errors, pipe)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:  # a line an outcome; the last may be cut off
        *told, _ = pipe.read().split(b"\n")
    outcomes = [Outcome(name, n, *json.loads(line)) for n, line in zip(numbers, told, strict=False)]
    _, status = os.waitpid(child, 0)
    lines = errors.read_text(errors="replace").strip().splitlines() or [""]
    reasons = [line for line in lines if "Check failed" in line or line.startswith("F0")]
    return outcomes, status, repr((reasons or lines)[-1][:400])


def _work(name: str, numbers: range, folder: Path, errors: Path, pipe) -> None:
    faulthandler.disable()  # the end of a process is told, its stack is of no interest
    printed = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    sys.stdout = sys.stderr = os.fdopen(2, "w", buffering=1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, signal.SIG_DFL)
    judge = Judge(PARSERS[name], folder / "files")
    judge.read_seeds()
    with open("/proc/self/statm") as file:  # no file may take all memory of the machine
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (4 << 30),) * 2)
    for number in numbers:
        # The signals of these clocks kill the process wherever it is.
        signal.setitimer(signal.ITIMER_PROF, MAX_PROCESSOR_SECONDS)
        signal.setitimer(signal.ITIMER_REAL, MAX_SECONDS)
        pipe.write(json.dumps(judge.judge(number)[2:]).encode() + b"\n")
        if not number % 1000:
            os.ftruncate(printed, 0)
    for clock in (signal.ITIMER_PROF, signal.ITIMER_REAL):
        signal.setitimer(clock, 0)


def prepare() -> None:
    """Has the good files written by a process of its own: after TensorFlow none may be forked."""
    with get_context("fork").Pool(1) as pool:
        seeds.use(pool.apply(seeds.prepare))
