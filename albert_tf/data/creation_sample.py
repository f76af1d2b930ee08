"""A sample of a corpus, made into records in memory: what the whole will give, and take."""

from __future__ import annotations

import io
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from albert_tf.data.corpus import Block, Corpus, check_block, read_documents
from albert_tf.data.pretraining import PretrainingDataSettings
from albert_tf.data.pretraining_files import Job, RecordMaker, no_text_error
from albert_tf.data.segments import (
    SHORTEST_TARGET,
    Documents,
    SegmentSettings,
    pairs_of_length,
)
from albert_tf.tokenization import Tokenizer

Clock = Callable[[], float]

_BLOCK_BYTES = 128 << 10
_MOST_BLOCKS = 256
_LENGTH_GROUPS = 12
_SECONDS = 3.0
_CHECK_SECONDS = 5.0


class CheckedText(NamedTuple):
    """What is known of text without a tokenizer.

    Attributes:
        corpus_bytes: of all text.
        checked_bytes: of the text that was read.
        documents_cut: places in it where a document is longer than a block.
    """

    corpus_bytes: int
    checked_bytes: int
    documents_cut: int


def check_text(files: Sequence[str], clock: Clock = time.monotonic) -> CheckedText:
    """Checks as much of the text as a few seconds allow, from the start on.

    Args:
        files: text.
        clock: returns the time in seconds.

    Raises:
        ValueError: a file is no text, or there is none in any.
    """
    corpus, deadline = Corpus.of(files), clock() + _CHECK_SECONDS
    checked, documents_cut, has_text = 0, 0, False
    for block in corpus.iter_blocks(map(corpus.find_cut, corpus.searches)):
        has_text |= check_block(block)
        checked += block.size
        documents_cut += block.cuts_document
        if clock() > deadline:
            break
    if checked == corpus.size and not has_text:
        raise no_text_error(files)
    return CheckedText(corpus.size, checked, documents_cut)


@dataclass
class CreationSample:
    """What some of the text gave.

    Attributes:
        corpus_bytes: of all text.
        text_bytes: of the text that was read.
        made_bytes: of the text that records were made of, those of each pass counted.
        counts: as of `CreationReport`; what was read was read once.
        record_bytes: of the records.
        token_bytes: of the tokenized text.
        expected: instances that a pass over the text that was read makes on average.
        read_seconds: checking and tokenizing took.
        make_seconds: making records took.
    """

    corpus_bytes: int
    text_bytes: int = 0
    made_bytes: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    record_bytes: int = 0
    token_bytes: int = 0
    expected: float = 0.0
    read_seconds: float = 0.0
    make_seconds: float = 0.0

    def likely_counts(self, documents_cut: int) -> Counter[str]:
        """Counts as of a report, without what only small blocks bring about.

        Args:
            documents_cut: see `CheckedText`.
        """
        counts = Counter(self.counts)
        counts["documents_cut"] = documents_cut
        if not (self.is_all and counts["documents"] == 1):
            counts["random_parts_of_only_document"] = 0
        return counts

    @property
    def is_all(self) -> bool:
        """Whether all of the text was read."""
        return self.text_bytes == self.corpus_bytes

    def of_text(self, amount: float) -> float:
        """What was found `amount` of in the text that was read, in all text."""
        return amount * self.corpus_bytes / max(self.text_bytes, 1)

    def instances(self, passes: int) -> float:
        """What all passes over all text will make: on average, unless all of them were made."""
        if self.made_bytes == passes * self.corpus_bytes:
            return self.counts["instances"]
        return passes * self.of_text(self.expected)

    def of_instances(self, amount: float, passes: int) -> float:
        """What was found `amount` of in the instances made, in those of all passes."""
        return amount * self.instances(passes) / max(self.counts["instances"], 1)

    def seconds(self, passes: int, processes: int) -> float:
        """Time that so many processes need for all of it."""
        work = self.of_text(self.read_seconds) + self.of_instances(self.make_seconds, passes)
        return work / processes


def take_sample(
    files: Sequence[str],
    tokenizer: Tokenizer,
    settings: PretrainingDataSettings,
    seconds: float = _SECONDS,
    clock: Clock = time.monotonic,
) -> CreationSample:
    """Makes records of text from places all over the corpus, for so many seconds.

    Args:
        files: text.
        tokenizer: text to ids.
        settings: what instances look like.
        seconds: time to take; at least one place is tried.
        clock: returns the time in seconds.
    """
    corpus, deadline = Corpus.of(files, _BLOCK_BYTES), clock() + seconds
    sample, maker = CreationSample(corpus.size), RecordMaker(tokenizer, settings)
    read: list[tuple[Documents, Job]] = []
    for number, block in _blocks(corpus):
        start = clock()
        check_block(block)
        documents = read_documents(block, tokenizer)
        sample.read_seconds += clock() - start
        sample.text_bytes += block.size
        sample.token_bytes += _size(documents)
        sample.expected += expected_instances(documents, settings.segments)
        # These blocks are smaller than those of the real run, which cut no document here.
        sample.counts["documents"] -= block.cuts_document
        read.append((documents, Job(0, number, block)))
        _make(sample, maker, *read[-1], clock)
        if clock() > deadline:
            break
    for number in range(1, settings.dupe_factor):  # of little text, each pass gives a bit less
        for documents, job in read:
            if clock() > deadline:
                return sample
            _make(sample, maker, documents, job._replace(pass_number=number), clock)
    return sample


def _blocks(corpus: Corpus) -> Iterator[tuple[int, Block]]:
    shares = corpus.shares
    for number in random.Random(0).sample(shares, min(len(shares), _MOST_BLOCKS)):
        if block := corpus.find_block(number):
            yield number, block


def _make(
    sample: CreationSample, maker: RecordMaker, documents: Documents, job: Job, clock: Clock
) -> None:
    """Makes the records of a job and adds up what they are."""
    start = clock()
    for records, counts in maker.make_batches(documents, job):
        sample.record_bytes += sum(map(len, records))
        sample.counts.update({key: n for key, n in counts.items() if key != "documents_cut"})
    sample.make_seconds += clock() - start
    sample.made_bytes += job.block.size


def _size(documents: Documents) -> int:
    """Bytes of documents in a file."""
    file = io.BytesIO()
    documents.save(file)
    return file.tell()


def expected_instances(documents: Documents, settings: SegmentSettings) -> float:
    """Instances of a pass over documents, on average over the lengths that may be drawn.

    A long document of short sequences makes hundreds of instances: what a few draws happen to make
    says little of many. The lengths are taken in groups, short ones in small groups.
    """
    most = settings.max_tokens
    limits = np.geomspace(SHORTEST_TARGET, most + 1, _LENGTH_GROUPS + 1)
    limits = np.unique(limits.astype(int)).tolist()
    parts = [(most, 1 - settings.short_seq_prob)]
    for low, high in pairwise(limits):
        share = (high - low) / (most + 1 - SHORTEST_TARGET)
        parts.append(((low + high - 1) // 2, settings.short_seq_prob * share))
    rng = random.Random(0)
    return sum(
        weight * sum(1 for _ in pairs_of_length(documents, index, target, settings, rng))
        for target, weight in parts
        if weight
        for index in range(documents.count)
    )
