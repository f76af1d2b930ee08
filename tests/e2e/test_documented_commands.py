"""All commands in the documentation: a quick check of their flags, and a slow run as written.

`tests/documentation.py` describes the comments for blocks that cannot be run here, and
`tests/documented_python.py` contains the flags for small sizes.
"""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests import documented_python
from tests.command_flags import NAMES, all_flags, mistake_in
from tests.documentation import ROOT, Block, blocks_of, commands_in, prose_of
from tests.documented_workspace import Workspace

DOCUMENTS = [
    path
    for pattern in ("*.md", "docs/*.md", "notebooks/*.md")
    for path in sorted(ROOT.glob(pattern))
    if path.name != "CHANGELOG.md"
]
EVERY_DOCUMENT = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)
LANGUAGES = {"bash", "python", "text", "js", "json", "dockerfile"}
# Flags of other programs in the text.
OTHER_FLAGS = {"all", "check", "clear", "inplace", "logdir", "model_base_path", "signal", "strict",
               "undefok", "xla_gpu_autotune_level"}  # fmt: skip
OTHER_FLAGS |= {"direct_running_mode", "environment_config", "environment_type", "flink_master",
                "job_endpoint", "parallelism", "project", "region", "sdk_container_image",
                "spark_master_url", "temp_location"}  # fmt: skip  # of Apache Beam
OTHER_FLAGS |= {"enable_batching", "enable_grpc_healthcheck_service", "enable_model_warmup", "init",
                "rest_api_timeout_in_ms"}  # fmt: skip  # of TensorFlow Serving


# Reports each command of a document that fails, and continues.
SHELL = """
set -o pipefail -o errtrace
trap 'echo "$place: status $?: $BASH_COMMAND" >>failures' ERR
"""
# Files that readers create.
FILES_OF_READERS = {
    "bundle/run_bundle.py",
    "ablations.md",
    "accelerator_report.md",
    "glue_results.md",
    "serve.py",
    "train.sh",
}


def has_separate_test(document: Path) -> bool:
    """Returns whether another test runs the Python blocks of a page as one example."""
    return (ROOT / "tests" / "docs" / f"test_{document.stem}.py").exists()


def shell_blocks(document: Path) -> list[Block]:
    return [block for block in blocks_of(document) if block.language == "bash"]


@EVERY_DOCUMENT
def test_code_blocks_are_valid(document):
    for block in blocks_of(document):
        assert block.language in LANGUAGES, block.place
        if block.language == "python" and not has_separate_test(document):
            compile(block.text, block.place, "exec")
        if block.language == "json":
            json.loads(block.text)


@EVERY_DOCUMENT
def test_command_lines_fit_their_commands(document):
    for block in shell_blocks(document):
        for words in commands_in(block.text):
            if FILES_OF_READERS.intersection(words):
                continue
            is_whole = "..." not in words
            assert is_whole or block.needs, f"{block.place}: only a part of a command"
            assert mistake_in(words, is_whole) is None, block.place


@EVERY_DOCUMENT
def test_flags_mentioned_in_prose_exist(document):
    named = set(re.findall(r"(?<![\w-])--([a-z]\w+)", prose_of(document)))
    unknown = {
        name
        for name in named - {"name", "noname"}
        if {name, name.removeprefix("no")}.isdisjoint(all_flags())
    }
    assert unknown <= OTHER_FLAGS


@pytest.fixture(scope="module")
def files() -> list[str]:
    """Returns the files of the project, after a slash."""
    folders = ("albert_tf", "benchmarks", "docs", "notebooks", "scripts", "tests")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.*")]
    return [f"/{path.relative_to(ROOT)}" for path in [*paths, *ROOT.glob("*.*")]]


@EVERY_DOCUMENT
def test_files_mentioned_in_prose_exist(document, files):
    text = prose_of(document)
    named = set(re.findall(r"`\.?/?([\w./]+\.(?:py|sh|toml|ipynb|md))`", text))
    missing = {name for name in named if not any(file.endswith(f"/{name}") for file in files)}
    assert {Path(name).name for name in missing} <= FILES_OF_READERS


@pytest.mark.parametrize(
    ("command", "mistake"),
    [
        ("python run_race.py --train_steps=3", "'train_steps'"),
        ("python run_race.py --train_step=x", "--train_step=x"),
        ("python -m albert_tf.cli.run_rase", "There is no command run_rase"),
        ("python run_ablations.py ... -- --batch=3", "run_pretraining: .*'batch'"),
        ("./run_glue.sh --seed=3", "run_glue has no flags {'seed'}"),
    ],
)
def test_wrong_command_lines_are_detected(command, mistake):
    assert re.search(mistake, mistake_in(command.split(), is_whole=False))


@pytest.mark.parametrize("name", documented_python.SMALL)
def test_small_sizes_are_flags_of_their_commands(name):
    flags = " ".join(flags for _, flags in documented_python.SMALL[name]).split()
    module = f"albert_tf.cli.{name}" if name in NAMES else f"benchmarks.{name}"
    command = ["./run_glue.sh"] if name == "run_glue" else ["python", "-m", module]
    assert mistake_in([*command, *flags], is_whole=False) is None


@pytest.mark.slow
@EVERY_DOCUMENT
def test_documented_commands_run(document, tmp_path, golden):
    blocks = blocks_of(document)
    if has_separate_test(document):
        blocks = shell_blocks(document)
    if not any(block.is_run for block in blocks):
        return
    Workspace(tmp_path, golden, document, blocks)
    printed = run_blocks(tmp_path, blocks)
    for block in blocks:
        # Compares lines up to the first number or two spaces. `...` matches anything. Lines that
        # start with a SentencePiece piece are predictions and may differ.
        lines = map(str.strip, block.text.splitlines() if block.is_printed else ())
        shown = [re.split(r"\d|\s{2,}", line)[0].strip() for line in lines if line[:1] != "▁"]
        assert [text for text in shown if text != "..." and text not in printed] == [], block.place


def run_blocks(folder: Path, blocks: list[Block]) -> str:
    """Runs blocks of a document in one shell, which must succeed; returns their output."""
    script = [SHELL]
    for number, block in enumerate(blocks):
        if block.is_run:
            text = block.text
            if block.language == "python":
                (folder / f"block_{number}.py").write_text(text)
                text = f"python block_{number}.py\n"
            place = shlex.quote(f"{block.place} block={number}")
            script.append(f"place={place}\nexec >>{folder}/printed-{number}.txt 2>&1\n{text}")
    (folder / "document.sh").write_text("\n".join(script))
    environment = {
        "PATH": f"{folder}/.venv/bin:{os.environ['PATH']}",
        "VIRTUAL_ENV": f"{folder}/.venv",
        "ALBERT_TF_HOME": f"{folder}/cache",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    subprocess.run(
        ["bash", "document.sh"],
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=1200,
    )
    files = sorted(folder.glob("printed-*.txt"), key=lambda path: path.stat().st_mtime)
    printed = "\n".join(path.read_text() for path in files)
    failures = folder / "failures"
    if failures.exists():
        report = failures.read_text()
        ends = [
            (folder / f"printed-{number}.txt").read_text()[-3000:]
            for number in sorted(set(re.findall(r" block=(\d+): ", report)))
        ]
        raise AssertionError("\n\n".join([report, *ends]))
    return printed
