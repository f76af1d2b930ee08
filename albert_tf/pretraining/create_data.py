"""What `train_sentencepiece` and `create_pretraining_data` do: from text to vocabulary and records.

Neither needs TensorFlow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType

from absl import logging

from albert_tf.data.errors import UserError
from albert_tf.data.files import check_file, expand_shards, match_files, open_binary
from albert_tf.data.jobs import available_cores
from albert_tf.pretraining.create_records import (
    CreationReport,
    check_outputs,
    check_text,
    create_records,
    masking_limit_warning,
)
from albert_tf.pretraining.instances import InstanceSettings
from albert_tf.pretraining.masking import MaskingSettings
from albert_tf.pretraining.segments import (
    NSP,
    ORIGINAL,
    SENTENCE_LOSSES,
    SENTENCE_PAIRS,
    SOP,
    SegmentSettings,
)
from albert_tf.tokenization.loading import load_tokenizer
from albert_tf.tokenization.sentence_piece import model_files, train_sentence_piece
from albert_tf.training.settings import Settings, as_type, check_arguments, limited, unless_given


def train_sentencepiece(
    input_file: str,
    model_prefix: str,
    vocab_size: int = 30000,
    do_lower_case: bool = True,
    *,
    dry_run: bool = False,
) -> None:
    """Learns a SentencePiece vocabulary, as `train_sentencepiece.py` does.

    Args:
        input_file: text to read: comma-separated files or globs. UTF-8, one sentence a line.
        model_prefix: path of the files to write, without their extensions .model and .vocab.
        vocab_size: V, the number of pieces, special symbols included.
        do_lower_case: lower-case the text; must be the same when the tokenizer is used.
        dry_run: only check the arguments and the text.

    Raises:
        TypeError: an argument has another type.
        ValueError: a file is not UTF-8, there is no text, or it does not yield so many, or so few,
            pieces.
        OSError: a file cannot be read or written.
    """
    input_file = as_type("input_file", input_file, str)
    model_prefix = as_type("model_prefix", model_prefix, str)
    vocab_size = as_type("vocab_size", vocab_size, int)
    do_lower_case = as_type("do_lower_case", do_lower_case, bool)
    dry_run = as_type("dry_run", dry_run, bool)
    if vocab_size < 1:
        raise UserError(f"`vocab_size` must be at least 1. Received: {vocab_size}")
    files = match_files(input_file)
    for path in model_files(model_prefix):
        check_file(path)
    check_text(files, available_cores())
    if dry_run:
        return
    train_sentence_piece(_lines(files), model_prefix, vocab_size, do_lower_case)
    logging.info(
        "vocab_size=%d model=%s.model input_files=%d", vocab_size, model_prefix, len(files)
    )


def _lines(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        with open_binary(path, "rb") as file:
            for line in file:
                yield line.decode()


@dataclass(frozen=True, kw_only=True)
class PretrainingDataSettings(Settings):
    """Settings of `create_pretraining_data`; each is the flag of its name of that command.

    `input_file`, `output_file`, and a tokenizer, `spm_model_file` or `vocab_file`, are required.
    Everything else has a default; docs/flags.md describes all flags. `beam_options` are the options
    of Apache Beam, which the command takes after `--`; they need `runner`. Raises what
    `ClassificationSettings` raises.
    """

    input_file: str
    output_file: str
    spm_model_file: str | None = None
    vocab_file: str | None = None
    do_lower_case: bool = True
    max_seq_length: int = SegmentSettings.max_seq_length
    short_seq_prob: float = SegmentSettings.short_seq_prob
    sentence_loss: str | None = limited(None, choices=SENTENCE_LOSSES)
    random_next_sentence: bool = unless_given(False)
    sentence_pairs: str = limited(ORIGINAL, choices=SENTENCE_PAIRS)
    dupe_factor: int = InstanceSettings.dupe_factor
    random_seed: int = InstanceSettings.random_seed
    masked_lm_prob: float = MaskingSettings.masked_lm_prob
    max_predictions_per_seq: int = MaskingSettings.max_predictions_per_seq
    ngram: int = MaskingSettings.ngram
    favor_shorter_ngram: bool = MaskingSettings.favor_shorter_ngram
    do_whole_word_mask: bool = MaskingSettings.do_whole_word_mask
    do_permutation: bool = MaskingSettings.do_permutation
    num_workers: int | None = limited(None, at_least=1)
    runner: str | None = None
    beam_options: Sequence[str] = ()
    dry_run: bool = False

    def instances(self) -> InstanceSettings:
        """Returns what decides the instances; raises ValueError, which names the flag."""
        return InstanceSettings(
            SegmentSettings(
                self.max_seq_length,
                self.short_seq_prob,
                self._sentence_loss(),
                self.sentence_pairs,
            ),
            MaskingSettings(
                masked_lm_prob=self.masked_lm_prob,
                max_predictions_per_seq=self.max_predictions_per_seq,
                ngram=self.ngram,
                favor_shorter_ngram=self.favor_shorter_ngram,
                do_whole_word_mask=self.do_whole_word_mask,
                do_permutation=self.do_permutation,
            ),
            self.dupe_factor,
            self.random_seed,
        )

    def _sentence_loss(self) -> str:
        """The sentence loss by its own name and by the original's, which must not contradict."""
        is_random = self.random_next_sentence
        loss = self.sentence_loss or (NSP if is_random else SOP)
        if is_random is not None and is_random != (loss == NSP):
            raise UserError(
                f"`random_next_sentence`={is_random} contradicts `sentence_loss`={loss}: it is "
                f"true for {NSP} and false for the others. Use `sentence_loss` only."
            )
        return loss


