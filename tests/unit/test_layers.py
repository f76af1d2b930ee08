"""Imports between folders, compared with the table in docs/architecture.md."""

import ast
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import albert_tf

PACKAGE = Path(albert_tf.__file__).parent
ARCHITECTURE = PACKAGE.parent / "docs" / "architecture.md"


def layers() -> dict[str, int]:
    """Returns the layer of each folder and top-level module in the table."""
    table = ARCHITECTURE.read_text("utf-8").split("| layer |")[1].split("\n\n")[0]
    found = {}
    for line in table.splitlines()[2:]:
        layer, names, _ = line.strip("| ").split(" | ")
        for name in names.split(", "):
            found[name.strip("`").split("/")[0].removesuffix(".py")] = int(layer)
    return found


@cache
def imports(path: Path) -> set[str]:
    """Returns the modules of the package that a file imports, except for type checks."""
    tree = ast.parse(path.read_text("utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{name.name}" for name in node.names}
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
    return {name for name in found if name.startswith("albert_tf.")}


def test_modules_import_lower_layers_only():
    layer = layers()
    wrong = set()
    for path in PACKAGE.rglob("*.py"):
        top = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for name in imports(path):
            other = name.split(".")[1]
            if "__init__" in (top, other) or other not in layer or other == top:
                continue
            if layer[other] >= layer[top]:
                wrong.add((top, other))
    assert wrong == set()


def test_there_are_no_import_cycles():
    files = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(
            ".__init__"
        ): path
        for path in PACKAGE.rglob("*.py")
    }
    graph = {
        module: {name if name in files else name.rpartition(".")[0] for name in imports(path)}
        - {module, "albert_tf"}
        for module, path in files.items()
    }
    assert graph["albert_tf.modeling.encoder"] >= {"albert_tf.modeling.layers"}
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_only_listed_modules_import_others_by_name():
    """Imports by name are not seen by the tests above."""
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "import_module(" in path.read_text("utf-8")
    }
    assert found == {
        "__init__.py",
        "__main__.py",
        "checkpoints/formats/choose.py",
        "lazy_imports.py",
        "modeling/base.py",
    }


def test_modules_that_do_not_import_tensorflow():
    code = "import sys\n"
    for line in (
        "import albert_tf",
        "albert_tf.PretrainingDataSettings; albert_tf.create_pretraining_data",
        "albert_tf.train_sentencepiece",
        "import albert_tf.pretraining.create_records",
        "import albert_tf.squad.features",
        "import albert_tf.token_classification.features",
    ):
        code += f"{line}\nassert 'tensorflow' not in sys.modules, {line!r}\n"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
