"""Prepares raw text for pretraining: `prepare_text`. Does not import TensorFlow."""

import hashlib
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import IO, NamedTuple

from absl import logging

from albert_tf.data.errors import UserError, extra_packages
from albert_tf.data.files import (
    expand_shards,
    file_exists,
    file_size,
    match_files,
    real_name,
    write_all_then_rename,
)
from albert_tf.data.parallel import available_cores, worker_processes
from albert_tf.data.streams import STANDARD_INPUT
from albert_tf.pretraining.corpus import LONGEST_LINE, byte_progress, cut_line
from albert_tf.pretraining.create_records import check_outputs
from albert_tf.pretraining.raw_text import (
    PART_BYTES,
    Part,
    read_documents,
    read_parts,
)
from albert_tf.pretraining.settings import PrepareTextSettings
from albert_tf.training.settings import check_arguments

_CHECKED_FILES = 10  # whose first part is split before the run
# The time that sentencex needs for a paragraph can grow with the square of its length.
_LONGEST_PARAGRAPH = 8192  # bytes
# Thai and Lao have no sentence marks. A blank between two letters separates clauses, except after
# a sign of repetition or abbreviation. Sentencex lacks the marks of Khmer and Tibetan.
_MORE_ENDS = re.compile(
    r"(?<=[\u0e01-\u0e2e\u0e30-\u0e45\u0e47-\u0e4e\u0e81-\u0ec5\u0ec8-\u0ece])"
    r" (?=[\u0e01-\u0e2e\u0e40-\u0e44\u0e81-\u0ec4])|(?<=[\u17d4\u17d5\u0f0d]) "
)
_HAS_MORE_ENDS = ("th", "lo", "km", "bo", "dz")


def prepare_text(settings: PrepareTextSettings) -> Counter[str]:
    """Writes raw text with one sentence per line, as the command `prepare_text` does.

    Returns:
        Numbers by name, such as "documents", "sentences" and "duplicates"; empty after a dry run.

    Raises:
        ValueError: a setting is invalid, a file is damaged or not UTF-8 text, or there is no text.
        OSError: a file cannot be read or written.
    """
    check_arguments(settings, PrepareTextSettings)
    splitter = Splitter(language_code(settings.language), settings.text_key)
    outputs = expand_shards(settings.output_file)
    files = _input_files(settings.input_file, outputs)
    check_outputs(files, outputs)
    logging.info("Reading %d files for %s", len(files), settings.output_file)
    # Most mistakes are found before a directory is created.
    for path in filter(file_exists, files if settings.dry_run else files[:_CHECKED_FILES]):
        for part in read_parts(path, int):
            splitter.split(part)
            break
    if settings.dry_run:
        return Counter()
    start = time.monotonic()
    with write_all_then_rename(outputs) as writers:
        counts = _write(files, writers, splitter, settings)
        if not counts["sentences"]:
            raise UserError(f"There is no text in `input_file`: {settings.input_file}")
    seconds = time.monotonic() - start
    report = " ".join(f"{name}={number}" for name, number in counts.items())
    logging.info("%s bytes_per_second=%.0f", report, counts["bytes"] / max(seconds, 1e-9))
    if counts["lower_case"] > counts["paragraphs"] / 4:
        logging.warning(
            "%d of %d lines begin with a lower-case letter. If the lines are wrapped at a fixed "
            "width, join the lines of each paragraph first.",
            counts["lower_case"],
            counts["paragraphs"],
        )
    return counts


def language_code(language: str) -> str:
    """Returns the ISO 639 code of a language: "de" for "deu", "de-AT" and "deu_Latn".

    Raises ValueError if there is no such code, or a package of the extra is not installed.
    """
    with extra_packages("languages"):
        import sentencex  # noqa: F401  used by `Splitter`
        from icu4py.locale import Locale
    code = Locale(language).language
    if not re.fullmatch("[a-z]{2,3}", code):
        raise UserError(
            "`language` must be the ISO 639 code of a language, such as de, tr or zh. Received: "
            f"{language!r}"
        )
    return code


def _input_files(patterns: str, outputs: Sequence[str]) -> list[str]:
    """Returns the input files. Raises ValueError if an output is in an input directory."""
    if patterns == STANDARD_INPUT:
        return [STANDARD_INPUT]
    for folder in filter(os.path.isdir, map(str.strip, patterns.split(","))):
        for path in outputs:
            if real_name(path).startswith(os.path.join(real_name(folder), "")):
                raise UserError(
                    f"`output_file` {path} is in the input directory {folder}, so the next run "
                    "would read it. Choose another directory."
                )
    return match_files(patterns, in_folders=True)


class Splitter(NamedTuple):
    """Splits text into sentences. `code` is the ISO 639 code of the language."""

    code: str
    text_key: str

    def split(self, part: Part) -> tuple[Part, list[bytes], Counter[str]]:
        """Returns the sentences of each document of a part, one per line, and their numbers.

        The returned part has no data. For documents and errors, see `raw_text.read_documents`.
        """
        counts = Counter(bytes=len(part.data), cut=int(part.is_cut))
        documents = []
        for paragraphs in read_documents(part, self.text_key):
            sentences = list(self.sentences(paragraphs))
            lines = [line for sentence in sentences for line in cut_line(sentence, LONGEST_LINE)]
            counts.update(sentences=len(lines), cut=len(lines) - len(sentences))
            counts.update(
                paragraphs=len(paragraphs), lower_case=sum(text[0].islower() for text in paragraphs)
            )
            documents.append("".join(f"{line}\n" for line in lines).encode())
        return part._replace(data=b""), documents, counts

    def sentences(self, paragraphs: Sequence[str]) -> Iterator[str]:
        """Yields the sentences of paragraphs without surplus white space."""
        from sentencex import segment

        pieces = (piece for text in paragraphs for piece in cut_line(text, _LONGEST_PARAGRAPH))
        # Sentencex ends a paragraph at an empty line. One call is faster than one per paragraph.
        for sentence in filter(None, map(str.strip, segment(self.code, "\n\n".join(pieces)))):
            yield from _MORE_ENDS.split(sentence) if self.code in _HAS_MORE_ENDS else (sentence,)


def _write(
    files: Sequence[str],
    writers: Sequence[IO[bytes]],
    splitter: Splitter,
    settings: PrepareTextSettings,
) -> Counter[str]:
    """Writes the sentences of all files. Returns numbers by name."""
    counts = Counter(documents=0, sentences=0, duplicates=0, cut=0, bytes=0)
    total = sum(map(file_size, filter(file_exists, files)))
    number = settings.num_workers or available_cores()
    if total:  # otherwise it is unknown
        number = min(number, total // PART_BYTES + 1)
    seen: set[bytes] = set()  # hashes of documents
    path, writer = "", None  # of the current document
    with byte_progress("preparing", total) as progress, worker_processes(number, splitter) as run:
        parts = (part for path in files for part in read_parts(path, progress.update))
        for part, documents, made in run(Splitter.split, parts):
            counts.update(made)
            for index, text in enumerate(documents):
                if index or part.path != path:
                    path, writer = part.path, None
                key = hashlib.blake2b(text, digest_size=16).digest()
                if not text or (settings.drop_duplicates and key in seen):
                    counts["duplicates"] += bool(text)
                    continue
                seen.update([key] if settings.drop_duplicates else [])
                if writer is None:
                    writer = writers[counts["documents"] % len(writers)]
                    writer.write(b"\n" * (counts["documents"] >= len(writers)))
                    counts["documents"] += 1
                writer.write(text)
    return counts
