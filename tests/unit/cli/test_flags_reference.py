"""docs/flags.md is up to date."""

import re

import pytest

from scripts import flags_reference
from tests.command_flags import flags_of


@pytest.fixture(scope="module")
def page():
    return flags_reference.REFERENCE.read_text(encoding="utf-8")


def test_the_page_is_up_to_date(page):
    stale = "docs/flags.md is out of date: run python -m scripts.flags_reference"
    assert page == flags_reference.reference(), stale


def test_every_row_of_every_table_has_four_cells(page):
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert len(rows) > 200
    for row in rows:
        assert len(re.findall(r"(?<!\\)\|", row)) == 5, row


def test_the_example_of_a_flag_file_is_valid(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = re.search(r"```text\n(# pretraining\.flags.*?)```", page, re.DOTALL)[1]
    (tmp_path / "pretraining.flags").write_text(shown)
    (tmp_path / "common.flags").write_text("--seed=5\n")
    with flags_of("run_pretraining") as values:
        assert values(["program", "--flagfile=pretraining.flags"]) == ["program"]
        assert (values.seed, values.output_dir) == (5, "my runs/first")
        assert (values.num_train_steps, values.do_eval) == (10000, False)


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("See --nodo_train, or -h (see a.txt).", "See `--nodo_train`, or `-h` (see `a.txt`)."),
        ("After a --, i.e. 0.5: [MASK] | x~1/n.", "After a `--`, i.e. 0.5: `[MASK]` `|` x\\~1/n."),
        ("What name@3 and *.txt mean: a/b.", "What `name@3` and `*.txt` mean: a/b."),
    ],
)
def test_flags_and_files_are_formatted_as_code(text, markdown):
    assert flags_reference.prose(text) == markdown
