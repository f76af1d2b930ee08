"""From text files to files of pretraining records, in many processes and in bounded memory.

Each pass over each block of documents is a job with random numbers of its own. Jobs run wherever
there is a free process; their records come back in a random order of the jobs, are gathered into
chunks as large as memory is meant to be, and each chunk is shuffled. So the bytes written depend on
text, settings and seed, not on the processes, and `pretraining.beam` writes the same on a cluster.
"""

import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import groupby, tee
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from albert_tf.data.errors import UserError
from albert_tf.data.files import (
    check_file,
    is_remote,
    real_name,
    temporary_folder,
    write_then_rename,
)
from albert_tf.data.jobs import available_cores, worker_processes
from albert_tf.data.tfrecord import frame_records
from albert_tf.pretraining.corpus import (
    BLOCK_BYTES,
    Block,
    check_block,
    cut_into_blocks,
    read_documents,
)
from albert_tf.pretraining.instances import (
    InstanceSettings,
    make_examples,
    masking_vocabulary,
    mix_seed,
)
from albert_tf.pretraining.masking import MaskingSettings
from albert_tf.pretraining.segments import ADJACENT, NO_RECORD, NONE, Documents
from albert_tf.pretraining.vocabulary import write_fingerprints
from albert_tf.tokenization.base import Tokenizer

SHUFFLE_BYTES = 256 << 20  # about 95,000 records of 512 tokens


@dataclass(frozen=True)
class CreationReport:
    """What was asked for, counts of what was read and made (see `count_instances`), and seconds."""

    settings: InstanceSettings
    counts: Counter[str]
    seconds: float

    def lines(self) -> list[str]:
        """The report, one `key=value` group a line."""
        c, settings = self.counts, self.settings
        segments, slots = settings.segments, settings.masking.prediction_slots
        ngrams = {n: c[f"ngram_{n}"] for n in range(1, settings.masking.ngram + 1)}
        masking = (
            f"predictions={c['predictions']:,} "
            f"masked_fraction={_share(c['predictions'], c['tokens'])} prediction_slots={slots} "
            + " ".join(f"{n}-grams={_share(k, sum(ngrams.values()))}" for n, k in ngrams.items())
        )
        pairs = (
            f"sentence_loss={segments.sentence_loss} sentence_pairs={segments.sentence_pairs} "
            f"swapped={_share(c['swapped'], c['instances'])} "
            f"random_document={_share(c['random_parts'], c['instances'])}"
        )
        if not settings.masking.masked_lm_prob:
            masking = "none, for masking while training"
        if segments.sentence_loss == NONE:
            pairs = f"sentence_loss={NONE} (a sequence is one run of text)"
        return [
            f"read: documents={c['documents']:,} segments={c['segments']:,} "
            f"tokens={c['text_tokens']:,} one_segment_documents={c['one_segment_documents']:,} "
            f"documents_cut={c['documents_cut']:,}",
            f"made: instances={c['instances']:,} passes={settings.dupe_factor} "
            f"tokens={c['tokens']:,} "
            f"padding={_share(c['positions'] - c['tokens'], c['positions'])} "
            f"tokens_cut={_share(c['tokens_cut'], c['tokens'] + c['tokens_cut'])}",
            f"masking: {masking}",
            f"sentence pairs: {pairs}",
            f"speed: tokens_per_second={c['tokens'] / max(self.seconds, 1e-9):,.0f} "
            f"seconds={self.seconds:,.1f}",
        ]

    def warnings(self) -> Iterator[str]:
        """What the user should know about these records."""
        c = self.counts
        if c["random_parts_of_only_document"]:
            yield (
                f"{c['random_parts_of_only_document']:,} of {c['random_parts']:,} random second "
                "parts come from the document of the first part, because there was no other. Put "
                "empty lines between documents, or add documents."
            )
        is_adjacent = self.settings.segments.sentence_pairs == ADJACENT
        if is_adjacent and 2 * c["one_segment_documents"] > c["documents"]:
            yield (
                f"{c['one_segment_documents']:,} of {c['documents']:,} documents have one line, "
                f"from which --sentence_pairs={ADJACENT} creates no pair. Does the text have one "
                "sentence per line, and empty lines only between documents?"
            )
        if c["tokens_cut"] > c["tokens"]:
            yield (
                f"{_share(c['tokens_cut'], c['tokens'] + c['tokens_cut'])} of the tokens did not "
                "fit into --max_seq_length and are lost. Does the text have one sentence per line?"
            )
        if c["documents_cut"]:
            yield (
                f"Documents were cut at {c['documents_cut']:,} places because they are longer than "
                "a block of text. Are the empty lines between documents missing?"
            )
        if not self.settings.masking.masked_lm_prob:
            yield (
                "The records are plain (--masked_lm_prob=0): train on them with "
                "run_pretraining.py --masked_lm_prob=0.15, which masks them differently in every "
                "pass."
            )
        elif self.settings.masking.do_permutation:
            yield (
                "Permutation doubles the prediction slots: train on these records with "
                f"--max_predictions_per_seq={self.settings.masking.prediction_slots}."
            )


