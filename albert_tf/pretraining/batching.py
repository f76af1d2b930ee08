"""From record files to batches of parsed features.

With `skip_damaged` a record that does not parse is left out alone; after one whose checksum differs
nothing says where the next one begins, and the rest of its file is left out. (Damage up to the last
record of a file is reported that way, too.) What was left out travels with the examples, as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.data.files import file_size
from albert_tf.data.records import example_features, parse_batch
from albert_tf.data.tfrecord import FeatureSpec, RecordError, read_records
from albert_tf.pretraining.instances import PREDICTION_FEATURES
from albert_tf.pretraining.segments import NONE, NSP, SOP
from albert_tf.training.task import (
    EXAMPLE_WEIGHTS,
    REST_OF_FILE,
    SKIPPED,
    WHOLE,
    Shard,
    StreamIterator,
)

_FRAME_BYTES = 16  # of a record, besides its payload
_MAX_STREAMS = 64
_FEW = 8  # of streams, or of rows that a stream gives to a batch: a stream costs time, too
_MAX_UNEVENNESS = 1.2  # of the longest stream to the shortest

# Changes a batch, told the number of each example, int64 [B]: one for an example and a pass,
# whatever the number of workers.
Features = dict[str, tf.Tensor]
Transform = Callable[[Features, tf.Tensor], Features]
# Of all streams, or one each; read in turn, so that neighbours in a file are none in a batch.
_MAX_OPEN_FILES = 16

# A masked record without a prediction is rare (no word was small enough), not impossible.
_RECORDS_TO_ASK = 16


def good_records(path: tf.Tensor, size: tf.Tensor, specs: Sequence[FeatureSpec]) -> tf.data.Dataset:
    """The records of a file that can be read and parsed.

    Args:
        path: of a TFRecord file, a string.
        size: of the file in bytes, int64.
        specs: the features that a record must have.

    Returns:
        Pairs of a payload and what was left out before it (see `SKIPPED`). An empty payload stands
        for the end of a file that is damaged there: `carry_places` takes it out.
    """

    def number(state: Any, payload: tf.Tensor) -> Any:
        count, offset = state
        end = offset + _FRAME_BYTES + tf.cast(tf.strings.length(payload), tf.int64)
        return (count + 1, end), (payload, count + 1, offset, end)

    def check(payload: tf.Tensor, *place: tf.Tensor) -> Any:
        with tf.control_dependencies(list(parse_batch(payload[None], specs).values())):
            return tf.identity(payload), *place

    def find_gaps(state: Any, element: Any) -> Any:
        last, end_of_last = state
        payload, record, start, end = element
        is_end = record == REST_OF_FILE
        final = tf.where(is_end, record, record - 1)
        fields = [path, tf.strings.as_string(last + 1), tf.strings.as_string(final)]
        skipped = tf.where(start > end_of_last, tf.strings.join(fields, "\t"), "")
        return (record, end), (payload, skipped)

    # A file that is not there `ignore_errors` would try to open for ever.
    there = tf.io.matching_files(tf.strings.regex_replace(path, r"[*?\[\\]", r"\\\0"))
    with tf.control_dependencies([tf.debugging.assert_positive(tf.size(there), "no such file")]):
        path = tf.identity(path)
    zero = tf.constant(0, tf.int64)
    end = tf.data.Dataset.from_tensors(("", tf.constant(REST_OF_FILE, tf.int64), size, size))
    records = tf.data.TFRecordDataset(path).scan((zero, zero), number).map(check).ignore_errors()
    found = records.concatenate(end).scan((zero, zero), find_gaps)
    return found.filter(lambda payload, skipped: (payload != "") | (skipped != ""))


def carry_places(records: tf.data.Dataset) -> tf.data.Dataset:
    """Gives the next record what an element without one says, and takes that element out."""

    def carry(pending: tf.Tensor, element: Any) -> Any:
        payload, skipped = element
        lines = tf.strings.join([pending, skipped], "\n")
        return tf.where(payload == "", lines, ""), (payload, lines)

    return records.scan("", carry).filter(lambda payload, _: payload != "")


def readable_files(files: Iterable[str]) -> list[str]:
    """Those files whose first record, if there is one, can be read; the others are named."""
    return [path for path in files if _begins_well(path)]


def _begins_well(path: str) -> bool:
    try:
        for payload in islice(read_records(path), 1):
            example_features(payload, path, 1)
    except RecordError as error:
        logging.warning("--skip_damaged_records: %s", error)
        return False
    return True


def has_good_record(files: Sequence[str], specs: Sequence[FeatureSpec]) -> bool:
    """Whether a record of the files can be read and parsed; they are read up to it."""
    found = (
        good_records(tf.constant(path), tf.constant(file_size(path), tf.int64), specs)
        .filter(lambda payload, _: payload != "")
        .take(1)
        for path in files
    )
    return any(True for dataset in found for _ in dataset)


def num_streams(file_sizes: Sequence[int], batch_size: int) -> int:
    """Returns how many streams G the files are read as; it does not depend on the workers.

    Stream g has the files g, g + G, ... G divides the batch and is at most 64 and the number of
    files; above 8 a stream has at least 8 rows of the batch. No stream has over 1.2 times the bytes
    of another, whose examples would come up more often. Of the numbers that are left, G is the one
    that the most numbers of workers divide, then the one with the highest power of two.

    Args:
        file_sizes: in bytes.
        batch_size: B, of all workers.
    """

    def is_even(count: int) -> bool:
        sizes = [sum(file_sizes[number::count]) for number in range(count)]
        return max(sizes) <= _MAX_UNEVENNESS * min(sizes)

    limit = min(len(file_sizes), _MAX_STREAMS, max(_FEW, batch_size // _FEW))
    fitting = [n for n in range(1, limit + 1) if batch_size % n == 0 and (n == 1 or is_even(n))]
    return max(fitting, key=lambda n: (sum(n % k == 0 for k in range(1, n + 1)), n & -n, n))


def check_workers(files: Sequence[str], batch_size: int, workers: int) -> int:
    """Returns the number of streams; a ValueError unless `workers` can share them."""
    sizes = [file_size(path) for path in files]
    count = num_streams(sizes, batch_size)
    if count % workers == 0:
        return count
    shards = range(_MAX_STREAMS // workers * workers, 0, -workers)
    fitting = next((n for n in shards if num_streams([1] * n, batch_size) == n), None)
    advice = "another `train_batch_size`: no number of files fits this one"
    if fitting:
        name = f"`output_file`=train.tfrecord@{fitting}"
        advice = f"{fitting} files of equal size: create_pretraining_data.py {name}"
    raise UserError(
        f"{workers} workers cannot share the input evenly: the {len(files)} files of `input_file` "
        f"({min(sizes)} to {max(sizes)} bytes) and `train_batch_size`={batch_size} make {count} "
        "streams of nearly equal length. Use a number of workers that divides "
        f"{count}, or {advice}."
    )


def training_batches(
    files: Sequence[str],
    specs: Sequence[FeatureSpec],
    batch_size: int,
    *,
    seed: int,
    shuffle_buffer_size: int,
    transform: Transform | None = None,
    shard: Shard = WHOLE,
    skip_damaged: bool = False,
) -> StreamIterator:
    """Endless batches in an order that the seed decides, another one in every pass.

    The files are read as `num_streams` streams, each with its own order and its own passes. A
    stream gives the same rows of every batch, and a worker reads its share of the streams alone.

    Args:
        files: TFRecord files.
        specs: the features to read.
        batch_size: B, of all workers.
        seed: decides the order.
        shuffle_buffer_size: records among which the next one is drawn, shared by the streams.
        transform: see `Transform`; None leaves the features as they are.
        shard: the worker's.
        skip_damaged: leave out records that cannot be read, see `SkippedRecords`; the order of the
            others stays.

    Returns:
        Features, each [B / workers, length], and `example_weights` float32 [B / workers].

    Raises:
        ValueError: the number of workers does not divide that of the streams.
    """
    G = check_workers(files, batch_size, shard.count)
    streams = {}
    for number in range(G)[shard.rows(G)]:
        # A seed of its own: streams of as many files would be shuffled alike.
        own = int(np.random.SeedSequence([seed % 2**64, number]).generate_state(1, np.uint64)[0])
        records = _stream(
            files[number::G],
            specs,
            seed=own % 2**63,
            shuffle_buffer_size=-(-shuffle_buffer_size // G),
            max_open_files=max(1, _MAX_OPEN_FILES // G),
            skip_damaged=skip_damaged,
        )
        batches = records.enumerate().batch(batch_size // G, drop_remainder=True)
        if batch_size // G >= _FEW * 2:  # less is sooner read than handed over
            batches = batches.prefetch(2)
        options = tf.data.Options()
        # Of no use, and tuning threads take seconds to start and may never end.
        options.autotune.enabled = False
        options.experimental_optimization.apply_default_optimizations = False
        # Without it the passes after a restored one have other orders than they would have had.
        options.experimental_optimization.shuffle_and_repeat_fusion = True
        streams[number] = iter(batches.with_options(options))

    def make_batch(rows: Sequence[Any]) -> Features:
        """Of what each stream gives: numbers, and a payload and what was skipped before it."""
        numbers = [n * G + number for number, (n, _) in zip(streams, rows, strict=True)]
        serialized, *skipped = (
            tf.concat(values, axis=0)
            for values in zip(*(tf.nest.flatten(records) for _, records in rows), strict=True)
        )
        features = _parsed(serialized, tf.concat(numbers, axis=0), specs, transform)
        return {**features, **({SKIPPED: skipped[0]} if skipped else {})}

    return StreamIterator(streams, G, make_batch)


def _stream(
    files: Sequence[str],
    specs: Sequence[FeatureSpec],
    *,
    seed: int,
    shuffle_buffer_size: int,
    max_open_files: int,
    skip_damaged: bool,
) -> tf.data.Dataset:
    """The records of some files, shuffled, for ever."""
    read: Any = tf.data.TFRecordDataset
    sources: Any = list(files)
    if skip_damaged:
        read = partial(good_records, specs=specs)
        sources = sources, tf.constant([file_size(path) for path in files], tf.int64)
    open_files = min(len(files), max_open_files)
    records = (
        tf.data.Dataset.from_tensor_slices(sources)
        .shuffle(len(files), seed=seed)
        .interleave(
            read,
            cycle_length=open_files,
            **({"num_parallel_calls": open_files, "deterministic": True} if open_files > 1 else {}),
        )
        .shuffle(shuffle_buffer_size, seed=seed)
        .repeat()
    )
    return carry_places(records) if skip_damaged else records


def evaluation_batches(
    files: Sequence[str],
    specs: Sequence[FeatureSpec],
    batch_size: int,
    transform: Transform | None = None,
) -> tf.data.Dataset:
    """Every example once, in the order of the files; the last batch may be shorter.

    The arguments are those of `training_batches`, and so are the features.
    """
    # Parsed last, and only when asked for: tf.data must not call Python, where masks are drawn,
    # while the process ends.
    options = tf.data.Options()
    options.deterministic = True
    options.experimental_optimization.map_parallelization = False
    options.experimental_optimization.inject_prefetch = False

    @tf.autograph.experimental.do_not_convert  # takes a second, and nothing here needs it
    def parse(numbers: tf.Tensor, serialized: tf.Tensor) -> Features:
        return _parsed(serialized, numbers, specs, transform)

    batches = tf.data.TFRecordDataset(list(files)).enumerate().batch(batch_size).prefetch(2)
    return batches.map(parse).with_options(options)


def _parsed(
    serialized: tf.Tensor,
    numbers: tf.Tensor,
    specs: Sequence[FeatureSpec],
    transform: Transform | None,
) -> Features:
    """Parses a batch of examples with these numbers."""
    weights = tf.ones(tf.shape(serialized)[0])
    features = {**parse_batch(serialized, specs), EXAMPLE_WEIGHTS: weights}
    return transform(features, numbers) if transform else features


def are_masked(path: str, mask_id: int | None = None) -> bool | None:
    """Whether the first records of a file were masked when they were made; None: it does not tell.

    `mask_id`, of [MASK], tells where the features of predictions were left out.
    """
    answer = None
    with suppress(RecordError):  # reported where the records are read
        for number, payload in enumerate(islice(read_records(path), _RECORDS_TO_ASK), start=1):
            features = example_features(payload, path, number)
            if "input_ids" not in features or "token_boundary" not in features:
                return None
            if PREDICTION_FEATURES[-1] in features:
                answer = any(features[PREDICTION_FEATURES[-1]].float_list.value)
            else:
                answer = mask_id is not None and mask_id in features["input_ids"].int64_list.value
            if answer:
                break
    return answer


def are_masked_alike(files: Sequence[str], mask_id: int) -> bool:
    """Whether records to evaluate on are masked; RecordError unless all files are alike."""
    first = {are_masked(path, mask_id): path for path in reversed(files)}
    if True in first and False in first:
        raise RecordError(
            f"{first[True]} holds records that are masked already and {first[False]} plain ones: "
            "evaluate on files of one kind (`eval_input_file`)."
        )
    return True in first


def check_masking(files: Sequence[str], mask_id: int | None) -> None:
    """Refuses, with a RecordError, records that would be masked twice, or not at all.

    `mask_id` is the id of [MASK] where records are masked while training; else None.
    """
    for path in files:
        masked = are_masked(path, mask_id)
        if masked and mask_id is not None:
            raise RecordError(
                f"{path}: its records were masked when they were created, and `masked_lm_prob` "
                "(or `masked_lm_budget`) would mask them again. Omit that flag, or create plain "
                "records: create_pretraining_data.py `masked_lm_prob`=0."
            )
        if masked is False and mask_id is None:
            raise RecordError(
                f"{path}: its records are plain, no token is masked. Pass `masked_lm_prob`=0.15 "
                "to mask them during training, or create masked records: "
                "create_pretraining_data.py without `masked_lm_prob`=0."
            )


def check_sentence_pairs(files: Sequence[str], sentence_loss: str) -> None:
    """Looks for segment ids 1, which only pairs have, in the first record of each file.

    Raises RecordError: a file of single runs, from which no sentence loss can be learnt, or one
    whose first record cannot be read.
    """
    for path in files if sentence_loss != NONE else ():
        for payload in islice(read_records(path), 1):
            if not any(example_features(payload, path, 1)["segment_ids"].int64_list.value):
                raise RecordError(
                    f"{path} holds single runs of text (created with `sentence_loss`={NONE}), not "
                    f"pairs of segments: `sentence_loss`={sentence_loss} has nothing to learn "
                    f"there. Use `sentence_loss`={NONE}, or records created with {SOP} or {NSP}."
                )
