"""Distribution strategies: the devices on which a run computes.

The same global batch gives the same weights on any number of workers and replicas. No other module
except `cluster` uses the strategy classes of TensorFlow.
"""

import dataclasses
import os
import platform
from collections.abc import Mapping
from functools import cache
from typing import TypeVar

import tensorflow as tf
from absl import logging
from tensorflow.python.framework import kernels  # no public API lists kernels

from albert_tf.checkpoints.facts import Meeting, settle, stated
from albert_tf.config import FLOAT32
from albert_tf.data.errors import UserError
from albert_tf.training.cluster import (
    TF_CONFIG,
    TF_CONFIG_EXAMPLE,
    LostWorkerError,
    Workers,
    cluster_from_environment,
    connect_workers,
    num_workers,
)
from albert_tf.training.interruption import die_on_signals
from albert_tf.training.settings import TrainingSettings

_LOCAL_TPU = "local"  # the TPU of this machine
_MOST_COMPILED_LENGTHS = 4
T = TypeVar("T", bound=TrainingSettings)


def split_cpu(num_devices: int) -> None:
    """Splits the CPU into logical devices. Raises ValueError if TensorFlow is already in use."""
    if num_devices == 1:
        return
    cpu = tf.config.list_physical_devices("CPU")[0]
    parts = [tf.config.LogicalDeviceConfiguration() for _ in range(num_devices)]
    try:
        tf.config.set_logical_device_configuration(cpu, parts)
    except RuntimeError as error:
        raise UserError(
            f"`num_logical_cpu_devices` must be set before TensorFlow is used: {error}"
        ) from error


def resolve_strategy(name: str, *, num_logical_cpu_devices: int = 1) -> str:
    """Returns `name`, or "multi_worker" for "auto" if TF_CONFIG names several workers.

    Raises ValueError if `name` does not match TF_CONFIG or the other argument.
    """
    workers = num_workers()
    if name == "auto" and workers > 1:
        name = "multi_worker"
    if name == "multi_worker":
        if cluster_from_environment() is None:
            raise UserError(
                "`distribution_strategy`=multi_worker requires the addresses of the workers in the "
                f"environment variable {TF_CONFIG}. For the first of two workers: "
                f"{TF_CONFIG_EXAMPLE}"
            )
        if num_logical_cpu_devices > 1:
            raise UserError(
                "`num_logical_cpu_devices` is not supported with several workers, because "
                "TensorFlow uses only one CPU device per worker. Start more workers instead."
            )
    elif workers > 1:
        raise UserError(
            f"{TF_CONFIG} names {workers} workers, but `distribution_strategy`={name} would train "
            "them separately in the same `output_dir`. Use `distribution_strategy`=multi_worker, "
            f"or unset {TF_CONFIG}."
        )
    return name


def create_strategy(
    name: str = "auto",
    *,
    all_reduce: str = "auto",
    tpu_name: str | None = None,
    num_tpu_cores: int | None = None,
) -> tf.distribute.Strategy:
    """Creates the strategy `name`, one of `settings.STRATEGIES`.

    The other arguments are described in docs/flags.md. With several workers, this
    must be called before TensorFlow computes anything. Raises ValueError if a device is missing.
    """
    name = resolve_strategy(name)
    if name == "multi_worker":
        return _multi_worker(all_reduce)
    if name == "tpu":
        return _tpu(tpu_name or _LOCAL_TPU, num_tpu_cores)
    return _local(name)


def _local(name: str) -> tf.distribute.Strategy:
    gpus = tf.config.list_logical_devices("GPU")
    devices = [device.name for device in gpus or tf.config.list_logical_devices("CPU")]
    if name == "mirrored" or (name == "auto" and len(gpus) > 1):
        return _mirrored(tuple(devices))
    return tf.distribute.OneDeviceStrategy(devices[0])


@cache
def _mirrored(devices: tuple[str, ...]) -> tf.distribute.MirroredStrategy:
    """Creates the strategy once per process. A second strategy would reuse its reduction keys."""
    return tf.distribute.MirroredStrategy(devices)


def communication_options(all_reduce: str) -> tf.distribute.experimental.CommunicationOptions:
    """Returns the options for summing gradients: gRPC for "ring", NCCL for "nccl".

    "auto" selects NCCL if there are GPUs, otherwise gRPC.
    """
    has_gpus = bool(tf.config.list_physical_devices("GPU"))
    if all_reduce == "nccl" and not has_gpus:
        raise UserError("`all_reduce`=nccl needs GPUs; this machine has none. Use auto or ring.")
    # TensorFlow's own default is gRPC, even on GPUs.
    implementation = "RING" if all_reduce == "ring" or not has_gpus else "NCCL"
    return tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation(implementation)
    )


