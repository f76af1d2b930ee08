"""The examples of docs/python.md run as written, in one process."""

import os
import subprocess
import sys

import pytest

from tests.documentation import DOCS, blocks_of
from tests.programs import ROOT

# The output directory of `run_squad` that the page uses.
PRELUDE = """
import albert_tf
albert_tf.save(albert_tf.AlbertForQuestionAnswering.load("mini"), "squad", max_seq_length=128)
"""


@pytest.mark.slow
def test_examples_run_as_written(tmp_path):
    parts = [block.text for block in blocks_of(DOCS / "python.md") if block.is_run]
    (tmp_path / "page.py").write_text("\n".join([PRELUDE, *parts]))
    paths = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "page.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
