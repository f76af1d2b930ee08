"""The cluster that TF_CONFIG describes, checked before TensorFlow waits for machines to answer.

TF_CONFIG is the environment variable in which a process finds the addresses of all workers and
which of them it is:

    {"cluster": {"worker": ["one:2222", "two:2222"]}, "task": {"type": "worker", "index": 0}}
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from albert_tf.data.strict_json import as_whole_number, parse_json, shown

TF_CONFIG = "TF_CONFIG"
_JOBS = ("chief", "worker")
_USELESS_JOBS = {
    "ps": "there are no parameter servers here",
    "evaluator": "the chief evaluates (--do_eval)",
}


class LostWorkerError(ConnectionError):
    """Another worker has ended, or cannot be reached any more."""


@dataclass(frozen=True)
class Cluster:
    """The workers of a training, and which of them this process is.

    Attributes:
        workers: addresses, host:port; that of the chief first.
        index: place of this process among them.
    """

    workers: tuple[str, ...]
    index: int

    @property
    def is_chief(self) -> bool:
        """Whether this process writes what all share."""
        return self.index == 0


def cluster_from_environment(environment: Mapping[str, str] = os.environ) -> Cluster | None:
    """Reads TF_CONFIG; returns None where it is not set, or names no cluster.

    Args:
        environment: variables by name.

    Raises:
        ValueError: it is malformed, or has tasks that nothing here uses.
    """
    text = environment.get(TF_CONFIG, "").strip()
    if not text:
        return None
    config = _mapping(_parsed(text), "the whole")
    jobs = _mapping(config.get("cluster") or {}, '"cluster"')
    if not jobs:
        return None
    for job in jobs:
        if job not in _JOBS:
            reason = _USELESS_JOBS.get(job, "only chief and worker are known")
            raise _error(f"The cluster has tasks of type {shown(job)}: {reason}. Leave them out")
    addresses = {job: _addresses(job, jobs.get(job, [])) for job in _JOBS}
    if len(addresses["chief"]) > 1:
        raise _error(f"A cluster has one chief at most, not {len(addresses['chief'])}")
    workers = (*addresses["chief"], *addresses["worker"])
    twice = sorted({address for address in workers if workers.count(address) > 1})
    if twice:
        raise _error(f"Every worker needs an address of its own; used twice: {', '.join(twice)}")
    job, index = _task(config, addresses)
    return Cluster(workers, index + (len(addresses["chief"]) if job == "worker" else 0))


def _parsed(text: str) -> Any:
    try:
        return parse_json(text, TF_CONFIG)
    except ValueError as error:
        raise _error(str(error).removesuffix(".")) from error


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _error(f"{what} must be a JSON object, not {shown(value)}")
    return value


def _addresses(job: str, addresses: Any) -> list[str]:
    if not isinstance(addresses, list):
        raise _error(f"The addresses of {job!r} must be a list, not {shown(addresses)}")
    for address in addresses:
        host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
        if not (host and re.fullmatch("[0-9]{1,5}", port) and 0 < int(port) < 65536):
            raise _error(f"{shown(address)} is no address; one is host:port, such as 10.0.0.1:2222")
    return addresses


def _task(config: Mapping[str, Any], addresses: Mapping[str, list[str]]) -> tuple[str, int]:
    """Type and index of this process."""
    if "task" not in config:
        raise _error('It does not say which worker this process is: "task" is missing')
    task = _mapping(config["task"], '"task"')
    job, index = str(task.get("type")), task.get("index")
    if job not in addresses:
        reason = _USELESS_JOBS.get(job, "one of chief and worker is known")
        raise _error(f'The "type" of this task is {shown(job)}: {reason}')
    if isinstance(index, str) and re.fullmatch("[0-9]{1,9}", index):
        index = int(index)
    number = as_whole_number(index)
    if number is None or number < 0:
        raise _error(f'The "index" of this task must be a number from 0, not {shown(index)}')
    if number >= len(addresses[job]):
        raise _error(
            f"This process is {job} {shown(number)}, but the cluster has {len(addresses[job])} of "
            f"type {job!r}, counted from 0"
        )
    return job, number


def _error(what: str) -> ValueError:
    return ValueError(
        f"The environment variable {TF_CONFIG} is wrong. {what}. What would be right, for the "
        'first of two workers: {"cluster": {"worker": ["one:2222", "two:2222"]}, '
        '"task": {"type": "worker", "index": 0}}'
    )
