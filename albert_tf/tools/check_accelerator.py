"""Checks that training is correct and fast on this machine, and writes a report.

Golden steps train a small model with weights and a batch from NumPy. Losses, gradient norms and
updates are compared with numbers that were recorded on a CPU in float32.
"""

from __future__ import annotations

import glob
import itertools
import math
import os
import platform
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.huggingface import read_config
from albert_tf.checkpoints.model_directory import make_output_dir
from albert_tf.checkpoints.names import bundled_directory
from albert_tf.config import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    AlbertConfig,
    OptimizerConfig,
    TrainerConfig,
)
from albert_tf.data.errors import UserError
from albert_tf.data.files import write_then_rename
from albert_tf.modeling import fused_attention
from albert_tf.modeling.original_names import original_names
from albert_tf.pretraining.create_data import PretrainingDataSettings, create_pretraining_data
from albert_tf.pretraining.run import PretrainingSettings, run_pretraining
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.tools.python_corpus import TRAINING_FILE, write_corpus
from albert_tf.training.distribution import (
    TF_CONFIG,
    create_strategy,
    device_names,
    has_tpu_kernels,
    is_tpu,
    num_workers,
    process_state_kept,
    split_batch,
    split_cpu,
)
from albert_tf.training.memory import tpu_chips
from albert_tf.training.step import TrainingStep
from albert_tf.version import __version__

