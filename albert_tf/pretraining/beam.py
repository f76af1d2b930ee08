"""Creates the same files as `create_records` with Apache Beam, on many machines.

Every step is a pure function of its input, so a runner can repeat it on any machine.
"""

import io
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr
from itertools import accumulate, chain
from operator import itemgetter
from typing import NamedTuple

import apache_beam as beam
from apache_beam.metrics import Metrics, MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.runner import PipelineState, create_runner

from albert_tf.data.errors import UserError
from albert_tf.data.files import (
    file_exists,
    open_binary,
    rename,
    temporary_folder,
    write_then_rename,
)
from albert_tf.pretraining.corpus import BLOCK_BYTES, Block, cut_into_blocks
from albert_tf.pretraining.create_records import (
    SHUFFLE_BYTES,
    Job,
    RecordMaker,
    check_outputs,
    chunk_numbers,
    shuffled_jobs,
    shuffled_order,
)
from albert_tf.pretraining.instances import NO_RECORD, InstanceSettings
from albert_tf.pretraining.record_facts import write_facts
from albert_tf.tokenization.base import Tokenizer

# Beam's DirectRunner would first try another runner, which it downloads.
_RUNNERS = {"directrunner": "apache_beam.runners.portability.fn_api_runner.FnApiRunner"}
_COPY_BYTES = 4 << 20
_METRICS = "albert_tf"
_SHARE_OUTPUT = "Use an `output_file` that all machines share, such as gs://bucket/name."


def beam_options(runner: str, arguments: Sequence[str]) -> PipelineOptions:
    """Parses Beam's options.

    Raises ValueError if the runner or an option is invalid, or a required option or program is
    missing. Unknown options for runners with a job server are accepted, because the server defines
    them.
    """
    name, usage = _RUNNERS.get(runner.lower(), runner), io.StringIO()
    try:
        runner_object = create_runner(name)
        with redirect_stderr(usage):  # Beam prints the help of all options
            given = PipelineOptions(list(arguments))
            known = given.get_all_options()
            unknown = given.get_all_options(retain_unknown_options=True).keys() - known
        options = PipelineOptions([*arguments, f"--runner={name}"])
        problems = PipelineOptionsValidator(options, runner_object).validate()
        if type(runner_object).__name__ == "DataflowRunner" and not problems:
            from apache_beam.runners.dataflow.internal import apiclient  # noqa: F401
    except SystemExit as error:
        problem = usage.getvalue().strip().rpartition("error: ")[2]
        raise UserError(f"Beam's options after -- are invalid: {problem}") from error
    except (ValueError, ImportError, AttributeError) as error:
        advice = ' Install "apache-beam[gcp]".' if "dataflow" in runner.lower() else ""
        raise UserError(f"`runner`={runner}: {error}.{advice}") from error
    if unknown and not isinstance(runner_object, PortableRunner):
        problems.append(f"Beam has no option {', '.join(f'--{name}' for name in sorted(unknown))}.")
    uses_docker = known["environment_type"] in (None, "DOCKER") and known["job_endpoint"] == "embed"
    if uses_docker and not shutil.which("docker"):
        problems.append("Docker is not installed. Install it, or use --environment_type=LOOPBACK.")
    if problems:
        raise UserError(
            f"`runner`={runner}: {' '.join(problems)} Pass Beam's options after --, as "
            "--name=value."
        )
    return options


class Task(NamedTuple):
    """All passes over a block. `ranks` are the positions of the passes in `shuffled_jobs`."""

    block_number: int
    block: Block
    ranks: tuple[int, ...]


class Chunks(NamedTuple):
    """The chunk number of each job, and the number of records before each chunk."""

    of_job: list[int]
    starts: list[int]


def create_records(
    runner: str,
    options: Sequence[str],
    input_files: Sequence[str],
    output_files: Sequence[str],
    tokenizer: Tokenizer,
    settings: InstanceSettings,
    block_bytes: int = BLOCK_BYTES,
    shuffle_bytes: int = SHUFFLE_BYTES,
) -> Counter[str]:
    """Writes the same files as `create_records.create_records` with an Apache Beam runner.

    All workers must be able to access the files under the given paths. `runner` is Beam's name of
    the runner, such as "DataflowRunner". `options` are Beam's options, such as "--region=us-east1".

    Returns:
        Counts as in `count_instances`. Some runners count repeated work more than once.

    Raises:
        ValueError: an option, an input or an output is invalid, or the pipeline failed.
    """
    check_outputs(input_files, output_files)
    pipeline = beam.Pipeline(options=beam_options(runner, options))
    is_shared = runner.lower() not in _RUNNERS  # workers may outlive this process
    with _scratch_folders(output_files, is_shared) as scratch:
        maker = RecordMaker(tokenizer, settings)
        made = (
            pipeline
            | "Corpus" >> beam.Create([list(input_files)])
            | "Plan jobs" >> beam.FlatMap(_plan, block_bytes, settings)
            | "Spread jobs" >> beam.Reshuffle()
            | "Make records" >> beam.FlatMap(_make_records, maker)
        )
        chunks = (
            made
            | "Measure jobs" >> beam.Map(_measure)
            | "Gather sizes" >> beam.combiners.ToList()
            | "Plan chunks" >> beam.Map(_plan_chunks, shuffle_bytes)
        )
        _ = (
            made
            | "Find chunks" >> beam.Map(_with_chunk, beam.pvalue.AsSingleton(chunks))
            | "Gather chunks" >> beam.GroupByKey()
            | "Write parts"
            >> beam.FlatMap(
                _write_parts, beam.pvalue.AsSingleton(chunks), settings.random_seed, scratch
            )
            | "Gather parts" >> beam.GroupByKey()
            | "Join parts" >> beam.Map(_join, scratch)
            | "Wait for all files" >> beam.combiners.ToList()
            | "Each file" >> beam.FlatMap(list)
            | "Spread files" >> beam.Reshuffle()
            | "Rename files" >> beam.Map(_publish, output_files)
        )
        counts = _run(pipeline, runner)
    if lost := [path for path in output_files if not file_exists(path)]:
        raise UserError(
            f"`runner`={runner} has finished, but {lost[0]} is not on this machine. {_SHARE_OUTPUT}"
        )
    write_facts(output_files, tokenizer, settings.segments.sentence_loss)
    return counts


