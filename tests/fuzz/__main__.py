"""Damages files of all formats and checks how they are read.

    python -m tests.fuzz --inputs=100000
    python -m tests.fuzz --parsers=config,csv --inputs=1000
    python -m tests.fuzz --parsers=config --input=4711

Every damaged file must either be read, with the same result as an independent reader, or be
rejected with a one-line error that names the file. Otherwise, the exit status is 1.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path
from random import Random

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

from tqdm import tqdm

from albert_tf.data.errors import UserError
from tests.fuzz.mutations import damage_bytes
from tests.fuzz.parsers import NEED_TORCH, PARSERS, UNKNOWN, Parser
from tests.programs import TIMEOUT

EQUAL, READ, ERROR = GOOD = "equal", "read", "clear error"
MAX_SECONDS = 60  # of CPU time per file
_MAX_MEMORY = 4 << 30  # bytes per process, in addition to those after the start
_MAX_ERROR = 2000  # characters
_MAX_SHOWN = 5  # failures per parser and kind
_INPUTS_PER_PROCESS = 10_000

Outcome = tuple[str, int, str, str]  # parser, number of the input, kind, and details of a failure


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=300, help="inputs per parser")
    parser.add_argument("--parsers", default=",".join(PARSERS), help="comma-separated names")
    parser.add_argument("--input", type=int, help="read and show only the input with this number")
    arguments = parser.parse_args()
    names = arguments.parsers.split(",")
    if unknown := set(names) - set(PARSERS):
        parser.error(f"unknown parsers: {', '.join(unknown)}. Parsers: {', '.join(PARSERS)}")
    if not NEED_TORCH.isdisjoint(names):
        import torch  # noqa: F401  (once, before processes are forked)
    numbers = range(arguments.inputs)
    if arguments.input is not None:
        numbers = range(arguments.input, arguments.input + 1)
        for name in names:
            print(repr(damaged(PARSERS[name], arguments.input)[1][:1000]))
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    outcomes = tqdm(run(names, numbers), total=len(names) * len(numbers), disable=None)
    for name, number, kind, detail in outcomes:
        counts[name][kind] += 1
        is_shown = kind not in GOOD and counts[name][kind] <= _MAX_SHOWN
        if is_shown or arguments.input is not None:
            tqdm.write(f"--parsers={name} --input={number}: {kind} {detail}")
    for name, kinds in counts.items():
        print(f"{name}:", ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items())))
    return int(any(set(kinds) - set(GOOD) for kinds in counts.values()))


def damaged(parser: Parser, number: int) -> tuple[Path, bytes]:
    """Returns the sample directory and the damaged file for a parser and a number."""
    random = Random(f"{parser.name} {number}")
    mutation = random.choice((*parser.mutations, damage_bytes))
    folder = random.choice(parser.folders)
    return folder, mutation(random, (folder / parser.file).read_bytes())


def run(names: list[str], numbers: range) -> Iterator[Outcome]:
    """Yields the outcome of every input of the given parsers, including crashes."""
    starts = range(0, len(numbers), _INPUTS_PER_PROCESS)
    parts = [(name, numbers[i : i + _INPUTS_PER_PROCESS]) for name in names for i in starts]
    with get_context("fork").Pool(2) as pool:
        for outcomes in pool.imap(_outcomes, parts):
            yield from outcomes


def _outcomes(part: tuple[str, range]) -> list[Outcome]:
    """Returns the outcomes of a parser's inputs. After a crash, another process reads the rest."""
    name, numbers = part
    found: list[Outcome] = []
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="albert_tf-fuzz-", dir=memory) as folder:
        results, printed = Path(folder, "results.jsonl"), Path(folder, "printed.txt")
        os.mkdir(Path(folder, "files"))
        while len(found) < len(numbers):
            results.write_bytes(b"")
            child = os.fork()
            if not child:
                _read_in_child(PARSERS[name], numbers[len(found) :], results, printed)
            _, status = os.waitpid(child, 0)
            *lines, _ = results.read_bytes().split(b"\n")  # the last line may be incomplete
            found += [(name, *json.loads(line)) for line in lines]
            if status:
                output = printed.read_text(errors="replace")
                if not os.WIFSIGNALED(status):
                    raise RuntimeError(f"--parsers={name} cannot be run:\n{output}")
                kind = f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
                found.append((name, numbers[len(found)], kind, repr(output[-1000:])))
    return found


def _read_in_child(parser: Parser, numbers: range, results: Path, printed: Path) -> None:
    """Writes the outcomes of inputs line by line, and ends the process."""
    status = 1
    try:
        faulthandler.disable()
        output = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout = sys.stderr = os.fdopen(2, "w", buffering=1)
        os.chdir(results.parent / "files")
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for number in (signal.SIGPROF, signal.SIGALRM):  # end the process, also in native code
            signal.signal(number, signal.SIG_DFL)
        for folder in parser.folders:
            outcome = judge(parser, folder, (folder / parser.file).read_bytes())
            assert outcome[0] in (EQUAL, READ), f"{folder}: {outcome}"
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + _MAX_MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        with open(results, "wb", buffering=0) as file:
            for number in numbers:
                signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
                signal.alarm(int(TIMEOUT))
                outcome = judge(parser, *damaged(parser, number))
                file.write(json.dumps([number, *outcome]).encode() + b"\n")
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def judge(parser: Parser, folder: Path, content: bytes) -> tuple[str, str]:
    """Runs a parser in a copy of a sample directory. Returns the kind of the outcome and details.

    The working directory is overwritten.
    """
    for name in os.listdir():
        shutil.rmtree(name) if os.path.isdir(name) else os.remove(name)
    shutil.copytree(folder, ".", dirs_exist_ok=True)
    Path(parser.file).write_bytes(content)
    try:
        ours = parser.read()
    except BaseException as error:
        return _kind_of_error(error, parser.named), _describe(error)
    try:
        theirs = parser.independent() if parser.independent else UNKNOWN
    except Exception:
        theirs = UNKNOWN
    if theirs is UNKNOWN:
        return READ, ""
    if parser.is_same(ours, theirs):
        return EQUAL, ""
    return "different result", f"{ours!r:.300} instead of {theirs!r:.300}"


def _kind_of_error(error: BaseException, names: Sequence[str]) -> str:
    message = str(error)
    if not isinstance(error, UserError | OSError):
        return "stack trace"
    is_clear = any(name in message for name in names) and "\n" not in message
    return ERROR if is_clear and len(message) <= _MAX_ERROR else "unclear error"


def _describe(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    place = next((f for f in reversed(frames) if "/albert_tf/" in f.filename), frames[-1])
    where = f"{os.path.basename(place.filename)}:{place.lineno}"
    return f"{where} {type(error).__name__}: {str(error)[:300]!r}"


if __name__ == "__main__":
    sys.exit(main())
