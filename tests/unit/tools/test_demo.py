"""The parts of the demo that need no training; the rest is in tests/e2e/test_demo.py."""

import re

import pytest

from albert_tf.tools import demo
from tests.programs import ROOT


def test_only_directories_of_a_demo_are_replaced(tmp_path, monkeypatch):
    def stop(*_):
        raise InterruptedError

    monkeypatch.setattr(demo, "write_corpus", stop)
    mine = tmp_path / "mine" / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    for folder in (mine.parent, "gs://bucket/demo"):
        with pytest.raises(ValueError, match="`output_dir`"):
            demo.run_demo(str(folder), num_train_steps=3, vocab_size=90)
    assert mine.read_text() == "mine"

    for _ in range(2):
        with pytest.raises(InterruptedError):
            demo.run_demo(str(tmp_path / "new"), num_train_steps=3, vocab_size=90)
        assert [path.name for path in (tmp_path / "new").iterdir()] == ["demo_settings.json"]
        (tmp_path / "new" / "pretraining").mkdir()


def test_the_script_lists_all_flags():
    flags = re.findall(r'Flag\("(\w+)"', (ROOT / "albert_tf/cli/demo.py").read_text())
    text = (ROOT / "demo.sh").read_text()
    assert [flag for flag in flags if f"#   --{flag}=" not in text] == []
