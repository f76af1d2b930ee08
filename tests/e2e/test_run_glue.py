"""run_glue.sh: its commands, their order, failures, and a complete run."""

import json
import os
import re
import shlex
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.programs import warm_python

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "data"

# Replaces Python: logs the command, and fails if a file with the name of the run exists.
STUB = """#!/usr/bin/env bash
shift
printf '%q ' "$@" >>"$STUB_LOG"
echo >>"$STUB_LOG"
for argument; do
  case "$argument" in
    --output_dir=*) name=${argument##*/}; [ ! -f "$STUB_FAILURES/$name" ] || exit 3 ;;
  esac
done
"""


class Stubbed:
    """run_glue.sh with a stub of Python, in a directory with a space in its name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "a folder"
        (self.folder / "env" / "bin").mkdir(parents=True)
        (self.folder / "data" / "diagnostic").mkdir(parents=True)
        (self.folder / "data" / "diagnostic" / "diagnostic.tsv").touch()
        python = self.folder / "env" / "bin" / "python"
        python.write_text(STUB)
        python.chmod(0o755)
        self.log = self.folder / "log"
        self.results = self.folder / "my results"

    def run(self, *arguments: str, code: int = 0) -> tuple[list[list[str]], str]:
        """Returns the commands and the output."""
        self.log.write_text("")
        result = subprocess.run(
            ["bash", str(ROOT / "run_glue.sh"), "--data_dir=data", "--model=a model",
             "--output_dir=my results", *arguments],
            cwd=self.folder,
            env=environment(
                self.folder / "env" / "bin", STUB_LOG=self.log, STUB_FAILURES=self.folder
            ),
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
        output = result.stdout + result.stderr
        assert result.returncode == code, output
        return [shlex.split(line) for line in self.log.read_text().splitlines()], output


def environment(bin_folder: Path, **variables: Path) -> dict[str, str]:
    """Returns environment variables in which the virtual environment with this folder is active."""
    others = {name: str(value) for name, value in variables.items()}
    path = f"{bin_folder}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "VIRTUAL_ENV": str(bin_folder.parent), **others}


def runs_of(commands: list[list[str]]) -> list[str]:
    """Returns the names of the output directories of run_classifier."""
    return [
        Path(flag).name
        for command in commands
        for flag in command
        if flag.startswith("--output_dir=")
    ]


@pytest.fixture
def glue(tmp_path: Path) -> Stubbed:
    return Stubbed(tmp_path)


def test_three_tasks_start_from_the_mnli_model(glue):
    commands, _ = glue.run("--tasks=rte CoLA MNLI rte", "--seeds=3 11", "--", "--x=a b")
    names = ("mnli", "mismnli", "ax", "rte", "cola")
    assert runs_of(commands) == [f"{task}-seed{seed}" for seed in (3, 11) for task in names]
    mnli, mismnli, ax, rte, cola = commands[:5]
    checkpoint = "my results/mnli-seed3/model.ckpt-best"
    assert mnli == [
        "albert_tf.cli.run_classifier", "--task_name=mnli", "--data_dir=data",
        "--output_dir=my results/mnli-seed3", "--seed=3", "--albert_hub_module_handle=a model",
        "--recipe=auto", "--do_train", "--do_eval", "--do_predict", "--x=a b",
    ]  # fmt: skip
    start = f"--checkpoint={checkpoint}"
    assert mismnli[-5:] == ["--nodo_train", "--do_eval", "--do_predict", start, "--x=a b"]
    assert ax[-5:] == ["--nodo_train", "--nodo_eval", "--do_predict", start, "--x=a b"]
    assert rte[-2] == f"--init_checkpoint={checkpoint}"
    assert not any(flag.startswith("--init_checkpoint") for flag in cola)
    results = ["albert_tf.cli.glue_results", "--results_dir=my results", "--model=a model"]
    assert commands[10:] == [results]


def test_all_tasks_and_five_seeds_by_default(glue):
    commands, _ = glue.run("--submission=all of it.zip")
    assert len(commands) == 5 * 11 + 1
    assert commands[-1][-1] == "--submission=all of it.zip"


def test_the_mnli_model_may_be_missing_given_or_from_an_earlier_call(glue):
    commands, output = glue.run("--tasks=MRPC", "--seeds=1")
    assert not any(flag.startswith("--init_checkpoint") for flag in commands[0])
    assert "mrpc starts from --model" in output
    commands, _ = glue.run("--tasks=STS-B", "--seeds=1", "--mnli_checkpoint=x y/model.ckpt")
    assert commands[0][-1] == "--init_checkpoint=x y/model.ckpt"
    glue.run("--tasks=MNLI", "--seeds=1")
    commands, _ = glue.run("--tasks=RTE", "--seeds=1 2")
    assert commands[0][-1] == "--init_checkpoint=my results/mnli-seed1/model.ckpt-best"
    assert not any(flag.startswith("--init_checkpoint") for flag in commands[1])


def test_a_failed_run_is_repeated_and_finished_runs_are_not(glue):
    (glue.folder / "mnli-seed1").touch()
    arguments = ("--tasks=MNLI RTE QNLI", "--seeds=1 2")
    commands, output = glue.run(*arguments, code=1)
    assert runs_of(commands) == [
        "mnli-seed1", "qnli-seed1",
        "mnli-seed2", "mismnli-seed2", "ax-seed2", "rte-seed2", "qnli-seed2",
    ]  # fmt: skip
    assert "failed: mnli-seed1 rte-seed1." in output
    assert commands[-1][0] == "albert_tf.cli.glue_results"
    assert (glue.results / "mnli-seed1" / "run_glue.unfinished").exists()
    (glue.folder / "mnli-seed1").unlink()
    commands, _ = glue.run(*arguments)
    assert runs_of(commands) == ["mnli-seed1", "mismnli-seed1", "ax-seed1", "rte-seed1"]
    assert not (glue.results / "mnli-seed1" / "run_glue.unfinished").exists()


def test_a_run_with_other_settings_is_not_overwritten(glue):
    glue.run("--tasks=RTE", "--seeds=1", "--", "--learning_rate=1e-5")
    arguments = ("--tasks=RTE", "--seeds=1", "--", "--learning_rate=2e-5")
    commands, output = glue.run(*arguments, code=1)
    assert runs_of(commands) == []
    assert re.search(r"rte-seed1 .*1e-5.*\n.*2e-5", output)


def test_a_dry_run_prints_every_command_and_checks_one_seed(glue):
    checked, output = glue.run("--tasks=MNLI RTE", "--seeds=3 11", "--dry_run")
    assert not glue.results.exists()
    assert runs_of(checked) == ["mnli-seed3", "rte-seed3"]
    assert all(command[-1] == "--dry_run" for command in checked)
    printed = [line for line in output.splitlines() if line.startswith("+ run_classifier ")]
    assert len(printed) == 2 * 4


@pytest.mark.parametrize(
    ("argument", "named"),
    [
        ("--tasks=RTE boolq", ["--tasks", "'boolq'", "qnli"]),
        ("--tasks= ", ["--tasks"]),
        ("--seeds=1,2", ["--seeds", "'1,2'"]),
        ("--seeds=", ["--seeds"]),
        ("--data_dir=", ["--data_dir"]),
        ("--output_dir=gs://x/y", ["--output_dir", "'gs://x/y'"]),
        ("--learning_rate=1", ["'--learning_rate=1'", "--help"]),
    ],
)
def test_invalid_arguments_are_rejected_before_anything_runs(glue, argument, named):
    commands, output = glue.run(argument, code=1)
    assert commands == []
    assert all(text in output for text in named)
    assert not glue.results.exists()


@pytest.mark.slow
def test_tasks_and_seeds_become_a_table_and_a_submission(tmp_path):
    (tmp_path / "model").symlink_to(GOLDEN / "hub" / "albert_directory")
    sizes = ("--max_seq_length=16", "--train_step=4", "--warmup_step=1", "--train_batch_size=3")
    printed = []
    for tasks, seeds in (("MRPC MNLI", "1"), ("MRPC", "1 2")):
        result = subprocess.run(
            ["bash", str(ROOT / "run_glue.sh"), f"--data_dir={GOLDEN / 'glue' / 'data'}",
             "--model=model", "--output_dir=results", f"--tasks={tasks}", f"--seeds={seeds}",
             "--", *sizes, "--save_checkpoints_steps=2"],
            cwd=tmp_path,
            env=environment(warm_python().parent),
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
        printed.append(result.stdout)
        assert result.returncode == 0, result.stdout + result.stderr
    results = tmp_path / "results"
    assert (results / "glue_results.md").read_text() in printed[1]
    assert printed[1].count("+ run_classifier") == 1
    scores = json.loads((results / "glue_results.json").read_text())["scores"]
    assert [len(score["seeds"]) for score in scores] == [2, 2, 1, 1]
    for seed, value in scores[0]["seeds"].items():
        best = (results / f"mrpc-seed{seed}" / "best_trial.txt").read_text()
        assert value == pytest.approx(100 * float(best.split(":")[2]), rel=0, abs=1e-4)
    settings = json.loads((results / "mrpc-seed1" / "run_config.json").read_text())
    assert settings["config"]["optimizer"]["learning_rate"] == 2e-5  # --recipe=auto
    assert settings["config"]["optimizer"]["num_train_steps"] == 4

    command = [str(warm_python()), "-m", "albert_tf.cli.glue_results", f"--results_dir={results}"]
    command += [f"--submission={tmp_path / 'all.zip'}"]
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "--submission" in refused.stderr
    subprocess.run([*command, "--allow_missing"], cwd=ROOT, check=True, capture_output=True)
    with zipfile.ZipFile(tmp_path / "all.zip") as archive:
        assert sorted(archive.namelist()) == ["AX.tsv", "MNLI-m.tsv", "MNLI-mm.tsv", "MRPC.tsv"]
