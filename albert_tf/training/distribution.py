"""Distribution strategies and the workers of a cluster.

A run has one process (worker) per machine, which drives one or more devices (replicas). The same
global batch gives the same weights on any number of workers and replicas. Only the first worker,
the chief, writes shared files. TF_CONFIG contains the addresses of all workers and the index of
this process. No other module uses the strategy classes of TensorFlow.
"""

import dataclasses
import json
import os
import platform
import random
import re
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, cast

import numpy as np
import tensorflow as tf
from absl import logging
from tensorflow.python.framework import (
    config as framework_config,  # no public API disables determinism
)
from tensorflow.python.framework import kernels  # no public API lists kernels

from albert_tf.config import FLOAT32
from albert_tf.data.errors import UserError
from albert_tf.data.strict_json import as_whole_number, parse_json, shown
from albert_tf.training.interruption import die_on_signals
from albert_tf.training.settings import TrainingSettings
from albert_tf.training.task import WHOLE, Shard

TF_CONFIG = "TF_CONFIG"
_EXAMPLE = (
    '{"cluster": {"worker": ["one:2222", "two:2222"]}, "task": {"type": "worker", "index": 0}}'
)
_LOCAL_TPU = "local"  # the TPU of this machine
_PORT_SECONDS = 10.0
_MOST_COMPILED_LENGTHS = 4
_UNSEEDED = 87654321  # TensorFlow's seed if none is set
_is_running = threading.Lock()
T = TypeVar("T", bound=TrainingSettings)


class LostWorkerError(UserError):
    """Another worker has ended or cannot be reached."""


@dataclass(frozen=True)
class Cluster:
    """The workers of a run as host:port, the chief first, and the index of this process."""

    workers: tuple[str, ...]
    index: int


