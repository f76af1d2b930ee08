"""check_accelerator: recorded numbers, selection of checks, failures, and the report."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from albert_tf.tools import check_accelerator as module
from tests.programs import ROOT

GOLDEN = ("one_device", "float32", False, "plain")
ONE_CHECK = f"""
from albert_tf.cli import check_accelerator
from albert_tf.tools import check_accelerator as module

golden = module.partial(module._check_golden, *{GOLDEN})
module._checks = lambda *_: [("golden", golden)]
module.RECORDED["gradient_norm"][1] *= 1.001
check_accelerator.main()
"""


def run(*arguments):
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_cpu_reproduces_the_recorded_numbers():
    numbers = module._golden_numbers(*GOLDEN)
    assert numbers.keys() == module.RECORDED.keys()
    for name, values in numbers.items():
        np.testing.assert_allclose(values, module.RECORDED[name], rtol=1e-5, atol=0, err_msg=name)


@pytest.mark.parametrize("index", range(6))
def test_each_recorded_number_counts(monkeypatch, index):
    name, number = [*module.RECORDED][index // 3], index % 3
    monkeypatch.setattr(module, "_golden_numbers", lambda *_: module.RECORDED)
    assert "(at most 1e-04)" in module._check_golden(*GOLDEN)
    changed = {**module.RECORDED, name: list(module.RECORDED[name])}
    for factor in (1.001, float("nan")):
        changed[name][number] *= factor
        monkeypatch.setattr(module, "_golden_numbers", lambda *_: changed)
        with pytest.raises(ValueError, match=f"{name} differs by (1|2|n)"):
            module._check_golden(*GOLDEN)


def test_checks_run_after_a_failed_check(monkeypatch, tmp_path):
    def fail():
        raise RuntimeError("no\n|kernel|")

    def skip():
        raise module.Skipped("no such device")

    checks = [("one", fail), ("two", skip), ("three", lambda: "fine")]
    monkeypatch.setattr(module, "_checks", lambda *_: checks)
    found = module.check_accelerator(str(tmp_path / "report"))
    assert [check.passed for check in found] == [False, None, True]
    report = (tmp_path / "report" / module.REPORT_FILE).read_text()
    assert "| one | FAILED | RuntimeError: no \\|kernel\\| |" in report
    assert "| two | not applicable | no such device |\n| three | passed | fine |" in report
    assert "\n1 of 3 checks failed." in report


def test_gpus_are_checked_in_every_precision(monkeypatch):
    monkeypatch.setattr(module.tf.config, "list_physical_devices", lambda *_: ["GPU:0", "GPU:1"])
    names = [name for name, _ in module._checks(False, False, {})]
    assert len(names) == len(set(names)) == 1 + 2 * (6 + 2) + 2 * 2 * 2 + 1
    assert "golden steps, mirrored, float16, xla, cudnn" in names
    assert "base, mirrored, length 512, cudnn" in names


def test_a_crash_in_another_process_fails_the_check(monkeypatch):
    monkeypatch.setattr(module, "_share_gpus", None)  # it imports TensorFlow
    assert module.run_isolated(pow, 2, 5) == 32
    with pytest.raises(ValueError, match="the process crashed"):
        module.run_isolated(os.abort)
    with pytest.raises(FileNotFoundError):
        module.run_isolated(os.stat, "/nowhere")


@pytest.mark.parametrize("function", ["_check_golden", "_check_speed"])
def test_cudnn_attention_runs_in_another_process(monkeypatch, function):
    called = []

    def run_isolated(own, *arguments):
        called.append((own, arguments))
        raise module.Skipped

    monkeypatch.setattr(module, "run_isolated", run_isolated)
    arguments = {
        "_check_golden": ("mirrored", "bfloat16", True, "cudnn"),
        "_check_speed": ({}, "GPU", "mirrored", 512, "cudnn", False),
    }
    with pytest.raises(module.Skipped):
        getattr(module, function)(*arguments[function])
    assert len(called) == 1


def test_the_faster_attention_is_recommended_if_it_is_correct():
    rates = {
        ("one_device", 128, "plain"): 90.0,
        ("one_device", 128, "cudnn"): 81.0,
        ("one_device", 512, "plain"): 20.0,
        ("one_device", 512, "cudnn"): 25.0,
        ("mirrored", 512, "plain"): 160.0,
        ("mirrored", 512, "cudnn"): 240.0,
    }
    fine = [module.Check("golden steps, one_device, bfloat16, xla, cudnn", True, "")]
    short, long = module.recommendation(fine, rates)
    assert "128: use --attention=plain" in short
    assert "0.90 times" in short
    assert "512: use --attention=cudnn" in long
    assert "1.25 times" in long
    wrong = [module.Check("golden steps, one_device, bfloat16, xla, cudnn", False, "")]
    assert module.recommendation(wrong, rates) == [
        "Use --attention=plain: a check of cuDNN attention failed."
    ]
    assert module.recommendation([module.Check("devices", False, "")], {}) == []


def test_a_number_of_devices_that_cannot_share_a_batch_is_skipped(monkeypatch):
    monkeypatch.setattr(module, "_replicas", lambda _: 6)
    with pytest.raises(module.Skipped, match="6 devices cannot share a batch of 8"):
        module._golden_numbers("mirrored", "float32", False, "plain")


def test_several_workers_are_rejected(monkeypatch, tmp_path):
    config = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    with pytest.raises(ValueError, match="TF_CONFIG names 2 workers"):
        module.check_accelerator(str(tmp_path / "report"))
    assert not (tmp_path / "report").exists()


def test_unsupported_attention_is_skipped():
    with pytest.raises(module.Skipped, match="compute capability"):
        module._golden_numbers("one_device", "bfloat16", True, "cudnn")


def test_wrong_attention_is_an_error(monkeypatch):
    monkeypatch.setattr(module.fused_attention, "unsupported", lambda *_, **__: [])
    monkeypatch.setattr(module.fused_attention, "disagreement", lambda *_: "the context is wrong")
    with pytest.raises(ValueError, match="the context is wrong"):
        module._golden_numbers("one_device", "bfloat16", True, "cudnn")


@pytest.mark.slow
def test_a_failed_check_ends_the_command_with_status_1(tmp_path):
    done = run("-c", ONE_CHECK, f"--output_dir={tmp_path}")
    assert done.returncode == 1
    assert "1 of 1 checks failed (golden)" in done.stderr


@pytest.mark.slow
def test_all_checks_pass_on_a_cpu(tmp_path):
    done = run("-m", "albert_tf.cli.check_accelerator", f"--output_dir={tmp_path}")
    assert done.returncode == 0, done.stderr
    report = (tmp_path / module.REPORT_FILE).read_text()
    assert "mirrored, float32, xla | passed" in report
    assert "| training | passed | 20 steps" in report
