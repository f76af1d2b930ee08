"""Commands run from Python."""

import pytest

from albert_tf.commands import command_arguments, readable, run


def test_flags_become_what_one_types():
    flags = {"do_train": True, "do_eval": False, "rate": 1e-3, "seed": None, "text": ("a b", "c")}
    assert command_arguments(flags) == [
        "--do_train",
        "--nodo_eval",
        "--rate=0.001",
        "--text=a b",
        "--text=c",
    ]


def test_a_command_is_shown_with_what_it_says(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("A cat sat on a mat.\nA dog lay on the rug.\n" * 20)
    run("train_sentencepiece", input_file=text, model_prefix=tmp_path / "small", vocab_size=29)
    shown = capsys.readouterr().out
    assert shown.startswith(
        "$ python -m albert_tf.cli.train_sentencepiece \\\n"
        f"    --input_file={text} \\\n    --model_prefix={tmp_path / 'small'} \\\n"
    )
    assert "vocab_size=29" in shown.split("--vocab_size=29", 1)[1]
    assert (tmp_path / "small.model").exists()


def test_a_command_that_fails_raises_and_has_said_why(tmp_path, capsys):
    with pytest.raises(ValueError, match="train_sentencepiece above ended with status 1"):
        run("train_sentencepiece", input_file=tmp_path / "none.txt", model_prefix=tmp_path / "m")
    assert "no file matches" in capsys.readouterr().out


def test_logs_are_shown_without_time_and_place():
    place = "1121 21:01:43.602119 139929845795712 devices.py:66] "
    assert readable(f"I{place}replicas=1\n") == "replicas=1\n"
    assert readable(f"W{place}slow\n") == "warning: slow\n"
    assert readable("I1121 no log line\n") == "I1121 no log line\n"
    assert readable("checking:  50%|##  | 1/2\r") == "checking:  50%|##  | 1/2\r"


def test_errors_of_tensorflow_are_shown_as_such():
    error = "E0000 00:00:1795294891.863659    4376 gpu.cc:1] out of memory\n"
    assert readable(error) == "error: out of memory\n"
