"""Running commands from Python."""

import shlex

import pytest

from albert_tf.tools.commands import command_arguments, run


def test_flags_become_arguments():
    flags = {"do_train": True, "do_eval": False, "rate": 1e-3}
    assert command_arguments(flags) == ["--do_train", "--nodo_eval", "--rate=0.001"]


def test_a_command_is_printed_and_its_failure_raises_an_error(tmp_path, capfd, monkeypatch):
    (tmp_path / "text.txt").write_text("A cat sat on a mat.\nA dog lay on the rug.\n" * 20)
    monkeypatch.chdir(tmp_path)
    line = "train_sentencepiece --input_file=text.txt --model_prefix='a b/small' --vocab_size=29"
    run(line)
    shown, _ = capfd.readouterr().out.replace("\\\n", "").split("\n", 1)
    assert shlex.split(shown) == shlex.split(f"$ python -m albert_tf.cli.{line}")
    assert (tmp_path / "a b" / "small.model").exists()
    with pytest.raises(ValueError, match=r"train_sentencepiece.* 1"):
        run("train_sentencepiece --input_file=none.txt --model_prefix=m")
    assert "none.txt" in capfd.readouterr().err
