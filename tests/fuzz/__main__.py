"""Damages files of all formats, and checks how they are read.

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
from collections import Counter

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
    if not NEED_TORCH.isdisjoint(names):
        import torch  # noqa: F401  (once, before processes are forked)
    first, inputs = arguments.first, arguments.inputs
    if arguments.input is not None:
        first, inputs = arguments.input, 1
        content = engine.damaged(PARSERS[names[0]], PARSERS[names[0]].good(), first)
        print(f"{len(content)} bytes: {content[:1000]!r}")
    counts: Counter[tuple[str, str]] = Counter()
    with tqdm(total=len(names) * inputs, unit="input", disable=None) as bar:
        outcomes = engine.run(names, range(first, first + inputs), arguments.processes)
        for parser, number, kind, detail in outcomes:
            bar.update()
            counts[parser, kind] += 1
            is_shown = kind not in engine.GOOD and counts[parser, kind] <= arguments.shown
            if is_shown or arguments.input is not None:
                bar.write(f"--parsers={parser} --input={number}: {kind} {detail}")
    print("| parser | inputs | " + " | ".join(engine.GOOD) + " | anything else |")
    print("|---|" + "---:|" * (len(engine.GOOD) + 2))
    failures = 0
    for name in names:
        good = [counts[name, kind] for kind in engine.GOOD]
        failures += inputs - sum(good)
        print("| " + " | ".join(map(str, (name, inputs, *good, inputs - sum(good)))) + " |")
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


if __name__ == "__main__":
    sys.exit(main())
