"""The commands with the original's names for the two versions of SQuAD."""

import pytest
from absl import flags

from tests.command_flags import flags_of

COMMANDS = pytest.mark.parametrize(("name", "version"), [("run_squad_v1", 1), ("run_squad_v2", 2)])


@COMMANDS
@pytest.mark.parametrize("is_given", [False, True])
def test_the_version_is_set(name, version, is_given):
    with flags_of(name) as values:
        values([name, "--output_dir=squad", *[f"--squad_version={version}"] * is_given])
        assert values.squad_version == version


@COMMANDS
def test_another_version_is_refused(name, version):
    with flags_of(name) as values, pytest.raises(flags.Error, match=f"--squad_version={version}"):
        values([name, "--output_dir=squad", f"--squad_version={3 - version}"])
