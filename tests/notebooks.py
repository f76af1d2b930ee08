"""Notebooks: how they are kept, and running one as a whole, without a screen.

`python -m tests.notebooks` writes every notebook anew as it is kept: without outputs, execution
counts, and the marks that editors leave.
"""

import ast
import base64
import os
import re
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from albert_tf.checkpoints.model_directory import SENTENCEPIECE_FILE
from albert_tf.checkpoints.original.files import write_checkpoint
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.original_names import original_names
from tests.programs import warm_python
from tests.small_model import small_config

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PARAMETERS = "parameters"  # tag of the cell whose values can be replaced
CELL_SECONDS = 300
FEW_STEPS = {  # of a fine-tuning
    "max_seq_length": 24,
    "learning_rate": 1e-3,
    "train_batch_size": 5,
    "train_step": 4,
    "warmup_step": 1,
    "save_checkpoints_steps": 2,
    "log_steps": 1,
}
# What TensorFlow writes as it is loaded, progress bars, and our warnings, as of tiny settings.
_EXPECTED_ON_STDERR = re.compile(
    r"[IWE]\d{4} |WARNING: All log messages before absl|[A-Za-z ]+: +\d+%\||INFO: Created "
    r"|WARNING:absl:"
)
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def run_notebook(name: str, folder: Path, **parameters: Any) -> NotebookNode:
    """Runs every cell of a notebook in a process of its own; the first error fails.

    Args:
        name: of the file, without its ending.
        folder: where it runs, and may write; its home directory is `home` in it.
        **parameters: values for names that the cell tagged `parameters` sets.

    Returns:
        The notebook with its outputs.
    """
    notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    insert_parameters(notebook, parameters)
    home = folder / "home"
    home.mkdir()
    startup = folder / "settings" / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    # The commands of the cells need not import TensorFlow anew.
    (startup / "commands.py").write_text(
        "import multiprocessing.spawn, sys\n"  # whose processes need files that it does not pass on
        f"sys.executable = {str(warm_python())!r}\n"
    )
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        coalesce_streams=True,  # as a browser shows them
        resources={"metadata": {"path": str(folder)}},
    )
    return client.execute(env=_environment(home))


def _environment(home: Path) -> dict[str, str]:
    """What the process is told of the machine: a user's files would go to `home`."""
    import matplotlib

    moved = (
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "ALBERT_TF_HOME",
        "ALBERT_TF_CACHE_DIR",
    )
    kept = {name: value for name, value in os.environ.items() if name not in moved}
    return {
        **kept,
        "HOME": str(home),
        "IPYTHONDIR": str(home.parent / "settings" / "ipython"),
        "KERAS_HOME": str(home.parent / "settings" / "keras"),
        "MPLCONFIGDIR": matplotlib.get_cachedir(),  # its list of fonts takes seconds to make
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def small_pretrained(folder: Path, golden: Path) -> Path:
    """A directory with an encoder of two layers, its configuration and its tokenizer."""
    config = small_config(
        vocab_size=1000, num_hidden_layers=2, inner_group_num=1, max_position_embeddings=48
    )
    folder.mkdir()
    config.to_json_file(str(folder / "albert_config.json"))
    model = (golden / "tokenizer" / "small_1000.model").read_bytes()
    (folder / SENTENCEPIECE_FILE).write_bytes(model)
    prefix = str(folder / "model.ckpt-best")
    write_checkpoint(prefix, original_names(AlbertForPretraining(config)), global_step=0)
    return folder


def insert_parameters(notebook: NotebookNode, parameters: dict[str, Any]) -> None:
    """Puts a cell with values behind the one tagged `parameters`, which must set all their names.

    Raises:
        ValueError: there is not exactly one such cell, or it does not set a name.
    """
    places = [
        place
        for place, cell in enumerate(notebook.cells)
        if PARAMETERS in cell.metadata.get("tags", ())
    ]
    if len(places) != 1:
        raise ValueError(f"One cell needs the tag {PARAMETERS!r}. Found: {len(places)}")
    tree = ast.parse(notebook.cells[places[0]].source)
    known = {
        target.id
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    if unknown := parameters.keys() - known:
        raise ValueError(f"{sorted(unknown)} are no parameters. Known: {sorted(known)}")
    lines = [
        f"{name} = {(str(value) if isinstance(value, Path) else value)!r}"
        for name, value in parameters.items()
    ]
    notebook.cells.insert(places[0] + 1, new_code_cell("\n".join(lines)))


def pictures(notebook: NotebookNode) -> list[bytes]:
    """The PNG images among the outputs, in base64, in their order."""
    return [
        output.data["image/png"]
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if "image/png" in output.get("data", {})
    ]


def printed(notebook: NotebookNode) -> str:
    """What all cells printed."""
    return "".join(
        output.text
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if output.output_type == "stream"
    )


def assert_clean(notebook: NotebookNode, folder: Path, *written: str) -> None:
    """No cell failed or complained, all ran, pictures are pictures, nothing lies elsewhere.

    Args:
        notebook: with its outputs.
        folder: where it ran.
        *written: what may lie there.
    """
    for cell in notebook.cells:
        assert cell.cell_type != "code" or cell.execution_count
        for output in cell.get("outputs", ()):
            assert output.output_type != "error"
            if output.get("name") == "stderr":
                lines = filter(str.strip, re.split(r"[\r\n]", output.text))
                assert [line for line in lines if not _EXPECTED_ON_STDERR.match(line)] == []
    for picture in pictures(notebook):
        assert base64.b64decode(picture).startswith(b"\x89PNG")
    assert sorted(path.name for path in folder.iterdir()) == sorted([*written, "home", "settings"])
    assert not list((folder / "home").iterdir())
    assert not list((ROOT / "notebooks").glob("[!.]*/"))


def as_kept(notebook: NotebookNode) -> str:
    """The text of a notebook's file: sources and tags, and nothing that running it left."""
    notebook = nbformat.from_dict(notebook)
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        tags = cell.metadata.get("tags")
        cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return nbformat.writes(notebook) + "\n"


if __name__ == "__main__":
    for path in NOTEBOOKS:
        path.write_text(as_kept(nbformat.read(path, as_version=4)), encoding="utf-8")
