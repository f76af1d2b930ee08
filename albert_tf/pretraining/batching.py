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

import tensorflow as tf
from absl import logging

from albert_tf.data.files import file_size
from albert_tf.data.records import example_features, parse_batch
from albert_tf.data.tfrecord import FeatureSpec, RecordError, read_records
from albert_tf.pretraining.instances import PREDICTION_FEATURES
from albert_tf.pretraining.segments import NONE, NSP, SOP
from albert_tf.training.task import EXAMPLE_WEIGHTS, REST_OF_FILE, SKIPPED, WHOLE, Shard

_FRAME_BYTES = 16  # of a record, besides its payload

# Changes a batch, told the place of each example in the stream, int64 [B]: one number for an
# example and a pass, whatever the size of the batches.
Features = dict[str, tf.Tensor]
Transform = Callable[[Features, tf.Tensor], Features]
_MAX_OPEN_FILES = 16  # read in turn, so that neighbours in a file are not neighbours in a batch

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
) -> tf.data.Dataset:
    """Endless batches in an order that the seed decides, another one in every pass.

    All workers read the same records, and each parses its own: the position of one's iterator is
    that of everyone's, whatever their number.

    Args:
        files: TFRecord files.
        specs: the features to read.
        batch_size: B, a multiple of the number of workers.
        seed: decides the order.
        shuffle_buffer_size: records among which the next one is drawn.
        transform: see `Transform`; None leaves the features as they are.
        shard: the worker's.
        skip_damaged: leave out records that cannot be read, see `SkippedRecords`; the order of the
            others stays.

    Returns:
        Features, each [B / workers, length], and `example_weights` float32 [B / workers].
    """
    read: Any = tf.data.TFRecordDataset
    sources: Any = list(files)
    if skip_damaged:
        read = partial(good_records, specs=specs)
        sources = sources, tf.constant([file_size(path) for path in files], tf.int64)
    records = (
        tf.data.Dataset.from_tensor_slices(sources)
        .shuffle(len(files), seed=seed)
        .interleave(
            read,
            cycle_length=min(len(files), _MAX_OPEN_FILES),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        .shuffle(shuffle_buffer_size, seed=seed)
        .repeat()
    )
    if skip_damaged:
        records = carry_places(records)
    # Only where the numbers are used: they are part of the saved position.
    records = records.enumerate() if transform else records
    batches = records.batch(batch_size, drop_remainder=True)
    return _parsed(batches, specs, transform, shard.rows(batch_size))


def evaluation_batches(
    files: Sequence[str],
    specs: Sequence[FeatureSpec],
    batch_size: int,
    transform: Transform | None = None,
) -> tf.data.Dataset:
    """Every example once, in the order of the files; the last batch may be shorter.

    The arguments are those of `training_batches`, and so are the features.
    """
    records = tf.data.TFRecordDataset(list(files))
    records = records.enumerate() if transform else records
    return _parsed(records.batch(batch_size), specs, transform, slice(None))


def _parsed(
    batches: tf.data.Dataset, specs: Sequence[FeatureSpec], transform: Transform | None, rows: slice
) -> tf.data.Dataset:
    """Parses some rows of each batch: last, and only when it is asked for.

    So no rows made ahead are part of the saved position, which would be those of one worker alone,
    and tf.data never calls Python, where masks are drawn, while the process ends.
    """
    options = tf.data.Options()
    options.deterministic = True
    options.experimental_optimization.map_parallelization = False
    options.experimental_optimization.inject_prefetch = False

    @tf.autograph.experimental.do_not_convert  # takes a second, and nothing here needs it
    def parse(serialized: tf.Tensor, *skipped: tf.Tensor) -> Features:
        serialized = serialized[rows]
        weights = tf.ones(tf.shape(serialized)[0])
        features = {**parse_batch(serialized, specs), EXAMPLE_WEIGHTS: weights}
        # Of all rows: the chief tells of what every worker leaves out.
        return {**features, **({SKIPPED: skipped[0]} if skipped else {})}

    @tf.autograph.experimental.do_not_convert
    def parse_numbered(numbers: tf.Tensor, records: Any) -> Features:
        assert transform is not None
        return transform(parse(*tf.nest.flatten(records)), numbers[rows])

    parser = parse_numbered if transform else parse
    return batches.prefetch(2).map(parser).with_options(options)


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
            "evaluate on files of one kind (--eval_input_file)."
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
                f"{path}: its records were masked when they were created, and --masked_lm_prob "
                "(or --masked_lm_budget) would mask them again. Omit that flag, or create plain "
                "records: create_pretraining_data.py --masked_lm_prob=0."
            )
        if masked is False and mask_id is None:
            raise RecordError(
                f"{path}: its records are plain, no token is masked. Pass --masked_lm_prob=0.15 "
                "to mask them during training, or create masked records: "
                "create_pretraining_data.py without --masked_lm_prob=0."
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
                    f"{path} holds single runs of text (created with --sentence_loss={NONE}), not "
                    f"pairs of segments: --sentence_loss={sentence_loss} has nothing to learn "
                    f"there. Use --sentence_loss={NONE}, or records created with {SOP} or {NSP}."
                )
