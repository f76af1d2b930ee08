"""Damaged files read by the thousand, in processes that may die of them."""

from __future__ import annotations

import faulthandler
import os
import pickle
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tests.fuzz.independent import UNKNOWN
from tests.fuzz.mutations import damage_bytes
from tests.fuzz.parsers import PARSERS, Parser

EQUAL, READ, ERROR = "equal", "read", "clear error"
MAX_SECONDS = 10.0  # for a file: of a processor, or asleep; waiting for a processor does not count
MAX_BYTES = 200 << 20  # of memory, beyond `MAX_TIMES` its size
MAX_TIMES = 10
_MAX_ERROR = 2000  # characters of a message that a person is to read
_WARM_UP_SECONDS = 120.0
_INPUTS_A_PROCESS = 10_000  # memory that readers lose stays small


class Outcome(NamedTuple):
    """What became of an input: `EQUAL`, `READ`, `ERROR`, or a failure with what is wrong."""

    parser: str
    number: int
    kind: str
    detail: str = ""


def damaged(parser: Parser, seeds: list[bytes], number: int) -> bytes:
    """The input of a number: a function of the parser, its good files and the number alone."""
    random = Random(f"{parser.name} {number}")
    mutation = random.choice((*parser.mutations, damage_bytes))
    return mutation(random, random.choice(seeds))


def prepared_in_child(call: Callable[[], Any]) -> Any:
    """Returns what a function returns in a process of its own."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(read)
            with os.fdopen(write, "wb") as pipe:
                pickle.dump(call(), pipe)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError("The good files cannot be written or read: see above.")
    return pickle.loads(data)


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
        self._file = folder / parser.file
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
        self._file.write_bytes(content)
        try:
            ours = self.parser.read(self._folder)
        except (ValueError, OSError) as error:
            return self._judged_error(error)
        except BaseException as error:
            return "stack trace", _described(error)
        if self.parser.independent is None or ours is UNKNOWN:
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


class Part(NamedTuple):
    """Some inputs of a parser."""

    parser: str
    numbers: range


@dataclass
class _Worker:
    """A process that reads inputs, and what is still to come from it."""

    process: int
    pipe: int
    parts: list[Part]
    errors: Path
    max_seconds: float
    told_at: float = 0.0  # seconds of a processor it had used when it told something last
    used: float = 0.0  # those it had used when they were looked at last
    used_at: float = field(default_factory=time.monotonic)  # when they were seen to grow last
    buffer: bytes = b""
    expected: deque[tuple[str, int]] = field(default_factory=deque)

    def is_stuck(self) -> bool:
        """Whether it has worked, or slept, for too long."""
        self._look()
        asleep = time.monotonic() - self.used_at
        return max(self.used - self.told_at, asleep) > self.max_seconds

    def tells(self) -> None:
        """Notes that it has told something."""
        self._look()
        self.told_at, self.used_at, self.max_seconds = self.used, time.monotonic(), MAX_SECONDS

    def _look(self) -> None:
        used = _processor_seconds(self.process)
        if used > self.used:
            self.used, self.used_at = used, time.monotonic()


def _processor_seconds(process: int) -> float:
    with open(f"/proc/{process}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(parts: Iterable[Part], processes: int) -> Iterator[Outcome]:
    """Yields the outcome of every input; what kills or blocks a process is one, too.

    Args:
        parts: what is to be read; each is read by one process, in order.
        processes: that read at the same time.
    """
    waiting, workers = deque(parts), []
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="albert_tf-fuzz-", dir=memory) as folder:
        number = 0
        try:
            while waiting or workers:
                while waiting and len(workers) < processes:
                    part = waiting.popleft()
                    if len(part.numbers) > _INPUTS_A_PROCESS:
                        waiting.appendleft(part._replace(numbers=part.numbers[_INPUTS_A_PROCESS:]))
                        part = part._replace(numbers=part.numbers[:_INPUTS_A_PROCESS])
                    parts_of_worker = [part]
                    # A process is not started for a few inputs alone.
                    while waiting and sum(len(p.numbers) for p in parts_of_worker) + len(
                        waiting[0].numbers
                    ) <= max(1000, len(part.numbers)):
                        parts_of_worker.append(waiting.popleft())
                    number += 1
                    workers.append(_started(parts_of_worker, Path(folder, str(number))))
                ready, _, _ = select.select([worker.pipe for worker in workers], [], [], 1.0)
                for worker in list(workers):
                    if worker.pipe in ready:
                        yield from _taken(worker)
                    if worker.pipe in ready and not worker.expected and worker.process < 0:
                        workers.remove(worker)
                    elif worker.process < 0 or worker.is_stuck():
                        yield from _ended(worker, waiting)
                        workers.remove(worker)
        finally:
            for worker in workers:
                os.kill(worker.process, signal.SIGKILL)
                os.waitpid(worker.process, 0)


def _started(parts: list[Part], folder: Path) -> _Worker:
    read, write = os.pipe()
    folder.mkdir()
    errors = folder / "printed.txt"
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        try:
            os.close(read)
            _work(parts, folder, errors, write)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(write)
    expected = deque((part.parser, number) for part in parts for number in part.numbers)
    return _Worker(child, read, parts, errors, _WARM_UP_SECONDS, expected=expected)


def _work(parts: list[Part], folder: Path, errors: Path, pipe: int) -> None:
    faulthandler.disable()  # the end of a process is told, its stack is of no interest
    printed = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    judges = {}
    for part in parts:
        judges[part.parser] = Judge(PARSERS[part.parser], folder / str(len(judges)))
        judges[part.parser].read_seeds()
    _limit_memory()
    for part in parts:
        for number in part.numbers:
            outcome = judges[part.parser].judge(number)
            text = f"{outcome.kind}\t{outcome.detail!r}\n"
            os.write(pipe, text.encode(errors="backslashreplace"))
            if not number % 1000:
                os.ftruncate(printed, 0)


def _limit_memory() -> None:
    """No file may take all of the machine's memory; what is too much is told by `Judge`."""
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (4 << 30),) * 2)


