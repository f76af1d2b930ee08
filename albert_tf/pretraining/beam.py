"""The making of pretraining records as an Apache Beam pipeline: many machines, the same bytes.

Every step is a pure function of its input, so it may run anywhere, in any order and more than once:

    look for cuts ─▶ plan jobs ─▶ make records ─▶ place them ─▶ write parts ─▶ join them ─▶ rename

The place of a record (file and row) follows from how many records and bytes every job made, a few
bytes a job. Those alone are gathered in one place; text and records never are.

Beam's own options are checked here: Beam passes over an unknown one with a warning.
"""

import os
import pickle
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics, MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.runner import PipelineState, create_runner
from apache_beam.utils.shared import Shared

from albert_tf.data.files import (
    file_exists,
    open_binary,
    rename,
    temporary_folder,
    write_then_rename,
)
from albert_tf.pretraining.corpus import BLOCK_BYTES, Block, Corpus, Cut, read_documents
from albert_tf.pretraining.create_records import (
    SHUFFLE_BYTES,
    CreationReport,
    Job,
    RecordMaker,
    check_outputs,
    chunk_numbers,
    no_text_error,
    shuffled_jobs,
    shuffled_order,
)
from albert_tf.pretraining.instances import PretrainingDataSettings
from albert_tf.pretraining.segments import NO_RECORD
from albert_tf.tokenization.base import Tokenizer

# Beam's DirectRunner tries another runner first, which it downloads.
_RUNNERS = {"directrunner": "apache_beam.runners.portability.fn_api_runner.FnApiRunner"}
PART_BYTES = 64 << 20
_COPY_BYTES = 4 << 20
_METRICS = "albert_tf"


def beam_options(runner: str, arguments: Sequence[str]) -> PipelineOptions:
    """Turns Beam's own options into its object for them.

    Args:
        runner: Beam's name of the runner.
        arguments: options such as "--region=us-east1".

    Raises:
        ValueError: the runner or an option is unknown. Runners with a job server have options that
            only the server knows; these are passed on.
    """
    name = _RUNNERS.get(runner.lower(), runner)
    try:
        runner_class = type(create_runner(name))
    except (ValueError, ImportError, AttributeError) as error:
        raise ValueError(f"--runner={runner}: {error}") from error
    _check_arguments(arguments, has_server=issubclass(runner_class, PortableRunner))
    return PipelineOptions([*arguments, f"--runner={name}"])


def is_local(runner: str) -> bool:
    """Whether a runner works in this process and those that end with it."""
    return runner.lower() in _RUNNERS


def _check_arguments(arguments: Sequence[str], has_server: bool) -> None:
    previous = "="
    for argument in arguments:
        if not argument.startswith("-") and (not previous.startswith("--") or "=" in previous):
            raise ValueError(f"{argument!r} is no option of Beam; write --name=value after the --.")
        previous = argument
    options = PipelineOptions(list(arguments))
    if options.get_all_options().get("runner"):
        raise ValueError("--runner goes before the --, among the flags of this command.")
    known = options.get_all_options().keys()
    unknown = options.get_all_options(retain_unknown_options=True).keys() - known
    if unknown and not has_server:
        names = ", ".join(f"--{name}" for name in sorted(unknown))
        raise ValueError(f"Beam has no option {names}. Its options follow the --, as --name=value.")


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


class Task(NamedTuple):
    """All passes over one block, which is tokenized once.

    Attributes:
        block_number: number of the block in the corpus.
        block: where its text is.
        ranks: for each pass its place in the order of jobs.
    """

    block_number: int
    block: Block
    ranks: tuple[int, ...]


