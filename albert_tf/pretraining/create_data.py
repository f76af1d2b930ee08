"""Creates pretraining data from text: `create_pretraining_data`. Does not import TensorFlow."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

import numpy as np
from absl import logging

from albert_tf.data.errors import UserError, extra_packages
from albert_tf.data.files import expand_shards, match_files
from albert_tf.data.parallel import available_cores
from albert_tf.pretraining.corpus import check_text, cut_into_blocks
from albert_tf.pretraining.create_records import check_outputs, create_records, sample_counts
from albert_tf.pretraining.instances import (
    ADJACENT,
    NONE,
    ORIGINAL,
    InstanceSettings,
    same_labels_warning,
)
from albert_tf.pretraining.masking import masking_limit_warning, prediction_budget
from albert_tf.pretraining.settings import PretrainingDataSettings
from albert_tf.tokenization.loading import tokenizer_from_files
from albert_tf.tokenization.piece_counts import PieceCounts, warn_of_unreachable_pieces
from albert_tf.training.settings import check_arguments


def create_pretraining_data(settings: PretrainingDataSettings) -> CreationReport:
    """Creates pretraining records from text, as `create_pretraining_data.py` does.

    Returns:
        A report. `counts` contains numbers by name, such as "documents" and "instances". After a
        dry run, they describe a sample of the text, see `sample_counts`. `lines()` and `warnings()`
        return the messages that the command logs.

    Raises:
        ValueError: a setting is missing or invalid, or no record can be created from the text.
        OSError: a file cannot be read or written.
    """
    check_arguments(settings, PretrainingDataSettings)
    beam = _import_beam(settings)
    output_files = expand_shards(settings.output_file)
    instances = settings.instances()
    tokenizer = tokenizer_from_files(
        spm_model_file=settings.spm_model_file,
        vocab_file=settings.vocab_file,
        do_lower_case=settings.do_lower_case,
        keep_accents=settings.keep_accents,
    )
    warn_of_unreachable_pieces(tokenizer)
    files = match_files(settings.input_file)
    logging.info("Reading %d files for %s", len(files), settings.output_file)
    if warning := masking_limit_warning(settings.max_seq_length, instances.masking):
        logging.warning(warning)
    start = time.monotonic()
    what = files, output_files, tokenizer, instances
    if settings.dry_run:
        check_outputs(files, output_files)
        if beam:
            beam.beam_options(settings.runner, settings.beam_options)
        num_workers = settings.num_workers or available_cores()
        # Beam's workers check the whole text.
        blocks = cut_into_blocks(files) if beam else check_text(files, num_workers)
        (longest,) = prediction_budget(np.array([settings.max_seq_length]), instances.masking)
        counts = sample_counts(blocks, tokenizer, num_workers, longest)
    elif beam:
        counts = beam.create_records(settings.runner, settings.beam_options, *what)
    else:
        counts = create_records(*what, num_workers=settings.num_workers)
    report = CreationReport(instances, counts, time.monotonic() - start, tokenizer.source)
    for line in report.lines():
        logging.info(line)
    for line in report.warnings():
        logging.warning(line)
    return report


def _import_beam(settings: PretrainingDataSettings) -> ModuleType | None:
    """Returns the module `beam`, or `None` if `runner` is `None`."""
    if isinstance(settings.beam_options, str):
        raise TypeError(f"beam_options must be a list. Received: {settings.beam_options!r}")
    if settings.runner is None:
        if settings.beam_options:
            raise UserError(
                "Options of Beam require `runner`. Received without it: "
                f"{' '.join(settings.beam_options)}"
            )
        return None
    if settings.num_workers is not None:
        raise UserError(
            f"`num_workers`={settings.num_workers} cannot be combined with `runner`. Pass an "
            "option of the runner after --, such as -- --direct_num_workers=2."
        )
    with extra_packages("beam"):  # Dataflow also needs "apache-beam[gcp]", see `beam_options`
        from albert_tf.pretraining import beam
    return beam


@dataclass(frozen=True)
class CreationReport:
    """Settings, counts of documents and instances (see `count_instances`), duration, vocabulary."""

    settings: InstanceSettings
    counts: Counter[str]
    seconds: float
    vocabulary: str = "the vocabulary"

    def lines(self) -> list[str]:
        """Returns the lines of the report, with groups of `key=value`."""
        c, settings = self.counts, self.settings
        segments, slots = settings.segments, settings.masking.prediction_slots
        ngrams = {n: c[f"ngram_{n}"] for n in range(1, settings.masking.ngram + 1)}
        masking = (
            f"predictions={c['predictions']:,} "
            f"masked_fraction={_share(c['predictions'], c['tokens'])} prediction_slots={slots} "
            + " ".join(f"{n}-grams={_share(k, sum(ngrams.values()))}" for n, k in ngrams.items())
            + f" word_starts={settings.word_starts}" * (settings.word_starts != ORIGINAL)
        )
        pairs = (
            f"sentence_loss={segments.sentence_loss} sentence_pairs={segments.sentence_pairs} "
            f"swapped={_share(c['swapped'], c['instances'])} "
            f"random_document={_share(c['random_parts'], c['instances'])}"
        )
        if not settings.masking.masked_lm_prob:
            masking = "none (the records are for masking during training)"
        if segments.sentence_loss == NONE:
            pairs = f"sentence_loss={NONE} (a sequence is a single segment)"
        lines = [
            f"read: documents={c['documents']:,} segments={c['segments']:,} "
            f"tokens={c['text_tokens']:,} one_segment_documents={c['one_segment_documents']:,} "
            f"documents_cut={c['documents_cut']:,} {PieceCounts(c).describe()}",
            f"made: instances={c['instances']:,} passes={settings.dupe_factor} "
            f"tokens={c['tokens']:,} "
            f"padding={_share(c['positions'] - c['tokens'], c['positions'])} "
            f"tokens_cut={_share(c['tokens_cut'], c['tokens'] + c['tokens_cut'])}",
            f"masking: {masking}",
            f"sentence pairs: {pairs}",
            f"speed: tokens_per_second={c['tokens'] / max(self.seconds, 1e-9):,.0f} "
            f"seconds={self.seconds:,.1f}",
        ]
        return lines if c["instances"] else lines[:1]

    def warnings(self) -> Iterator[str]:
        """Yields a warning for each likely mistake in the text."""
        c, segments = PieceCounts(self.counts), self.settings.segments
        yield from c.warnings(self.vocabulary)
        if c["random_parts_of_only_document"]:
            yield (
                f"{c['random_parts_of_only_document']:,} of {c['random_parts']:,} random second "
                "parts are from the same document as the first part, because there was no other "
                "document. Put empty lines between documents, or add documents."
            )
        if segments.sentence_loss != NONE and 2 * c["one_segment_documents"] > c["documents"]:
            pairs = "no pair is created from them"
            if segments.sentence_pairs != ADJACENT:
                pairs = "their pairs are random, so that the sentence labels are 1"
            yield (
                f"{c['one_segment_documents']:,} of {c['documents']:,} documents have only one "
                f"line. With `sentence_pairs`={segments.sentence_pairs}, {pairs}. Does the text "
                "have one sentence per line, and empty lines only between documents?"
            )
        num_ones = c["swapped"] + c["random_parts"]
        if segments.sentence_loss != NONE:
            yield from same_labels_warning(num_ones, c["instances"], "the records")
        if c["tokens_cut"] > c["tokens"]:
            yield (
                f"{_share(c['tokens_cut'], c['tokens'] + c['tokens_cut'])} of the tokens were cut "
                "to fit `max_seq_length`. Does the text have one sentence per line?"
            )
        masking = self.settings.masking
        wanted = masking.masked_lm_prob * c["tokens"]
        wanted = min(wanted, masking.max_predictions_per_seq * c["instances"])
        is_long = 2 * c["long_word_tokens"] > c["text_tokens"]  # in a dry run
        has_whole_words = masking.do_whole_word_mask and self.settings.word_starts == ORIGINAL
        if (
            has_whole_words
            and masking.masked_lm_prob
            and (is_long or 2 * c["predictions"] < wanted)
        ):
            found = "" if is_long else f" ({_share(c['predictions'], c['tokens'])})"
            yield (
                f"Less than half of the wanted {masking.masked_lm_prob:.1%} of the tokens are "
                f"masked{found}, because many words have more tokens than a sequence has "
                "predictions. To mask single tokens, pass `do_whole_word_mask`=False "
                "(--nodo_whole_word_mask)."
            )
        if c["unspaced_words"]:
            yield (
                f"{_share(c['unspaced_words'], c['text_tokens'])} of the tokens are from scripts "
                "without blanks. Each of them is a word, because icu4py is not installed. Run pip "
                'install "albert_tf[languages]" to mask words of several tokens.'
            )
        if c["documents_cut"]:
            yield (
                f"Long documents were cut at {c['documents_cut']:,} places. Are the empty lines "
                "between documents missing?"
            )


def _share(part: int, whole: int) -> str:
    return f"{part / max(whole, 1):.2%}"
