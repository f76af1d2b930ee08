"""`--help` of all commands."""

import importlib
import re
import subprocess
import sys

import pytest
from absl import flags

from albert_tf.__main__ import summary
from albert_tf.cli.app import help_text
from albert_tf.settings import GROUPS
from tests.command_flags import NAMES, flags_of, mistake_in
from tests.documentation import commands_in
from tests.programs import ROOT

EVERY_COMMAND = pytest.mark.parametrize("name", NAMES)


def module_of(name):
    return importlib.import_module(f"albert_tf.cli.{name}")


@EVERY_COMMAND
def test_help_describes_every_flag_by_group(name):
    others = set(flags.FLAGS)
    with flags_of(name) as values:
        own = set(values) - others
        text = help_text(module_of(name).__doc__)
        ineffective = values.get_key_flags_for_module("Accepted without effect")
        for flag in (values[name] for name in own):
            meaning = re.sub(r"^<\S+>: ", "", flag.help)  # absl puts the choices before it
            assert re.fullmatch(r"[A-Z1].*(\.|\bvalues)", meaning, re.DOTALL), flag.name
            is_required = any(not validator.checker(None) for validator in flag.validators)
            assert meaning.startswith("Required. ") == is_required, flag.name
            assert (flag in ineffective) == meaning.startswith("No effect"), flag.name
    assert text.startswith(summary(name) + "\n")
    listed = re.findall(r"^  --(?:\[no\])?(\w+):", text, re.MULTILINE)
    assert sorted(listed) == sorted(own)
    titles = [title for title in re.findall(r"^(\S.*):$", text, re.MULTILINE) if title in GROUPS]
    assert titles == [title for title in GROUPS if title in titles]


@EVERY_COMMAND
def test_examples_in_help_are_valid(name):
    examples = commands_in("\n".join(re.findall(r"^ {4}.*", module_of(name).__doc__, re.MULTILINE)))
    assert examples
    for words in examples:
        assert words[:2] == ["albert_tf", name]
        assert mistake_in(words) is None


def test_defining_flags_does_not_import_tensorflow():
    program = (
        "import importlib, sys\n"
        "from absl import flags\n"
        f"for name in {NAMES}:\n"
        "    module = importlib.import_module(f'albert_tf.cli.{name}')\n"
        "    others = set(flags.FLAGS)\n"
        "    assert 'output_dir' not in others\n"
        "    module.main.flags.define()\n"
        "    flags.FLAGS.remove_flag_values(set(flags.FLAGS) - others)\n"
        "assert not {'tensorflow', 'keras', 'scipy', 'sklearn'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