@cache
def _multi_worker(all_reduce: str) -> tf.distribute.MultiWorkerMirroredStrategy:
    options = communication_options(all_reduce)
    cluster = cluster_from_environment()
    assert cluster is not None
    names = ", ".join(cluster.workers)
    logging.info("This is worker %d of %s. Waiting for the other workers", cluster.index, names)
    try:
        connect_workers(cluster)
        # TensorFlow sets its own handler of SIGTERM, which is replaced afterwards.
        with die_on_signals():
            return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    except RuntimeError as error:
        raise UserError(
            f"Several workers must connect before TensorFlow is used in this process: {error}"
        ) from error
    except (tf.errors.OpError, OSError) as error:
        if isinstance(error, OSError) or "start gRPC server" in str(error):
            raise UserError(
                f"This worker cannot listen on the port of {cluster.workers[cluster.index]}, its "
                f"address in {TF_CONFIG}. Another process probably uses the port. End that process,"
                " or choose another port."
            ) from error
        raise LostWorkerError(
            f"The workers of {TF_CONFIG} ({names}) did not connect to each other: "
            f"{_first_line(error)}"
        ) from error


@cache
def _tpu(name: str, num_cores: int | None) -> tf.distribute.TPUStrategy:
    """Creates the strategy once per process, because initializing a TPU discards its state."""
    if name != _LOCAL_TPU and not name.startswith("grpc://"):
        raise UserError(
            f"`tpu_name` must be {_LOCAL_TPU}, or an address grpc://host:8470. Received: {name!r}"
        )
    if not has_tpu_kernels():
        raise UserError(
            f"No TPU can be reached as `tpu_name`={name}: the installed TensorFlow "
            f"{tf.__version__} has no kernels for TPUs. Install the package tensorflow-tpu instead "
            'of tensorflow; see "TPU" in docs/scaling.md. Without a TPU, omit `use_tpu`.'
        )
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(name)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (tf.errors.OpError, RuntimeError, ValueError, OSError) as error:
        raise UserError(
            f"No TPU can be reached as `tpu_name`={name}: {_first_line(error)} Pass "
            "`tpu_name`=local on the TPU machine, otherwise `tpu_name`=grpc://host:8470. Without a "
            "TPU, omit `use_tpu`."
        ) from error
    strategy = tf.distribute.TPUStrategy(resolver)
    if num_cores not in (None, strategy.num_replicas_in_sync):
        raise UserError(
            f"`num_tpu_cores` must be {strategy.num_replicas_in_sync}, the number of cores of the "
            f"TPU {name}. Received: {num_cores}"
        )
    return strategy


def has_tpu_kernels() -> bool:
    """Returns whether the installed TensorFlow supports TPUs; the package `tensorflow` does not."""
    return bool(kernels.get_registered_kernels_for_op("TPUExecute").kernel)


def _first_line(error: BaseException) -> str:
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return line if line.endswith(".") else f"{line}."


def _strategy_name(settings: TrainingSettings) -> str:
    """Returns the name of the strategy. Checks the device settings, and logs ignored settings."""
    name, tpu = settings.distribution_strategy, "tpu" if settings.use_tpu else None
    given = {"`use_tpu`": tpu, "`distribution_strategy`": None if name == "auto" else name}
    settle(stated("The strategy", given), Meeting.ARGUMENTS)
    name = resolve_strategy(
        "tpu" if settings.use_tpu else name,
        num_logical_cpu_devices=settings.num_logical_cpu_devices,
    )
    if name == "tpu":
        return name
    if name == "multi_worker":
        implementation = communication_options(settings.all_reduce).implementation.value
        logging.debug("all_reduce=%s", implementation.lower())
    elif settings.all_reduce != "auto":
        logging.info("`all_reduce` has no effect without several workers in %s", TF_CONFIG)
    for setting in ("tpu_name", "num_tpu_cores", "iterations_per_loop"):
        if getattr(settings, setting) is not None:
            logging.info("`%s` has no effect without `use_tpu`", setting)
    return name


