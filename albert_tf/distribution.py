"""Where a run computes: the only module that names a strategy class."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import tensorflow as tf

STRATEGIES = ("auto", "one_device", "mirrored")


def split_cpu(num_devices: int) -> None:
    """Makes the CPU appear as several devices, to try distribution without accelerators.

    Args:
        num_devices: at least 1; 1 changes nothing.

    Raises:
        ValueError: TensorFlow has already settled its devices.
    """
    if num_devices == 1:
        return
    cpu = tf.config.list_physical_devices("CPU")[0]
    parts = [tf.config.LogicalDeviceConfiguration() for _ in range(num_devices)]
    try:
        tf.config.set_logical_device_configuration(cpu, parts)
    except RuntimeError as error:
        raise ValueError(f"--num_logical_cpu_devices came too late: {error}") from error


def create_strategy(name: str = "auto") -> tf.distribute.Strategy:
    """Returns the strategy a flag names.

    Args:
        name: "one_device", the first GPU or else the CPU; "mirrored", all GPUs or else all logical
            CPU devices of this machine; "auto", mirrored where there is more than one GPU.

    Raises:
        ValueError: the name is none of these.
    """
    if name not in STRATEGIES:
        raise ValueError(
            f"--distribution_strategy must be one of {', '.join(STRATEGIES)}. Received: {name!r}"
        )
    gpus = tf.config.list_logical_devices("GPU")
    devices = [device.name for device in gpus or tf.config.list_logical_devices("CPU")]
    if name == "mirrored" or (name == "auto" and len(gpus) > 1):
        return _mirrored(tuple(devices))
    return tf.distribute.OneDeviceStrategy(devices[0])


@cache
def _mirrored(devices: tuple[str, ...]) -> tf.distribute.MirroredStrategy:
    """One strategy a process: a second one would number its reductions like the first.

    TensorFlow takes reductions of one number for the same, and fails where their shapes differ.
    """
    return tf.distribute.MirroredStrategy(devices)


def check_batch_size(
    strategy: tf.distribute.Strategy, batch_size: int, flag: str, *, micro_batches: int = 1
) -> None:
    """Raises ValueError unless the replicas, and then their micro-batches, share a batch evenly."""
    replicas = strategy.num_replicas_in_sync
    parts = replicas * micro_batches
    if not batch_size % parts:
        return
    sharers = [f"{replicas} replicas"] if replicas > 1 else []
    what = "replicas"
    if micro_batches > 1:
        sharers.append(f"--gradient_accumulation_steps={micro_batches}")
        what = "replicas and accumulation steps"
    raise ValueError(
        f"{flag} is the batch of all {what} together and must be a multiple of their number"
        f"{', multiplied' if len(sharers) > 1 else ''}. Received: {flag}={batch_size} with "
        f"{' and '.join(sharers)}; {batch_size + parts - batch_size % parts} would do."
    )


def split_batch(
    strategy: tf.distribute.Strategy, features: Mapping[str, tf.Tensor]
) -> Mapping[str, tf.Tensor]:
    """Gives each replica its rows of a batch.

    Args:
        strategy: R replicas.
        features: each [B, ...], B a multiple of R.

    Returns:
        Per-replica values, [B / R, ...] each, for `strategy.run`.
    """
    replicas = strategy.num_replicas_in_sync
    if replicas == 1:
        return features

    def rows(context: tf.distribute.ValueContext, values: tf.Tensor) -> tf.Tensor:
        share = values.shape[0] // replicas
        start = context.replica_id_in_sync_group * share
        return values[start : start + share]

    return {
        name: strategy.experimental_distribute_values_from_function(
            lambda context, values=values: rows(context, values)
        )
        for name, values in features.items()
    }


def split_batch_spec(
    strategy: tf.distribute.Strategy, element_spec: Mapping[str, tf.TensorSpec]
) -> dict[str, tf.TypeSpec]:
    """What `split_batch` makes of any batch, to trace one graph for batches of every length.

    Args:
        strategy: R replicas.
        element_spec: of the batches, each [B, ...], B a multiple of R; None is what differs.
    """

    def split_zeros(unknown: int) -> Mapping[str, tf.Tensor]:
        return split_batch(
            strategy,
            {
                name: tf.zeros([unknown if n is None else n for n in spec.shape], spec.dtype)
                for name, spec in element_spec.items()
            },
        )

    one, other = split_zeros(1), split_zeros(2)
    return {
        name: tf.type_spec_from_value(one[name]).most_specific_common_supertype(
            [tf.type_spec_from_value(other[name])]
        )
        for name in element_spec
    }
