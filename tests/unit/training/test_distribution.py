"""Strategies and workers. Communication of real workers is tested in tests/e2e."""

import dataclasses
import json
import os
import socket
import subprocess
import threading
from contextlib import nullcontext

import pytest
import tensorflow as tf
from tensorflow.python.framework.config import is_op_determinism_enabled

from albert_tf.data.errors import UserError
from albert_tf.training import cluster as cluster_module
from albert_tf.training import strategies
from albert_tf.training.cluster import (
    TF_CONFIG,
    Cluster,
    LostWorkerError,
    Workers,
    cluster_from_environment,
    connect_workers,
    explain_lost_workers,
)
from albert_tf.training.process_state import process_state_kept
from albert_tf.training.settings import TrainingSettings
from albert_tf.training.strategies import (
    communication_options,
    create_strategy,
    resolve_strategy,
    split_batch,
    split_cpu,
    with_xla,
)
from tests.programs import TIMEOUT, warm_python


def test_models_of_two_sizes_can_be_mirrored_in_one_process():
    """A second strategy would reuse the reduction keys of the first."""
    assert create_strategy("mirrored") is create_strategy("mirrored")


def test_splitting_the_cpu_after_tensorflow_started_fails():
    tf.config.list_logical_devices()
    split_cpu(1)
    with pytest.raises(ValueError, match="`num_logical_cpu_devices` must be set before"):
        split_cpu(3)


@pytest.mark.parametrize("name", ["one_device", "mirrored"])
def test_split_batch_keeps_the_order_of_rows(name):
    strategy = create_strategy(name)
    features = {"ids": tf.reshape(tf.range(12), [4, 3]), "weights": tf.constant([1.0, 0.0, 2.0, 3])}
    replicas = strategy.run(tf.identity, args=(split_batch(strategy, features)["ids"],))
    rows = strategy.experimental_local_results(replicas)
    assert [part.shape[0] for part in rows] == [4 // len(rows)] * len(rows)
    assert tf.concat(rows, axis=0).numpy().tolist() == features["ids"].numpy().tolist()
    parts = strategy.experimental_local_results(split_batch(strategy, features)["weights"])
    assert tf.concat(parts, axis=0).numpy().tolist() == [1.0, 0.0, 2.0, 3.0]


def set_cluster(monkeypatch, count):
    cluster = {"worker": [f"host{number}:2222" for number in range(count)]}
    config = {"cluster": cluster, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))


def test_auto_is_multi_worker_if_tf_config_names_several_workers(monkeypatch):
    assert resolve_strategy("auto") == "auto"
    with pytest.raises(ValueError, match="TF_CONFIG"):
        resolve_strategy("multi_worker")
    set_cluster(monkeypatch, 1)
    assert resolve_strategy("auto") == "auto"
    assert resolve_strategy("multi_worker") == "multi_worker"
    set_cluster(monkeypatch, 3)
    assert resolve_strategy("auto") == "multi_worker"


def test_other_strategies_are_rejected_with_several_workers(monkeypatch):
    set_cluster(monkeypatch, 3)
    for name in ("one_device", "mirrored", "tpu"):
        with pytest.raises(ValueError, match=f"`distribution_strategy`={name}"):
            resolve_strategy(name)
    with pytest.raises(ValueError, match="`num_logical_cpu_devices`"):
        resolve_strategy("auto", num_logical_cpu_devices=2)


@pytest.mark.parametrize(
    ("all_reduce", "gpus", "expected"),
    [("auto", ["GPU:0"], "NCCL"), ("ring", ["GPU:0"], "RING"), ("auto", [], "RING")],
)
def test_workers_use_nccl_on_gpus(monkeypatch, all_reduce, gpus, expected):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: gpus)
    assert communication_options(all_reduce).implementation.value == expected


@pytest.mark.parametrize("gpus", [[], ["GPU:0"]])
@pytest.mark.parametrize(
    ("settings", "num_lengths", "on_gpu"),
    [
        ({"precision": "bfloat16"}, 1, True),
        ({"precision": "float16"}, 4, True),
        ({"precision": "bfloat16"}, 5, False),
        ({"precision": "float32"}, 1, False),
        ({"precision": "bfloat16", "use_tpu": True}, 1, False),
    ],
)
def test_default_of_xla(monkeypatch, gpus, settings, num_lengths, on_gpu):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: gpus)
    made = TrainingSettings(output_dir="run", **settings)
    assert made.xla is None
    assert with_xla(made, num_lengths).xla is (on_gpu and bool(gpus))
    for given in (False, True):
        assert with_xla(dataclasses.replace(made, xla=given), num_lengths).xla is given