def create_pretraining_data(
    runner: str,
    options: Sequence[str],
    input_files: Sequence[str],
    output_files: Sequence[str],
    tokenizer: Tokenizer,
    settings: PretrainingDataSettings,
    block_bytes: int = BLOCK_BYTES,
    shuffle_bytes: int = SHUFFLE_BYTES,
    part_bytes: int = PART_BYTES,
) -> CreationReport:
    """Writes the pretraining records of a corpus with an Apache Beam runner.

    The bytes are those that `create_records.create_pretraining_data` writes.

    Args:
        runner: Beam's name of the runner, such as "DataflowRunner".
        options: Beam's own options, such as "--region=us-east1".
        input_files: text; every worker must be able to read it under these paths.
        output_files: records go to them in turn; every worker must be able to write them.
        tokenizer: text to ids; shipped to the workers.
        settings: what instances look like.
        block_bytes: text a job works on.
        shuffle_bytes: records that are shuffled at a time.
        part_bytes: records that one worker holds in memory when files are written.

    Returns:
        Counts of what was read and made; on a runner that reports only attempted work, those of
        work it did twice are in them twice.

    Raises:
        ValueError: options, an input or an output is wrong, or the pipeline failed.
    """
    check_outputs(input_files, output_files)
    pipeline_options = beam_options(runner, options)
    start = time.monotonic()
    corpus = Corpus.of(input_files, block_bytes)
    if not corpus.size:
        raise no_text_error(input_files)
    with _scratch_folders(output_files, runner) as scratch:
        pipeline = beam.Pipeline(options=pipeline_options)
        layout = Layout(len(output_files), shuffle_bytes, part_bytes, settings.random_seed)
        _build(pipeline, corpus, RecordMaker(tokenizer, settings), layout, output_files, scratch)
        counts = _run(pipeline, runner)
    if lost := [path for path in output_files if not file_exists(path)]:
        raise ValueError(
            f"--runner={runner} has finished, but {lost[0]} is not on this machine. Give an "
            "--output_file that all machines share, such as gs://bucket/name."
        )
    return CreationReport(settings, counts, time.monotonic() - start)


def _build(
    pipeline: beam.Pipeline,
    corpus: Corpus,
    maker: RecordMaker,
    layout: Layout,
    output_files: Sequence[str],
    scratch: Sequence[str],
) -> None:
    """Adds all steps to the pipeline; `scratch`: what the names of each file's parts begin with."""
    made = (
        pipeline
        | "Corpus" >> beam.Create([corpus.searches])
        | "Places to look for cuts" >> beam.FlatMap(list)
        | "Spread places" >> beam.Reshuffle()
        | "Look for cuts" >> beam.Map(_numbered_cut, corpus)
        | "Gather cuts" >> beam.combiners.ToList()
        | "Plan jobs" >> beam.FlatMap(_plan, corpus, maker.settings)
        | "Spread jobs" >> beam.Reshuffle()
        | "Make records" >> beam.ParDo(_MakeRecords(maker)).with_outputs("sizes", main="records")
    )
    places = (
        made.sizes
        | "Gather sizes" >> beam.combiners.ToList()
        | "Find places" >> beam.Map(Places.of, layout)
    )
    parts = (
        made.records
        | "Place records" >> beam.FlatMap(_place, beam.pvalue.AsSingleton(places))
        | "Gather parts" >> beam.GroupByKey()
        | "Write parts" >> beam.Map(_write_part, scratch)
    )
    # A file that gets no record is still written.
    no_parts = pipeline | "Files" >> beam.Create([(k, "") for k in range(len(output_files))])
    _ = (
        (parts, no_parts)
        | "Parts and files" >> beam.Flatten()
        | "Gather files" >> beam.GroupByKey()
        | "Join parts" >> beam.Map(_join, scratch)
        | "Wait for all files" >> beam.combiners.ToList()
        | "Each file" >> beam.FlatMap(list)
        | "Spread files" >> beam.Reshuffle()
        | "Rename files" >> beam.Map(_publish, output_files)
    )


def _numbered_cut(number: int, corpus: Corpus) -> tuple[int, Cut | None]:
    return number, corpus.find_cut(number)


def _plan(
    cuts: list[tuple[int, Cut | None]], corpus: Corpus, settings: PretrainingDataSettings
) -> Iterator[Task]:
    blocks = corpus.blocks(cut for _, cut in sorted(cuts))
    ranks = [[0] * settings.dupe_factor for _ in blocks]
    for rank, job in enumerate(shuffled_jobs(blocks, settings)):
        ranks[job.block_number][job.pass_number] = rank
    for number, block in enumerate(blocks):
        yield Task(number, block, tuple(ranks[number]))


