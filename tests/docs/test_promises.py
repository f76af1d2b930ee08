"""docs/promises.md lists all promises of the package, and what each of them costs in lines."""

import ast
import re
from fnmatch import fnmatch

import pytest

from tests.documentation import DOCS, ROOT

_GROWTH = 1.1


def promises(text):
    """Returns patterns of modules and the stated number of lines, by promise."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {
        name: (re.findall("`(.+?)`", modules), int(lines.replace(",", "")))
        for name, _, modules, lines, *_ in rows
        if lines != "lines"
    }


def parts(package):
    """Yields parts with lines: functions and classes as "module.py:name", then the other lines."""
    for path in sorted(package.rglob("*.py")):
        module, text = path.relative_to(package).as_posix(), path.read_text("utf-8")
        rest = text.count("\n")
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                lines = node.end_lineno - node.lineno + 1
                rest -= lines
                yield f"{module}:{node.name}", lines
        yield module, rest


def problems(ledger, package):
    """Returns what the ledger does not state."""
    owners = {pattern: name for name, (patterns, _) in ledger.items() for pattern in patterns}
    counts, unused, found = dict.fromkeys(ledger, 0), {*owners}, []
    for part, lines in parts(package):
        if matching := [p for p in owners if fnmatch(part, p) or fnmatch(part, f"{p}:*")]:
            owner = max(matching, key=len)
            counts[owners[owner]] += lines
            unused.discard(owner)
        else:
            found.append(f"{part} belongs to no promise.")
    found += [f"No module belongs to {pattern}." for pattern in sorted(unused)]
    found += [
        f"{name!r} states {stated} lines and has {counts[name]}."
        for name, (_, stated) in ledger.items()
        if counts[name] > _GROWTH * stated
    ]
    return found


def test_every_module_belongs_to_a_promise_that_states_its_lines():
    ledger = promises((DOCS / "promises.md").read_text("utf-8"))
    assert problems(ledger, ROOT / "albert_tf") == []


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({"all": (["*"], 10)}, []),
        ({"all": (["*"], 9)}, ["'all' states 9 lines and has 10."]),
        ({"one": (["a.py"], 6)}, ["b/c.py belongs to no promise."]),
        ({"one": (["*", "a.py:f"], 10), "two": (["a.py"], 4)}, []),
        ({"one": (["*"], 10), "old": (["d.py"], 3)}, ["No module belongs to d.py."]),
    ],
)
def test_growth_and_missing_modules_are_found(tmp_path, stated, expected):
    (tmp_path / "b").mkdir()
    (tmp_path / "a.py").write_text("import os\n\n\ndef f():\n    return os\n\n")
    (tmp_path / "b/c.py").write_text("A = 1\n" * 4)
    assert problems(stated, tmp_path) == expected
