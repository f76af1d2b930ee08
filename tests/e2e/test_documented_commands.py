"""Every command in the documentation: quickly by its flags, slowly by running it as written.

How a block says that it cannot be run here is told in `tests/markdown_blocks.py`; the small
sizes of what is run are in `tests/documented_python.py`.
"""

import json
import re
from pathlib import Path

import pytest

from tests import documented_python
from tests.command_flags import NAMES, all_flags, mistakes
from tests.document_run import DocumentRun, shown_but_not_printed
from tests.documented_python import with_small_sizes
from tests.documented_workspace import Workspace
from tests.markdown_blocks import Block, blocks_of, commands_in, prose_of
from tests.programs import ROOT

DOCUMENTS = [
    path
    for pattern in ("*.md", "docs/*.md", "notebooks/*.md")
    for path in sorted(ROOT.glob(pattern))
    if path.name != "CHANGELOG.md"
]
EVERY_DOCUMENT = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)
LANGUAGES = {"bash", "python", "text", "json", "dockerfile"}
# Programs of others that blocks for a shell may start.
OTHER_PROGRAMS = {"cat", "cd", "curl", "docker", "echo", "git", "head", "ls", "papermill",
                  "paste", "pip", "printf", "python3", "scontrol", "sed", "sha256sum", "source",
                  "tensorboard", "."}  # fmt: skip
# Flags of other programs that the text speaks of.
OTHER_FLAGS = {"all", "check", "flink_job_server_jar", "model_base_path", "signal",
               "spark_job_server_jar", "strict", "undefok", "xla_gpu_autotune_level",
               "xla_gpu_dump_autotune_results_to",
               "xla_gpu_load_autotune_results_from"}  # fmt: skip


# Files that readers of a page make.
OF_READERS = {"ablations.md", "accelerator_report.md", "glue_results.md", "train.sh"}


def has_test_of_its_own(document: Path) -> bool:
    """Whether its blocks of Python are parts of one example, which another test puts together."""
    return (ROOT / "tests" / "docs" / f"test_{document.stem}.py").exists()


def shell_blocks(document: Path) -> list[Block]:
    return [block for block in blocks_of(document) if block.language == "bash"]


@EVERY_DOCUMENT
def test_blocks_say_what_they_are(document):
    for block in blocks_of(document):
        assert block.language in LANGUAGES, block.place
        if block.language == "python" and not has_test_of_its_own(document):
            compile(block.text, block.place, "exec")
        if block.language == "json":
            json.loads(block.text)


@EVERY_DOCUMENT
def test_command_lines_fit_their_commands(document):
    for block in shell_blocks(document):
        for words in commands_in(block.text):
            if OF_READERS.intersection(words):
                continue
            is_whole = "..." not in words
            assert is_whole or block.needs, f"{block.place}: only a part of a command"
            assert mistakes(words, is_whole) == [], block.place
            program = words[0]
            assert program in OTHER_PROGRAMS | {"python", "albert_tf"} or program[:2] == "./"


@EVERY_DOCUMENT
def test_flags_in_the_text_exist(document):
    named = set(re.findall(r"(?<![\w-])--([a-z]\w+)", prose_of(document)))
    unknown = {
        name
        for name in named - {"name", "noname"}
        if {name, name.removeprefix("no")}.isdisjoint(all_flags())
    }
    assert unknown <= OTHER_FLAGS


@EVERY_DOCUMENT
def test_files_of_the_project_that_the_text_names_exist(document):
    files = {
        f"/{path.relative_to(ROOT)}"
        for folder in ("albert_tf", "benchmarks", "docs", "notebooks", "scripts", "tests")
        for path in (ROOT / folder).rglob("*.*")
    }
    files |= {f"/{path.name}" for path in ROOT.glob("*.*")}
    text = prose_of(document)
    named = set(re.findall(r"`\.?/?([\w./]+\.(?:py|sh|toml|ipynb|md))`", text))
    missing = {name for name in named if not any(file.endswith(f"/{name}") for file in files)}
    assert {Path(name).name for name in missing} <= OF_READERS


@pytest.mark.parametrize(
    ("command", "mistake"),
    [
        ("python run_race.py --train_steps=3", "has no flag --train_steps=3"),
        ("python run_race.py --train_step=x", "--train_step=x"),
        ("albert_tf memory --preset=bass_v2 --remat=perhaps", "--remat=perhaps"),
        ("python run_rase.py", "There is no run_rase.py"),
        ("python -m albert_tf.cli.run_rase", "There is no command run_rase"),
        ("python run_ablations.py ... -- --batch=3", "run_pretraining has no flag --batch=3"),
        ("python -m benchmarks.litert --size=3", "litert has no flag --size=3"),
        ("./run_glue.sh --seed=3", "run_glue has no flag --seed=3"),
        ("python -m albert_tf.cli.inspect --paths=x", "inspect has no flag"),
    ],
)
def test_a_wrong_command_line_is_noticed(command, mistake):
    found = mistakes(command.split(), is_whole=False)
    assert len(found) == 1
    assert mistake in found[0]


def test_a_missing_flag_is_noticed_in_a_whole_command():
    assert mistakes(["albert_tf", "inspect"], is_whole=False) == []
    assert mistakes(["python", "create_pretraining_data.py"]) != []


def test_commands_are_found_in_a_script():
    script = """# it's a comment
export A=1
B='x y' one --a="b c" \\
  --d=# e | two >out 2>&1  # don't
for x in 1 2; do
  three $x && four
done
cat >file <<'END'
not a command
END
"""
    assert commands_in(script) == [
        ["one", "--a=b c", "--d=#", "e"],
        ["two"],
        ["three", "$x"],
        ["four"],
        ["cat"],
    ]


def test_small_sizes_stand_behind_what_is_written():
    arguments = ["run_ablations.py", "--num_train_steps=2000", "--", "--max_seq_length=64"]
    small = with_small_sizes(arguments)
    assert small[:2] == arguments[:2]
    assert small[-2:] == arguments[-2:]
    assert "--num_train_steps=2" in small[2:-2]


@pytest.mark.parametrize("name", documented_python.SMALL)
def test_small_sizes_are_flags_of_their_commands(name):
    flags = " ".join(flags for _, flags in documented_python.SMALL[name]).split()
    script = f"./{name}.sh" if name == "run_glue" else None
    module = f"albert_tf.cli.{name}" if name in NAMES else f"benchmarks.{name}"
    command = [script] if script else ["python", "-m", module]
    assert mistakes([*command, *flags], is_whole=False) == []


def test_other_output_than_the_shown_is_noticed():
    shown = "Weights\n  step       300\n...\n  ▁if 80%\n"
    assert shown_but_not_printed(shown, "Weights\n  step   2\n") == []
    assert shown_but_not_printed(shown, "weights\n  step   2\n") == ["Weights"]


@pytest.mark.slow
@EVERY_DOCUMENT
def test_commands_work_as_they_are_written(document, tmp_path, golden):
    blocks = blocks_of(document)
    if has_test_of_its_own(document):
        blocks = shell_blocks(document)
    if not any(block.is_run for block in blocks):
        return
    Workspace(tmp_path, golden, document, blocks)
    run = DocumentRun(tmp_path, blocks)
    assert run.failures == [], run.report()
    printed = "\n".join(run.printed(number) for number, block in enumerate(blocks) if block.is_run)
    for block in blocks:
        if block.is_printed:
            assert shown_but_not_printed(block.text, printed) == [], block.place
