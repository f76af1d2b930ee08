"""Reads thousands of damaged files in processes that may crash."""

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

from albert_tf.data.errors import UserError
from tests.fuzz.mutations import damage_bytes
from tests.fuzz.parsers import PARSERS, UNKNOWN, Parser, content_of

EQUAL, READ, ERROR = "equal", "read", "clear error"
GOOD = (EQUAL, READ, ERROR)
MAX_PROCESSOR_SECONDS = 10.0  # for a file
MAX_SECONDS = 120.0  # for a file, waiting for a processor included
MAX_BYTES = 200 << 20  # of memory, beyond `MAX_TIMES` its size
MAX_TIMES = 10
_MAX_ERROR = 2000  # characters of a message that a person is to read
_INPUTS_A_PROCESS = 10_000  # memory that readers lose stays small


class Outcome(NamedTuple):
    """Outcome of an input: one of `GOOD`, or a failure with details."""

    parser: str
    number: int
    kind: str
    detail: str = ""


def damaged(parser: Parser, good: list[bytes], number: int) -> bytes:
    """Returns the input with a number, which is determined by the parser and the number."""
    random = Random(f"{parser.name} {number}")
    mutation = random.choice((*parser.mutations, damage_bytes))
    return mutation(random, random.choice(good))


def run(names: list[str], numbers: range, processes: int = 2) -> Iterator[Outcome]:
    """Yields the outcome of every input of some parsers, including crashes."""
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
    """Reads inputs of one parser in the working directory, and returns their outcomes."""

    def __init__(self, parser: Parser) -> None:
        self.parser = parser
        self.good = parser.good()
        self._files = {name: content_of(file) for name, file in parser.others.items()}
        self._write_files()
        for content in self.good:
            kind, detail = self._judged(content)
            if kind not in (EQUAL, READ):
                raise AssertionError(f"{parser.name}: a good file gives {kind}: {detail}")

    def _write_files(self) -> None:
        for name in os.listdir():
            shutil.rmtree(name) if os.path.isdir(name) else os.remove(name)
        for name, content in {**self._files, self.parser.file: b""}.items():
            os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
            Path(name).write_bytes(content)

    def judge(self, number: int) -> Outcome:
        content = damaged(self.parser, self.good, number)
        with open("/proc/self/statm") as file:
            before = int(file.read().split()[1]) * resource.getpagesize()
        peak = _peak()
        kind, detail = self._judged(content)
        used, allowed = _peak() - before, MAX_BYTES + MAX_TIMES * len(content)
        if _peak() > peak and used > allowed:
            kind, detail = "memory", f"{used >> 20} MB for {len(content)} bytes"
        return Outcome(self.parser.name, number, kind, detail)

    def _judged(self, content: bytes) -> tuple[str, str]:
        if self.parser.writes:
            self._write_files()
        Path(self.parser.file).write_bytes(content)
        try:
            ours = self.parser.read()
        except (UserError, OSError) as error:
            return _kind_of_error(error, self.parser.names), _described(error)
        except BaseException as error:
            return "stack trace", _described(error)
        try:
            theirs = self.parser.independent() if self.parser.independent else UNKNOWN
        except Exception:
            theirs = UNKNOWN
        if theirs is UNKNOWN:
            return READ, ""
        if self.parser.is_same(ours, theirs):
            return EQUAL, ""
        return "another answer", f"{ours!r:.300} instead of {theirs!r:.300}"


def _kind_of_error(error: Exception, names: tuple[str, ...]) -> str:
    message = str(error)
    if not any(name in message for name in names):
        return "no file named"
    if "\n" in message:
        return "several lines"
    return "long message" if len(message) > _MAX_ERROR else ERROR


def _described(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    place = next((f for f in reversed(frames) if "/albert_tf/" in f.filename), frames[-1])
    where = f"{os.path.basename(place.filename)}:{place.lineno}"
    return f"{where} {type(error).__name__}: {str(error)[:300]!r}"


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _outcomes(part: tuple[str, range]) -> list[Outcome]:
    """Returns the outcomes of a parser's inputs. After a crash, another process reads the rest."""
    name, numbers = part
    found: list[Outcome] = []
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="albert_tf-fuzz-", dir=memory) as folder:
        told, printed = Path(folder, "told.jsonl"), Path(folder, "printed.txt")
        os.mkdir(os.path.join(folder, "files"))
        while len(found) < len(numbers):
            told.write_bytes(b"")
            child = os.fork()
            if not child:
                _read_in_child(name, numbers[len(found) :], told, printed)
            _, status = os.waitpid(child, 0)
            *lines, _ = told.read_bytes().split(b"\n")  # the last may be cut off
            found += [Outcome(name, *json.loads(line)) for line in lines]
            if status:
                kind = f"exit {os.waitstatus_to_exitcode(status)}"
                if os.WIFSIGNALED(status):
                    kind = f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
                lines = printed.read_text(errors="replace").strip().splitlines() or [""]
                reasons = [line for line in lines if "Check failed" in line or line[:2] == "F0"]
                detail = repr((reasons or lines)[-1][:400])
                found.append(Outcome(name, numbers[len(found)], kind, detail))
    return found


def _read_in_child(name: str, numbers: range, told: Path, printed: Path) -> None:
    """Writes the outcomes of inputs line by line, and ends the process."""
    status = 1
    try:
        faulthandler.disable()  # the end of a process is told, its stack is of no interest
        output = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout = sys.stderr = os.fdopen(2, "w", buffering=1)
        os.chdir(told.parent / "files")
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for number in (signal.SIGALRM, signal.SIGPROF):
            signal.signal(number, signal.SIG_DFL)
        with open(told, "wb", buffering=0) as file:
            judge = Judge(PARSERS[name])
            with open("/proc/self/statm") as used:  # no file may take all memory of the machine
                now = int(used.read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (now + (4 << 30),) * 2)
            for number in numbers:
                # The signals of these clocks kill the process wherever it is.
                signal.setitimer(signal.ITIMER_PROF, MAX_PROCESSOR_SECONDS)
                signal.setitimer(signal.ITIMER_REAL, MAX_SECONDS)
                file.write(json.dumps(judge.judge(number)[1:]).encode() + b"\n")
                if not number % 1000:
                    os.ftruncate(output, 0)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)
