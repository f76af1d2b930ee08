"""The order of the runs, what is repeated and what is not, with real and with pretended runs."""

import os
import subprocess
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from albert_tf.ablations.comparisons import choose_variants
from albert_tf.ablations.runs import Ablations, ordered_jobs
from tests.pretraining_run import PretrainingRun, assert_same_bits, read_checkpoint
from tests.programs import run_program
from tests.small_model import small_config

BASE = small_config(num_hidden_groups=1, inner_group_num=1)
RECORDS = {"sop": (["s"], ["S"]), "nsp": (["n", "m"], ["N"]), "none": (["s"], ["S"])}
STEPS = 6
PASSED = (
    "max_seq_length",
    "max_predictions_per_seq",
    "train_batch_size",
    "eval_batch_size",
    "num_warmup_steps",
    "save_checkpoints_steps",
)


def flags_of(command):
    """A command line as a dictionary."""
    pairs = [argument.removeprefix("--").partition("=") for argument in command[3:]]
    return {name: value if equals else True for name, equals, value in pairs}


class Pretended:
    """Stands for `subprocess.Popen`: notes the flags and writes results, or fails."""

    def __init__(self):
        self.calls = []
        self.failing = ""

    def __call__(self, command, stdout, **_):
        assert command[1:3] == ["-m", "albert_tf.cli.run_pretraining"]
        flags = flags_of(command)
        self.calls.append(flags)
        if self.failing and self.failing in flags["output_dir"]:
            stdout.write(b"error: no luck\n")
            return nullcontext(SimpleNamespace(wait=lambda: 1))
        name = {"sop": "sentence_order", "nsp": "next_sentence"}.get(flags["sentence_loss"])
        path = flags["output_dir"]
        os.makedirs(path, exist_ok=True)
        with open(f"{path}/eval_results.txt", "w") as file:
            file.write(f"masked_lm_accuracy = 0.5\nmasked_lm_loss = 2.0\nglobal_step = {STEPS}\n")
            file.write(f"{name}_accuracy = 0.75\n" if name else "")
        return nullcontext(SimpleNamespace(wait=lambda: 0))

    def names(self):
        return [flags["output_dir"].rsplit("/out/")[1] for flags in self.calls]


@pytest.fixture
def pretended(monkeypatch):
    run = Pretended()
    monkeypatch.setattr(subprocess, "Popen", run)
    return run


def compare(folder, comparisons, *, seeds=(1,), base_seeds=(), **values):
    variants = choose_variants(BASE, comparisons, values)
    Ablations(str(folder / "out"), BASE, RECORDS, STEPS, ["--max_seq_length=11"]).run(
        variants, seeds, base_seeds, compare_losses="sentence_loss" in comparisons
    )


def test_the_base_comes_first_with_all_its_seeds_then_each_model(pretended, tmp_path):
    compare(tmp_path, ["depth"], seeds=(1, 2), base_seeds=(2, 3), depth=[3])
    assert pretended.names() == ["base-seed1", "base-seed2", "base-seed3"] + [
        f"depth-3-seed{seed}" for seed in (1, 2)
    ]


def test_tries_a_run_of_each_sentence_loss_dry(monkeypatch, tmp_path):
    calls = []

    def run(command, **_):
        flags = flags_of(command)
        calls.append(flags)
        code = int(flags["input_file"] == "n,m")
        return SimpleNamespace(returncode=code, stderr="noise\nerror: no luck\n")

    monkeypatch.setattr(subprocess, "run", run)
    variants = choose_variants(BASE, ["depth", "sentence_loss"], {"depth": [3]})
    runs = Ablations(str(tmp_path / "out"), BASE, RECORDS, STEPS, ["--max_seq_length=11"])
    with pytest.raises(ValueError, match=r"^sentence_loss-nsp-seed1 would fail: no luck$"):
        runs.try_out(ordered_jobs(variants, (1,), (2,)), "base.json")
    others = [variant for variant in variants if variant.sentence_loss != "nsp"]
    calls.clear()
    runs.try_out(ordered_jobs(others, (1,), (2,)), "base.json")
    assert [flags["sentence_loss"] for flags in calls] == ["sop", "none"]
    for flags in calls:
        assert flags["dry_run"] is True
        assert (flags["albert_config_file"], flags["max_seq_length"]) == ("base.json", "11")
    assert not (tmp_path / "out").exists()


