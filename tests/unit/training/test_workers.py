"""How workers end together; what they agree on is tested with real ones in tests/e2e."""

from contextlib import nullcontext

import pytest

from albert_tf.training import workers
from albert_tf.training.distribution import LostWorkerError


@pytest.mark.parametrize("lost_at", [1, 2])
def test_a_worker_is_missed_unless_it_ends_after_all_have_come(monkeypatch, lost_at):
    """In the second reduction the others are told once more that all had come to the first."""
    calls = []

    def values_of_workers(strategy, value):
        calls.append(value)
        if len(calls) == lost_at:
            raise LostWorkerError("another worker ended")
        return [value, value]

    monkeypatch.setattr(workers, "values_of_workers", values_of_workers)
    with pytest.raises(LostWorkerError) if lost_at == 1 else nullcontext():
        workers.wait_for_workers(None)
    assert len(calls) == lost_at
