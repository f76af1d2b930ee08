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
    assert not cluster.is_chief
    # Schedulers write numbers as text, too.
    assert cluster_of({"worker": WORKERS}, {"type": "worker", "index": "0"}).is_chief


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
    ("cluster", "task", "message"),
    [
        ({"worker": WORKERS}, None, '"task" is missing'),
        ({"worker": WORKERS}, {"type": "worker", "index": 3}, "worker 3, but the cluster has 3 of"),
        ({"worker": WORKERS}, {"type": "worker", "index": -1}, "a number from 0, not -1"),
        ({"worker": WORKERS}, {"type": "worker"}, "a number from 0, not None"),
        ({"worker": WORKERS}, {"type": "chief", "index": 0}, "chief 0, but the cluster has 0 of"),
        ({"worker": WORKERS}, {"type": "evaluator", "index": 0}, "the chief evaluates"),
        ({"worker": WORKERS}, {"index": 0}, "one of chief and worker"),
        ({"worker": WORKERS, "ps": ["p:1"]}, FIRST, "'ps': there are no parameter servers"),
        ({"worker": WORKERS, "evaluator": ["e:1"]}, FIRST, "'evaluator': the chief evaluates"),
        ({"master": WORKERS}, FIRST, "'master': only chief and worker are known"),
        ({"chief": WORKERS[:2]}, FIRST, "one chief at most, not 2"),
        ({"worker": "one:2222"}, FIRST, "must be a list, not 'one:2222'"),
        ({"worker": ["one:2222", "two"]}, FIRST, "'two' is no address"),
        ({"worker": ["one:2222", "two:x"]}, FIRST, "'two:x' is no address"),
        ({"worker": ["one:2222", None]}, FIRST, "None is no address"),
        ({"worker": ["one:\u0661"]}, FIRST, "is no address"),
        ({"worker": ["one:\u00b2"]}, FIRST, "is no address"),
        ({"worker": ["one:" + "9" * 5000]}, FIRST, "is no address"),
        ({"worker": WORKERS}, {"type": "worker", "index": "\u0661"}, "a number from 0"),
        ({"worker": WORKERS}, {"type": "worker", "index": "\u00b2"}, "a number from 0"),
        ({"worker": WORKERS}, {"type": "worker", "index": True}, "a number from 0"),
        ({"worker": WORKERS}, {"type": "worker", "index": 10**400}, "but the cluster has 3"),
        ({"worker": WORKERS}, {"type": ["x" * 5000], "index": 0}, "one of chief and worker"),
        ({"worker": [*WORKERS, "one:2222"]}, FIRST, "used twice: one:2222"),
        (WORKERS, FIRST, '"cluster" must be a JSON object'),
    ],
)
def test_what_is_wrong_is_named(cluster, task, message):
    with pytest.raises(ValueError, match=r"The environment variable TF_CONFIG is wrong\.") as error:
        cluster_of(cluster, task)
    assert message in str(error.value)
    assert len(str(error.value)) < 600


@pytest.mark.parametrize("text", ["{cluster: []}", "[" * 10**5, "9" * 5000, '{"cluster": NaN}'])
def test_text_that_is_no_json_is_refused(text):
    with pytest.raises(ValueError, match=r"TF_CONFIG"):
        cluster_from_environment({TF_CONFIG: text})


@pytest.mark.parametrize("index", [2, 2.0, "2"])
def test_whole_numbers_may_be_written_as_floats_and_texts(index):
    assert cluster_of({"worker": WORKERS}, {"type": "worker", "index": index}).index == 2
