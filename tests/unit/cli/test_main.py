"""The command `albert_tf`."""

import subprocess
import sys
from pathlib import Path

import pytest
from absl import flags

from albert_tf import __main__ as main
from albert_tf import __version__
from tests.command_flags import NAMES, flags_of
from tests.programs import ROOT


def run(monkeypatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/albert_tf", *arguments])
    main.main()


def test_every_module_that_is_a_command_is_listed_once():
    folder = Path(main.__file__).parent / "cli"
    commands = {
        path.stem for path in folder.glob("*.py") if "\nmain = command(" in path.read_text()
    }
    assert sorted(NAMES) == sorted(commands)


@pytest.mark.parametrize("flag", ["--help", "help"])
def test_help_has_a_line_for_each_command(monkeypatch, capsys, flag):
    run(monkeypatch, flag)
    lines = capsys.readouterr().out.splitlines()
    for name in NAMES:
        (line,) = [line for line in lines if line.startswith(f"  {name} ")]
        assert line.endswith(main.summary(name))
        assert line.endswith(".")
        assert len(line) <= 102


def test_the_version(monkeypatch, capsys):
    run(monkeypatch, "--version")
    assert capsys.readouterr().out == f"albert_tf {__version__}\n"


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("Run-race", r"Run-race\..* run_race\?"),
        ("run_classifier.py", r"run_classifier.py\..* run_classifier\?"),
        ("quiz", r"^error: [^?]*quiz[^?]*$"),  # without a suggestion
        ("--x=1 run_squad", "--x=1"),
        ("", "usage: albert_tf COMMAND"),
    ],
)
def test_unknown_commands_are_rejected_with_a_suggestion(monkeypatch, typed, message):
    with pytest.raises(SystemExit, match=message):
        run(monkeypatch, *typed.split())


def test_listing_commands_does_not_import_tensorflow():
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "albert_tf", "--help"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert "run_pretraining" in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "albert_tf.version" in imported
    assert not imported & {"tensorflow", "keras", "numpy", "absl.flags", "scipy", "matplotlib"}


def test_a_command_gets_its_arguments_and_the_name_for_its_usage(monkeypatch):
    seen = []
    monkeypatch.setattr("albert_tf.cli.inspect.main", lambda: seen.append(list(sys.argv)))
    run(monkeypatch, "inspect", "model", "--verbosity=1")
    assert seen == [["albert_tf inspect", "model", "--verbosity=1"]]


@pytest.mark.parametrize(("name", "version"), [("run_squad_v1", 1), ("run_squad_v2", 2)])
def test_the_original_squad_commands_set_the_version(name, version):
    for given in ([], [f"--squad_version={version}"]):
        with flags_of(name) as values:
            values([name, "--output_dir=squad", *given])
            assert values.squad_version == version
    with flags_of(name) as values, pytest.raises(flags.Error, match="--squad_version"):
        values([name, "--output_dir=squad", f"--squad_version={3 - version}"])