REPORT_FILE = "accelerator_report.md"
CONFIG = AlbertConfig(
    vocab_size=512,
    embedding_size=32,
    hidden_size=128,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=512,
    max_position_embeddings=64,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
_B, _S, _P, _STEPS = 8, 64, 8, 3
# Golden steps on a CPU in float32.
RECORDED = {
    "loss": [7.2193518, 7.1077812, 6.6300708],
    "gradient_norm": [6.7481942, 10.3602800, 6.2639298],
    "update": [4.1751862, -1.0094502],  # norm, and dot product with random numbers
}
# Relative errors of gradient norms and updates; for losses, a tenth. On a CPU the largest errors
# were 1e-6, 2e-2 and 3e-4. A missing mask causes 7e-2. TF32 rounds like float16.
TOLERANCES = {FLOAT32: 1e-4, BFLOAT16: 5e-2, FLOAT16: 5e-3}
# Dense bfloat16 (otherwise float16) TFLOP/s according to the manufacturer; the first match counts.
_PEAKS = {
    "B200": 2250, "GH200": 989, "H200": 989, "H100 PCIe": 756, "H100 NVL": 835, "H100": 989,
    "H800": 989, "A100": 312, "A800": 312, "A10G": 70, "A10": 125, "A30": 165, "A40": 150,
    "L40S": 362, "L40": 181, "L4": 121, "V100": 125, "T4": 65, "RTX 4090": 165, "RTX 3090": 71,
    "v4": 275, "v5e": 197, "v5p": 459, "v6e": 918,
}  # fmt: skip
# Variables that change how devices compute. Others may contain secrets.
_ENVIRONMENT = re.compile(
    r"(TF_)?XLA_FLAGS|(NCCL|TF_GPU|TF_CUDNN|TF_FORCE_GPU)_\w+|CUDA_VISIBLE_DEVICES|LIBTPU_INIT_ARGS"
)
_DRIVER = Path("/proc/driver/nvidia/version")
_TIMED = {128: 128, 512: 32}  # batch size per device, by sequence length


class Skipped(Exception):  # noqa: N818
    """Raised by a check that does not apply to this machine, with the reason."""


class Check(NamedTuple):
    """The result of a check. `passed` is `None` if the check does not apply."""

    name: str
    passed: bool | None
    details: str


def check_accelerator(output_dir: str, *, full: bool = False, use_tpu: bool = False) -> list[Check]:
    """Runs all checks and writes `REPORT_FILE`. A failed check does not stop the others.

    Args:
        output_dir: directory of the report.
        full: whether the base model is also timed on a CPU.
        use_tpu: whether to use the TPU of this machine.

    Returns:
        The results in order.

    Raises:
        ValueError: the directory cannot be written to, or TF_CONFIG names several workers.
    """
    if num_workers() > 1:
        raise UserError(
            f"{TF_CONFIG} names {num_workers()} workers, but the checks are for one machine. Unset "
            f"{TF_CONFIG}, and run the command on each machine."
        )
    make_output_dir(output_dir)
    found = []
    for name, function in _checks(full, use_tpu):
        start = time.perf_counter()
        try:
            check = Check(name, True, function())
        except Skipped as reason:
            check = Check(name, None, str(reason))
        except Exception as error:  # the other checks must run
            logging.debug("Stack trace of the error:", exc_info=True)
            check = Check(name, False, f"{type(error).__name__}: {str(error).strip()[:600]}")
        found.append(check)
        seconds = time.perf_counter() - start
        logging.info("%s: %s (%.0f s) %s", name, _word(check), seconds, check.details)
    with write_then_rename(os.path.join(output_dir, REPORT_FILE)) as file:
        file.write(_report(found).encode())
    return found


def _checks(full: bool, use_tpu: bool) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yields the checks by name. Each returns its findings, and raises an error if it fails."""
    device = "TPU" if use_tpu else _gpu_or_cpu()
    yield "devices", partial(_check_devices, device)
    if device == "CPU":
        split_cpu(2)  # two logical devices
    names = {"TPU": ("tpu",), "GPU": ("one_device",), "CPU": ("one_device", "mirrored")}[device]
    if len(tf.config.list_physical_devices("GPU")) > 1:
        names = (*names, "mirrored")
    for name in names:
        for precision in (FLOAT32, BFLOAT16, *([FLOAT16] if device == "GPU" else [])):
            for xla in (True,) if device == "TPU" else (False, True):
                if not (device == "CPU" and precision == BFLOAT16 and xla):  # not supported
                    title = f"golden steps, {name}, {precision}{', xla' * xla}"
                    yield title, partial(_check_golden, name, precision, xla, "plain")
                if device == "GPU" and xla and precision != FLOAT32:
                    yield f"{title}, cudnn", partial(_check_golden, name, precision, xla, "cudnn")
    for name, length in itertools.product(names, _TIMED):
        yield f"base, {name}, length {length}", partial(_time_base, device, name, length, full)
    yield "training", partial(_check_training, device)


def _gpu_or_cpu() -> str:
    return "GPU" if tf.config.list_physical_devices("GPU") else "CPU"


def _check_devices(device: str) -> str:
    if device == "CPU" and glob.glob("/dev/nvidia[0-9]*"):
        raise UserError(
            "an NVIDIA driver is installed, but TensorFlow finds no GPU: pip install '.[gpu]'"
        )
    if device == "TPU":
        if not has_tpu_kernels():
            raise UserError("this TensorFlow has no kernels for TPUs: docs/scaling.md, TPU")
        return f"TPU, {create_strategy('tpu').num_replicas_in_sync} cores"
    return ", ".join(device_names())


def _training_step(
    strategy: tf.distribute.Strategy,
    config: AlbertConfig,
    optimizer: OptimizerConfig,
    B: int,
    S: int,
    P: int,
    **settings: Any,
) -> tuple[PretrainingTask, TrainingStep]:
    """Returns a pretraining task and its step. `settings` are fields of `TrainerConfig`."""
    task = PretrainingTask(
        config,
        max_seq_length=S,
        max_predictions_per_seq=P,
        use_one_hot_embeddings=is_tpu(strategy),
    )
    training = TrainerConfig("unused", train_batch_size=B, **settings)
    return task, TrainingStep(task, training, optimizer, strategy)


def _batch(vocab_size: int, B: int, S: int, P: int, shortest: int) -> dict[str, tf.Tensor]:
    """Returns a batch of random tokens, in sequences of `shortest` to S tokens."""
    generator = np.random.default_rng(1)
    lengths = np.linspace(shortest, S, B).astype(int)[:, None]
    mask = np.arange(S) < lengths
    columns = {
        "input_ids": generator.integers(5, vocab_size, (B, S)) * mask,
        "input_mask": mask,
        "segment_ids": mask & (np.arange(S) >= lengths // 2),
        "masked_lm_positions": generator.integers(1, lengths, (B, P)),
        "masked_lm_ids": generator.integers(5, vocab_size, (B, P)),
        "next_sentence_labels": generator.integers(0, 2, (B, 1)),
    }
    batch = {name: tf.constant(values, tf.int32) for name, values in columns.items()}
    weights = tf.constant(np.arange(P) < 1 + np.arange(B)[:, None], tf.float32)
    return {**batch, "masked_lm_weights": weights, "example_weights": tf.ones(B)}


@process_state_kept()
def golden_numbers(name: str, precision: str, xla: bool, attention: str) -> dict[str, list[float]]:
    """Trains a small model for three steps; returns the numbers in `RECORDED`.

    Args:
        name: distribution strategy.
        precision: "float32", "bfloat16" or "float16".
        xla: whether the step is compiled by XLA.
        attention: "plain" or "cudnn".

    Raises:
        Skipped: the attention is not supported here, or the replicas cannot share the batch.
        ValueError: variables are not on the device of this machine, or the attention is supported
            but its results differ from plain attention.
    """
    if precision == FLOAT32:
        tf.config.experimental.enable_tensor_float_32_execution(False)
    if attention == "cudnn":
        reasons = fused_attention.unsupported(
            CONFIG, precision, fused_attention.compute_capabilities(), jit_compile=xla
        )
        if reasons:
            raise Skipped("; ".join(reasons))
    strategy = create_strategy(name)
    if _B % strategy.num_replicas_in_sync:
        raise Skipped(f"{strategy.num_replicas_in_sync} devices cannot share a batch of {_B}")
    rate = OptimizerConfig(optimizer="lamb", learning_rate=0.01, num_warmup_steps=0)
    settings: dict[str, Any] = {"precision": precision, "jit_compile": xla, "attention": attention}
    task, step = _training_step(strategy, CONFIG, rate, _B, _S, _P, **settings)
    if step.attention_name != attention:
        raise UserError("cuDNN attention differs from plain attention; see the log")
    variables = step.variables
    device = "TPU" if is_tpu(strategy) else _gpu_or_cpu()
    if misplaced := {v.value.device for v in variables if f":{device}:" not in v.value.device}:
        raise UserError(f"variables must be on a {device}. Found on: {', '.join(misplaced)}")
    generator = np.random.default_rng(0)
    for variable_name, variable in sorted(original_names(step.model).items()):
        noise = generator.random(variable.shape) - 0.5
        variable.assign(1 + noise / 5 if variable_name.endswith("gamma") else noise / 3)
    before = [variable.numpy() for variable in variables]
    batch = split_batch(strategy, _batch(CONFIG.vocab_size, _B, _S, _P, shortest=_S // 4))
    reports = [tf.nest.map_structure(float, step.update(batch)) for _ in range(_STEPS)]
    updates = [v.numpy() - old for v, old in zip(variables, before, strict=True)]
    generator = np.random.default_rng(2)
    projections = [np.vdot(update, generator.random(update.shape) - 0.5) for update in updates]
    return {
        "loss": [float(task.total_loss(report["sums"])) for report in reports],
        "gradient_norm": [report["gradient_norm"] for report in reports],
        "update": [
            float(np.sqrt(sum(np.vdot(update, update) for update in updates))),
            float(np.sum(projections)),
        ],
    }


def _check_golden(name: str, precision: str, xla: bool, attention: str) -> str:
    numbers = golden_numbers(name, precision, xla, attention)
    tolerance = TOLERANCES[BFLOAT16 if name == "tpu" else precision]
    limits = {"loss": tolerance / 10, "gradient_norm": tolerance, "update": tolerance}
    size = {**{key: np.abs(RECORDED[key]) for key in RECORDED}, "update": RECORDED["update"][0]}
    errors = {
        key: float(np.max(np.abs(np.subtract(values, RECORDED[key])) / size[key]))
        for key, values in numbers.items()
    }
    text = ", ".join(
        f"{key} differs by {error:.1e} (at most {limits[key]:.0e})" for key, error in errors.items()
    )
    if not all(error <= limits[key] for key, error in errors.items()):
        raise UserError(f"{text}. Received: {numbers}")
    return text


@process_state_kept()
def _time_base(device: str, name: str, length: int, full: bool) -> str:
    """Returns the time of a step of ALBERT-base, and its share of the peak of the devices."""
    if device == "CPU" and not full:
        raise Skipped("timed on a CPU only with --full")
    config, P = AlbertConfig.from_preset("base_v2"), length * 15 // 100
    strategy = create_strategy(name)
    batch_size = (_TIMED[length] if device != "CPU" else 2) * strategy.num_replicas_in_sync
    precision = {"TPU": BFLOAT16, "GPU": _half_of_gpu(), "CPU": FLOAT32}[device]
    settings: dict[str, Any] = {"precision": precision, "jit_compile": device != "CPU"}
    _, step = _training_step(strategy, config, OptimizerConfig(), batch_size, length, P, **settings)
    batch = _batch(config.vocab_size, batch_size, length, P, shortest=length)
    features = split_batch(strategy, batch)
    times: list[float] = []
    for _ in range(3):
        start = time.perf_counter()
        count = 1 if not times or device == "CPU" else 10  # the first one compiles
        reports = [step.update(features) for _ in range(count)]
        if not math.isfinite(reports[-1]["gradient_norm"].numpy()):
            raise UserError("the gradient norm is not finite")
        times.append((time.perf_counter() - start) / count)
    best = min(times[1:])
    attention = step.attention_name
    text = (
        f"{best * 1e3:.1f} ms per step of {batch_size}, {batch_size / best:.0f} sequences/s, "
        f"{precision}, attention={attention}; compiled in {times[0]:.0f} s"
    )
    peak = _total_peak(device, strategy)
    if not peak:
        return f"{text}; the peak of this device is unknown"
    share = 3 * _operations(config, batch_size, length, P) / best / peak / 1e12
    return f"{text}; {share:.1%} of {peak} TFLOP/s"


def _total_peak(device: str, strategy: tf.distribute.Strategy) -> int:
    """Returns the TFLOP/s of all replicas, 0 if unknown. A TPU chip may be two replicas."""
    if device == "TPU":
        chips, extended = tpu_chips(), strategy.extended
        used = min(len(chips), extended.num_replicas_per_host) * extended.num_hosts
        return _peak(chips[0][0]) * used if chips else 0
    return _peak(device_names()[0]) * strategy.num_replicas_in_sync if device == "GPU" else 0


def _peak(name: str) -> int:
    """Returns the TFLOP/s of a device, 0 if unknown. Whole words match: an RTX A4000 is no A40."""
    return next((p for key, p in _PEAKS.items() if re.search(rf"\b{key}\b", name)), 0)


def _half_of_gpu() -> str:
    capabilities = fused_attention.compute_capabilities()
    return BFLOAT16 if min(capabilities, default=(8, 0)) >= (8, 0) else FLOAT16


def _operations(config: AlbertConfig, B: int, S: int, P: int) -> float:
    """Returns the floating-point operations of the matrix products of one forward pass."""
    E, H = config.embedding_size, config.hidden_size
    F, V = config.intermediate_size, config.vocab_size
    layer = 2 * S * (4 * H * H + 2 * H * F) + 4 * S * S * H
    return B * (config.num_hidden_layers * layer + 2 * S * E * H + 2 * P * E * (H + V) + 2 * H * H)


def _check_training(device: str) -> str:
    """Trains on Python's documentation. The loss must decrease."""
    mini = bundled_directory("mini")
    config, steps = CONFIG.replace(vocab_size=8000), 20
    if device != "CPU":
        config, steps = read_config(os.path.join(mini, "config.json")), 200
    with tempfile.TemporaryDirectory() as folder:
        config.to_json_file(os.path.join(folder, "albert_config.json"))
        write_corpus(folder, None if steps > 20 else 100)
        data = PretrainingDataSettings(
            input_file=os.path.join(folder, TRAINING_FILE),
            output_file=os.path.join(folder, "records"),
            spm_model_file=os.path.join(mini, "spiece.model"),
            max_seq_length=_S,
            max_predictions_per_seq=10,
            dupe_factor=2,
            num_workers=1,
        )
        create_pretraining_data(data)
        precision = {"TPU": BFLOAT16, "GPU": _half_of_gpu(), "CPU": FLOAT32}[device]
        replicas = create_strategy("tpu" if device == "TPU" else "auto").num_replicas_in_sync
        training = PretrainingSettings(
            input_file=data.output_file,
            output_dir=os.path.join(folder, "run"),
            albert_config_file=os.path.join(folder, "albert_config.json"),
            max_seq_length=_S,
            max_predictions_per_seq=10,
            train_batch_size=-(-64 // replicas) * replicas,
            num_train_steps=steps,
            num_warmup_steps=steps // 10,
            optimizer="adamw",
            learning_rate=1e-3,
            log_steps=steps // 10,
            precision=precision,
            use_tpu=device == "TPU",
        )
        history = run_pretraining(training).history
    losses = [record["loss"] for record in history if record["phase"] == "train"]
    first, last = losses[0], statistics.fmean(losses[-2:])
    if not last < 0.95 * first:
        raise UserError(f"the loss does not decrease: {first:.3f}, then {last:.3f}")
    return f"{steps} steps, {precision}: the loss decreased from {first:.3f} to {last:.3f}"


def _word(check: Check) -> str:
    return {True: "passed", False: "FAILED", None: "not applicable"}[check.passed]


def _report(checks: list[Check]) -> str:
    """Returns the report in Markdown."""
    build = tf.sysconfig.get_build_info()
    facts: Mapping[str, Any] = {
        "time": time.strftime("%Y-%m-%d %H:%M:%S %Z"),
        "system": platform.platform(),
        "versions": f"albert_tf {__version__}, Python {platform.python_version()}, TensorFlow "
        f"{tf.__version__}, Keras {keras.__version__}, NumPy {np.__version__}",
        "built for": f"CUDA {build.get('cuda_version')}, cuDNN {build.get('cudnn_version')}",
        "driver": _DRIVER.read_text().splitlines()[0] if _DRIVER.exists() else "none",
        **{name: os.environ[name] for name in sorted(os.environ) if _ENVIRONMENT.fullmatch(name)},
    }
    lines = ["# albert_tf on this machine", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += ["", "| check | result | details |", "|---|---|---|"]
    for check in checks:
        details = re.sub(r"\s+", " ", check.details).replace("|", "\\|")
        lines.append(f"| {check.name} | {_word(check)} | {details} |")
    failed = sum(check.passed is False for check in checks)
    return "\n".join([*lines, "", f"{failed} of {len(checks)} checks failed.", ""])