class _MakeRecords(beam.DoFn):
    """Tasks to (rank, number of the first, framed records); tagged "sizes": (rank, number, bytes).

    A pass goes out in batches, because runners limit the size of an element.
    """

    def __init__(self, maker: RecordMaker):
        self._pickled = pickle.dumps(maker)
        self._shared = Shared()

    def setup(self) -> None:
        """Loads the tokenizer, once a process."""
        self._maker: RecordMaker = self._shared.acquire(lambda: pickle.loads(self._pickled))

    def process(self, task: Task) -> Iterator[Any]:
        documents = read_documents(task.block, self._maker.tokenizer)
        for pass_number, rank in enumerate(task.ranks):
            made = size = 0
            job = Job(pass_number, task.block_number, task.block)
            for records, counts in self._maker.make_batches(documents, job):
                _add_to_metrics(counts)
                if records:
                    yield rank, made, records
                made += len(records)
                size += sum(map(len, records))
            yield beam.pvalue.TaggedOutput("sizes", (rank, made, size))


def _add_to_metrics(counts: Counter[str]) -> None:
    for name, count in counts.items():
        Metrics.counter(_METRICS, name).inc(count)


def _place(
    batch: tuple[int, int, list[bytes]], places: Places
) -> Iterable[tuple[tuple[int, int], list[tuple[int, bytes]]]]:
    """Records of a job to ((file, part), [(row, record), ...])."""
    rank, first, records = batch
    parts = defaultdict(list)
    for record, file, row in zip(
        records, *places.of_records(rank, first, len(records)), strict=True
    ):
        parts[file, row // places.rows_in_part].append((row, record))
    return parts.items()


def _write_part(
    part: tuple[tuple[int, int], Iterable[list[tuple[int, bytes]]]], scratch: Sequence[str]
) -> tuple[int, str]:
    (file_number, part_number), batches = part
    records = dict(pair for batch in batches for pair in batch)
    path = f"{scratch[file_number]}-part-{part_number:06d}"
    with write_then_rename(path) as file:
        for row in sorted(records):
            file.write(records[row])
    return file_number, path


def _join(file: tuple[int, Iterable[str]], scratch: Sequence[str]) -> tuple[int, str]:
    """Puts the parts of a file together; a single one is taken as it is."""
    number, names = file
    parts = sorted(filter(None, names))
    if len(parts) == 1:
        return number, parts[0]
    with write_then_rename(f"{scratch[number]}-whole") as whole:
        for part in parts:
            with open_binary(part, "rb") as source:
                while piece := source.read(_COPY_BYTES):
                    whole.write(piece)
    return number, f"{scratch[number]}-whole"


def _publish(file: tuple[int, str], output_files: Sequence[str]) -> None:
    number, path = file
    if file_exists(path):
        rename(path, output_files[number])
    elif not file_exists(output_files[number]):  # else an earlier attempt has renamed it
        raise ValueError(
            f"{path} is not on this worker. Give an --output_file that all machines share, such "
            "as gs://bucket/name."
        )


@contextmanager
def _scratch_folders(output_files: Sequence[str], runner: str) -> Iterator[list[str]]:
    """Folders beside the outputs for the time of the run, and a path in them for each file."""
    is_shared = not is_local(runner)
    places = [os.path.split(path) for path in output_files]
    with ExitStack() as stack:
        scratch = {}
        for folder in {folder for folder, _ in places}:
            records = os.path.join(folder, "records")
            made = temporary_folder(records, "--output_file", is_shared=is_shared)
            scratch[folder] = stack.enter_context(made)
        yield [os.path.join(scratch[folder], base) for folder, base in places]


def _run(pipeline: beam.Pipeline, runner: str) -> Counter[str]:
    """Runs the pipeline to its end and returns the counts of all workers."""
    try:
        result = pipeline.run()
        state = result.wait_until_finish()
    except RuntimeError as error:  # the error of a worker, with its stack
        raise ValueError(f"--runner={runner} failed: {error}") from error
    if state not in (None, PipelineState.DONE):
        raise ValueError(f"--runner={runner} ended in the state {state}; see the log of the job.")
    found = result.metrics().query(MetricsFilter().with_namespace(_METRICS))["counters"]
    return Counter({counter.key.metric.name: counter.result or 0 for counter in found})
