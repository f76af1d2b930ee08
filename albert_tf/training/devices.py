"""Where a command computes: what its settings mean."""

from __future__ import annotations

import tensorflow as tf
from absl import logging

from albert_tf.training.distribution import (
    TpuAddress,
    create_strategy,
    create_strategy_of_one_worker,
    is_tpu,
    local_replicas,
    resolve_strategy,
    split_cpu,
)
from albert_tf.training.run_log import device_names
from albert_tf.training.settings import TrainingSettings


def check_devices(settings: TrainingSettings) -> None:
    """Checks what goes together, and says which settings change nothing.

    Raises:
        ValueError: settings, or settings and TF_CONFIG, contradict each other.
    """
    name = settings.distribution_strategy
    if settings.use_tpu and name not in ("auto", "tpu"):
        raise ValueError(
            f"--use_tpu and --distribution_strategy={name} contradict each other: omit one."
        )
    if settings.use_tpu or name == "tpu":
        return
    resolve_strategy(name, num_logical_cpu_devices=settings.num_logical_cpu_devices)
    for flag in ("tpu_name", "tpu_zone", "gcp_project", "num_tpu_cores"):
        if getattr(settings, flag) is not None:
            logging.info("--%s has no effect without --use_tpu", flag)


def strategy_of(settings: TrainingSettings) -> tf.distribute.Strategy:
    """Returns where to compute; with several workers, nothing may use TensorFlow before.

    With --dry_run the devices of this process alone: other workers are not waited for.

    Raises:
        ValueError: there is no such strategy here.
    """
    name = "tpu" if settings.use_tpu else settings.distribution_strategy
    split_cpu(settings.num_logical_cpu_devices)
    if settings.dry_run and resolve_strategy(name) == "multi_worker":
        strategy = create_strategy_of_one_worker()
    else:
        tpu = TpuAddress(
            settings.tpu_name, settings.tpu_zone, settings.gcp_project, settings.num_tpu_cores
        )
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
