"""Commands run from Python."""

import shlex

import pytest

from albert_tf.tools.commands import command_arguments, readable, run


def test_flags_become_what_one_types():
    flags = {"do_train": True, "do_eval": False, "rate": 1e-3, "seed": None, "text": ("a b", "c")}
    typed = ["--do_train", "--nodo_eval", "--rate=0.001", "--text=a b", "--text=c"]
    assert command_arguments(flags) == typed


def test_a_command_is_shown_with_what_it_says_wherever_one_is(tmp_path, capsys, monkeypatch):
    (tmp_path / "text.txt").write_text("A cat sat on a mat.\nA dog lay on the rug.\n" * 20)
    monkeypatch.chdir(tmp_path)
    run("train_sentencepiece", input_file="text.txt", model_prefix="a b/small", vocab_size=29)
    shown, said = capsys.readouterr().out.replace("\\\n", "").split("\n", 1)
    assert shlex.split(shown) == [
        *("$", "python", "-m", "albert_tf.cli.train_sentencepiece"),
        *("--input_file=text.txt", "--model_prefix=a b/small", "--vocab_size=29"),
    ]
    assert "vocab_size=29" in said
    assert (tmp_path / "a b" / "small.model").exists()


def test_a_command_that_fails_raises_and_has_said_why(tmp_path, capsys):
    with pytest.raises(ValueError, match=r"train_sentencepiece.* 1"):
        run("train_sentencepiece", input_file=tmp_path / "none.txt", model_prefix=tmp_path / "m")
    assert "none.txt" in capsys.readouterr().out


def test_logs_are_shown_without_time_and_origin():
    origin = "1121 21:01:43.602119 139929845795712 devices.py:66] "
    assert readable(f"I{origin}replicas=1\n") == "replicas=1\n"
    assert readable(f"W{origin}slow\n") == "warning: slow\n"
    assert readable("I1121 no log line\n") == "I1121 no log line\n"
    assert readable("checking:  50%|##  | 1/2\r") == "checking:  50%|##  | 1/2\r"
    error = "E0000 00:00:1795294891.863659    4376 gpu.cc:1] out of memory\n"  # of TensorFlow
    assert readable(error) == "error: out of memory\n"