def masking_limit_warning(length: int, masking: MaskingSettings) -> str | None:
    """Says so when --max_predictions_per_seq allows less than --masked_lm_prob asks for.

    `length`: positions of a full sequence.
    """
    limit, fraction = masking.max_predictions_per_seq, masking.masked_lm_prob
    wanted = round(length * fraction)
    if wanted <= limit:
        return None
    return (
        f"--masked_lm_prob={fraction:g} asks for {wanted} predictions in {length} tokens, but "
        f"--max_predictions_per_seq={limit} allows {limit}: {limit / length:.1%} will be masked. "
        f"The released models were trained this way; --max_predictions_per_seq={wanted} masks all."
    )


def _share(part: int, whole: int) -> str:
    return f"{part / max(whole, 1):.2%}"


def chunk_numbers(sizes: Iterable[int], capacity: int) -> Iterator[int]:
    """Says for each job which chunk it belongs to: one is full when it has `capacity` bytes."""
    number = filled = 0
    for size in sizes:
        yield number
        filled += size
        if filled >= capacity:
            number, filled = number + 1, 0


def shuffled_order(count: int, seed: int, chunk: int) -> np.ndarray:
    """The order of the `count` records of a chunk, int64 [N]: which is first, second and so on."""
    # Raw bits, because only these are promised to stay the same in all versions of NumPy.
    keys = np.random.SFC64(mix_seed([seed, chunk])).random_raw(count)
    return np.argsort(keys, kind="stable")


def shuffled(jobs: Iterable[list[bytes]], capacity: int, seed: int) -> Iterator[bytes]:
    """Yields the records of jobs in a random order that the seed decides.

    So many bytes are shuffled at a time, and held in memory, with those of one more job.
    """
    measured, jobs = tee(jobs)
    numbers = chunk_numbers((sum(map(len, records)) for records in measured), capacity)
    for number, group in groupby(zip(numbers, jobs, strict=True), itemgetter(0)):
        chunk = [record for _, records in group for record in records]
        for index in shuffled_order(len(chunk), seed, number).tolist():
            yield chunk[index]
        del chunk  # before the next one is gathered


class Job(NamedTuple):
    """One pass over one block, the pass counted from 0 to dupe_factor - 1."""

    pass_number: int
    block_number: int
    block: Block


@dataclass(frozen=True)
class RecordMaker:
    """What every process needs to turn jobs into records.

    Attributes:
        tokenizer: text to ids.
        settings: what instances look like.
        folder: where tokenized blocks are kept for the next pass; None if there is only one.
    """

    tokenizer: Tokenizer
    settings: InstanceSettings
    folder: str | None = None

    def make(self, job: Job) -> tuple[list[bytes], Counter[str]]:
        """The framed records of a job, and counts of what they hold and what was read."""
        return self.make_pass(self._documents(job), job)

    def make_pass(self, documents: Documents, job: Job) -> tuple[list[bytes], Counter[str]]:
        """Does what `make` does, with the documents of the job's block."""
        records: list[bytes] = []
        counts: Counter[str] = Counter()
        if job.pass_number == 0:
            counts.update(
                documents=documents.count,
                one_segment_documents=int(
                    np.count_nonzero(np.diff(documents.document_starts) == 1)
                ),
                segments=len(documents.segment_starts) - 1,
                text_tokens=len(documents.ids),
                documents_cut=int(job.block.cuts_document),
            )
        seed = self.settings.random_seed, job.pass_number, job.block_number
        vocabulary = masking_vocabulary(self.tokenizer)
        for examples, made in make_examples(documents, self.settings, vocabulary, seed):
            records += frame_records(examples)
            counts.update(made)
        return records, counts

    def _documents(self, job: Job) -> Documents:
        if self.folder is None:
            return read_documents(job.block, self.tokenizer)
        path = os.path.join(self.folder, f"{job.block_number}.npz")
        if os.path.exists(path):
            return Documents.load(path)
        documents = read_documents(job.block, self.tokenizer)
        with write_then_rename(path) as file:
            documents.save(file)
        return documents


