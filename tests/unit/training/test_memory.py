"""Estimates of memory, compared with compiled programs and measured peaks."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from albert_tf.config import AlbertConfig
from albert_tf.modeling.parameter_sharing import parameter_counts
from albert_tf.training import memory
from albert_tf.training.memory import (
    TrainingSetting,
    estimate_memory,
    largest_batch,
    machine_memory,
    memory_report,
)
from tests.small_model import small_config

BASE = AlbertConfig.from_preset("base_v2")
ROOT = Path(__file__).parents[3]


def test_memory_per_parameter():
    count = parameter_counts(small_config()).pretraining
    found = estimate_memory(small_config(), TrainingSetting(max_seq_length=7))
    assert (found.weights, found.moments, found.gradients) == (4 * count, 8 * count, 4 * count)
    assert machine_memory() > 1e9


def test_memory_of_micro_batches():
    whole = estimate_memory(BASE, TrainingSetting(train_batch_size=3))
    parts = estimate_memory(
        BASE, TrainingSetting(train_batch_size=12, gradient_accumulation_steps=4)
    )
    assert parts.peak - whole.peak == whole.gradients == parts.gradients - whole.gradients


# Preset, layers, dropout, setting, and GB of arguments and temporaries of the program compiled
# for an H200 (XLA of JAX 0.10.2, without autotuning).
COMPILED = {
    "deep": ("base_v2", 4, 0.0, {}, 3.183),
    "recomputed": ("base_v2", 4, 0.0, {"remat": True}, 1.376),
    "dropout": ("base_v2", 2, 0.1, {}, 2.284),
    "single precision": ("base_v2", 4, 0.0, {"precision": "float32"}, 5.531),
    "xxlarge, recomputed": (
        *("xxlarge_v2", 3, 0.0),
        {"train_batch_size": 4, "remat": True},
        4.534,
    ),
}


@pytest.mark.parametrize("name", COMPILED)
def test_estimates_for_an_h200(name):
    preset, layers, rate, changes, measured = COMPILED[name]
    config = AlbertConfig.from_preset(preset).replace(
        num_hidden_layers=layers, hidden_dropout_prob=rate, attention_probs_dropout_prob=rate
    )
    setting = TrainingSetting(32, 512, 77, precision="bfloat16", xla=True)
    estimate = estimate_memory(config, dataclasses.replace(setting, **changes))
    assert 1.0 < (estimate.peak - estimate.program) / 1e9 / measured < 1.1


# GB of programs of 12 layers without dropout, compiled for a v5e chip (libtpu 0.0.52).
@pytest.mark.parametrize(
    ("preset", "batch_size", "remat", "compiled"),
    [
        ("base_v2", 32, False, 7.14),
        ("base_v2", 32, True, 1.76),
        ("xxlarge_v2", 8, True, 5.44),
    ],
)
def test_estimates_for_a_tpu(preset, batch_size, remat, compiled):
    config = AlbertConfig.from_preset(preset).replace(
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    setting = TrainingSetting(batch_size, 512, 77, remat=remat, precision="bfloat16", xla=True)
    estimate = estimate_memory(config, setting)
    assert 0.9 < (estimate.peak - estimate.program) / 1e9 / compiled < 1.25


def test_tpu_chips_are_detected_by_pci_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_PCI_DEVICES", f"{tmp_path}/*")
    assert memory.tpu_memory(4) is None

    def add_device(name, vendor, device):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(f"{vendor:#06x}\n")
        (tmp_path / name / "device").write_text(f"{device:#06x}\n")

    add_device("nic", 0x1AE0, 0x42)
    add_device("gpu", 0x10DE, 0x63)
    assert memory.tpu_memory(1) is None
    for number in range(4):
        add_device(f"tpu{number}", 0x1AE0, 0x63)
    assert [memory.tpu_memory(cores) for cores in (1, 4, 8)] == [16e9, 16e9, 8e9]


@pytest.mark.parametrize("steps", [1, 16])
def test_largest_batch(steps):
    setting = TrainingSetting(16, 384, gradient_accumulation_steps=steps)
    batch = largest_batch(BASE, setting, 7e9)

    def peak(batch_size):
        tried = dataclasses.replace(setting, train_batch_size=steps * batch_size)
        return estimate_memory(BASE, tried).peak

    assert peak(batch) <= 7e9 < peak(batch + 1)
    assert largest_batch(BASE, setting, 1e9) == 0


def test_batch_must_be_a_multiple_of_micro_batches():
    with pytest.raises(ValueError, match=r"`gradient_accumulation_steps`.* 8 and 3"):
        TrainingSetting(gradient_accumulation_steps=3)


def test_report():
    report = memory_report(BASE, TrainingSetting(remat=True), memory_gb=4)
    numbers = {line[:24].strip(): line.split()[-1] for line in report.splitlines() if line}
    assert numbers["encoder with pooler"] == "11,683,584"
    assert numbers["with both heads"] == "11,813,810"
    peak = estimate_memory(BASE, TrainingSetting(remat=True)).peak
    assert numbers["peak"] == f"{peak / 1e9:.2f}"
    peaks, fit = (line.split(": ")[1].split(" / ") for line in report.splitlines()[-2:])
    assert peaks[1] == numbers["peak"]
    fitting = [largest_batch(BASE, TrainingSetting(remat=remat), 4e9) for remat in (False, True)]
    assert fit == [str(batch) for batch in fitting]
    with pytest.raises(ValueError, match=r"`memory_gb`.* -1"):
        memory_report(BASE, TrainingSetting(), memory_gb=-1)
    with pytest.raises(ValueError, match="`max_seq_length`"):
        memory_report(BASE, TrainingSetting(max_seq_length=513))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("batch_size", "length", "remat"),
    [(8, 128, "no"), (8, 128, "yes"), (3, 512, "no"), (3, 512, "yes"), (32, 128, "yes")],
)
def test_measured_peaks(batch_size, length, remat):
    command = [sys.executable, "-m", "benchmarks.rematerialization", f"--remat={remat}"]
    command += [f"--batch_size={batch_size}", f"--max_seq_length={length}", "--steps=2"]
    output = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    measured = json.loads(output.split("result: ")[1])["peak_gb"]
    setting = TrainingSetting(batch_size, length, remat=remat == "yes")
    assert measured == pytest.approx(estimate_memory(BASE, setting).peak / 1e9, rel=0.2)
