"""Checks that training is correct and fast on this machine, and writes a report.

Golden steps train the model mini on generated text. Their losses and gradient norms are compared
with numbers that were recorded on a CPU in float32. cuDNN attention is checked in separate
processes, because a crash of its kernels must not stop the other checks.
"""

import glob
import itertools
import os
import platform
import random
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.load_tokenizer import load_tokenizer
from albert_tf.checkpoints.loading import load
from albert_tf.checkpoints.model_directory import make_output_dir
from albert_tf.config import BFLOAT16, FLOAT16, FLOAT32, AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.data.files import write_file
from albert_tf.modeling import fused_attention
from albert_tf.pretraining.create_data import PretrainingDataSettings, create_pretraining_data
from albert_tf.pretraining.run import PretrainingSettings, run_pretraining
from albert_tf.training.cluster import TF_CONFIG, num_workers
from albert_tf.training.strategies import create_strategy, device_names, has_tpu_kernels, split_cpu
from albert_tf.version import __version__

REPORT_FILE = "accelerator_report.md"
# Golden steps on a CPU in float32.
RECORDED = {
    "loss": [12.534489, 11.732922, 10.999396],
    "gradient_norm": [30.412514, 23.134628, 17.871944],
}
# Maximum relative errors of gradient norms. For losses, a tenth of these values is the limit. On a
# CPU the largest errors of gradient norms were 1e-7 (float32), 2e-2 (bfloat16) and 5e-4 (float16).
# A missing mask causes 1e-1. TF32 rounds like float16.
TOLERANCES = {FLOAT32: 1e-4, BFLOAT16: 5e-2, FLOAT16: 5e-3}
_GOLDEN_BATCH, _GOLDEN_LENGTH = 8, 64
_TIMED = {128: 128, 512: 32}  # batch size per device, by sequence length
# Environment variables that are reported. Others may contain secrets.
_ENVIRONMENT = re.compile(
    r"(TF_)?XLA_FLAGS|(NCCL|TF_GPU|TF_CUDNN|TF_FORCE_GPU)_\w+|CUDA_VISIBLE_DEVICES|LIBTPU_INIT_ARGS"
)
_DRIVER = Path("/proc/driver/nvidia/version")
_RESULTS = {True: "passed", False: "FAILED", None: "not applicable"}
Found = tuple[str, float | None]  # details, and the measured sequences per second, if any


class Skipped(Exception):  # noqa: N818
    """Raised by a check that does not apply to this machine, with the reason."""


class Check(NamedTuple):
    """The result of a check. `passed` is `None` if the check does not apply."""

    name: str
    passed: bool | None
    details: str
    rate: float | None = None


def check_accelerator(output_dir: str, *, full: bool = False, use_tpu: bool = False) -> list[Check]:
    """Runs all checks and writes `REPORT_FILE`. A failed check does not stop the others.

    With `full`, the base model is also timed on a CPU. Raises `ValueError` if the directory cannot
    be written to, or if TF_CONFIG names several workers.
    """
    if num_workers() > 1:
        raise UserError(
            f"{TF_CONFIG} names {num_workers()} workers, but the checks are for one machine. Unset "
            f"{TF_CONFIG}, and run the command on each machine."
        )
    make_output_dir(output_dir)
    _share_gpus()
    checks: list[Check] = []
    for name, function in _checks(full, use_tpu):
        start = time.perf_counter()
        try:
            check = Check(name, True, *function())
        except Skipped as reason:
            check = Check(name, None, str(reason))
        except Exception as error:  # the other checks must run
            logging.debug("Stack trace of the error:", exc_info=True)
            check = Check(name, False, f"{type(error).__name__}: {str(error).strip()[:600]}")
        checks.append(check)
        seconds = time.perf_counter() - start
        logging.info("%s: %s (%.0f s) %s", name, _RESULTS[check.passed], seconds, check.details)
    write_file(os.path.join(output_dir, REPORT_FILE), _report(checks))
    return checks


def _share_gpus() -> None:
    """Allocates GPU memory only as needed, so that two processes can use a GPU."""
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)


