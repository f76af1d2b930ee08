"""The demo from end to end, on a few documents and for a few steps."""

import csv
import re
import subprocess
from pathlib import Path

import pytest
import tensorflow as tf

from albert_tf.tools.demo import PUBLISHED_FILES, TEXTS
from tests.programs import warm_python

ROOT = Path(__file__).parents[2]
SIZES = ("--num_train_steps=6", "--max_documents=60", "--vocab_size=400")


def run_demo(output_dir: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [warm_python(), "-m", "albert_tf.cli.demo", f"--output_dir={output_dir}", *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_the_demo_pretrains_exports_and_fine_tunes_a_model(tmp_path):
    result = run_demo(tmp_path, *SIZES, "--num_fine_tuning_steps=3")
    assert result.returncode == 0, result.stdout + result.stderr
    published = tmp_path / "published"
    assert {path.name for path in published.iterdir()} == set(PUBLISHED_FILES)
    names = [name for name, _ in tf.train.list_variables(str(published / "model.ckpt-best"))]
    assert "bert/embeddings/word_embeddings" in names
    assert not [name for name in names if "adam" in name]
    text, _, end = result.stdout.partition("$ python -m albert_tf.cli.run_classifier")
    assert re.findall(r"^\$ python -m albert_tf\.cli\.(\w+)", text, re.MULTILINE) == [
        *("train_sentencepiece", "create_pretraining_data", "create_pretraining_data"),
        *("run_pretraining", "run_pretraining", "fill_mask"),
    ]
    for accuracy in ("masked-LM accuracy", "sentence-order accuracy", "chapter accuracy"):
        assert re.search(rf"^{accuracy} +\d+\.\d% +against \d+\.\d%", text + end, re.MULTILINE)
    lines = text.splitlines()
    for blank in TEXTS:
        assert len(re.findall(r"\d\.\d%", lines[lines.index(blank) + 1])) == 5
    assert "--albert_hub_module_handle=mini" in end
    with open(tmp_path / "chapters" / "dev.csv", newline="", encoding="utf-8") as file:
        chapters = {row["chapter"] for row in csv.DictReader(file)}
    answers = re.findall(r"^  (\w+), from (\w+)$", end, re.MULTILINE)
    assert {chapter for _, chapter in answers} == chapters
    assert {label for label, _ in answers} <= chapters
