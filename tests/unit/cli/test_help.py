"""What `--help` says of every command."""

import importlib
import re
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import pytest
from absl import flags

from albert_tf.cli.command_line import find_mistakes
from albert_tf.cli.flag_descriptions import (
    FlagDescription,
    defined_flags,
    describe_flag,
    names_defined_by,
    undefine,
)
from albert_tf.cli.flag_files import Argument
from albert_tf.cli.flag_groups import GROUPS, TRAINING, WITHOUT_EFFECT, flag_group, set_units
from albert_tf.cli.help_text import (
    flag_form,
    help_text,
    program_of,
    terminal_width,
    wrapped_example,
)
from albert_tf.cli.main import COMMANDS, summary

ROOT = Path(__file__).parents[3]
NAMES = [name for names in COMMANDS.values() for name in names]
# Numbers that count nothing.
PLAIN_NUMBERS = {
    *("seed", "random_seed", "squad_version", "learning_rate", "poly_power"),
    *("threshold_to_export", "null_score_diff_threshold"),
}
EVERY_COMMAND = pytest.mark.parametrize("name", NAMES)


@pytest.fixture
def command(name):
    with defined_flags(name) as described:
        yield described


@EVERY_COMMAND
def test_every_flag_has_a_group_a_meaning_and_a_number_its_unit(command):
    for flag in command.flags():
        assert flag.group in GROUPS, flag.name
        assert re.match(r"[A-Z1].*\.$", flag.meaning), flag
        is_number = flag.kind in ("integer", "number")
        assert bool(flag.unit) == (is_number and flag.name not in PLAIN_NUMBERS), flag.name
        changes_nothing = flag.meaning.startswith("Changes nothing")
        assert (flag.group == WITHOUT_EFFECT) == changes_nothing, flag.name


@EVERY_COMMAND
def test_help_begins_with_what_the_command_does_and_has_examples(command, name):
    assert command.texts[0] == summary(name)
    assert command.examples
    text = help_text(command, "python it.py", 80)
    assert text.startswith(summary(name) + "\n\n")
    assert text.count("\n  python it.py ") == len(command.examples)
    titles = re.findall(r"^(\S.*):$", text, re.MULTILINE)
    groups = [title for title in titles if not title.startswith("Example")]
    assert groups == [title for title in GROUPS if title in command.groups]
    assert max(map(len, text.splitlines())) <= 80
    assert len(re.findall(r"^  --", text, re.MULTILINE)) == len(command.flags())


@EVERY_COMMAND
def test_examples_are_command_lines_without_mistakes(command, name):
    for example in command.examples:
        shown = wrapped_example(example, name, 70)
        done = subprocess.run(
            ["bash", "-c", f"{name}() {{ printf '%s\\n' \"$@\"; }}\n{shown}"],
            capture_output=True,
            text=True,
            check=True,
        )
        own = list(takewhile(lambda text: text != "--", done.stdout.splitlines()))
        assert own
        arguments = list(map(Argument, own))
        is_inspect = name == "inspect"
        assert not find_mistakes(name, command.flags(), arguments, takes_paths=is_inspect)


def test_no_command_needs_tensorflow_for_its_flags():
    program = (
        "import sys\n"
        "from albert_tf.cli.flag_descriptions import defined_flags\n"
        f"for name in {NAMES}:\n"
        "    with defined_flags(name): pass\n"
        "sys.exit(bool({'tensorflow', 'keras', 'scipy', 'sklearn'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize(("columns", "width"), [("20", 40), ("43", 43), ("300", 100)])
def test_lines_fill_a_terminal_that_is_neither_tiny_nor_wide(columns, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    assert terminal_width() == width


def test_a_script_prints_its_help_and_ends_well():
    done = subprocess.run(
        [sys.executable, "export_checkpoints.py", "--trian", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={"COLUMNS": "60"},
    )
    assert "\n  python export_checkpoints.py \\\n      --albert_directory=pretrained" in done.stdout
    assert 50 < max(map(len, done.stdout.splitlines())) <= 60
    assert not done.stderr


@pytest.mark.parametrize(
    ("started_as", "program"),
    [
        ("run_race.py", "python run_race.py"),
        ("/some/where/run_race.py", "python run_race.py"),
        ("/lib/albert_tf/cli/run_race.py", "python -m albert_tf.cli.run_race"),
        ("albert_tf run_race", "albert_tf run_race"),
    ],
)
def test_examples_are_written_as_the_command_was_called(started_as, program):
    assert program_of("run_race", started_as) == program


FLAG = FlagDescription("size", TRAINING, "integer", (), "7", False, False, "GB", 2.0, "It.")


@pytest.mark.parametrize(
    ("changes", "form", "remarks"),
    [
        ({}, "--size=INTEGER", ["GB", "at least 2", "default: 7"]),
        (
            {"default": None, "is_required": True},
            "--size=INTEGER",
            ["GB", "at least 2", "required"],
        ),
        ({"kind": "boolean", "unit": "", "lower_bound": None}, "--[no]size", ["default: 7"]),
        (
            {"kind": "choice", "choices": ("a", "b"), "unit": "", "lower_bound": None},
            "--size=a|b",
            ["default: 7"],
        ),
        (
            {"kind": "list", "unit": "", "lower_bound": None, "default": None},
            "--size=LIST",
            ["with commas"],
        ),
    ],
)
def test_a_flag_is_shown_with_its_type_unit_bound_and_default(changes, form, remarks):
    flag = FlagDescription(**{**vars(FLAG), **changes})
    assert flag_form(flag) == form
    assert flag.remarks() == remarks


def test_defining_says_group_and_unit_and_leaves_nothing_behind():
    def define():
        flags.DEFINE_integer("alone_for_a_test", 1, "Outside.")
        with flag_group(TRAINING):
            flags.DEFINE_float("within_for_a_test", 0.25, "Inside.")
        set_units(within_for_a_test="furlongs")

    names = names_defined_by(define)
    try:
        assert names == ["alone_for_a_test", "within_for_a_test"]
        alone, within = map(describe_flag, names)
        assert (alone.group, alone.unit) == ("", "")
        assert (within.group, within.unit, within.default) == (TRAINING, "furlongs", "0.25")
        with pytest.raises(KeyError):
            set_units(no_such_flag="steps")
    finally:
        undefine(names)
    assert not {*names} & {*flags.FLAGS}


def test_modules_of_commands_define_nothing_when_imported():
    for name in NAMES:
        importlib.import_module(f"albert_tf.cli.{name}")
    assert "output_dir" not in flags.FLAGS