def cluster_from_environment(environment: Mapping[str, str] = os.environ) -> Cluster | None:
    """Returns the cluster in TF_CONFIG, or `None`. Raises ValueError if TF_CONFIG is malformed."""
    text = environment.get(TF_CONFIG, "").strip()
    try:
        config = parse_json(text or "{}", TF_CONFIG)
        jobs = config.get("cluster")
        if not jobs:
            return None
        chief, others = jobs.pop("chief", []), jobs.pop("worker", [])
        workers = (*chief, *others)
        task, index = config["task"]["type"], config["task"]["index"]
        index = as_whole_number(int(index) if isinstance(index, str) else index)
        is_valid = (
            not jobs  # no other tasks
            and len(chief) <= 1
            and len(set(workers)) == len(workers)
            and all(re.fullmatch(".+:[0-9]{1,5}", address) for address in workers)
            and index is not None
            and index >= 0
        )
        if not is_valid:
            raise UserError("expected addresses as host:port, all different, and at most one chief")
        return Cluster(workers, workers.index({"chief": chief, "worker": others}[task][index]))
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise UserError(
            f"The environment variable {TF_CONFIG} is invalid ({type(error).__name__}: {error}). "
            f"Expected, for the first of two workers: {_EXAMPLE}. Received: {shown(text)}"
        ) from error


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

    Raises ValueError if `name` contradicts TF_CONFIG or the other argument.
    """
    workers = num_workers()
    if name == "auto" and workers > 1:
        name = "multi_worker"
    if name == "multi_worker":
        if cluster_from_environment() is None:
            raise UserError(
                "`distribution_strategy`=multi_worker requires the addresses of the workers in the "
                f"environment variable {TF_CONFIG}. For the first of two workers: {_EXAMPLE}"
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
    tpu_zone: str | None = None,
    gcp_project: str | None = None,
    num_tpu_cores: int | None = None,
) -> tf.distribute.Strategy:
    """Creates the strategy `name`, one of `config.STRATEGIES`.

    The other arguments are described in docs/flags.md. With several workers, this
    must be called before TensorFlow computes anything. Raises ValueError if a device is missing.
    """
    name = resolve_strategy(name)
    if name == "multi_worker":
        return _multi_worker(all_reduce)
    if name == "tpu":
        return _tpu(tpu_name or _LOCAL_TPU, tpu_zone, gcp_project, num_tpu_cores)
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
        raise UserError(
            "`all_reduce`=nccl requires GPUs, but this machine has no GPU. Use auto or ring."
        )
    # TensorFlow's own default is gRPC, even on GPUs.
    implementation = "RING" if all_reduce == "ring" or not has_gpus else "NCCL"
    return tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation(implementation)
    )


@cache
def _multi_worker(all_reduce: str) -> tf.distribute.MultiWorkerMirroredStrategy:
    options = communication_options(all_reduce)
    cluster = _own_cluster()
    logging.info(
        "This is worker %d of %s. Waiting for the other workers",
        cluster.index,
        ", ".join(cluster.workers),
    )
    while cluster.index and not _is_listening(cluster.workers[0]):
        time.sleep(0.2)  # a signal cannot interrupt TensorFlow's own wait for the chief
    try:
        # TensorFlow sets its own handler of SIGTERM, which is replaced afterwards.
        with die_on_signals():
            return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    except RuntimeError as error:
        raise UserError(
            f"Several workers must connect before TensorFlow is used in this process: {error}"
        ) from error
    except tf.errors.OpError as error:
        if "start gRPC server" in str(error):
            raise UserError(
                f"This worker cannot listen on the port of {cluster.workers[cluster.index]}, its "
                f"address in {TF_CONFIG}. Another process probably uses the port. End that process,"
                " or choose another port."
            ) from error
        raise LostWorkerError(
            f"The workers of {TF_CONFIG} ({', '.join(cluster.workers)}) did not connect to each "
            f"other: {_first_line(error)}"
        ) from error


def _is_listening(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    with suppress(OSError):
        socket.create_connection((host, int(port)), timeout=_PORT_SECONDS).close()
        return True
    return False


def num_workers() -> int:
    """Returns the number of workers in TF_CONFIG, or 1 if it is not set. Opens no connection."""
    cluster = cluster_from_environment()
    return len(cluster.workers) if cluster else 1


def _own_cluster() -> Cluster:
    cluster = cluster_from_environment()
    assert cluster is not None
    return cluster


@cache
def _tpu(
    name: str, zone: str | None, project: str | None, num_cores: int | None
) -> tf.distribute.TPUStrategy:
    """Creates the strategy once per process, because initializing a TPU discards its state."""
    if not has_tpu_kernels():
        raise UserError(
            f"No TPU can be reached as `tpu_name`={name}: the installed TensorFlow "
            f"{tf.__version__} has no kernels for TPUs. Install the package tensorflow-tpu instead "
            'of tensorflow; see "TPU" in docs/scaling.md. Without a TPU, omit `use_tpu`.'
        )
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            name, zone=zone, project=project
        )
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (tf.errors.OpError, RuntimeError, ValueError, OSError, ImportError) as error:
        raise UserError(
            f"No TPU can be reached as `tpu_name`={name}: {_first_line(error)} Pass the name of a "
            "TPU with `tpu_zone` and `gcp_project`, its address as `tpu_name`=grpc://host:8470, "
            "or on the TPU machine `tpu_name`=local. Without a TPU, omit `use_tpu`."
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
    name = settings.distribution_strategy
    if settings.use_tpu and name not in ("auto", "tpu"):
        raise UserError(f"`use_tpu` contradicts `distribution_strategy`={name}. Omit one of them.")
    name = resolve_strategy(
        "tpu" if settings.use_tpu else name,
        num_logical_cpu_devices=settings.num_logical_cpu_devices,
    )
    if name == "tpu":
        return name
    if name == "multi_worker":
        communication_options(settings.all_reduce)
    elif settings.all_reduce != "auto":
        logging.info("`all_reduce` has no effect without several workers in %s", TF_CONFIG)
    for setting in ("tpu_name", "tpu_zone", "gcp_project", "num_tpu_cores", "iterations_per_loop"):
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

    Raises ValueError if a device is missing, or settings, TF_CONFIG and devices contradict.
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
            tpu_zone=settings.tpu_zone,
            gcp_project=settings.gcp_project,
            num_tpu_cores=settings.num_tpu_cores,
        )
    log_devices(strategy)
    logging.info("replicas_in_sync=%d", strategy.num_replicas_in_sync)
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
    logging.info("devices=%s", ", ".join(names))


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


def worker_shard(strategy: tf.distribute.Strategy) -> Shard:
    """Returns the share of each global batch that this process computes."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return WHOLE
    cluster = _own_cluster()
    return Shard(cluster.index, len(cluster.workers))


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether this process is the first worker, or the only process."""
    return worker_shard(strategy).index == 0


def local_replicas(strategy: tf.distribute.Strategy) -> int:
    """Returns the number of replicas of this process."""
    return strategy.num_replicas_in_sync // worker_shard(strategy).count


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


@contextmanager
def process_state_kept() -> Iterator[None]:
    """Context manager for a job. Restores random states and the settings of `strategy_of`.

    TensorFlow cannot undo the initialization and splitting of devices, or the connections of
    workers and TPUs. The random sequence of TensorFlow's global seed restarts. Raises RuntimeError
    if another job is running.
    """
    if not _is_running.acquire(blocking=False):
        raise RuntimeError(
            "Another job is running in this process. Jobs share random states and devices: run one "
            "after the other, or each in a separate process."
        )
    python, numpy = random.getstate(), np.random.get_state()
    seed, _ = tf.compat.v1.get_seed(0)
    tf32 = tf.config.experimental.tensor_float_32_execution_enabled()
    is_deterministic = framework_config.is_op_determinism_enabled()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        tf.random.set_seed(None if seed == _UNSEEDED else seed)
        tf.config.experimental.enable_tensor_float_32_execution(tf32)
        if not is_deterministic:
            framework_config.disable_op_determinism()
        _is_running.release()


def values_of_workers(strategy: tf.distribute.Strategy, value: int) -> list[int]:
    """Returns the values of all workers in order, given the value of this worker.

    All workers must call this function, which waits for the others. Raises LostWorkerError if
    another worker has ended.
    """
    shard = worker_shard(strategy)
    own = np.zeros(shard.count, np.int64)
    own[shard.index] = value
    return cast(list[int], sum_over_workers(strategy, own).tolist())


def sum_over_workers(strategy: tf.distribute.Strategy, values: np.ndarray) -> np.ndarray:
    """Returns the sum of arrays over all workers. See `values_of_workers`."""
    if worker_shard(strategy).count == 1:
        return values
    with explain_lost_workers():
        return cast(np.ndarray, _sum(strategy)(tf.constant(values)).numpy())


@cache
def _sum(strategy: tf.distribute.Strategy) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns a function with one graph, because workers match reductions by graph numbers."""
    replicas = local_replicas(strategy)

    def summed(values: tf.Tensor) -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        is_first = context.replica_id_in_sync_group % replicas == 0
        own = tf.where(is_first, values, tf.zeros_like(values))
        return context.all_reduce(tf.distribute.ReduceOp.SUM, own)

    @tf.function(autograph=False)
    def run(values: tf.Tensor) -> tf.Tensor:
        results = strategy.run(summed, args=(values,))
        return strategy.experimental_local_results(results)[0]

    return run


