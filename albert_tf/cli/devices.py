"""What the flags of devices mean: where a command computes."""

from __future__ import annotations

import tensorflow as tf
from absl import flags, logging

from albert_tf.cli.dry_run import is_dry_run
from albert_tf.training.distribution import (
    TpuAddress,
    create_strategy,
    create_strategy_of_one_worker,
    is_tpu,
    local_replicas,
    settle_strategy,
    split_cpu,
)
from albert_tf.training.run_log import device_names

# Flags of the original release that TensorFlow 2 has no use for.
_WITHOUT_MEANING = {
    "master": "TensorFlow 2 has no session masters",
    "iterations_per_loop": "training returns to Python after every step",
}

_TPU_ONLY = ("tpu_name", "tpu_zone", "gcp_project", "num_tpu_cores")


def check_device_flags(values: flags.FlagValues) -> None:
    """Checks what goes together, and says which flags given on the command line change nothing.

    Raises:
        ValueError: flags, or flags and TF_CONFIG, contradict each other.
    """
    name = values.distribution_strategy
    if values.use_tpu and name not in ("auto", "tpu"):
        raise ValueError(
            f"--use_tpu and --distribution_strategy={name} contradict each other: leave out one."
        )
    if not _uses_tpu(values):
        settle_strategy(name, num_logical_cpu_devices=values.num_logical_cpu_devices)
    for other, reason in _WITHOUT_MEANING.items():
        if values[other].present:
            logging.info("--%s changes nothing: %s", other, reason)
    for other in _TPU_ONLY:
        if values[other].present and not _uses_tpu(values):
            logging.info("--%s changes nothing without --use_tpu", other)


def _uses_tpu(values: flags.FlagValues) -> bool:
    return values.use_tpu or values.distribution_strategy == "tpu"


def strategy_from_flags(values: flags.FlagValues) -> tf.distribute.Strategy:
    """Returns where to compute; with several workers, nothing may use TensorFlow before.

    With --dry_run the devices of this process alone: other workers are not waited for.

    Raises:
        ValueError: there is no such strategy here.
    """
    name = "tpu" if values.use_tpu else values.distribution_strategy
    split_cpu(values.num_logical_cpu_devices)
    num_cores = values.num_tpu_cores if values["num_tpu_cores"].present else None
    tpu = TpuAddress(values.tpu_name, values.tpu_zone, values.gcp_project, num_cores)
    if is_dry_run(values) and settle_strategy(name) == "multi_worker":
        strategy = create_strategy_of_one_worker()
    else:
        strategy = create_strategy(name, tpu)
    log_devices(strategy)
    logging.info("replicas_in_sync=%d", strategy.num_replicas_in_sync)
    return strategy


def log_devices(strategy: tf.distribute.Strategy | None = None) -> None:
    """Logs where this process computes: kind and model of its accelerators, or the CPU.

    Args:
        strategy: what drives them. Default: one device.
    """
    if strategy is not None and is_tpu(strategy):
        names = [f"TPU, {strategy.num_replicas_in_sync} cores"]
    else:
        names = device_names()[: local_replicas(strategy) if strategy else 1]
    logging.info("devices=%s", ", ".join(names))
