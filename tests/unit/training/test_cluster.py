import json

import pytest

from albert_tf.training.distribution import TF_CONFIG, Cluster, cluster_from_environment

WORKERS = ["one:2222", "two:2222", "10.0.0.3:81"]


def cluster_of(cluster, task=None):
    config = {"cluster": cluster} if task is None else {"cluster": cluster, "task": task}
    return cluster_from_environment({TF_CONFIG: json.dumps(config)})


def test_a_worker_finds_its_place():
    cluster = cluster_of({"worker": WORKERS}, {"type": "worker", "index": 2})
    assert cluster == Cluster(tuple(WORKERS), 2)
    # Schedulers write numbers as text, too.
    cluster = cluster_of({"worker": WORKERS}, {"type": "worker", "index": "0"})
    assert cluster == Cluster(tuple(WORKERS), 0)


def test_the_chief_comes_first():
    jobs = {"worker": WORKERS[:2], "chief": WORKERS[2:]}
    order = (WORKERS[2], *WORKERS[:2])
    assert cluster_of(jobs, {"type": "chief", "index": 0}) == Cluster(order, 0)
    assert cluster_of(jobs, {"type": "worker", "index": 0}) == Cluster(order, 1)


@pytest.mark.parametrize("text", [None, "", "{}", '{"cluster": {}}', '{"environment": "cloud"}'])
def test_without_a_cluster_there_is_none(text):
    assert cluster_from_environment({} if text is None else {TF_CONFIG: text}) is None


FIRST = {"type": "worker", "index": 0}


@pytest.mark.parametrize(
    ("cluster", "task"),
    [
        ({"worker": WORKERS}, None),
        ({"worker": WORKERS}, {"type": "worker"}),
        ({"worker": WORKERS}, {"type": "worker", "index": 3}),
        ({"worker": WORKERS}, {"type": "worker", "index": "first"}),
        ({"worker": WORKERS}, {"type": "worker", "index": -1}),
        ({"worker": WORKERS}, {"type": "worker", "index": 1.5}),
        ({"worker": WORKERS}, {"type": "worker", "index": True}),
        ({"worker": "one:2222"}, FIRST),
        ({"worker": ["one", "two:2222"]}, FIRST),
        ({"worker": [1, 2]}, FIRST),
        ({"worker": [*WORKERS, WORKERS[0]]}, FIRST),
        ({"chief": WORKERS[:1], "worker": WORKERS}, FIRST),
        ({"chief": WORKERS[:2]}, {"type": "chief", "index": 0}),
        ({"worker": WORKERS}, {"type": "evaluator", "index": 0}),
        ({"worker": WORKERS, "ps": ["p:1"]}, FIRST),
        (WORKERS, FIRST),
    ],
)
def test_a_malformed_cluster_is_refused(cluster, task):
    with pytest.raises(ValueError, match="TF_CONFIG"):
        cluster_of(cluster, task)


@pytest.mark.parametrize("text", ["{cluster: []}", "[]"])
def test_text_that_is_no_json_object_is_refused(text):
    with pytest.raises(ValueError, match="TF_CONFIG") as error:
        cluster_from_environment({TF_CONFIG: text})
    assert len(str(error.value)) < 600
