"""Command lines of commands that are run from Python."""

from albert_tf.tools.commands import command_arguments


def test_flags_become_arguments():
    flags = {"do_train": True, "do_eval": False, "rate": 1e-3}
    assert command_arguments(flags) == ["--do_train", "--nodo_eval", "--rate=0.001"]