def _taken(worker: _Worker) -> Iterator[Outcome]:
    """What a process has told; its end, if there is no more."""
    data = os.read(worker.pipe, 1 << 16)
    worker.tells()
    if not data:
        os.close(worker.pipe)
        _, status = os.waitpid(worker.process, 0)
        worker.process = -1 - status
    *lines, worker.buffer = (worker.buffer + data).split(b"\n")
    for line in lines:
        kind, _, detail = line.decode().partition("\t")
        yield Outcome(*worker.expected.popleft(), kind, detail)


def _ended(worker: _Worker, waiting: deque[Part]) -> Iterator[Outcome]:
    """The input that ended or blocked a process; those after it go to another one."""
    parser, number = worker.expected.popleft()
    if worker.process > 0:
        os.kill(worker.process, signal.SIGKILL)
        os.waitpid(worker.process, 0)
        os.close(worker.pipe)
        kind = f"more than {MAX_SECONDS:.0f} s"
    else:
        status = -1 - worker.process
        kind = (
            f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
            if os.WIFSIGNALED(status)
            else f"exit {os.waitstatus_to_exitcode(status)}"
        )
    yield Outcome(parser, number, kind, repr(_last_line(worker.errors)))
    rest: dict[str, list[int]] = {}
    for name, left in worker.expected:
        rest.setdefault(name, []).append(left)
    waiting.extendleft(
        Part(name, range(left[0], left[-1] + 1)) for name, left in reversed(rest.items())
    )


def _last_line(path: Path) -> str:
    """What a process printed last, or why it ended itself."""
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    reasons = [line for line in lines if "Check failed" in line or line.startswith("F0")]
    return (reasons or lines or [""])[-1][:400]


def table(outcomes: Counter[tuple[str, str]]) -> Iterator[str]:
    """Yields a table of how often each parser gave each kind of outcome."""
    header = ("parser", "inputs", EQUAL, READ, ERROR, "anything else")
    yield "| " + " | ".join(header) + " |"
    yield "|---" + "|---:" * (len(header) - 1) + "|"
    for parser in dict.fromkeys(name for name, _ in sorted(outcomes, key=_place)):
        kinds = {kind: count for (name, kind), count in outcomes.items() if name == parser}
        total = sum(kinds.values())
        good = [kinds.pop(kind, 0) for kind in (EQUAL, READ, ERROR)]
        others = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "0"
        yield "| " + " | ".join(map(str, (parser, total, *good, others))) + " |"


def _place(key: tuple[str, str]) -> int:
    return list(PARSERS).index(key[0])
