"""What `--dry_run` prints, and whom it concerns."""

from absl import flags

from albert_tf.cli import dry_run


def test_the_plan_ends_with_warnings_and_says_that_nothing_was_written(capsys):
    dry_run.print_plan({"Warnings": {"disk": "full"}, "Empty": {}, "Steps": {"steps": 1200}})
    assert capsys.readouterr().out.splitlines() == [
        "",
        "Steps",
        f"  {'steps':30}1,200",
        "",
        "Warnings",
        f"  {'disk':30}full",
        "",
        "This was a dry run: nothing was written.",
    ]


def test_commands_without_the_flag_are_never_dry():
    assert not dry_run.is_dry_run(flags.FlagValues())
