from collections.abc import Iterator

import pytest

from albert_tf.pretraining.create_records import chunk_numbers, shuffled, shuffled_order

JOBS = [[bytes([k, n]) * 5 for n in range(7)] for k in range(10)]  # 70 bytes each
RECORDS = [record for job in JOBS for record in job]


@pytest.mark.parametrize(
    ("sizes", "numbers"),
    [
        ([], []),
        ([3], [0]),
        ([3, 3, 3, 3, 1], [0, 0, 1, 1, 2]),
        ([6, 1, 99, 0, 0, 5], [0, 1, 1, 2, 2, 2]),
    ],
)
def test_chunks_are_full_when_they_hold_the_capacity(sizes: list[int], numbers: list[int]) -> None:
    assert list(chunk_numbers(sizes, 5)) == numbers


def test_order_is_a_permutation_that_seed_and_chunk_decide() -> None:
    orders = [shuffled_order(31, *key).tolist() for key in ((5, 2), (5, 2), (5, 3), (-6, 2))]
    assert orders[0] == orders[1]
    assert all(sorted(order) == list(range(31)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3
    assert shuffled_order(0, 5, 2).tolist() == []


def test_the_order_of_a_seed_stays_what_it_is() -> None:
    """Other processors and later versions of NumPy must write the same files."""
    assert shuffled_order(8, 12345, 1).tolist() == [1, 7, 6, 2, 3, 4, 5, 0]


def test_everything_is_shuffled_if_it_fits() -> None:
    orders = [list(shuffled(JOBS, 1000, seed)) for seed in range(200)]
    assert all(sorted(records) == RECORDS for records in orders)
    assert len({records[0] for records in orders}) > 50
    assert len({records[-1] for records in orders}) > 50


def test_chunks_are_shuffled_one_by_one() -> None:
    taken = 0

    def source() -> Iterator[list[bytes]]:
        nonlocal taken
        for job in JOBS:
            taken += 1
            yield job

    result = []
    for record in shuffled(source(), 139, 3):  # two jobs a chunk
        result.append(record)
        assert taken <= len(result) // 7 + 3
    assert result != RECORDS
    for k in range(0, 70, 14):
        assert sorted(result[k : k + 14]) == RECORDS[k : k + 14]
