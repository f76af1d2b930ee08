"""Places are computed in one go; `shuffled` meets the records one after the other."""

import random

import pytest

from albert_tf.pretraining.beam import Layout, Places
from albert_tf.pretraining.create_records import shuffled


@pytest.mark.parametrize("files", [1, 3, 400])
@pytest.mark.parametrize("capacity", [1, 90, 10_000])
def test_records_are_where_the_local_path_writes_them(files: int, capacity: int) -> None:
    rng = random.Random(files * capacity)
    jobs = [
        [f"{job}.{k}".encode().ljust(rng.randint(9, 15)) for k in range(rng.choice([0, 1, 5, 13]))]
        for job in range(29)
    ]
    written: list[list[bytes]] = [[] for _ in range(files)]
    for number, record in enumerate(shuffled(jobs, capacity, seed=-5)):
        written[number % files].append(record)

    sizes = [(rank, len(job), sum(map(len, job))) for rank, job in enumerate(jobs)]
    rng.shuffle(sizes)
    places = Places.of(sizes, Layout(files, capacity, part_bytes=50, random_seed=-5))
    seen = set()
    for rank, job in enumerate(jobs):
        for first in range(0, len(job), 4):
            batch = job[first : first + 4]
            found = places.of_records(rank, first, len(batch))
            for record, file, row in zip(batch, *found, strict=True):
                assert written[file][row] == record
                seen.add((file, row))
    assert len(seen) == sum(map(len, jobs))
    assert places.rows_in_part == 4  # records have 12 bytes on average


def test_parts_hold_a_record_at_least_and_there_must_be_one() -> None:
    layout = Layout(2, 99, part_bytes=50, random_seed=1)
    assert Places.of([(0, 2, 900)], layout).rows_in_part == 1
    with pytest.raises(ValueError, match="There is no token in --input_file"):
        Places.of([(1, 0, 0), (0, 0, 0)], layout)
