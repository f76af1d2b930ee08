"""The demo from end to end, on a few documents and for a few steps."""

import csv
import re
import subprocess
from pathlib import Path

import pytest
import tensorflow as tf

from albert_tf.demo import PUBLISHED_FILES, TEXTS
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


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> tuple[Path, str]:
    """The output directory of a demo, and what it printed."""
    output_dir = tmp_path_factory.mktemp("demo")
    result = run_demo(output_dir, *SIZES, "--num_fine_tuning_steps=0")
    assert result.returncode == 0, result.stdout + result.stderr
    return output_dir, result.stdout


def test_a_release_without_optimizer_slots_is_published(demo):
    published = demo[0] / "published"
    assert {path.name for path in published.iterdir()} == set(PUBLISHED_FILES)
    names = [name for name, _ in tf.train.list_variables(str(published / "model.ckpt-best"))]
    assert "bert/embeddings/word_embeddings" in names
    assert not [name for name in names if "adam" in name]


def test_commands_are_shown_as_they_can_be_typed(demo):
    commands = re.findall(r"^\$ python -m albert_tf\.cli\.(\w+)", demo[1], re.MULTILINE)
    assert commands == [
        "train_sentencepiece",
        "create_pretraining_data",
        "create_pretraining_data",
        "run_pretraining",
        "run_pretraining",
        "fill_mask",
    ]


def test_accuracies_stand_beside_their_baselines(demo):
    text = demo[1]
    assert re.search(r"masked-LM accuracy +\d+\.\d% +against \d+\.\d% for always answering", text)
    assert re.search(r"sentence-order accuracy +\d+\.\d% +against 50\.0% by chance", text)


def test_every_blank_is_filled(demo):
    lines = demo[1].splitlines()
    for text in TEXTS:
        candidates = lines[lines.index(text) + 1]
        assert len(re.findall(r"\d\.\d%", candidates)) == 5


@pytest.mark.slow
def test_a_classifier_of_chapters_ends_it(tmp_path):
    result = run_demo(tmp_path, *SIZES, "--num_fine_tuning_steps=3")
    assert result.returncode == 0, result.stdout + result.stderr
    end = result.stdout.partition("python -m albert_tf.cli.run_classifier")[2]
    assert "--albert_hub_module_handle=mini" in end
    assert re.search(r"^chapter accuracy +\d+\.\d% +against \d+\.\d% for always", end, re.MULTILINE)
    with open(tmp_path / "chapters" / "dev.csv", newline="", encoding="utf-8") as file:
        chapters = {row["chapter"] for row in csv.DictReader(file)}
    answers = re.findall(r"^  (\w+) \d+\.\d% \((?:right|it is (\w+))\)$", end, re.MULTILINE)
    assert len(answers) == len(chapters)
    assert {right or label for label, right in answers} == chapters


def test_a_failing_step_ends_the_demo_with_its_name(tmp_path):
    result = run_demo(tmp_path, "--max_documents=40", "--vocab_size=30")
    assert result.returncode == 1
    assert "the command train_sentencepiece above ended with status 1" in result.stderr
    assert not (tmp_path / "published").exists()
