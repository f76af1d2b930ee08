"""Where each record goes when many machines write the files: the order of `shuffling`, computed."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from albert_tf.data.segments import NO_RECORD
from albert_tf.data.shuffling import chunk_numbers, shuffled_order


@dataclass(frozen=True)
class Layout:
    """How records are put into files.

    Attributes:
        files: F, output files; records go to them in turn.
        shuffle_bytes: records that are shuffled at a time.
        part_bytes: records of a file that are written at a time.
        random_seed: decides the order.
    """

    files: int
    shuffle_bytes: int
    part_bytes: int
    random_seed: int


@dataclass(frozen=True)
class Places:
    """Where the records of every job go.

    Attributes:
        layout: how records are put into files.
        starts: int64 [J + 1]; records of all jobs before each job, in the order of jobs.
        chunks: int32 [J]; the chunk that each job belongs to.
        chunk_starts: int64 [C + 1]; records before each chunk.
        rows_in_part: records of a file that are written at a time.
    """

    layout: Layout
    starts: np.ndarray
    chunks: np.ndarray
    chunk_starts: np.ndarray
    rows_in_part: int

    @classmethod
    def of(cls, sizes: Iterable[tuple[int, int, int]], layout: Layout) -> "Places":
        """Makes the places from (rank, records, bytes) of all jobs, in any order.

        Raises:
            ValueError: there is no record at all.
        """
        counts, job_bytes = np.array(sorted(sizes), np.int64)[:, 1:].T
        if not counts.any():
            raise ValueError(NO_RECORD)
        starts = np.concatenate([[0], np.cumsum(counts)])
        chunks = np.fromiter(chunk_numbers(job_bytes.tolist(), layout.shuffle_bytes), np.int32)
        firsts = np.flatnonzero(np.diff(chunks, prepend=-1))
        rows = layout.part_bytes * counts.sum() // job_bytes.sum()
        return cls(layout, starts, chunks, np.append(starts[firsts], starts[-1]), max(1, int(rows)))

    def of_records(self, rank: int, first: int, count: int) -> tuple[list[int], list[int]]:
        """Files and rows of the records [first, first + count) of the job `rank`."""
        chunk = int(self.chunks[rank])
        chunk_start, chunk_end = self.chunk_starts[chunk : chunk + 2].tolist()
        begin = int(self.starts[rank]) - chunk_start + first
        order = _places_in_chunk(chunk_end - chunk_start, self.layout.random_seed, chunk)
        places = chunk_start + order[begin : begin + count]
        return (places % self.layout.files).tolist(), (places // self.layout.files).tolist()


@lru_cache(maxsize=8)
def _places_in_chunk(count: int, seed: int, chunk: int) -> np.ndarray:
    """int64 [count]: the place that each record of a chunk goes to."""
    order = shuffled_order(count, seed, chunk)
    places = np.empty_like(order)
    places[order] = np.arange(count)
    return places
