"""How workers end together; what they agree on is tested with real ones in tests/e2e."""

import pytest

from albert_tf.training import workers
from albert_tf.training.distribution import LostWorkerError


@pytest.fixture
def lost_at(monkeypatch):
    """Sets in which reduction over the workers another one is lost; returns how many there were."""

    def set_loss(number):
        calls = []

        def values_of_workers(strategy, value):
            calls.append(value)
            if len(calls) == number:
                raise LostWorkerError("another worker ended")
            return [value, value]

        monkeypatch.setattr(workers, "values_of_workers", values_of_workers)
        return calls

    return set_loss


def test_a_worker_that_ends_first_is_not_missed_by_those_still_told_of_it(lost_at):
    calls = lost_at(2)
    workers.wait_for_workers(None)
    assert len(calls) == 2


def test_a_worker_that_never_comes_is_missed(lost_at):
    lost_at(1)
    with pytest.raises(LostWorkerError):
        workers.wait_for_workers(None)