# Half precision and TPUs keep the setting of the program.
TF32 = [({}, False), ({"tf32": True}, True), ({"precision": "bfloat16"}, True)]


@pytest.mark.parametrize(("settings", "tf32"), [*TF32, ({"use_tpu": True}, True)])
def test_tf32_is_disabled_by_default(monkeypatch, settings, tf32):
    monkeypatch.setattr(
        strategies, "create_strategy", lambda *_, **__: tf.distribute.get_strategy()
    )
    with process_state_kept():
        strategies.strategy_of(TrainingSettings(output_dir="run", **settings))
        assert tf.config.experimental.tensor_float_32_execution_enabled() is tf32
        assert not is_op_determinism_enabled()
    assert tf.config.experimental.tensor_float_32_execution_enabled()


def test_the_implementation_of_sums_is_logged(monkeypatch, caplog):
    caplog.set_level("DEBUG", logger="absl")
    set_cluster(monkeypatch, 2)
    with process_state_kept():
        strategies.strategy_of(TrainingSettings(output_dir="run", dry_run=True))
    assert "all_reduce=ring" in caplog.messages


def test_several_workers_must_connect_first(monkeypatch):
    tf.zeros([])  # TensorFlow has started
    set_cluster(monkeypatch, 1)
    with pytest.raises(ValueError, match="must connect before TensorFlow is used"):
        create_strategy("multi_worker")


def start_python(code, addresses, index, **options):
    """Starts Python as a worker of a cluster."""
    config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
    return subprocess.Popen(
        [warm_python(), "-c", code],
        env={**os.environ, TF_CONFIG: json.dumps(config)},
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )


