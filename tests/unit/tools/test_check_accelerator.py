"""check_accelerator: recorded numbers, selection of checks, failures, and the report."""

import json
import subprocess
import sys
from types import SimpleNamespace

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
    numbers = module.golden_numbers(*GOLDEN)
    assert numbers.keys() == module.RECORDED.keys()
    for name, values in numbers.items():
        np.testing.assert_allclose(values, module.RECORDED[name], rtol=1e-5, atol=0, err_msg=name)


@pytest.mark.parametrize("index", range(6))
def test_each_recorded_number_counts(monkeypatch, index):
    name, number = [*module.RECORDED][index // 2], index % 2
    monkeypatch.setattr(module, "golden_numbers", lambda *_: module.RECORDED)
    assert "(at most 1e-04)" in module._check_golden(*GOLDEN)
    changed = {**module.RECORDED, name: list(module.RECORDED[name])}
    for factor in (1.001, float("nan")):
        changed[name][number] *= factor
        monkeypatch.setattr(module, "golden_numbers", lambda *_: changed)
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
    names = [name for name, _ in module._checks(False, False)]
    assert len(names) == len(set(names)) == 1 + 2 * (6 + 2) + 2 * 2 + 1
    assert "golden steps, mirrored, float16, xla, cudnn" in names
    assert "base, mirrored, length 512" in names


def test_peaks_are_found_by_the_names_of_devices():
    """The first match counts, so a longer name comes before one that it contains."""
    names = [*module._PEAKS]
    for number, name in enumerate(names):
        assert not [other for other in names[:number] if other in name]

    named = {
        "NVIDIA H100 PCIe": 756,
        "NVIDIA H100 80GB HBM3": 989,
        "Tesla T4": 65,
        "NVIDIA A10G": 70,
    }
    assert {name: module._peak(f"GPU {name}") for name in named} == named
    for other in ("NVIDIA RTX A4000", "NVIDIA T400", "NVIDIA RTX A1000"):
        assert module._peak(f"GPU {other}") == 0


@pytest.mark.parametrize(("cores", "hosts", "chips"), [(1, 1, 1), (4, 1, 4), (8, 1, 4), (4, 2, 8)])
def test_the_peak_of_a_tpu_counts_the_chips_in_use(monkeypatch, cores, hosts, chips):
    extended = SimpleNamespace(num_replicas_per_host=cores, num_hosts=hosts)
    monkeypatch.setattr(module, "tpu_chips", lambda: [("v5e", 16_000_000_000)] * 4)
    assert module._total_peak("TPU", SimpleNamespace(extended=extended)) == 197 * chips
    monkeypatch.setattr(module, "tpu_chips", list)
    assert module._total_peak("TPU", SimpleNamespace(extended=extended)) == 0


def test_a_number_of_devices_that_cannot_share_a_batch_is_skipped(monkeypatch):
    strategy = SimpleNamespace(num_replicas_in_sync=6)
    monkeypatch.setattr(module, "create_strategy", lambda *_: strategy)
    with pytest.raises(module.Skipped, match="6 devices cannot share a batch of 8"):
        module.golden_numbers("mirrored", "float32", False, "plain")


def test_several_workers_are_rejected(monkeypatch, tmp_path):
    config = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    with pytest.raises(ValueError, match="TF_CONFIG names 2 workers"):
        module.check_accelerator(str(tmp_path / "report"))
    assert not (tmp_path / "report").exists()


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