def test_runs_get_the_same_flags_but_for_model_and_seed(pretended, tmp_path):
    compare(tmp_path, ["depth"], base_seeds=(2,), depth=[3])
    first, *others = pretended.calls
    assert first["max_seq_length"] == "11"
    assert first["num_train_steps"] == str(STEPS)
    assert (first["input_file"], first["eval_input_file"]) == ("s", "S")
    for other in others:
        different = {name for name in first if other[name] != first[name]}
        assert different <= {"output_dir", "albert_config_file", "seed"}


def test_sentence_losses_get_their_records_and_are_evaluated_on_each_others(pretended, tmp_path):
    compare(tmp_path, ["sentence_loss"])
    calls = {
        name: (flags["sentence_loss"], flags["input_file"], "nodo_train" in flags)
        for name, flags in zip(pretended.names(), pretended.calls, strict=True)
    }
    assert calls == {
        "base-seed1": ("sop", "s", False),
        "base-seed1/as_nsp": ("nsp", "N", True),
        "sentence_loss-nsp-seed1": ("nsp", "n,m", False),
        "sentence_loss-nsp-seed1/as_sop": ("sop", "S", True),
        "sentence_loss-none-seed1": ("none", "s", False),
    }
    table = (tmp_path / "out" / "ablations.md").read_text()
    assert table.count("75.0 | 75.0") == 2


def test_finished_runs_are_not_repeated(pretended, tmp_path):
    compare(tmp_path, ["sentence_loss"])
    pretended.calls.clear()
    compare(tmp_path, ["sentence_loss", "depth"], depth=[3])
    assert pretended.names() == ["depth-3-seed1"]


def test_a_failed_run_is_named_after_the_others_and_repeated_next_time(pretended, tmp_path):
    pretended.failing = "depth-3"
    with pytest.raises(ValueError, match=r"1 of 3 runs failed: depth-3-seed1\b"):
        compare(tmp_path, ["depth"], depth=[3, 5])
    assert "no luck" in (tmp_path / "out" / "depth-3-seed1.log").read_text()
    table = (tmp_path / "out" / "ablations.md").read_text()
    assert "| 5 |" in table
    assert "| 3 |" not in table
    pretended.failing = ""
    pretended.calls.clear()
    compare(tmp_path, ["depth"], depth=[3, 5])
    assert pretended.names() == ["depth-3-seed1"]


@pytest.mark.slow
def test_a_real_run_goes_on_where_it_was_cut_off(monkeypatch, tmp_path):
    files = PretrainingRun(tmp_path, hidden_dropout_prob=0.2, num_hidden_groups=1)

    def forked(command, stdout, **_):  # saves the imports
        result = run_program("run_pretraining.py", tmp_path, flags_of(command))
        stdout.write(result.output.encode())
        return SimpleNamespace(returncode=result.code)

    monkeypatch.setattr(subprocess, "run", forked)
    given = files.flags(num_warmup_steps=1, save_checkpoints_steps=4)
    passed = [f"--{name}={given[name]}" for name in PASSED]
    base = files.config.replace(hidden_dropout_prob=0.2)
    records = {"sop": ([str(path) for path in files.files], [str(files.eval_file)])}
    ablations = Ablations(str(tmp_path / "out"), base, records, STEPS, passed)
    ablations.run(choose_variants(base, []), [3], [], compare_losses=False)
    run = tmp_path / "out" / "base-seed3"
    unbroken = read_checkpoint(run / "model.ckpt-6")
    for path in [*run.glob("*-6.*"), run / "checkpoint", run / "eval_results.txt"]:
        path.unlink()
    ablations.run(choose_variants(base, []), [3], [], compare_losses=False)
    assert "at step 4" in (tmp_path / "out" / "base-seed3.log").read_text()
    assert_same_bits(read_checkpoint(run / "model.ckpt-6"), unbroken)
