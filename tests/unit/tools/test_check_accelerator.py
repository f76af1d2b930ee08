"""check_accelerator: recorded numbers, selection of checks, failures, and the report."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from albert_tf.cli import check_accelerator as command
from albert_tf.tools import check_accelerator as module
from tests.programs import ROOT
from tests.run_in_process import run_here

pytestmark = pytest.mark.usefixtures("eager")

GOLDEN = ("one_device", "float32", False, "plain")
CUDNN = ("one_device", "bfloat16", True, "cudnn")


def test_a_cpu_reproduces_the_recorded_numbers():
    numbers = module.golden_numbers(*GOLDEN)
    assert numbers.keys() == module.RECORDED.keys()
    for name, values in numbers.items():
        np.testing.assert_allclose(values, module.RECORDED[name], rtol=1e-5, atol=0, err_msg=name)


@pytest.mark.slow
def test_golden_steps_in_float16_are_within_the_limits():
    """On an H100, the gradients of golden steps with a larger learning rate overflowed."""
    assert "loss differs by" in module._check_golden("one_device", "float16", False, "plain")[0]


def test_a_skipped_step_is_an_error(monkeypatch):
    records = [
        {"step": 1, "loss": 12.5, "gradient_norm": 30.4, "skipped_steps": 0.0},
        {"step": 2, "loss_scale": 16384.0, "skipped_steps": 1.0},
    ]
    monkeypatch.setattr(module, "_train", lambda *_, **__: records)
    with pytest.raises(ValueError, match="the gradients of step 2 are not finite"):
        module.golden_numbers("one_device", "float16", False, "plain")


@pytest.mark.parametrize("name", module.RECORDED)
@pytest.mark.parametrize("number", range(3))
def test_each_recorded_number_counts(monkeypatch, name, number):
    changed = {key: list(values) for key, values in module.RECORDED.items()}
    monkeypatch.setattr(module, "golden_numbers", lambda *_: changed)
    assert "(at most 1e-04)" in module._check_golden(*GOLDEN)[0]
    for factor in (1.001, float("nan")):
        changed[name][number] *= factor
        with pytest.raises(ValueError, match=f"{name} differs by (1|2|n)"):
            module._check_golden(*GOLDEN)


def test_checks_run_after_a_failed_check(monkeypatch, tmp_path):
    def fail():
        raise RuntimeError("no\n|kernel|")

    def skip():
        raise module.Skipped("no such device")

    checks = [("one", fail), ("two", skip), ("three", lambda: ("fine", None))]
    monkeypatch.setattr(module, "_checks", lambda *_: checks)
    folder = tmp_path / "report"
    with pytest.raises(ValueError, match=r"1 of 3.*\(one"):
        run_here(command, {"output_dir": folder})
    report = (folder / module.REPORT_FILE).read_text()
    assert "| one | FAILED | RuntimeError: no \\|kernel\\| |" in report
    assert "| two | not applicable | no such device |\n| three | passed | fine |" in report
    assert "\n1 of 3 checks failed." in report


def test_gpus_are_checked_in_every_precision_and_cudnn_in_separate_processes(monkeypatch):
    monkeypatch.setattr(module.tf.config, "list_physical_devices", lambda *_: ["GPU:0", "GPU:1"])
    checks = dict(module._checks(False, False))
    assert len(checks) == 1 + 2 * (6 + 2) + 2 * 2 * 2 + 1
    cudnn = {name for name in checks if checks[name].func is module.run_isolated}
    assert cudnn == {name for name in checks if name.endswith(", cudnn")}
    assert cudnn >= {
        "golden steps, mirrored, float16, xla, cudnn",
        "base, mirrored, length 512, cudnn",
    }


def test_a_crash_in_another_process_fails_the_check(monkeypatch):
    monkeypatch.setattr(module, "_share_gpus", None)  # it imports TensorFlow
    with pytest.raises(ValueError, match="the process crashed"):
        module.run_isolated(os.abort)
    with pytest.raises(FileNotFoundError):
        module.run_isolated(os.stat, "/nowhere")


def test_unsupported_attention_is_skipped():
    with pytest.raises(module.Skipped, match="compute capability"):
        module.golden_numbers(*CUDNN)


def test_the_faster_attention_is_recommended_if_it_is_correct():
    rates = {
        "one_device, length 128": (90.0, 81.0),
        "one_device, length 512": (20.0, 25.0),
        "mirrored, length 512": (160.0, 240.0),
    }
    checks = [module.Check("golden steps, one_device, bfloat16, xla, cudnn", True, "")]
    for name, (plain, cudnn) in rates.items():
        checks += [module.Check(f"base, {name}", True, "", plain)]
        checks += [module.Check(f"base, {name}, cudnn", True, "", cudnn)]
    short, long = module.recommendation(checks)
    assert "128: use --attention=plain" in short
    assert "0.90 times" in short
    assert "512: use --attention=cudnn" in long
    assert "1.25 times" in long
    checks[0] = checks[0]._replace(passed=False)
    (line,) = module.recommendation(checks)
    assert line.startswith("Use --attention=plain:")
    assert module.recommendation([module.Check("devices", False, "")]) == []


def test_a_number_of_devices_that_cannot_share_a_batch_is_skipped(monkeypatch):
    monkeypatch.setattr(module, "_replicas", lambda _: 6)
    with pytest.raises(module.Skipped, match="6 devices cannot share a batch of 8"):
        module.golden_numbers("mirrored", "float32", False, "plain")


def test_several_workers_are_rejected(monkeypatch, tmp_path):
    config = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    with pytest.raises(ValueError, match="TF_CONFIG names 2 workers"):
        module.check_accelerator(str(tmp_path / "report"))
    assert not (tmp_path / "report").exists()


def test_wrong_attention_is_an_error(monkeypatch):
    monkeypatch.setattr(module.fused_attention, "unsupported", lambda *_, **__: [])
    monkeypatch.setattr(module.fused_attention, "disagreement", lambda *_: "the context is wrong")
    with pytest.raises(ValueError, match="the context is wrong"):
        module.golden_numbers(*CUDNN)


@pytest.mark.slow
def test_all_checks_pass_on_a_cpu(tmp_path):
    arguments = ["-m", "albert_tf.cli.check_accelerator", f"--output_dir={tmp_path}"]
    subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True)
    report = (tmp_path / module.REPORT_FILE).read_text()
    assert "mirrored, float32, xla | passed" in report
    assert "| training | passed | 20 steps" in report