def create_records(
    input_files: Sequence[str],
    output_files: Sequence[str],
    tokenizer: Tokenizer,
    settings: InstanceSettings,
    num_workers: int | None = None,
    block_bytes: int = BLOCK_BYTES,
    shuffle_bytes: int = SHUFFLE_BYTES,
) -> CreationReport:
    """Writes the pretraining records of a corpus.

    Args:
        input_files: text, one sentence a line, an empty line between documents.
        output_files: records go to them in turn. They appear when everything is done, each with
            a fingerprint of the vocabulary, see `pretraining.vocabulary`.
        tokenizer: text to ids.
        settings: what instances look like; its seed alone decides every random choice.
        num_workers: processes; None takes one for each core. Does not change what is written.
        block_bytes: text a job works on. A random second part comes from the same block.
        shuffle_bytes: records that are shuffled at a time; smaller outputs are shuffled completely.

    Returns:
        Counts of what was read and made.

    Raises:
        ValueError: an input is empty or no text, or an output cannot be written.

    Source: `main` of the original's create_pretraining_data.
    Differs: the original has one process, one generator for all documents and another, unseeded one
        for n-gram lengths; here every job has its own. A random second part comes from the same
        block, not from the whole corpus. The end of a file ends its last document.
    """
    check_outputs(input_files, output_files)
    start = time.monotonic()
    processes = num_workers or available_cores()
    blocks = check_text(input_files, processes, block_bytes)
    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        writers = [stack.enter_context(write_then_rename(path)) for path in output_files]
        folder = stack.enter_context(_token_folder(output_files[0], settings.dupe_factor))
        maker = RecordMaker(tokenizer, settings, folder)
        run = stack.enter_context(worker_processes(processes, maker))
        jobs = shuffled_jobs(blocks, settings)
        made = _collect(jobs, run(RecordMaker.make, jobs), counts)
        for number, record in enumerate(shuffled(made, shuffle_bytes, settings.random_seed)):
            writers[number % len(writers)].write(record)
        if not counts["instances"]:
            raise UserError(f"{NO_RECORD} Files: {', '.join(input_files)}")
    write_fingerprints(output_files, tokenizer.tokens)
    return CreationReport(settings, counts, time.monotonic() - start)


def check_text(
    input_files: Sequence[str], num_workers: int, block_bytes: int = BLOCK_BYTES
) -> list[Block]:
    """Reads all text, so that bad input is found before anything is written; returns its blocks.

    Raises ValueError: a file is no text, or there is none in any.
    """
    blocks = cut_into_blocks(input_files, block_bytes)
    has_text = False
    with (
        worker_processes(max(1, min(num_workers, len(blocks))), None) as run,
        _progress("checking", blocks) as progress,
    ):
        for block, found in zip(blocks, run(_check, blocks), strict=True):
            has_text |= found
            progress.update(block.size)
    if not has_text:
        raise UserError(f"There is no text in `input_file`: {', '.join(input_files)}")
    return blocks


def _check(shared: None, block: Block) -> bool:
    return check_block(block)


def check_outputs(input_files: Sequence[str], output_files: Sequence[str]) -> None:
    """Refuses output names that would destroy an input or each other, or cannot be written."""
    if not output_files:
        raise UserError("`output_file` names no file.")
    inputs = {real_name(path): path for path in input_files}
    seen: set[str] = set()
    for path in output_files:
        name = real_name(path)
        if name in inputs:
            raise UserError(f"`output_file` would overwrite the input {inputs[name]}.")
        if name in seen:
            raise UserError(
                f"`output_file` names {path} twice; use a different name for each file."
            )
        check_file(path)
        seen.add(name)


@contextmanager
def _token_folder(output_file: str, passes: int) -> Iterator[str | None]:
    """A folder beside the output for tokenized blocks, if there is more than one pass."""
    if passes == 1:
        yield None
        return
    beside = os.path.join(os.path.dirname(os.path.abspath(output_file)), "tokens")
    is_elsewhere = is_remote(output_file)
    with tempfile.TemporaryDirectory() if is_elsewhere else temporary_folder(beside) as folder:
        yield folder


def shuffled_jobs(blocks: Sequence[Block], settings: InstanceSettings) -> list[Job]:
    """Every pass over every block, in the order in which records are put together."""
    jobs = [
        Job(pass_number, block_number, block)
        for pass_number in range(settings.dupe_factor)
        for block_number, block in enumerate(blocks)
    ]
    random.Random(mix_seed([settings.random_seed])[0]).shuffle(jobs)
    return jobs


def _collect(
    jobs: Sequence[Job], results: Iterable[tuple[list[bytes], Counter[str]]], counts: Counter[str]
) -> Iterator[list[bytes]]:
    """Yields the records of each job, adds up the counts and shows the progress."""
    with _progress("creating", [job.block for job in jobs]) as progress:
        for job, (records, made) in zip(jobs, results, strict=True):
            yield records
            counts.update(made)
            progress.update(job.block.size)


def _progress(name: str, blocks: Iterable[Block]) -> tqdm:
    total = sum(block.size for block in blocks)
    interval = 0.5 if sys.stderr.isatty() else 30
    return tqdm(total=total, desc=name, unit="B", unit_scale=True, mininterval=interval)
