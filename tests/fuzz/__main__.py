"""Damages files of every kind that is read, and checks what becomes of them.

    python -m tests.fuzz --inputs=100000
    python -m tests.fuzz --parsers=config,csv --inputs=1000
    python -m tests.fuzz --parsers=config --input=4711

Each input must be read, then with what an independent reader reads, or be refused in one line that
names the file. Exit status 1: something else happened, or a function that reads is in no parser.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

from tqdm import tqdm

import albert_tf
from tests.fuzz import coverage, running, seeds
from tests.fuzz.parsers import EXCEPTIONS, PARSERS


def main() -> int:
    arguments = _arguments()
    names = arguments.parsers.split(",") if arguments.parsers else list(PARSERS)
    unknown = [name for name in names if name not in PARSERS]
    if unknown:
        sys.exit(f"error: there is no parser {', '.join(unknown)}; there are {', '.join(PARSERS)}.")
    _import_what_readers_need()
    prepared = running.prepared_in_child(seeds.prepare)
    seeds.use(prepared)
    if arguments.input is not None:
        return _run_one(names[0], arguments.input)
    missing = [] if arguments.parsers else running.prepared_in_child(_unreached)
    for name in missing:
        print(f"{name} reads files, and no parser of tests/fuzz/parsers.py reaches it.")
    numbers = range(arguments.first, arguments.first + arguments.inputs)
    failures = _run([running.Part(name, numbers) for name in names], arguments)
    return 1 if missing or failures else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=300, help="of each parser")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--parsers", default="", help="with commas; all of them else")
    parser.add_argument("--input", type=int, help="read the input of this number alone")
    parser.add_argument("--shown", type=int, default=5, help="failures of a parser and a kind")
    parser.add_argument("--processes", type=int, default=2)
    return parser.parse_args()


def _import_what_readers_need() -> None:
    """Once, before processes are forked."""
    import sentencepiece  # noqa: F401
    import tensorflow  # noqa: F401
    import torch  # noqa: F401

    from albert_tf.checkpoints import loading  # noqa: F401


def _unreached() -> list[str]:
    """Functions that read files, and that no parser reaches when it reads its good files."""
    functions = coverage.readers(Path(albert_tf.__file__).parent)
    found: set[coverage.Function] = set()
    with tempfile.TemporaryDirectory() as folder:
        for number, parser in enumerate(PARSERS.values()):
            judge = running.Judge(parser, Path(folder, str(number)))
            found |= coverage.reached(functions, judge.read_seeds)
    left = {function.name for function in functions} - {function.name for function in found}
    stale = [f"{name} is excepted for nothing:" for name in EXCEPTIONS if name not in left]
    return sorted(left - EXCEPTIONS.keys()) + stale


def _run_one(name: str, number: int) -> int:
    parser = PARSERS[name]
    content = running.damaged(parser, parser.seeds(), number)
    print(f"{len(content)} bytes: {content[:1000]!r}")
    folder = Path(tempfile.mkdtemp(prefix="albert_tf-fuzz-"))
    try:
        outcome = running.Judge(parser, folder).judge(number)
    finally:
        shutil.rmtree(folder)
    print(outcome.kind, outcome.detail)
    return 0 if outcome.kind in (running.EQUAL, running.READ, running.ERROR) else 1


def _run(parts: list[running.Part], arguments: argparse.Namespace) -> int:
    """Runs all, and returns how many inputs failed."""
    counts: Counter[tuple[str, str]] = Counter()
    total = sum(len(part.numbers) for part in parts)
    failures = 0
    with tqdm(total=total, unit="input", disable=None, mininterval=1.0) as bar:
        for outcome in running.run(parts, arguments.processes):
            bar.update()
            counts[outcome.parser, outcome.kind] += 1
            if outcome.kind in (running.EQUAL, running.READ, running.ERROR):
                continue
            failures += 1
            if counts[outcome.parser, outcome.kind] <= arguments.shown:
                bar.write(
                    f"--parsers={outcome.parser} --input={outcome.number}: {outcome.kind} "
                    f"{outcome.detail}"
                )
    for line in running.table(counts):
        print(line)
    return failures


if __name__ == "__main__":
    sys.exit(main())
