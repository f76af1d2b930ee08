"""Runs all notebooks with their default settings and stores the outputs in the files.

    python -m scripts.run_notebooks [notebooks/label_words.ipynb ...]

The notebooks use `mini` and data that they create, and need no network. Logs, progress bars and
large outputs are removed. The time that the last cell prints is copied to the introduction.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
LARGEST = 100_000  # characters of one output
# Lines of logs, and addresses of variables that Keras prints when it exports a model.
_HIDDEN_LINE = re.compile(
    r"WARNING: All log messages|[IWE]\d{4} |INFO:|To enable the following|\s+\d{9,}: TensorSpec"
)
_TIME = re.compile(r"\d+ CPU seconds")
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python", "pygments_lexer": "ipython3"},
}


def run(path: Path) -> nbformat.NotebookNode:
    """Returns the notebook with the outputs of all cells."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as directory:
        client = NotebookClient(
            notebook,
            timeout=1800,
            kernel_name="python3",
            coalesce_streams=True,  # as a browser displays them
            resources={"metadata": {"path": directory}},
        )
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return clean(client.execute(env=environment), directory)


def clean(notebook: nbformat.NotebookNode, directory: str = "") -> nbformat.NotebookNode:
    """Keeps only the sources, tags and readable outputs of cells.

    Args:
        notebook: modified in place. The introduction gets the printed time.
        directory: working directory, which is removed from outputs.
    """
    notebook.metadata = nbformat.from_dict(METADATA)
    count = 0
    for cell in notebook.cells:
        tags = cell.metadata.get("tags")
        cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})
        if cell.cell_type == "code":
            count += 1
            cell.execution_count = count
            cell.outputs = [output for output in cell.outputs if _is_readable(output, directory)]
            for output in cell.outputs:
                output.pop("metadata", None)
                if output.output_type != "stream":
                    output.metadata = nbformat.from_dict({})
                if output.output_type == "execute_result":
                    output.execution_count = count
                found = _TIME.search(output.get("text", ""))
                if found:
                    introduction = notebook.cells[0]
                    introduction.source = _TIME.sub(found[0], introduction.source)
    return notebook


def _is_readable(output: nbformat.NotebookNode, directory: str) -> bool:
    """Removes logs and directories from the text of an output. Returns whether to keep it."""
    if output.output_type == "stream":
        lines = output.text.replace("\r\n", "\n").splitlines(keepends=True)
        text = "".join(line for line in lines if not _HIDDEN_LINE.match(line))
        output.text = _without_directories(text, directory)
        return output.name == "stdout" and 0 < len(output.text) < LARGEST
    data = output.get("data", {})
    for kind in ("text/plain", "text/html"):
        if kind in data:
            data[kind] = _without_directories(data[kind], directory)
    is_widget = "application/vnd.jupyter.widget-view+json" in data
    return not is_widget and sum(len(str(value)) for value in data.values()) < LARGEST


def _without_directories(text: str, directory: str) -> str:
    for path in filter(None, (directory, str(ROOT))):
        text = text.replace(f"{path}/", "").replace(path, "")
    return text


def main() -> None:
    """Runs the given notebooks, or all."""
    paths = [Path(name) for name in sys.argv[1:]] or sorted((ROOT / "notebooks").glob("*.ipynb"))
    for path in paths:
        print(path, flush=True)
        path.write_text(nbformat.writes(run(path)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
