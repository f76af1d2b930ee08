"""The command `train_sentencepiece`, which must do without TensorFlow."""

import os
import random
import subprocess
import sys

import pytest

from albert_tf.cli.flags import DRY_RUN_PASSED
from tests.dry_runs import assert_unchanged, tree
from tests.programs import ROOT


@pytest.fixture
def text(tmp_path):
    rng = random.Random(3)
    words = ["".join(rng.choices("abcde", k=rng.randint(2, 5))) for _ in range(40)]
    lines = [" ".join(rng.choices(words, k=6)) for _ in range(120)]
    (tmp_path / "text.txt").write_text("\n\n".join(lines) + "\n")
    return tmp_path / "text.txt"


def run(*flags):
    return subprocess.run(
        [sys.executable, "-m", "albert_tf.cli.train_sentencepiece", *flags],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_dry_run_writes_nothing(text):
    prefix = text.parent / "new" / "vocab"
    flags = [f"--input_file={text}", f"--model_prefix={prefix}", "--vocab_size=40"]
    before = tree(text.parent)
    checked = run(*flags, "--dry_run")
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout == f"{DRY_RUN_PASSED}\n"
    assert_unchanged(text.parent, before)
    result = run(*flags)
    assert result.returncode == 0, result.stderr
    assert {path.name for path in prefix.parent.iterdir()} == {"vocab.model", "vocab.vocab"}
