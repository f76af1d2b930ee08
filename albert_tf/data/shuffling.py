"""Shuffling in bounded memory, in an order that any machine can compute for itself.

What jobs made is gathered into chunks, job after job, and each chunk is shuffled completely. Where
a record ends up follows from the seed, the number of its chunk and its number in it.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby, tee
from operator import itemgetter

import numpy as np

from albert_tf.data.pretraining import mix_seed

SHUFFLE_BYTES = 256 << 20  # about 95,000 records of 512 tokens


def chunk_numbers(sizes: Iterable[int], capacity: int) -> Iterator[int]:
    """Says for each job which chunk it belongs to.

    Args:
        sizes: bytes that each job made. Taken one at a time.
        capacity: a chunk is full when it has so many bytes.
    """
    number = filled = 0
    for size in sizes:
        yield number
        filled += size
        if filled >= capacity:
            number, filled = number + 1, 0


def shuffled_order(count: int, seed: int, chunk: int) -> np.ndarray:
    """The order of the records of a chunk.

    Args:
        count: N, records of the chunk.
        seed: any integer.
        chunk: its number.

    Returns:
        int64 [N]: which record comes first, second and so on.
    """
    # Raw bits, because only these are promised to stay the same in all versions of NumPy.
    keys = np.random.SFC64(mix_seed([seed, chunk])).random_raw(count)
    return np.argsort(keys, kind="stable")


def shuffled(jobs: Iterable[list[bytes]], capacity: int, seed: int) -> Iterator[bytes]:
    """Yields records in random order.

    Args:
        jobs: the records of each job.
        capacity: bytes of records to shuffle at a time; held in memory, and those of one more job.
        seed: decides the order.
    """
    measured, jobs = tee(jobs)
    numbers = chunk_numbers((sum(map(len, records)) for records in measured), capacity)
    for number, group in groupby(zip(numbers, jobs, strict=True), itemgetter(0)):
        chunk = [record for _, records in group for record in records]
        for index in shuffled_order(len(chunk), seed, number).tolist():
            yield chunk[index]
        del chunk  # before the next one is gathered
