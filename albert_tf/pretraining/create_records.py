"""Creates files of pretraining records from text files, in parallel and with bounded memory.

Each pass over each block of documents is a job with its own seed. The jobs are executed in random
order. Their records are grouped into chunks that fit in memory, and shuffled. The files do not
depend on the number of processes.
"""

import os
import pickle
import random
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, tee
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from albert_tf.data.errors import UserError
from albert_tf.data.files import (
    check_file,
    is_remote,
    real_name,
    temporary_folder,
    write_all_then_rename,
    write_then_rename,
)
from albert_tf.data.parallel import available_cores, worker_processes
from albert_tf.data.tfrecord import frame_records
from albert_tf.pretraining.corpus import (
    BLOCK_BYTES,
    Block,
    byte_progress,
    check_text,
    read_documents,
)
from albert_tf.pretraining.instances import (
    NO_RECORD,
    UNICODE,
    Documents,
    InstanceSettings,
    make_examples,
    masking_vocabulary,
    mix_seed,
)
from albert_tf.pretraining.record_facts import write_facts
from albert_tf.pretraining.word_starts import WordStarts
from albert_tf.tokenization.base import Tokenizer

SHUFFLE_BYTES = 256 << 20  # about 95,000 records of 512 tokens
_SAMPLED_BLOCKS = 16  # in a dry run


def create_records(
    input_files: Sequence[str],
    output_files: Sequence[str],
    tokenizer: Tokenizer,
    settings: InstanceSettings,
    num_workers: int | None = None,
    block_bytes: int = BLOCK_BYTES,
    shuffle_bytes: int = SHUFFLE_BYTES,
) -> Counter[str]:
    """Writes the pretraining records of a corpus. Returns the counts of `count_instances`.

    Records are written to the output files in turn. Facts about the records are stored next to each
    file. If `num_workers` is `None`, all cores are used. The text of a job has about
    `block_bytes` bytes; the records that are shuffled together have at least `shuffle_bytes` bytes.

    Raises:
        ValueError: an input file is not text, or an output file cannot be written.

    Source: `main` of the original's create_pretraining_data.
    Differs: every job has its own random generators. The original has one generator for all
        documents, and an unseeded generator for n-gram lengths. Random second parts are from the
        same block, not from the whole corpus. The end of a file ends its last document.
    """
    check_outputs(input_files, output_files)
    processes = num_workers or available_cores()
    blocks = check_text(input_files, processes, block_bytes)
    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        writers = stack.enter_context(write_all_then_rename(output_files))
        folder = None  # of tokenized blocks, which later passes read again
        if settings.dupe_factor > 1:
            local = os.path.join(os.path.dirname(os.path.abspath(output_files[0])), "tokens")
            is_local = not is_remote(output_files[0])
            made = temporary_folder(local) if is_local else tempfile.TemporaryDirectory()
            folder = stack.enter_context(made)
        maker = RecordMaker(tokenizer, settings, folder)
        jobs = shuffled_jobs(blocks, settings)
        run = stack.enter_context(worker_processes(min(processes, len(jobs)), maker))
        records = _count_results(jobs, run(RecordMaker.make, jobs), counts)
        for number, record in enumerate(shuffled(records, shuffle_bytes, settings.random_seed)):
            writers[number % len(writers)].write(record)
        if not counts["instances"]:
            raise UserError(f"{NO_RECORD} Files: {', '.join(input_files)}")
    write_facts(output_files, tokenizer, settings.segments.sentence_loss)
    return counts


def check_outputs(input_files: Sequence[str], output_files: Sequence[str]) -> None:
    """Raises ValueError if an output file is an input file, a duplicate, or not writable."""
    if not output_files:
        raise UserError("`output_file` contains no file name.")
    inputs = {real_name(path): path for path in input_files}
    seen: set[str] = set()
    for path in output_files:
        name = real_name(path)
        if name in inputs:
            raise UserError(f"`output_file` would overwrite the input {inputs[name]}.")
        if name in seen:
            raise UserError(f"`output_file` contains {path} twice. Use different names.")
        check_file(path)
        seen.add(name)


class Job(NamedTuple):
    """A pass over a block. Numbers start at 0."""

    pass_number: int
    block_number: int
    block: Block


def shuffled_jobs(blocks: Sequence[Block], settings: InstanceSettings) -> list[Job]:
    """Returns every pass over every block, in random order."""
    jobs = [
        Job(pass_number, block_number, block)
        for pass_number in range(settings.dupe_factor)
        for block_number, block in enumerate(blocks)
    ]
    random.Random(mix_seed([settings.random_seed])[0]).shuffle(jobs)
    return jobs


