"""Which functions of the package read files, and which of them a call reaches."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

# Names of what opens or parses a file. Those with a dot are too common to stand alone.
_READERS = frozenset(
    {
        "open",
        "open_binary",
        "open_input",
        "GFile",
        "read_text",
        "read_bytes",
        "read_json",
        "parse_json",
        "json_values",
        "raw_decode",
        "json.load",
        "json.loads",
        "np.load",
        "torch.load",
        "tarfile.open",
        "zipfile.ZipFile",
        "safe_open",
        "load_file",
        "SentencePieceProcessor",
        "ParseFromString",
        "FromString",
        "get_checkpoint_state",
        "load_checkpoint",
        "RestoreV2",
        "TFRecordDataset",
        "saved_model.load",
        "Interpreter",
    }
)


class Function(NamedTuple):
    """A function that reads: `albert_tf.config:AlbertConfig.from_json_file`, and where it is."""

    name: str
    path: str
    line: int


def readers(package: Path) -> list[Function]:
    """The functions below a folder that call something that opens or parses a file to read."""
    found = []
    for path in sorted(package.rglob("*.py")):
        module = ".".join(path.relative_to(package.parent).with_suffix("").parts)
        found += [
            Function(f"{module}:{name}", str(path), line)
            for name, line in _reading_functions(ast.parse(path.read_bytes()))
        ]
    return found


def _reading_functions(tree: ast.AST, scope: str = "") -> Iterator[tuple[str, int]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{scope}{node.name}"
            if not isinstance(node, ast.ClassDef) and any(map(_reads, _own_calls(node))):
                yield name, min([node.lineno, *(d.lineno for d in node.decorator_list)])
            yield from _reading_functions(node, f"{name}.")
        else:
            yield from _reading_functions(node, scope)


def _own_calls(function: ast.AST) -> Iterator[ast.Call]:
    """The calls in a function, without those in functions inside of it."""
    for node in ast.iter_child_nodes(function):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.Call):
            yield node
        yield from _own_calls(node)


def _reads(call: ast.Call) -> bool:
    names = ast.unparse(call.func).split(".")
    if names == ["os", "open"]:  # of a device, by number
        return False
    if names[-1] not in _READERS and ".".join(names[-2:]) not in _READERS:
        return False
    values = [*call.args[1:], *(keyword.value for keyword in call.keywords)]
    modes = {value.value for value in values if isinstance(value, ast.Constant)}
    return not modes & {"w", "wb", "a", "ab", "x", "xb"}


def reached(functions: list[Function], call: Callable[[], Any]) -> set[Function]:
    """Those of the functions that a call enters."""
    places = {(function.path, function.line): function for function in functions}
    entered = set()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            code = frame.f_code
            entered.add((code.co_filename, code.co_firstlineno))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return {places[place] for place in entered & places.keys()}