def with_xla(settings: T, num_lengths: int = 1) -> T:
    """Sets `xla` if it is `None`: True for half precision on GPUs with few padded lengths."""
    if settings.xla is not None:
        return settings
    is_half_on_gpu = settings.precision != FLOAT32 and bool(tf.config.list_physical_devices("GPU"))
    pays = is_half_on_gpu and not settings.use_tpu and num_lengths <= _MOST_COMPILED_LENGTHS
    if pays:
        logging.info("`xla` is enabled, because `precision`=%s on a GPU", settings.precision)
    elif is_half_on_gpu:
        logging.info(
            "`xla` is disabled, because it would compile for each of %d padded lengths. Without "
            "XLA, `precision`=%s is hardly faster. Use `padding`=max for a single length",
            num_lengths,
            settings.precision,
        )
    return dataclasses.replace(settings, xla=pays)


def strategy_of(settings: TrainingSettings) -> tf.distribute.Strategy:
    """Creates the strategy of a run. A dry run uses only the devices of this process.

    Raises ValueError if a device is missing, or settings, TF_CONFIG and devices do not match.
    """
    name = _strategy_name(settings)
    if settings.precision == FLOAT32 and name != "tpu":
        # Like TensorFlow 1.15; see `disable_tf32`. Half precision keeps TF32, because XLA's Triton
        # kernels require it. TPUs use the same precision as with the original release.
        tf.config.experimental.enable_tensor_float_32_execution(settings.tf32)
    if settings.deterministic:
        tf.config.experimental.enable_op_determinism()
    split_cpu(settings.num_logical_cpu_devices)
    if settings.dry_run and name == "multi_worker":
        strategy = _local("auto")
    else:
        strategy = create_strategy(
            name,
            all_reduce=settings.all_reduce,
            tpu_name=settings.tpu_name,
            num_tpu_cores=settings.num_tpu_cores,
        )
    log_devices(strategy)
    logging.debug("replicas_in_sync=%d", strategy.num_replicas_in_sync)
    return strategy


def disable_tf32() -> None:
    """Computes float32 products on GPUs without TF32, which TensorFlow 1.15 did not have."""
    tf.config.experimental.enable_tensor_float_32_execution(False)


def log_devices(strategy: tf.distribute.Strategy | None = None) -> None:
    """Logs the devices of the strategy, or of this process."""
    if strategy is not None and is_tpu(strategy):
        names = [f"TPU, {strategy.num_replicas_in_sync} cores"]
    else:
        names = device_names()[: local_replicas(strategy) if strategy else 1]
    logging.info("Computing on %s", ", ".join(names))


def device_names() -> list[str]:
    """Returns type and model of every accelerator, or of the CPU if there is none."""
    devices = [d for d in tf.config.list_physical_devices() if d.device_type != "CPU"]
    details = [tf.config.experimental.get_device_details(device) for device in devices]
    names = [
        f"{device.device_type} {detail.get('device_name', '')}".strip()
        for device, detail in zip(devices, details, strict=True)
    ]
    return names or [f"CPU {platform.machine()}, {os.cpu_count()} cores"]


def is_tpu(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether the replicas are TPU cores. XLA compiles all their programs, per shape."""
    return isinstance(strategy, tf.distribute.TPUStrategy)


def local_replicas(strategy: tf.distribute.Strategy) -> int:
    """Returns the number of replicas of this process."""
    return strategy.num_replicas_in_sync // Workers(strategy).size


def check_batch_size(replicas: int, batch_size: int, name: str, *, micro_batches: int = 1) -> None:
    """Raises ValueError unless the batch is a multiple of `replicas` * `micro_batches`."""
    parts = replicas * micro_batches
    if batch_size % parts:
        factors = f"{replicas} replicas"
        if micro_batches > 1:
            factors += f" * `gradient_accumulation_steps`={micro_batches}"
        raise UserError(
            f"{name} must be a multiple of {parts} ({factors}). Received: {batch_size}. Use, for "
            f"example, {batch_size + parts - batch_size % parts}."
        )


def split_batch(
    strategy: tf.distribute.Strategy, features: Mapping[str, tf.Tensor]
) -> Mapping[str, tf.Tensor]:
    """Splits features [B, ...] into [B / R, ...] for each of the R replicas of this process."""
    replicas = local_replicas(strategy)
    if strategy.num_replicas_in_sync == 1:
        return features

    def rows(context: tf.distribute.experimental.ValueContext, values: tf.Tensor) -> tf.Tensor:
        share = values.shape[0] // replicas
        start = context.replica_id_in_sync_group % replicas * share
        return values[start : start + share]

    return {
        name: strategy.experimental_distribute_values_from_function(
            lambda context, values=values: rows(context, values)
        )
        for name, values in features.items()
    }
