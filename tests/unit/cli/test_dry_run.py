"""What `--dry_run` says in the end, and whom it concerns."""

import pytest
from absl import flags

from albert_tf.cli.flags import DRY_RUN_PASSED, dry_run_context, is_dry_run


@pytest.fixture(params=[True, False])
def values(request):
    values = flags.FlagValues()
    flags.DEFINE_bool("dry_run", request.param, "", flag_values=values)
    values.mark_as_parsed()
    return values


def test_a_dry_run_that_ends_well_says_so(values, capsys):
    with dry_run_context(values):
        pass
    assert capsys.readouterr().out == (f"{DRY_RUN_PASSED}\n" if values.dry_run else "")


def test_an_error_is_the_last_word(values, capsys):
    with pytest.raises(ValueError, match="--flag"), dry_run_context(values):
        raise ValueError("--flag")
    assert capsys.readouterr().out == ""


def test_commands_without_the_flag_are_never_dry():
    assert not is_dry_run(flags.FlagValues())