def _plan(
    input_files: Sequence[str], block_bytes: int, settings: InstanceSettings
) -> Iterator[Task]:
    blocks = cut_into_blocks(input_files, block_bytes)
    ranks = [[0] * settings.dupe_factor for _ in blocks]
    for rank, job in enumerate(shuffled_jobs(blocks, settings)):
        ranks[job.block_number][job.pass_number] = rank
    for number, block in enumerate(blocks):
        yield Task(number, block, tuple(ranks[number]))


def _make_records(task: Task, maker: RecordMaker) -> Iterator[tuple[int, list[bytes]]]:
    """Yields the rank and the framed records of each pass. Adds counts to Beam's metrics."""
    documents = maker.read(task.block)
    for pass_number, rank in enumerate(task.ranks):
        job = Job(pass_number, task.block_number, task.block)
        records, counts = maker.make_pass(documents, job)
        for name, count in counts.items():
            Metrics.counter(_METRICS, name).inc(count)
        yield rank, records


def _measure(made: tuple[int, list[bytes]]) -> tuple[int, int, int]:
    rank, records = made
    return rank, len(records), sum(map(len, records))


def _plan_chunks(sizes: Iterable[tuple[int, int, int]], shuffle_bytes: int) -> Chunks:
    sizes = sorted(sizes)
    of_job = list(chunk_numbers((job_bytes for *_, job_bytes in sizes), shuffle_bytes))
    counts: Counter[int] = Counter()
    for chunk, (_, count, _) in zip(of_job, sizes, strict=True):
        counts[chunk] += count
    if not counts.total():
        raise UserError(NO_RECORD)
    return Chunks(of_job, list(accumulate((counts[k] for k in range(len(counts))), initial=0)))


def _with_chunk(
    made: tuple[int, list[bytes]], chunks: Chunks
) -> tuple[int, tuple[int, list[bytes]]]:
    return chunks.of_job[made[0]], made


def _write_parts(
    chunk: tuple[int, Iterable[tuple[int, list[bytes]]]],
    chunks: Chunks,
    seed: int,
    scratch: Sequence[str],
) -> Iterator[tuple[int, str]]:
    """Shuffles a chunk and writes a part of each file. Yields file numbers and paths of parts."""
    number, jobs = chunk
    ordered = sorted(jobs, key=itemgetter(0))
    records = list(chain.from_iterable(records for _, records in ordered))
    order = shuffled_order(len(records), seed, number).tolist()
    for file_number, path in enumerate(scratch):
        first = (file_number - chunks.starts[number]) % len(scratch)
        part = f"{path}-part-{number:06d}"
        with write_then_rename(part) as file:
            file.writelines(records[index] for index in order[first :: len(scratch)])
        yield file_number, part


def _join(file: tuple[int, Iterable[str]], scratch: Sequence[str]) -> tuple[int, str]:
    number, names = file
    parts = sorted(names)
    if len(parts) == 1:
        return number, parts[0]
    whole = f"{scratch[number]}-whole"
    with write_then_rename(whole) as target:
        for part in parts:
            with open_binary(part, "rb") as source:
                shutil.copyfileobj(source, target, _COPY_BYTES)
    return number, whole


def _publish(file: tuple[int, str], output_files: Sequence[str]) -> None:
    number, path = file
    if file_exists(path):
        rename(path, output_files[number])
    elif not file_exists(output_files[number]):  # an earlier attempt may have renamed it
        raise UserError(f"{path} is not on this worker. {_SHARE_OUTPUT}")


@contextmanager
def _scratch_folders(output_files: Sequence[str], is_shared: bool) -> Iterator[list[str]]:
    """Creates temporary directories next to the outputs. Yields a temporary path per output."""
    with ExitStack() as stack:
        scratch = {}
        for folder in {os.path.dirname(path) for path in output_files}:
            records = os.path.join(folder, "records")
            made = temporary_folder(records, is_shared=is_shared)
            scratch[folder] = stack.enter_context(made)
        yield [
            os.path.join(scratch[os.path.dirname(path)], os.path.basename(path))
            for path in output_files
        ]


def _run(pipeline: beam.Pipeline, runner: str) -> Counter[str]:
    try:
        result = pipeline.run()
        state = result.wait_until_finish()
    except Exception as error:  # Beam raises many classes. A worker's message has its stack trace.
        reason = str(error).strip().rpartition("\n")[2] or type(error).__name__
        raise UserError(f"`runner`={runner} failed: {reason}") from error
    if state not in (None, PipelineState.DONE):
        raise UserError(f"`runner`={runner} ended in the state {state}; see the log of the job.")
    found = result.metrics().query(MetricsFilter().with_namespace(_METRICS))["counters"]
    return Counter({counter.key.metric.name: counter.result or 0 for counter in found})