def run_isolated(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function in a new process. Raises `ValueError` if the process crashes."""
    with ProcessPoolExecutor(1, get_context("spawn"), _share_gpus) as pool:
        try:
            return pool.submit(function, *arguments).result()
        except BrokenProcessPool as error:
            raise UserError("the process crashed") from error


def _checks(full: bool, use_tpu: bool) -> Iterator[tuple[str, Callable[[], Found]]]:
    """Yields the checks by name. A check raises an error if it fails."""
    gpus = tf.config.list_physical_devices("GPU")
    device = "TPU" if use_tpu else "GPU" if gpus else "CPU"
    yield "devices", partial(_check_devices, device)
    if device == "CPU":
        split_cpu(2)  # two logical devices
    names = ("one_device",) if len(gpus) == 1 else ("one_device", "mirrored")
    names = ("tpu",) if use_tpu else names
    precisions = (FLOAT32, BFLOAT16, FLOAT16) if device == "GPU" else (FLOAT32, BFLOAT16)
    for name, precision, xla in itertools.product(names, precisions, (False, True)):
        is_half = precision != FLOAT32
        if (device, is_half, xla) != ("CPU", True, True) and (device != "TPU" or xla):
            title = f"golden steps, {name}, {precision}{', xla' * xla}"
            golden = partial(_check_golden, name, precision, xla)
            yield title, partial(golden, "plain")
            if device == "GPU" and xla and is_half:
                yield f"{title}, cudnn", partial(run_isolated, golden, "cudnn")
    for name, length in itertools.product(names, _TIMED if device != "CPU" or full else ()):
        title, speed = f"base, {name}, length {length}", partial(_check_speed, device, name, length)
        yield title, partial(speed, "plain")
        if device == "GPU":
            yield f"{title}, cudnn", partial(run_isolated, speed, "cudnn")
    yield "training", partial(_check_training, device, names[-1])


def _check_devices(device: str) -> Found:
    if device == "CPU" and glob.glob("/dev/nvidia[0-9]*"):
        raise UserError("TensorFlow does not find the NVIDIA GPU. Run pip install '.[gpu]'")
    if device != "TPU":
        return ", ".join(device_names()), None
    if not has_tpu_kernels():
        raise UserError("the installed TensorFlow has no TPU kernels. See TPU in docs/scaling.md")
    return f"TPU, {_replicas('tpu')} cores", None


def _replicas(name: str) -> int:
    return create_strategy(name).num_replicas_in_sync


def _fast_precision(device: str) -> str:
    """Returns float32 for CPUs, otherwise the half precision that the device supports."""
    if device == "CPU":
        return FLOAT32
    is_old = device == "GPU" and min(fused_attention.compute_capabilities()) < (8, 0)
    return FLOAT16 if is_old else BFLOAT16


def _train(config: AlbertConfig, length: int, **settings: Any) -> list[Mapping[str, Any]]:
    """Trains a model on generated text. Returns the records of `metrics.jsonl` about training."""
    tokenizer = load_tokenizer("mini")
    words = [token[1:] for token in tokenizer.tokens if re.fullmatch("▁[a-z]{3,}", token)]
    generator = random.Random(0)

    def document() -> str:
        lines = (generator.choices(words, k=generator.randint(4, 20)) for _ in range(40))
        return "\n".join(map(" ".join, lines))

    size: dict[str, Any] = {"max_seq_length": length, "max_predictions_per_seq": length * 15 // 100}
    if settings.get("attention") == "cudnn":
        _check_attention(config, settings["precision"], length)
    with tempfile.TemporaryDirectory() as folder:
        names = ("text", "records", "config")
        text, records, config_file = (os.path.join(folder, name) for name in names)
        Path(text).write_text("\n\n".join(document() for _ in range(100)))
        config.to_json_file(config_file)
        create_pretraining_data(
            PretrainingDataSettings(
                input_file=text,
                output_file=records,
                spm_model_file=tokenizer.files[0],
                # Golden steps detect wrong masks only if sequences contain padding.
                short_seq_prob=float(length == _GOLDEN_LENGTH),
                dupe_factor=1,
                num_workers=1,
                **size,
            )
        )
        settings = {"num_warmup_steps": 0, "shuffle_buffer_size": 1, **size, **settings}
        result = run_pretraining(
            PretrainingSettings(
                input_file=records,
                output_dir=os.path.join(folder, "run"),
                albert_config_file=config_file,
                **settings,
            )
        )
    return [record for record in result.history if record["phase"] == "train"]


def golden_numbers(name: str, precision: str, xla: bool, attention: str) -> dict[str, list[float]]:
    """Trains mini for three steps. Returns the values to compare with `RECORDED`."""
    if _GOLDEN_BATCH % _replicas(name):
        raise Skipped(f"{_replicas(name)} devices cannot share a batch of {_GOLDEN_BATCH}")
    records = _train(
        load("mini").config,
        _GOLDEN_LENGTH,
        init_checkpoint="mini",
        train_batch_size=_GOLDEN_BATCH,
        num_train_steps=3,
        learning_rate=0.001,  # with 0.01, gradients of the second step overflow in float16
        log_steps=1,
        precision=precision,
        xla=xla,
        attention=attention,
        distribution_strategy=name,
    )
    if skipped := [record["step"] for record in records if record.get("skipped_steps")]:
        raise UserError(f"the gradients of step {skipped[0]} are not finite: {records}")
    return {key: [record[key] for record in records] for key in RECORDED}


def _check_attention(config: AlbertConfig, precision: str, length: int) -> None:
    """Raises `Skipped` if cuDNN attention is not supported, `ValueError` if it is wrong."""
    capabilities = fused_attention.compute_capabilities()
    reasons = fused_attention.unsupported(config, precision, capabilities, jit_compile=True)
    if reasons:
        raise Skipped("; ".join(reasons))
    shape = (config.num_attention_heads, length, config.head_size)
    kernels = fused_attention.cudnn_forward, fused_attention.cudnn_backward
    if problem := fused_attention.disagreement(*kernels, shape, precision):
        raise UserError(f"cuDNN attention differs from plain attention: {problem}")


def _check_golden(name: str, precision: str, xla: bool, attention: str) -> Found:
    numbers = golden_numbers(name, precision, xla, attention)
    tolerance = TOLERANCES[BFLOAT16 if name == "tpu" else precision]
    limits = {"loss": tolerance / 10, "gradient_norm": tolerance}
    errors = {
        key: float(np.max(np.abs(np.divide(numbers[key], RECORDED[key]) - 1))) for key in limits
    }
    text = ", ".join(
        f"{key} differs by {error:.1e} (at most {limits[key]:.0e})" for key, error in errors.items()
    )
    if not all(error <= limits[key] for key, error in errors.items()):
        raise UserError(f"{text}. Received: {numbers}")
    return text, None


def _check_speed(device: str, name: str, length: int, attention: str) -> Found:
    config, precision = AlbertConfig.from_preset("base_v2"), _fast_precision(device)
    batch_size = (_TIMED[length] if device != "CPU" else 2) * _replicas(name)
    steps = 4 if device == "CPU" else 40
    records = _train(
        config,
        length,
        train_batch_size=batch_size,
        num_train_steps=steps,
        log_steps=steps // 2,  # the first half compiles
        precision=precision,
        xla=device != "CPU",
        attention=attention,
        distribution_strategy=name,
    )
    rate = records[-1]["examples_per_second"]
    E, H, F = config.embedding_size, config.hidden_size, config.intermediate_size
    S, P, V = length, length * 15 // 100, config.vocab_size
    layer = 2 * S * (4 * H * H + 2 * H * F) + 4 * S * S * H
    heads = 2 * S * E * H + 2 * P * E * (H + V) + 2 * H * H
    operations = 3 * rate * (config.num_hidden_layers * layer + heads)
    details = (
        f"{1e3 * batch_size / rate:.1f} ms per step of {batch_size}, {rate:.0f} sequences/s, "
        f"{operations / 1e12:.1f} TFLOP/s, {precision}"
    )
    return details, rate


def _check_training(device: str, name: str) -> Found:
    """Trains a model with random weights, whose loss must decrease."""
    steps, precision = 20 if device == "CPU" else 200, _fast_precision(device)
    records = _train(
        load("mini").config,
        _GOLDEN_LENGTH,
        train_batch_size=16 * _replicas(name),
        num_train_steps=steps,
        optimizer="adamw",
        learning_rate=1e-3,
        log_steps=steps // 10,
        precision=precision,
        distribution_strategy=name,
    )
    losses = [record["loss"] for record in records]
    first, last = losses[0], statistics.fmean(losses[-2:])
    if not last < 0.95 * first:
        raise UserError(f"the loss does not decrease: {first:.3f}, then {last:.3f}")
    return f"{steps} steps, {precision}: the loss decreased from {first:.3f} to {last:.3f}", None


def recommendation(checks: Sequence[Check]) -> list[str]:
    """Returns the recommended attention, a line per sequence length, if cuDNN was checked."""
    if any(check.passed is False and check.name.endswith("cudnn") for check in checks):
        return ["Use --attention=plain: a check of cuDNN attention failed."]
    rates = {check.name: check.rate for check in checks if check.rate}
    lines = []
    for length in _TIMED:
        titles = [name for name in rates if name.endswith(f"length {length}")]
        ratios = [rates[f"{t}, cudnn"] / rates[t] for t in titles if f"{t}, cudnn" in rates]
        if ratios:
            attention = "cudnn" if min(ratios) > 1 else "plain"
            lines.append(
                f"Length {length}: use --attention={attention}; with cuDNN attention, a step is "
                f"{min(ratios):.2f} times as fast."
            )
    return lines


def _report(checks: Sequence[Check]) -> str:
    build = tf.sysconfig.get_build_info()
    lines = [
        "# albert_tf on this machine",
        "",
        f"- time: {time.strftime('%Y-%m-%d %H:%M:%S %Z')}",
        f"- system: {platform.platform()}",
        f"- versions: albert_tf {__version__}, Python {platform.python_version()}, "
        f"TensorFlow {tf.__version__}, Keras {keras.__version__}, NumPy {np.__version__}",
        f"- built for: CUDA {build.get('cuda_version')}, cuDNN {build.get('cudnn_version')}",
        f"- driver: {_DRIVER.read_text().splitlines()[0] if _DRIVER.exists() else 'none'}",
        *(f"- {name}: {os.environ[name]}" for name in os.environ if _ENVIRONMENT.fullmatch(name)),
        "",
        "| check | result | details |",
        "|---|---|---|",
    ]
    for check in checks:
        details = re.sub(r"\s+", " ", check.details).replace("|", "\\|")
        lines.append(f"| {check.name} | {_RESULTS[check.passed]} | {details} |")
    failed = sum(check.passed is False for check in checks)
    lines += ["", f"{failed} of {len(checks)} checks failed.", "", *recommendation(checks), ""]
    return "\n".join(lines)
