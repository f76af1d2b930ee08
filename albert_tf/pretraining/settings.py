"""Settings of vocabularies, records and pretraining. Does not import TensorFlow."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from importlib.util import find_spec

from albert_tf.checkpoints.facts import Meeting, settle, stated
from albert_tf.data.errors import UserError
from albert_tf.pretraining.instances import (
    NSP,
    ORIGINAL,
    SENTENCE_LOSSES,
    SENTENCE_PAIRS,
    SOP,
    UNICODE,
    WORD_STARTS,
    InstanceSettings,
    SegmentSettings,
)
from albert_tf.pretraining.masking import MaskingSettings
from albert_tf.settings import Settings, changed, dry_run_setting, required, setting
from albert_tf.tokenization.sentence_piece import clean_text
from albert_tf.training.settings import STEPS_HELP, WARMUP_HELP, OptimizerConfig, TrainingSettings


@dataclass(frozen=True, kw_only=True)
class VocabularySettings(Settings):
    """Settings of `train_sentencepiece`."""

    input_file: str = required("Data")("""
        Text to read: comma-separated files or globs. UTF-8, one sentence per line.""")
    do_lower_case: bool = setting(True, "Data")("""
        Lower-case the text. Use the same setting with the tokenizer.""")
    keep_accents: bool = setting(False, "Data")("""
        Keep accents, vowel signs and other marks. Use the same setting with the tokenizer. By
        default, they are removed, as in the original release, which suits only English.""")
    vocab_size: int = setting(30000, "Data", at_least=1)("""
        Number of pieces, including special symbols.""")
    character_coverage: float = setting(0.99995, "Data", at_least=0.98, at_most=1)("""
        Fraction of the characters of the text that pieces must cover. The rarest characters become
        unknown pieces.""")
    user_defined_symbols: Sequence[str] = setting(
        ("(", ")", '"', "-", ".", "–", "£", "€"), "Data"
    )("""
        Comma-separated texts that are always pieces of their own, such as punctuation.""")
    byte_fallback: bool = setting(False, "Data")("""
        Add 256 pieces for bytes, which represent characters that no other piece covers. No piece is
        unknown.""")
    input_sentence_size: int = setting(10_000_000, "Data", at_least=1)("""
        Number of lines to train on. If the text has more, they are drawn at random.""")
    model_prefix: str = required("Output")("""
        Path of the files to write, without their extensions .model and .vocab.""")
    dry_run: bool = dry_run_setting()

    def __post_init__(self) -> None:
        super().__post_init__()
        symbols = self.user_defined_symbols
        if isinstance(symbols, str):
            raise TypeError(f"`user_defined_symbols` must be a list. Received: {symbols!r}")
        for symbol in symbols:
            clean = clean_text(symbol, self.do_lower_case, keep_accents=self.keep_accents)
            if clean != symbol or " " in symbol or not symbol:
                raise UserError(
                    "`user_defined_symbols` must not be empty, contain blanks, or change in the "
                    f"normalization of the text. Received: {symbol!r}, which becomes {clean!r}"
                )


@dataclass(frozen=True, kw_only=True)
class PrepareTextSettings(Settings):
    """Settings of `prepare_text`, named after the flags of the command.

    `input_file`, `output_file` and `language` are required. For all flags, see docs/flags.md. For
    errors, see `ClassificationSettings`.
    """

    input_file: str = required("Data")("""
        Text to read: comma-separated files, globs or directories, or - for the standard input.
        UTF-8, as plain text, files of a Wikipedia extractor (<doc>) or JSON Lines, which may be
        compressed (.gz, .bz2, .xz, .zst). The format is detected from the content.""")
    output_file: str = required("Output")("""
        Text file to write, or several comma-separated files, to which the documents are written in
        turn. name@2.txt stands for name-00000-of-00002.txt and name-00001-of-00002.txt.""")
    language: str = required("Data")("ISO 639 code of the language, such as de, tr or zh.")
    text_key: str = setting("text", "Data")("Key of the text in JSON Lines.")
    drop_duplicates: bool = setting(False, "Data")("""
        Drop documents that are equal to an earlier document, except for white space.""")
    num_workers: int | None = setting(None, "Devices", at_least=1)("""
        Number of processes. Default: one per processor core. Does not change the output.""")
    dry_run: bool = dry_run_setting()


@dataclass(frozen=True, kw_only=True)
class PretrainingDataSettings(Settings):
    """Settings of `create_pretraining_data`, named after the flags of the command.

    `input_file`, `output_file`, and `spm_model_file` or `vocab_file` are required. `beam_options`
    are options of Apache Beam and require `runner`; the command takes them after `--`. For all
    flags, see docs/flags.md. For errors, see `ClassificationSettings`.
    """

    input_file: str = required("Data")("""
        Text to read: comma-separated files or globs. UTF-8, one sentence per line, an empty line
        between documents.""")
    output_file: str = required("Output")("""
        TFRecord file to write, or several comma-separated files, to which the records are written
        in turn. name@3 stands for name-00000-of-00003, name-00001-of-00003 and
        name-00002-of-00003.""")
    spm_model_file: str | None = setting(None, "Model")("SentencePiece model (English models).")
    vocab_file: str | None = setting(None, "Model")("""
        WordPiece vocabulary (Chinese models). Either this or --spm_model_file is required.""")
    do_lower_case: bool = setting(True, "Model")("Lower-case the text.")
    keep_accents: bool = setting(False, "Model")("""
        Keep accents, vowel signs and other marks, for SentencePiece. By default, they are removed,
        as in the original release, which suits only English.""")
    max_seq_length: int = setting(SegmentSettings.max_seq_length, "Data")("""
        Number of tokens of a sequence, including special tokens.""")
    short_seq_prob: float = setting(
        SegmentSettings.short_seq_prob,
        "Data",
        at_least=0,
        at_most=1,
    )("""
        Fraction of the documents that are cut into shorter sequences, of random length.""")
    sentence_loss: str | None = setting(None, "Data", choices=SENTENCE_LOSSES)("""
        Objective of the records in addition to masked tokens. sop (default): pairs of segments,
        half of them swapped (sentence-order prediction). nsp: pairs, half of them with a second
        segment from another document (next-sentence prediction). none: a single segment per
        sequence.""")
    random_next_sentence: bool = setting(False, "Data", depends=True)("""
        The name of --sentence_loss=nsp in the original release.""")
    sentence_pairs: str = setting(ORIGINAL, "Data", choices=SENTENCE_PAIRS)("""
        How the pairs of sop are created. original: as in the original release. Some second
        segments come from another document, and the lengths of the segments predict the order
        better than chance. adjacent: always two adjacent runs of sentences, whose lengths do not
        predict the order. Recommended for short sequences.""")
    dupe_factor: int = setting(InstanceSettings.dupe_factor, "Data", at_least=1)("""
        Number of passes over the text, each with different segments and masks.""")
    random_seed: int = setting(InstanceSettings.random_seed, "Data")("""
        Random seed. The same seed gives byte-identical records.""")
    masked_lm_prob: float = setting(
        MaskingSettings.masked_lm_prob,
        "Masking",
        at_least=0,
        below=1,
    )("""
        Fraction of tokens to mask and predict. 0: no masking, for records that run_pretraining
        --masked_lm_prob masks during training.""")
    max_predictions_per_seq: int = setting(
        MaskingSettings.max_predictions_per_seq, "Masking", at_least=1
    )("""
        Maximum number of tokens to mask in a sequence; should be at least --masked_lm_prob times
        --max_seq_length.""")
    ngram: int = setting(MaskingSettings.ngram, "Masking", at_least=1)(
        "Maximum number of consecutive words masked together."
    )
    favor_shorter_ngram: bool = setting(MaskingSettings.favor_shorter_ngram, "Masking")("""
        Mask n consecutive words with a probability proportional to 1/n. If false, longer runs are
        more likely.""")
    do_whole_word_mask: bool = setting(MaskingSettings.do_whole_word_mask, "Masking")("""
        Mask either all pieces of a word or none of them.""")
    do_permutation: bool = setting(MaskingSettings.do_permutation, "Masking")("""
        Also select as many other tokens as are masked, permute them, and predict them. This
        doubles the number of prediction slots in the records.""")
    word_starts: str | None = setting(None, "Masking", choices=WORD_STARTS)("""
        How words are found. original: as in the original release, for English. unicode: for all
        languages; Chinese, Japanese, Thai, Lao, Khmer and Burmese need icu4py (pip install
        "albert_tf[languages]"). Words with more pieces than a sequence has predictions are masked
        by pieces. Default: unicode with --keep_accents, otherwise original.""")
    num_workers: int | None = setting(None, "Devices", at_least=1)("""
        Number of processes. Default: one per processor core. Does not change the records.""")
    runner: str | None = setting(None, "Devices")("""
        Apache Beam runner that creates the same records, such as DataflowRunner, FlinkRunner,
        SparkRunner or DirectRunner. Pass options of Beam after --. Default: processes on this
        machine, without Beam.""")
    beam_options: Sequence[str] = ()
    dry_run: bool = dry_run_setting()

    def instances(self) -> InstanceSettings:
        """Returns the settings of the instances. Raises ValueError if a value is invalid."""
        segments, masking = (
            {field.name: getattr(self, field.name) for field in fields(kind)}
            for kind in (SegmentSettings, MaskingSettings)
        )
        is_random = self.random_next_sentence
        loss = segments["sentence_loss"] = self.sentence_loss or (NSP if is_random else SOP)
        given = {"`random_next_sentence`": is_random, f"`sentence_loss`={loss}": loss == NSP}
        settle(stated("random_next_sentence", given), Meeting.ARGUMENTS)
        return InstanceSettings(
            SegmentSettings(**segments),
            MaskingSettings(**masking),
            self.dupe_factor,
            self.random_seed,
            self.word_starts or (UNICODE if self.keep_accents else ORIGINAL),
            find_spec("icu4py") is not None,
        )


@dataclass(frozen=True, kw_only=True)
class PretrainingSettings(TrainingSettings):
    """Settings of `run_pretraining`, named after the flags of the command.

    `output_dir` and `input_file` (records) are required. A new run requires
    `albert_config_file`, or an `init_checkpoint` with a configuration. `max_seq_length` and
    `max_predictions_per_seq` must match the records. For all flags, see docs/flags.md. For errors,
    see `ClassificationSettings`.
    """

    STEP_SETTINGS = ("num_train_steps", "num_warmup_steps")

    input_file: str = required("Data")("""
        Records to train on: comma-separated files or globs. Without --eval_input_file, they are
        also used for evaluation.""")
    eval_input_file: str | None = setting(None, "Data")("""
        Records to evaluate on: comma-separated files or globs. Default: --input_file.""")
    do_train: bool = setting(True, "Actions")("Train.")
    do_eval: bool = setting(False, "Actions")("""
        Evaluate: every checkpoint during training, or --eval_checkpoint without training.""")
    max_seq_length: int = setting(512, "Data")("Number of tokens of a sequence in the records.")
    max_predictions_per_seq: int = setting(20, "Data", at_least=1)("""
        Number of prediction slots per sequence in the records. For records created with
        --do_permutation, this is twice the value that was passed to create_pretraining_data. With
        --masked_lm_prob: maximum number of tokens to mask in a sequence.""")
    sentence_loss: str | None = setting(None, "Data", choices=SENTENCE_LOSSES)("""
        Loss on pairs of segments, which must match the records. sop: which segment comes first.
        nsp: whether the second segment follows the first. none: no such loss and no sentence-order
        head. Default: the loss for which the records were created; sop if the records do not
        contain it.""")
    shuffle_buffer_size: int = setting(1000, "Data", at_least=1)("""
        Number of records from which the next training example is drawn at random.""")
    masked_lm_prob: float = setting(0.0, "Masking", at_least=0, below=1)("""
        Fraction of tokens to mask during training, differently in every epoch; usually 0.15. This
        requires records created with create_pretraining_data --masked_lm_prob=0. With the default,
        0, the records must already be masked.""")
    masked_lm_budget: float = setting(0.0, "Masking", at_least=0, below=1)("""
        The name of --masked_lm_prob in the original release.""")
    ngram: int = changed(PretrainingDataSettings, "ngram", depends=True)
    favor_shorter_ngram: bool = changed(
        PretrainingDataSettings, "favor_shorter_ngram", depends=True
    )
    do_whole_word_mask: bool = changed(PretrainingDataSettings, "do_whole_word_mask", depends=True)
    eval_batch_size: int = setting(64, "Evaluation", at_least=1)("""
        Number of examples per batch in evaluation.""")
    max_eval_steps: int = setting(100, "Evaluation", at_least=1)("""
        Maximum number of batches to evaluate on; the records are read at most once.""")
    eval_checkpoint: str = setting("newest", "Evaluation")("""
        Checkpoint to evaluate with --do_eval --nodo_train: newest or best in --output_dir, or a
        path. all: every checkpoint in --output_dir; the best is kept as model.ckpt-best, as during
        training. If --output_dir has none, --init_checkpoint is used.""")
    watch_secs: float = setting(0.0, "Evaluation")("""
        With --eval_checkpoint=all: wait for new checkpoints of a training run in progress until
        the checkpoint of --num_train_steps exists, but at most this number of seconds after the
        last new checkpoint. 0: do not wait.""")
    grow_init_checkpoint: bool = setting(False, "Model")("""
        Continue --init_checkpoint with the vocabulary of --spm_model_file or --vocab_file, and with
        more positions if --max_seq_length requires them; --albert_config_file can set other sizes.
        Pieces that both vocabularies contain keep their embeddings. New pieces get random
        embeddings with the mean and deviation of the old ones. A new position gets the embedding
        of its number modulo the old number of positions. The log reports what is kept.""")
    num_train_steps: int = setting(OptimizerConfig.num_train_steps, "Optimizer", at_least=1)(
        STEPS_HELP
    )
    num_warmup_steps: int = setting(OptimizerConfig.num_warmup_steps, "Optimizer", at_least=0)(
        WARMUP_HELP
    )
    num_decay_steps: int | None = setting(None, "Optimizer", at_least=1)("""
        Keep the learning rate constant after the warm-up, and decay it to 0 over this number of
        steps at the end. Default: the decay starts at step 0, as in the original.""")
