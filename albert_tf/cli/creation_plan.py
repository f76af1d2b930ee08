"""What `create_pretraining_data --dry_run` prints: text, records, files, time."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Sequence

from albert_tf.cli.dry_run import WARNINGS
from albert_tf.data.creation_report import CreationReport, masking_limit_warning
from albert_tf.data.creation_sample import CreationSample, check_text, take_sample
from albert_tf.data.disk import existing_folder, free_bytes
from albert_tf.data.files import file_exists, is_remote
from albert_tf.data.jobs import available_cores
from albert_tf.data.pretraining import PretrainingDataSettings
from albert_tf.data.pretraining_files import check_outputs, no_token_error, place_of_tokens
from albert_tf.data.segments import NONE
from albert_tf.text_layout import Block, byte_text, count_text, time_text
from albert_tf.tokenization import Tokenizer


def creation_plan(
    input_files: Sequence[str],
    output_files: Sequence[str],
    tokenizer: Tokenizer,
    settings: PretrainingDataSettings,
    num_workers: int | None,
    runner: str | None = None,
) -> dict[str, Block]:
    """Blocks of the making of records.

    Args:
        input_files: text, of which a sample is made into records in memory.
        output_files: where records will go.
        tokenizer: text to ids.
        settings: what instances look like.
        num_workers: processes; None for one a core.
        runner: Beam's, whose machines do the work; None for processes of this machine.

    Raises:
        ValueError: an input is empty or no text, or an output cannot be written.
    """
    check_outputs(input_files, output_files)
    text = check_text(input_files)
    sample = take_sample(input_files, tokenizer, settings)
    if sample.is_all and not sample.counts["instances"]:
        raise no_token_error(input_files)
    tokens = _token_bytes(sample, settings) if runner is None else 0
    room = _room(sample, settings, output_files, tokens)
    return {
        "Text": {
            "files": f"{len(input_files):,}, {byte_text(text.corpus_bytes)}",
            "checked": "all"
            if text.checked_bytes == text.corpus_bytes
            else f"the first {byte_text(text.checked_bytes)}",
            "made into records to see": _tried(sample),
            **_text(sample),
        },
        "Records": _records(sample, settings),
        "Output": {
            "files": _names(output_files),
            "size": f"about {byte_text(_record_bytes(sample, settings))}",
            **({"temporary files": f"about {byte_text(tokens)}"} if tokens else {}),
            **{
                f"room on the disk of {folder}": "not known" if free is None else byte_text(free)
                for folder, (_, free) in room.items()
            },
        },
        "Time": _time(sample, settings, num_workers, runner),
        WARNINGS: _warnings(sample, settings, text.documents_cut, room),
    }


def _tried(sample: CreationSample) -> str:
    if sample.is_all:
        return "all"
    return f"{byte_text(sample.text_bytes)} from all over it; what follows was found there"


def _text(sample: CreationSample) -> Block:
    counts = sample.counts
    found: Block = {
        name: count_text(sample.of_text(counts[key]), sample.is_all)
        for name, key in (
            ("documents", "documents"),
            ("of them with one segment", "one_segment_documents"),
            ("segments", "segments"),
            ("tokens", "text_tokens"),
        )
    }
    return {**found, "tokens a byte": f"{counts['text_tokens'] / max(sample.text_bytes, 1):.3g}"}


def _records(sample: CreationSample, settings: PretrainingDataSettings) -> Block:
    counts, passes = sample.counts, settings.dupe_factor
    number = sample.instances(passes)
    padding = counts["positions"] - counts["tokens"]
    masked = counts["predictions"] / max(counts["tokens"], 1)
    slots = settings.masking.prediction_slots
    is_run = settings.segments.sentence_loss == NONE
    return {
        "records": f"{count_text(number, is_exact=False)} in {passes:,} passes",
        "sequences of": f"{settings.segments.max_seq_length:,} positions, "
        f"{padding / max(counts['positions'], 1):.1%} of them padding",
        "predictions": f"up to {slots:,} in a sequence, {masked:.1%} of the tokens"
        if settings.masking.masked_lm_prob
        else "none, for masking while training",
        "sentence loss": settings.segments.sentence_loss,
        **({} if is_run else {"sentence pairs": settings.segments.sentence_pairs}),
    }


def _record_bytes(sample: CreationSample, settings: PretrainingDataSettings) -> float:
    return sample.of_instances(sample.record_bytes, settings.dupe_factor)


def _token_bytes(sample: CreationSample, settings: PretrainingDataSettings) -> float:
    """Of tokenized text, which is kept from one pass to the next."""
    return sample.of_text(sample.token_bytes) if settings.dupe_factor > 1 else 0


def _names(output_files: Sequence[str]) -> str:
    there = sum(map(file_exists, output_files))
    first, last = output_files[0], output_files[-1]
    names = first if len(output_files) == 1 else f"{len(output_files):,}, {first} to {last}"
    return f"{names} ({there:,} there already, to be replaced)" if there else names


def _room(
    sample: CreationSample,
    settings: PretrainingDataSettings,
    output_files: Sequence[str],
    token_bytes: float,
) -> dict[str, tuple[float, int | None]]:
    """Bytes that will be needed and bytes that are free, by the first folder on each disk."""
    share = _record_bytes(sample, settings) / len(output_files)
    folders = Counter[str]()
    for path in output_files:
        folders[_folder(path)] += 1
    needs = {folder: share * count for folder, count in folders.items()}
    if token_bytes:
        place = place_of_tokens(output_files[0]) or tempfile.gettempdir()
        needs[place] = needs.get(place, 0) + token_bytes
    disks: dict[object, str] = {}
    room: dict[str, tuple[float, int | None]] = {}
    for folder, need in needs.items():
        disk = folder if is_remote(folder) else os.stat(existing_folder(folder)).st_dev
        first = disks.setdefault(disk, folder)
        room[first] = (room.get(first, (0, None))[0] + need, free_bytes(first))
    return room


def _folder(path: str) -> str:
    return os.path.dirname(path if is_remote(path) else os.path.abspath(path))


def _time(
    sample: CreationSample,
    settings: PretrainingDataSettings,
    num_workers: int | None,
    runner: str | None,
) -> Block:
    passes = settings.dupe_factor
    if runner is not None:
        return {"of one process, in all": time_text(sample.seconds(passes, 1)), "runner": runner}
    processes = num_workers or available_cores()
    return {"processes": processes, "time": time_text(sample.seconds(passes, processes))}


def _warnings(
    sample: CreationSample,
    settings: PretrainingDataSettings,
    documents_cut: int,
    room: dict[str, tuple[float, int | None]],
) -> Block:
    """What the command would warn of, at the beginning and at the end, and full disks."""
    found: Block = {}
    if limit := masking_limit_warning(settings.segments.max_seq_length, settings.masking):
        found["predictions"] = limit
    seconds = sample.read_seconds + sample.make_seconds
    report = CreationReport(settings, sample.likely_counts(documents_cut), seconds)
    for number, warning in enumerate(report.warnings(), start=1):
        found[f"of what was read, {number}"] = warning
    for folder, (need, free) in room.items():
        if free is not None and need > free:
            found["disk"] = (
                f"about {byte_text(need)} are needed in {folder}, {byte_text(free)} free"
            )
    return found
