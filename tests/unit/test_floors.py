"""Which folder imports which: the table of docs/architecture.md, held against the code."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import albert_tf

PACKAGE = Path(albert_tf.__file__).parent
ARCHITECTURE = PACKAGE.parent / "docs" / "architecture.md"

# What a folder imports of its own floor or of one above. A model's class has `load`, which reads
# files, and imports that when it is called.
EXCEPTIONS = {("__main__", "cli"), ("modeling", "checkpoints")}


def floors() -> dict[str, int]:
    """The floor of each folder and module at the top, by the table."""
    table = ARCHITECTURE.read_text("utf-8").split("| floor |")[1].split("\n\n")[0]
    found = {}
    for line in table.splitlines()[2:]:
        floor, names, _ = line.strip("| ").split(" | ")
        for name in names.split(", "):
            found[name.strip("`").split("/")[0].removesuffix(".py")] = int(floor)
    return found


def imports(path: Path) -> set[str]:
    """The modules of the package that a file imports, those for type checks alone left out."""
    tree = ast.parse(path.read_text("utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    return {
        f"{node.module}.{name.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and id(node) not in for_types
        if (node.module or "").startswith("albert_tf")
        for name in node.names
    }


def modules() -> dict[str, Path]:
    paths = (path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
    return {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in paths
    } | {
        ".".join(path.parent.relative_to(PACKAGE.parent).parts): path
        for path in PACKAGE.rglob("__init__.py")
    }


def test_imports_lead_down():
    floor = floors()
    wrong = set()
    for path in PACKAGE.rglob("*.py"):
        top = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for name in imports(path):
            other = name.split(".")[1]
            if "__init__" in (top, other) or other not in floor or other == top:
                continue
            if floor[other] >= floor[top]:
                wrong.add((top, other))
    assert wrong == EXCEPTIONS


def test_no_module_imports_itself_by_a_detour():
    known = modules()
    graph = {}
    for name, path in known.items():
        found = set()
        for imported in imports(path):
            module = imported if imported in known else imported.rpartition(".")[0]
            edge = name.split(".")[1:2], module.split(".")[1:2]
            if module in known and module != name and edge != (["modeling"], ["checkpoints"]):
                found.add(module)
        graph[name] = found
    finished: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join([*trail[trail.index(name) :], name])
        if name in finished:
            return
        for other in sorted(graph[name]):
            visit(other, (*trail, name))
        finished.add(name)

    for name in graph:
        visit(name, ())


@pytest.mark.parametrize(
    "code",
    [
        "import albert_tf.pretraining.create_records",
        "import albert_tf; albert_tf.PretrainingDataSettings; albert_tf.create_pretraining_data",
        "import albert_tf; albert_tf.train_sentencepiece",
        "import albert_tf.squad.features",
        "import albert_tf.cli.run_squad as c; c.define_flags()",
        "import albert_tf.cli.run_pretraining as c; c.define_flags()",
        "import albert_tf.cli.run_classifier as c; c.define_flags()",
        "import albert_tf.cli.run_race as c; c.define_flags()",
        "import albert_tf.cli.run_token_classifier as c; c.define_flags()",
        "import albert_tf.token_classification.features, albert_tf.token_classification.metrics",
    ],
)
def test_what_needs_no_tensorflow_does_not_import_it(code):
    code = f"import sys; {code}; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
