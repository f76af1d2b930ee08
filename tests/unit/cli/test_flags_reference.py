"""docs/flags.md is what the commands say."""

import re

import pytest

from albert_tf.cli.command_line import find_mistakes
from albert_tf.cli.flag_descriptions import defined_flags
from albert_tf.cli.flag_files import with_flag_files
from albert_tf.cli.main import COMMANDS
from scripts import flags_reference


@pytest.fixture(scope="module")
def page():
    return flags_reference.REFERENCE.read_text(encoding="utf-8")


def test_the_page_is_what_the_commands_say_now(page):
    stale = "docs/flags.md is stale: python -m scripts.flags_reference writes it anew"
    assert page == flags_reference.reference(), stale


def test_every_command_has_its_section_and_every_link_its_heading(page):
    headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    anchors = [flags_reference.anchor(heading) for heading in headings]
    assert len(anchors) == len(set(anchors))
    assert {name for names in COMMANDS.values() for name in names} < set(anchors)
    links = re.findall(r"\]\(#([^)]+)\)", page)
    assert len(links) > 20
    assert set(links) <= set(anchors)


def test_every_row_of_every_table_has_four_cells(page):
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert len(rows) > 200
    for row in rows:
        assert len(re.findall(r"(?<!\\)\|", row)) == 5, row


def test_the_file_of_flags_that_is_shown_has_no_mistakes(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = re.search(r"```text\n(# pretraining\.flags.*?)```", page, re.DOTALL)[1]
    (tmp_path / "pretraining.flags").write_text(shown)
    (tmp_path / "common.flags").write_text("--seed=5\n")
    arguments = with_flag_files(["--flagfile=pretraining.flags"])
    assert [argument.text for argument in arguments] == [
        "--seed=5",
        "--input_file=records/train.tfrecord*",
        "--output_dir=my runs/first",
        "--num_train_steps",
        "10000",
        "--nodo_eval",
    ]
    with defined_flags("run_pretraining") as command:
        assert not find_mistakes(command.name, command.flags(), arguments, takes_paths=False)


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("See --nodo_train, or -h (see a.txt).", "See `--nodo_train`, or `-h` (see `a.txt`)."),
        ("After a --, i.e. 0.5: [MASK] | x~1/n.", "After a `--`, i.e. 0.5: `[MASK]` `|` x\\~1/n."),
        ("What name@3 and *.txt mean: a/b.", "What `name@3` and `*.txt` mean: a/b."),
    ],
)
def test_what_is_typed_becomes_code(text, markdown):
    assert flags_reference.prose(text) == markdown