def free_addresses(count, host="127.0.0.1"):
    """Returns addresses with ports that no process uses."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sockets = [socket.create_server((host, 0), family=family) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for port in ports]


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 1])
def test_a_port_in_use_is_named(index):
    with socket.create_server(("127.0.0.1", 0)) as used:
        workers = free_addresses(1)
        workers.insert(index, f"127.0.0.1:{used.getsockname()[1]}")
        code = (
            "from albert_tf.training import cluster, strategies\n"
            "cluster.wait_while = lambda *_: None\n"
            "try:\n    strategies.create_strategy()\nexcept ValueError as error:\n    print(error)"
        )
        printed, _ = start_python(code, workers, index).communicate(timeout=TIMEOUT)
    assert f"port of {workers[index]}" in printed
    assert workers[1 - index] not in printed


@pytest.mark.slow
@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="needs IPv6")
def test_workers_connect_by_ipv6():
    code = (
        "from albert_tf.training.strategies import Workers, create_strategy\n"
        "workers = Workers(create_strategy())\n"
        "print(workers.gather(workers.rank + 5))\nworkers.wait()"
    )
    addresses = free_addresses(2, "::1")
    workers = [start_python(code, addresses, index) for index in range(2)]
    assert [worker.communicate(timeout=TIMEOUT)[0] for worker in workers] == ["[5, 6]\n"] * 2


def test_the_chief_starts_after_the_others_which_wait_for_it(monkeypatch, caplog):
    monkeypatch.setenv(TF_CONFIG, "")
    monkeypatch.setattr(cluster_module, "_WARNING_SECONDS", 0)
    addresses = free_addresses(3)
    threads = [
        threading.Thread(target=connect_workers, args=[Cluster(tuple(addresses), index)])
        for index in range(3)
    ]
    for thread in threads[:2]:
        thread.start()
    threads[0].join(0.5)  # the chief waits for the last worker
    threads[2].start()
    threads[0].join(TIMEOUT)
    assert [thread.is_alive() for thread in threads] == [False, True, True]
    host, port = addresses[0].split(":")
    with socket.create_server((host, int(port))):  # like TensorFlow in the chief
        for thread in threads:
            thread.join(TIMEOUT)
    for address in (addresses[0], addresses[2]):
        assert f"worker {address}: [Errno 111] Connection refused" in caplog.text


def test_only_failed_reductions_become_lost_worker_errors():
    message = r"Another worker ended .* reported: Collective ops is"
    with pytest.raises(LostWorkerError, match=message) as raised, explain_lost_workers():
        raise tf.errors.UnavailableError(None, None, "Graph error\nCollective ops is aborted by x")
    assert isinstance(raised.value, UserError)  # commands report it without a stack trace
    with pytest.raises(tf.errors.UnavailableError), explain_lost_workers():
        raise tf.errors.UnavailableError(None, None, "storage.googleapis.com is not reached")


def test_missing_and_unknown_tpus_are_reported(monkeypatch):
    with pytest.raises(ValueError, match=r"no kernels for TPUs.*tensorflow-tpu"):
        create_strategy("tpu", tpu_name="grpc://localhost:8470")
    monkeypatch.setattr(strategies, "has_tpu_kernels", lambda: True)
    with pytest.raises(ValueError, match="No TPU can be reached as `tpu_name`=local"):
        create_strategy("tpu")
    with pytest.raises(ValueError, match=r"must be local, or an address grpc://.*'my-tpu'"):
        create_strategy("tpu", tpu_name="my-tpu")


WORKERS = ["one:2222", "two:2222", "10.0.0.3:81"]


def cluster_of(cluster, task):
    config = {"cluster": cluster, "task": task}
    return cluster_from_environment({TF_CONFIG: json.dumps(config)})


def test_chief_is_the_first_worker():
    jobs = {"worker": WORKERS[:2], "chief": WORKERS[2:]}
    order = (WORKERS[2], *WORKERS[:2])
    assert cluster_of(jobs, {"type": "chief", "index": 0}) == Cluster(order, 0)
    # Schedulers also write numbers as text.
    assert cluster_of(jobs, {"type": "worker", "index": "1"}) == Cluster(order, 2)
    addresses = ("[::1]:65535", "[fe80::1%eth0]:1")
    for chief in ("chief", "master"):
        jobs = {"worker": addresses[1:], chief: addresses[:1], "ps": []}
        assert cluster_of(jobs, {"type": chief, "index": 0}) == Cluster(addresses, 0)
        assert cluster_of({chief: ["a:1"]}, {"type": chief, "index": 0}) == Cluster(("a:1",), 0)


@pytest.mark.parametrize("text", [None, "", "{}", '{"cluster": {}}', '{"environment": "cloud"}'])
def test_tf_config_without_a_cluster(text):
    assert cluster_from_environment({} if text is None else {TF_CONFIG: text}) is None


FIRST = {"type": "worker", "index": 0}


@pytest.mark.parametrize(
    ("cluster", "task", "named"),
    [
        ({"worker": WORKERS}, None, ""),
        ({"worker": WORKERS}, {"type": "worker", "index": 3}, ""),
        ({"worker": WORKERS}, {"type": "worker", "index": -1}, ""),
        ({"worker": ["one", "two:2222"]}, FIRST, "'one'"),
        ({"worker": ["one:0"]}, FIRST, "'one:0'"),
        ({"worker": ["one:65536"]}, FIRST, "65535"),
        ({"worker": ["::1:2222"]}, FIRST, r"\[IPv6\]:port"),
        ({"worker": ["grpc://one:2222"]}, FIRST, "grpc"),
        ({"worker": [*WORKERS, WORKERS[0]]}, FIRST, "different"),
        ({"chief": WORKERS[:2]}, {"type": "chief", "index": 0}, "one chief"),
        ({"chief": ["a:1"], "master": ["b:1"]}, {"type": "chief", "index": 0}, "one chief"),
        ({"worker": WORKERS, "ps": ["p:1"]}, FIRST, r"\['ps'\] are not supported"),
        ({"worker": WORKERS}, {"type": "evaluator", "index": 0}, "evaluator"),
        ({"workerpool0": WORKERS}, {"type": "workerpool0", "index": 0}, "workerpool0"),
        (WORKERS, FIRST, ""),
    ],
)
def test_malformed_clusters_are_rejected(cluster, task, named):
    with pytest.raises(ValueError, match=f"TF_CONFIG .*{named}"):
        cluster_of(cluster, task)


@pytest.mark.parametrize("lost_at", [1, 2])
def test_wait_ignores_a_worker_that_ends_after_all_arrived(monkeypatch, lost_at):
    """The second reduction only confirms the first one."""
    calls = []

    def gather(workers, value):
        calls.append(value)
        if len(calls) == lost_at:
            raise LostWorkerError("another worker ended")
        return [value, value]

    monkeypatch.setattr(Workers, "gather", gather)
    with pytest.raises(LostWorkerError) if lost_at == 1 else nullcontext():
        Workers(create_strategy("one_device")).wait()
    assert len(calls) == lost_at