def create_pretraining_data(settings: PretrainingDataSettings) -> CreationReport:
    """Makes pretraining records from text, as `create_pretraining_data.py` does.

    Without `runner` it uses all cores, in processes that do not run the calling program again.

    Args:
        settings: what is to be done; the command's flags.

    Returns:
        A report: `counts` of what was read and made by name, such as "documents" and "instances";
        `lines()` and `warnings()` as the command logs them. After a dry run all counts are 0.

    Raises:
        ValueError: something is missing or wrong, or the text yields no record; names the flag.
        OSError: a file cannot be read or written.
    """
    check_arguments(settings, PretrainingDataSettings)
    beam = _beam(settings)
    output_files = expand_shards(settings.output_file)
    instances = settings.instances()
    tokenizer = load_tokenizer(
        spm_model_file=settings.spm_model_file,
        vocab_file=settings.vocab_file,
        do_lower_case=settings.do_lower_case,
    )
    files = match_files(settings.input_file)
    logging.info("input_files=%d output=%s", len(files), settings.output_file)
    if warning := masking_limit_warning(settings.max_seq_length, instances.masking):
        logging.warning(warning)
    if settings.dry_run:
        check_outputs(files, output_files)
        if beam:  # whose workers check the text
            beam.beam_options(settings.runner, settings.beam_options)
        else:
            check_text(files, settings.num_workers or available_cores())
        return CreationReport(instances, Counter(), 0.0)
    what = files, output_files, tokenizer, instances
    if beam:
        report: CreationReport = beam.create_records(settings.runner, settings.beam_options, *what)
    else:
        report = create_records(*what, num_workers=settings.num_workers)
    for line in report.lines():
        logging.info(line)
    for line in report.warnings():
        logging.warning(line)
    return report


def _beam(settings: PretrainingDataSettings) -> ModuleType | None:
    """The module that makes records with Beam; None where processes of this machine make them."""
    if isinstance(settings.beam_options, str):
        raise TypeError(f"beam_options must be a list. Received: {settings.beam_options!r}")
    if settings.runner is None:
        if settings.beam_options:
            raise UserError(f"{' '.join(settings.beam_options)}: options of Beam need `runner`.")
        return None
    if settings.num_workers is not None:
        raise UserError(
            f"`num_workers`={settings.num_workers} is for processes of this machine; with `runner` "
            "pass the runner's own option after a --, such as -- --direct_num_workers=2."
        )
    try:
        from albert_tf.pretraining import beam
    except ModuleNotFoundError as error:
        raise UserError(
            f"`runner`={settings.runner} needs Apache Beam ({error}). Install it with: "
            'pip install "albert_tf[beam]" (and "apache-beam[gcp]" for Dataflow); in a checkout: '
            "pip install -r requirements/beam.txt."
        ) from error
    return beam
