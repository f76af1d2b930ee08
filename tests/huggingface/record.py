"""Records the outputs of transformers for models of this package, and the models it stores.

    python -m tests.huggingface.record

Needs PyTorch and transformers (requirements/hf.txt), which `peer.py` runs. Writes `recorded/`:
`models.json` (models of transformers, and digests of the files it read), `outputs.npz`,
`tokenizers.json` and `rules.json`.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from tests.huggingface import models
from tests.huggingface.values import values_of

ROOT = Path(__file__).parents[2]


def run_peer(folder: Path) -> None:
    """Writes models of this package, and runs transformers on them."""
    models.write_ours(folder)
    subprocess.run(
        [sys.executable, "-m", "tests.huggingface.peer", folder],
        cwd=ROOT,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        check=True,
    )


def record_of(folder: Path) -> dict:
    """Returns the content of `models.json` for the results of transformers."""
    theirs = {}
    for path in sorted((folder / "theirs").iterdir()):
        if path.name.startswith(("pretraining_", "tokenizer_")):
            continue
        tensors = load_file(path / models.WEIGHTS)
        for name, value in tensors.items():
            np.testing.assert_array_equal(value, values_of(name, value.shape), err_msg=name)
        theirs[path.name] = {
            "config": json.loads((path / "config.json").read_text()),
            "tensors": {name: list(value.shape) for name, value in sorted(tensors.items())},
        }
    saved = {name: _saved_tokenizer(folder, name) for name in models.TOKENIZERS}
    ours = {
        f"{kind}/{path.name}": models.digest(path)
        for kind in ("ours", "tokenizers")
        for path in sorted((folder / kind).iterdir())
    }
    return {"ours": ours, "theirs": theirs, "saved_tokenizers": saved}


def _saved_tokenizer(folder: Path, name: str) -> dict:
    """Returns the files of a saved tokenizer; `None` for an unchanged tokenizer.json."""
    saved = folder / "theirs" / f"tokenizer_{name}"
    files = {path.name: json.loads(path.read_text("utf-8")) for path in saved.iterdir()}
    ours = folder / "tokenizers" / name / "tokenizer.json"
    if ours.exists():
        pair = [files["tokenizer.json"], json.loads(ours.read_text("utf-8"))]
        for content in pair:  # scores may differ in their last digit
            if isinstance(vocabulary := content["model"]["vocab"], list):
                content["model"]["vocab"] = [(t, round(s, 10)) for t, s in vocabulary]
        if pair[0] == pair[1]:
            files["tokenizer.json"] = None
    return files


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        run_peer(folder)
        models.RECORDED.mkdir(exist_ok=True)
        text = json.dumps(record_of(folder), separators=(",", ":"))
        (models.RECORDED / "models.json").write_text(text + "\n")
        for name in ("outputs.npz", "tokenizers.json", "rules.json"):
            shutil.copy(folder / name, models.RECORDED)


if __name__ == "__main__":
    main()
