"""run_glue.sh: what it runs and in which order, what it does after failures; and the real thing."""

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

MNLI_LABELS = {"contradiction", "entailment", "neutral"}

# Stands for Python with TensorFlow: notes the command, fails where a file says so.
STUB = """#!/usr/bin/env bash
[ "$1" = -c ] && exit 0
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
    """run_glue.sh on a stub of Python, in a folder with a blank in its name."""

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
        """Returns the commands it gave, and what it printed."""
        self.log.write_text("")
        result = subprocess.run(
            ["bash", str(ROOT / "run_glue.sh"), "--data_dir=data", "--model=a model",
             "--output_dir=my results", *arguments],
            cwd=self.folder,
            env={
                "PATH": os.environ["PATH"],
                "VIRTUAL_ENV": str(self.folder / "env"),
                "STUB_LOG": str(self.log),
                "STUB_FAILURES": str(self.folder),
            },
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
        output = result.stdout + result.stderr
        assert result.returncode == code, output
        return [shlex.split(line) for line in self.log.read_text().splitlines()], output


def runs_of(commands: list[list[str]]) -> list[str]:
    """The names of the directories that runs of run_classifier wrote to."""
    return [
        Path(flag).name
        for command in commands
        for flag in command
        if flag.startswith("--output_dir=")
    ]


@pytest.fixture
def glue(tmp_path: Path) -> Stubbed:
    return Stubbed(tmp_path)


class TestOrder:
    def test_mnli_comes_first_and_three_tasks_start_from_it(self, glue):
        commands, _ = glue.run("--tasks=rte CoLA MNLI rte", "--seeds=3 11")
        assert runs_of(commands) == [
            f"{task}-seed{seed}"
            for seed in (3, 11)
            for task in ("mnli", "mismnli", "ax", "rte", "cola")
        ]
        mnli, mismnli, ax, rte, cola = commands[:5]
        checkpoint = "./my results/mnli-seed3/model.ckpt-best"
        assert mnli == [
            "albert_tf.cli.run_classifier", "--task_name=mnli", "--data_dir=data",
            "--output_dir=./my results/mnli-seed3", "--seed=3",
            "--albert_hub_module_handle=a model", "--recipe=auto",
            "--do_train", "--do_eval", "--do_predict",
        ]  # fmt: skip
        assert mismnli[-4:] == [
            "--nodo_train",
            "--do_eval",
            "--do_predict",
            f"--checkpoint={checkpoint}",
        ]
        assert ax[-4:] == [
            "--nodo_train",
            "--nodo_eval",
            "--do_predict",
            f"--checkpoint={checkpoint}",
        ]
        assert rte[-1] == f"--init_checkpoint={checkpoint}"
        assert not any(flag.startswith("--init_checkpoint") for flag in cola)
        assert commands[10:] == [
            ["albert_tf.cli.glue_results", "--results_dir=./my results", "--model=a model"]
        ]

    def test_all_tasks_and_five_seeds_by_default(self, glue):
        commands, _ = glue.run("--submission=all of it.zip")
        assert len(commands) == 5 * 11 + 1
        assert commands[-1][-1] == "--submission=all of it.zip"

    def test_without_mnli_the_model_is_started_from_and_that_is_said(self, glue):
        commands, output = glue.run("--tasks=MRPC", "--seeds=1")
        assert not any(flag.startswith("--init_checkpoint") for flag in commands[0])
        assert "mrpc starts from --model" in output.splitlines()[0]

    def test_an_mnli_model_can_be_given_or_come_from_an_earlier_call(self, glue):
        commands, _ = glue.run("--tasks=STS-B", "--seeds=1", "--mnli_checkpoint=x y/model.ckpt")
        assert commands[0][-1] == "--init_checkpoint=x y/model.ckpt"
        glue.run("--tasks=MNLI", "--seeds=1")
        commands, _ = glue.run("--tasks=RTE", "--seeds=1 2")
        assert commands[0][-1] == "--init_checkpoint=./my results/mnli-seed1/model.ckpt-best"
        assert not any(flag.startswith("--init_checkpoint") for flag in commands[1])

    def test_further_flags_go_to_every_run_and_come_last(self, glue):
        commands, _ = glue.run("--tasks=MNLI", "--seeds=1", "--", "--train_step=5", "--x=a b")
        assert [command[-2:] for command in commands[:3]] == [["--train_step=5", "--x=a b"]] * 3
        assert "--x=a b" not in commands[3]


class TestGoingOn:
    def test_a_failure_loses_nothing_else_and_is_tried_again(self, glue):
        (glue.folder / "rte-seed1").touch()
        arguments = ("--tasks=RTE CoLA", "--seeds=1 2")
        commands, output = glue.run(*arguments, code=1)
        assert runs_of(commands) == ["rte-seed1", "cola-seed1", "rte-seed2", "cola-seed2"]
        assert commands[-1][0] == "albert_tf.cli.glue_results"
        assert "failed: rte-seed1." in output.splitlines()[-1]
        assert (glue.results / "rte-seed1" / "run_glue.unfinished").exists()

        (glue.folder / "rte-seed1").unlink()
        commands, _ = glue.run(*arguments)
        assert runs_of(commands) == ["rte-seed1"]
        assert not (glue.results / "rte-seed1" / "run_glue.unfinished").exists()

    def test_what_starts_from_a_failed_mnli_model_fails_too(self, glue):
        (glue.folder / "mnli-seed1").touch()
        commands, output = glue.run("--tasks=MNLI RTE QNLI", "--seeds=1 2", code=1)
        assert runs_of(commands) == [
            "mnli-seed1", "qnli-seed1",
            "mnli-seed2", "mismnli-seed2", "ax-seed2", "rte-seed2", "qnli-seed2",
        ]  # fmt: skip
        assert "failed: mnli-seed1 rte-seed1." in output

    def test_a_directory_of_other_settings_is_left_alone(self, glue):
        glue.run("--tasks=RTE", "--seeds=1", "--", "--learning_rate=1e-5")
        commands, output = glue.run(
            "--tasks=RTE", "--seeds=1", "--", "--learning_rate=2e-5", code=1
        )
        assert runs_of(commands) == []
        assert re.search(r"holds a run with other flags:\n.*1e-5.*\nnow:\n.*2e-5", output)


class TestDryRun:
    def test_every_command_is_printed_and_each_task_checked_once(self, glue):
        arguments = ("--tasks=MNLI RTE CoLA", "--seeds=3 11")
        checked, output = glue.run(*arguments, "--dry_run")
        assert not glue.results.exists()
        assert runs_of(checked) == ["mnli-seed3", "rte-seed3", "cola-seed3"]
        assert all(command[-1] == "--dry_run" for command in checked)
        printed = [
            shlex.split(line.removeprefix("+ run_classifier "))
            for line in output.splitlines()
            if line.startswith("+ ")
        ]
        real, _ = glue.run(*arguments)
        assert printed == [command[1:] for command in real[:-1]]

    def test_what_starts_from_a_model_to_come_is_checked_without_it(self, glue):
        commands, output = glue.run("--tasks=MNLI RTE", "--seeds=1", "--dry_run")
        assert not any(flag.startswith("--init_checkpoint") for flag in commands[1])
        assert len(commands) == 2
        assert output.count("MNLI model is not there yet") == 3

    def test_a_run_under_way_is_checked_with_every_seed(self, glue):
        (glue.folder / "rte-seed2").touch()
        glue.run("--tasks=RTE", "--seeds=2", code=1)
        commands, output = glue.run("--tasks=RTE", "--seeds=1 2 3", "--dry_run", code=1)
        assert runs_of(commands) == ["rte-seed1", "rte-seed2"]
        assert "rte-seed2" in output.splitlines()[-1]


@pytest.mark.parametrize(
    ("argument", "named"),
    [
        ("--tasks=RTE boolq", ["--tasks", "'boolq'", "QNLI"]),
        ("--tasks= ", ["--tasks"]),
        ("--seeds=1,2", ["--seeds", "'1,2'"]),
        ("--seeds=", ["--seeds"]),
        ("--data_dir=", ["--data_dir"]),
        ("--model=", ["--model"]),
        ("--output_dir=gs://x/y", ["--output_dir", "'gs://x/y'"]),
        ("--learning_rate=1", ["'--learning_rate=1'", "--help"]),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(glue, argument, named):
    commands, output = glue.run(argument, code=1)
    assert commands == []
    assert output.startswith("run_glue.sh: error: ")
    assert all(text in output for text in named)
    assert not glue.results.exists()


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, list[str]]:
    """MNLI and from its model MRPC, then another seed of MRPC: results, and what was printed."""
    folder = tmp_path_factory.mktemp("run glue")
    (folder / "model").symlink_to(GOLDEN / "hub" / "albert_directory")
    mnli = "./results/mnli-seed1/model.ckpt-best"
    printed = []
    for arguments in (
        ("--tasks=MRPC MNLI", "--seeds=1"),
        ("--tasks=MRPC", "--seeds=1 2", f"--mnli_checkpoint={mnli}"),
    ):
        result = subprocess.run(
            [
                "bash", str(ROOT / "run_glue.sh"),
                f"--data_dir={GOLDEN / 'glue' / 'data'}", "--model=model", "--output_dir=results",
                *arguments, "--", "--max_seq_length=16", "--train_step=4", "--warmup_step=1",
                "--save_checkpoints_steps=2", "--train_batch_size=3",
            ],
            cwd=folder,
            env={**os.environ, "VIRTUAL_ENV": str(warm_python().parents[1])},
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
        printed.append(result.stdout + result.stderr)
        assert result.returncode == 0, printed[-1]
    return folder / "results", printed


@pytest.mark.slow
def test_tasks_and_seeds_become_one_table(finished):
    results, (first, second) = finished
    table = (results / "glue_results.md").read_text()
    assert table in second
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")]
    assert [(row[0], row[1], row[4]) for row in rows[2:]] == [
        ("| MRPC", "accuracy", "2 |"),
        ("| MRPC", "F1", "2 |"),
        ("| MNLI-m", "accuracy", "1 |"),
        ("| MNLI-mm", "accuracy", "1 |"),
    ]
    assert "+ run_classifier --task_name=mrpc" in first
    assert second.count("+ run_classifier") == 1
    scores = json.loads((results / "glue_results.json").read_text())["scores"]
    assert set(scores[0]["seeds"]) == {"1", "2"}
    assert (results / "glue_results.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_scores_are_those_of_the_best_checkpoints(finished):
    results, _ = finished
    scores = json.loads((results / "glue_results.json").read_text())["scores"]
    for row in (scores[0], scores[2]):
        for seed, value in row["seeds"].items():
            best = (results / f"{row['task']}-seed{seed}" / "best_trial.txt").read_text()
            assert value == pytest.approx(100 * float(best.split(":")[2]), rel=0, abs=1e-4)


@pytest.mark.slow
def test_the_published_settings_are_taken_where_no_flag_says_otherwise(finished):
    results, _ = finished
    settings = json.loads((results / "mrpc-seed1" / "run_config.json").read_text())
    assert settings["config"]["optimizer"]["learning_rate"] == 2e-5
    assert settings["config"]["optimizer"]["num_train_steps"] == 4


@pytest.mark.slow
def test_predictions_become_a_submission(finished, tmp_path):
    results, _ = finished
    command = [
        str(warm_python()), "-m", "albert_tf.cli.glue_results", f"--results_dir={results}",
        f"--submission={tmp_path / 'all.zip'}",
    ]  # fmt: skip
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "--submission" in refused.stderr
    assert "qqp" in refused.stderr

    subprocess.run([*command, "--allow_missing"], cwd=ROOT, check=True, capture_output=True)
    tests = {
        "AX.tsv": "diagnostic/diagnostic.tsv",
        "MNLI-m.tsv": "MNLI/test_matched.tsv",
        "MNLI-mm.tsv": "MNLI/test_mismatched.tsv",
        "MRPC.tsv": "MRPC/test.tsv",
    }
    with zipfile.ZipFile(tmp_path / "all.zip") as archive:
        assert archive.namelist() == list(tests)
        for name, source in tests.items():
            rows = [line.split("\t") for line in archive.read(name).decode().splitlines()]
            questions = (GOLDEN / "glue" / "data" / source).read_text().split("\n")
            assert [row[0] for row in rows[1:]] == [
                line.split("\t")[0] for line in questions[1:] if line
            ]
            kinds = {"0", "1"} if name == "MRPC.tsv" else MNLI_LABELS
            assert {row[1] for row in rows[1:]} <= kinds