def is_any_worker(strategy: tf.distribute.Strategy, condition: bool) -> bool:
    """Returns whether the condition is true on any worker. See `values_of_workers`."""
    return any(values_of_workers(strategy, int(condition)))


def wait_for_workers(strategy: tf.distribute.Strategy) -> None:
    """Waits for all workers, because a worker that ends early causes errors on the others."""
    values_of_workers(strategy, 0)
    # A worker could end while others still wait for its part of the first reduction. The second
    # reduction completes only after all workers have completed the first one.
    with suppress(LostWorkerError):
        values_of_workers(strategy, 0)


def check_same_step(strategy: tf.distribute.Strategy, step: int, output_dir: str) -> None:
    """Raises ValueError unless all workers resume from the same step of `output_dir`."""
    steps = values_of_workers(strategy, step)
    if len(set(steps)) > 1:
        seen = ", ".join(f"worker {number}: {step}" for number, step in enumerate(steps))
        raise UserError(
            f"The workers do not see the same checkpoints in `output_dir`={output_dir} (newest "
            f"step of {seen}). Use a directory on a shared file system or gs://."
        )


def check_same_settings(strategy: tf.distribute.Strategy, settings: Any) -> None:
    """Raises ValueError unless all workers have the same `settings`, which must be JSON."""
    digests = values_of_workers(strategy, zlib.crc32(json.dumps(settings).encode()))
    if len(set(digests)) > 1:
        raise UserError(
            "The settings, or the names or sizes of the input files, differ between the workers "
            f"(digests by worker: {', '.join(map(str, digests))}). Use the same settings and files "
            "on all workers."
        )


@contextmanager
def explain_lost_workers() -> Iterator[None]:
    """Context manager that raises LostWorkerError if a reduction over the workers failed."""
    try:
        yield
    except tf.errors.OpError as error:
        lines = [line for line in str(error).splitlines() if "ollective" in line]
        if not lines:
            raise
        reason = next((line for line in lines if "node" not in line), lines[0])
        raise LostWorkerError(
            "Another worker ended or cannot be reached, so this worker stops; see the log of the "
            "other worker for the reason. Start all workers again with the same settings to resume "
            f"from the newest checkpoint in `output_dir`. TensorFlow reported: {reason}"
        ) from error
