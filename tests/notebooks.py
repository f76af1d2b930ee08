"""Runs notebooks without a display; checks the stored form of notebooks.

`python -m tests.notebooks` removes outputs, execution counts and editor metadata from all
notebooks.
"""

import base64
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from albert_tf.checkpoints.model_directory import SENTENCEPIECE_FILE
from albert_tf.checkpoints.original import write_checkpoint
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.original_names import original_names
from tests.programs import ROOT, warm_python
from tests.small_model import small_config

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CELL_SECONDS = 300
# What TensorFlow logs on import, progress bars, and our warnings, for example about tiny settings.
_EXPECTED_ON_STDERR = re.compile(
    r"[IWE]\d{4} |WARNING: All log messages before absl|[A-Za-z ]+: +\d+%\||INFO: Created "
    r"|WARNING:absl:"
)
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


@dataclass
class NotebookRun:
    """An executed notebook.

    Attributes:
        notebook: the notebook with its outputs.
        folder: its working directory.
    """

    notebook: NotebookNode
    folder: Path

    @property
    def output(self) -> Path:
        return self.folder / "output"

    def outputs(self) -> list[Any]:
        return [output for cell in self.notebook.cells for output in cell.get("outputs", ())]

    def data(self, kind: str) -> list[str]:
        """Returns the outputs of a MIME type."""
        return [o.data[kind] for o in self.outputs() if kind in o.get("data", {})]

    def printed(self) -> str:
        return "".join(o.text for o in self.outputs() if o.output_type == "stream")

    def assert_clean(self, pictures: int, *written: str) -> None:
        """Checks that all cells ran without complaints, and wrote only `output` and `written`."""
        assert all(c.execution_count for c in self.notebook.cells if c.cell_type == "code")
        for output in self.outputs():
            assert output.output_type != "error"
            if output.get("name") == "stderr":
                lines = filter(str.strip, re.split(r"[\r\n]", output.text))
                assert [line for line in lines if not _EXPECTED_ON_STDERR.match(line)] == []
        found = self.data("image/png")
        assert len(found) == pictures
        assert all(base64.b64decode(picture).startswith(b"\x89PNG") for picture in found)
        names = {path.name for path in self.folder.iterdir()}
        assert names == {"output", *written, "home", "settings"}
        assert not list((self.folder / "home").iterdir())
        assert not list((ROOT / "notebooks").glob("[!.]*/"))


def run_notebook(name: str, folder: Path, **parameters: Any) -> NotebookRun:
    """Runs all cells of a notebook in a separate process. An error fails the test.

    Args:
        name: of the file, without its ending.
        folder: the working directory; the home directory is `home` in it.
        **parameters: values for names that the cell tagged `parameters` sets.
    """
    notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    insert_parameters(notebook, {**parameters, "OUTPUT_DIR": "output"})
    home, settings = folder / "home", folder / "settings"
    startup = settings / "ipython" / "profile_default" / "startup"
    home.mkdir()
    startup.mkdir(parents=True)
    # The commands of the cells need not import TensorFlow again.
    (startup / "commands.py").write_text(
        "import multiprocessing.spawn, sys\n"  # its processes need files that it does not pass on
        f"sys.executable = {str(warm_python())!r}\n"
    )
    environment = {
        **{key: os.environ[key] for key in os.environ if not re.match("XDG_|ALBERT_TF_", key)},
        "HOME": str(home),
        "IPYTHONDIR": str(settings / "ipython"),
        "KERAS_HOME": str(settings / "keras"),
        "MPLCONFIGDIR": matplotlib.get_cachedir(),  # its list of fonts takes seconds to make
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        coalesce_streams=True,  # as a browser shows them
        resources={"metadata": {"path": str(folder)}},
    )
    return NotebookRun(client.execute(env=environment), folder)


def insert_parameters(notebook: NotebookNode, parameters: dict[str, Any]) -> None:
    """Adds a cell after the cell tagged `parameters`, which must set all of these names."""
    (place,) = (
        place
        for place, cell in enumerate(notebook.cells)
        if "parameters" in cell.metadata.get("tags", ())
    )
    known = re.findall(r"^(\w+) = ", notebook.cells[place].source, re.MULTILINE)
    assert parameters.keys() <= set(known)
    lines = [
        f"{name} = {(str(value) if isinstance(value, Path) else value)!r}"
        for name, value in parameters.items()
    ]
    notebook.cells.insert(place + 1, new_code_cell("\n".join(lines)))


def small_pretrained(folder: Path, golden: Path) -> Path:
    """Writes an encoder with two layers, its configuration and its tokenizer."""
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


def as_committed(notebook: NotebookNode) -> str:
    """Returns the text of a notebook file with only sources and tags."""
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
        path.write_text(as_committed(nbformat.read(path, as_version=4)), encoding="utf-8")