@dataclass(frozen=True)
class RecordMaker:
    """Creates the records of jobs. Tokenized blocks are cached in `folder` unless it is `None`."""

    tokenizer: Tokenizer
    settings: InstanceSettings
    folder: str | None = None

    def make(self, job: Job) -> tuple[list[bytes], Counter[str]]:
        """Returns the framed records of a job and its counts."""
        return self.make_pass(self._documents(job), job)

    def make_pass(self, documents: Documents, job: Job) -> tuple[list[bytes], Counter[str]]:
        """Returns the same as `make`, given the documents of the job's block."""
        records: list[bytes] = []
        counts: Counter[str] = Counter()
        if job.pass_number == 0:
            counts.update(documents.counts)
        seed = self.settings.random_seed, job.pass_number, job.block_number
        vocabulary = masking_vocabulary(self.tokenizer, self.settings.word_starts)
        for examples, made in make_examples(documents, self.settings, vocabulary, seed):
            records += frame_records(examples)
            counts.update(made)
        return records, counts

    def read(self, block: Block) -> Documents:
        """Returns the documents of a block, with word starts."""
        documents = read_documents(block, self.tokenizer)
        if self._word_starts is None or not documents.count:
            return documents
        return self._word_starts.mark(documents)

    @cached_property
    def _word_starts(self) -> WordStarts | None:
        is_unicode = self.settings.word_starts == UNICODE
        return WordStarts(self.tokenizer, self.settings.has_icu) if is_unicode else None

    def _documents(self, job: Job) -> Documents:
        if self.folder is None:
            return self.read(job.block)
        path = os.path.join(self.folder, f"{job.block_number}.pickle")
        if os.path.exists(path):
            with open(path, "rb") as file:
                return pickle.load(file)
        documents = self.read(job.block)
        with write_then_rename(path) as file:
            pickle.dump(documents, file)
        return documents


def sample_counts(
    blocks: Sequence[Block], tokenizer: Tokenizer, num_workers: int, longest: int = 1 << 30
) -> Counter[str]:
    """Returns the counts of the text of at most 16 evenly spread blocks (64 MiB).

    "long_word_tokens" is the number of tokens in words with more than `longest` tokens.
    """
    sample = blocks[:: max(1, -(-len(blocks) // _SAMPLED_BLOCKS))]
    shared = tokenizer, longest
    with worker_processes(max(1, min(num_workers, len(sample))), shared) as run:
        return sum(map(Counter, run(_block_counts, sample)), Counter())


def _block_counts(shared: tuple[Tokenizer, int], block: Block) -> Mapping[str, int]:
    tokenizer, longest = shared
    documents = read_documents(block, tokenizer)
    starts = masking_vocabulary(tokenizer).starts_word[documents.ids]
    starts[documents.segment_starts[:-1]] = True
    sizes = np.diff(np.append(np.flatnonzero(starts), len(starts)))
    return {**documents.counts, "long_word_tokens": int(sizes[sizes > longest].sum())}


def _count_results(
    jobs: Sequence[Job], results: Iterable[tuple[list[bytes], Counter[str]]], counts: Counter[str]
) -> Iterator[list[bytes]]:
    """Yields the records of each job, adds up the counts in `counts`, and shows the progress."""
    with byte_progress("creating", sum(job.block.size for job in jobs)) as progress:
        for job, (records, made) in zip(jobs, results, strict=True):
            yield records
            counts.update(made)
            progress.update(job.block.size)


def shuffled(jobs: Iterable[list[bytes]], capacity: int, seed: int) -> Iterator[bytes]:
    """Yields the records of all jobs, shuffled in chunks of at least `capacity` bytes."""
    measured, jobs = tee(jobs)
    numbers = chunk_numbers((sum(map(len, records)) for records in measured), capacity)
    for number, group in groupby(zip(numbers, jobs, strict=True), itemgetter(0)):
        chunk = [record for _, records in group for record in records]
        for index in shuffled_order(len(chunk), seed, number).tolist():
            yield chunk[index]
        del chunk  # before the next chunk is collected


def chunk_numbers(sizes: Iterable[int], capacity: int) -> Iterator[int]:
    """Yields the chunk number of each job. A chunk ends when it has at least `capacity` bytes."""
    number = filled = 0
    for size in sizes:
        yield number
        filled += size
        if filled >= capacity:
            number, filled = number + 1, 0


def shuffled_order(count: int, seed: int, chunk: int) -> np.ndarray:
    """Returns the order of the records of a chunk, int64 [count]."""
    # Unlike other methods, `random_raw` returns the same numbers in all versions of NumPy.
    keys = np.random.SFC64(mix_seed([seed, chunk])).random_raw(count)
    return np.argsort(keys, kind="stable")
