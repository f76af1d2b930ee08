"""Damages files of every kind that is read, and checks what becomes of them.

    python -m tests.fuzz --inputs=100000
    python -m tests.fuzz --parsers=config,csv --inputs=1000
    python -m tests.fuzz --parsers=config --input=4711

Each input must be read, then with what an independent reader reads, or be refused in one line that
names the file. Exit status 1: something else happened.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

from tqdm import tqdm

from tests.fuzz import engine
from tests.fuzz.parsers import NEED_TORCH, PARSERS


def main() -> int:
    arguments = _arguments()
    names = arguments.parsers.split(",") if arguments.parsers else list(PARSERS)
    unknown = [name for name in names if name not in PARSERS]
    if unknown:
        sys.exit(f"error: there is no parser {', '.join(unknown)}; there are {', '.join(PARSERS)}.")
    _import_what_readers_need(names)
    engine.prepare()
    if arguments.input is not None:
        return _run_one(names[0], arguments.input)
    numbers = range(arguments.first, arguments.first + arguments.inputs)
    counts: Counter[tuple[str, str]] = Counter()
    with tqdm(total=len(names) * len(numbers), unit="input", disable=None) as bar:
        for parser, number, kind, detail in engine.run(names, numbers, arguments.processes):
            bar.update()
            counts[parser, kind] += 1
            if kind not in engine.GOOD and counts[parser, kind] <= arguments.shown:
                bar.write(f"--parsers={parser} --input={number}: {kind} {detail}")
    print("| parser | inputs | " + " | ".join(engine.GOOD) + " | anything else |")
    print("|---|" + "---:|" * (len(engine.GOOD) + 2))
    failures = 0
    for name in names:
        total = sum(count for (parser, _), count in counts.items() if parser == name)
        good = [counts[name, kind] for kind in engine.GOOD]
        failures += total - sum(good)
        print("| " + " | ".join(map(str, (name, total, *good, total - sum(good)))) + " |")
    return 1 if failures else 0


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


def _import_what_readers_need(names: list[str]) -> None:
    """Once, before processes are forked."""
    import sentencepiece  # noqa: F401
    import tensorflow  # noqa: F401

    from albert_tf.checkpoints import loading  # noqa: F401

    if not NEED_TORCH.isdisjoint(names):
        import torch  # noqa: F401


def _run_one(name: str, number: int) -> int:
    parser = PARSERS[name]
    content = engine.damaged(parser, parser.seeds(), number)
    print(f"{len(content)} bytes: {content[:1000]!r}")
    with tempfile.TemporaryDirectory(prefix="albert_tf-fuzz-") as folder:
        outcome = engine.Judge(parser, Path(folder, "files")).judge(number)
    print(outcome.kind, outcome.detail)
    return 0 if outcome.kind in engine.GOOD else 1


if __name__ == "__main__":
    sys.exit(main())
