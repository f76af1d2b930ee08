"""Pretrains and evaluates a model: `run_pretraining`."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.facts import ANY, Meeting, Sources, settle, stated
from albert_tf.checkpoints.formats.choose import open_model
from albert_tf.checkpoints.formats.huggingface import read_config
from albert_tf.checkpoints.growth import grown_model
from albert_tf.checkpoints.load_tokenizer import load_tokenizer
from albert_tf.checkpoints.model_choice import FROM_HUB, choose_model
from albert_tf.checkpoints.model_directory import (
    ModelDirectory,
    make_output_dir,
    stored_rules,
    with_rules,
)
from albert_tf.checkpoints.stored_model import StoredModel, Weights
from albert_tf.data.errors import UserError
from albert_tf.data.files import check_folder, match_files
from albert_tf.data.log_file import write_log_to
from albert_tf.data.tfrecord import estimate_records
from albert_tf.pretraining.instances import NONE, SOP
from albert_tf.pretraining.masking import MaskingSettings, OnlineMasking, masking_limit_warning
from albert_tf.pretraining.record_facts import (
    KEEP_ACCENTS,
    LOWER_CASE,
    SENTENCE_LOSS,
    VOCABULARY,
    check_shards,
    common_facts,
)
from albert_tf.pretraining.settings import PretrainingSettings
from albert_tf.pretraining.task import (
    BEST_METRIC,
    SENTENCE_LOSS_KEY,
    PretrainingTask,
    compare_loss,
)
from albert_tf.settings import resolve
from albert_tf.tokenization.base import Tokenizer
from albert_tf.training.cluster import Workers, num_workers
from albert_tf.training.directory_lock import EVALUATION, locked
from albert_tf.training.evaluation import (
    BestCheckpoint,
    Evaluator,
    load_complete,
    write_results,
)
from albert_tf.training.process_state import process_state_kept
from albert_tf.training.run import Run, evaluate_checkpoints, finish, train
from albert_tf.training.settings import JobResult, OnLog, check_arguments
from albert_tf.training.step import build_model
from albert_tf.training.strategies import is_tpu, strategy_of, with_xla
from albert_tf.training.trainer import Trainer
from albert_tf.training.training_directory import CHOICES, TrainingDirectory, choose_checkpoints


@process_state_kept()
def run_pretraining(
    settings: PretrainingSettings, on_log: Callable[[Mapping[str, Any]], None] | None = None
) -> JobResult:
    """Pretrains and evaluates a model, as `run_pretraining.py` does.

    For `settings`, see `PretrainingSettings`. For `on_log`, the result and the errors, see
    `run_classification`.
    """
    check_arguments(settings, PretrainingSettings, on_log)
    if not (settings.do_train or settings.do_eval):
        raise UserError("Nothing to do: pass `do_train`, `do_eval` or both.")
    settings = with_xla(settings)
    trainer_config = settings.trainer_config()
    optimizer_config = dataclasses.replace(
        settings.optimizer_config(settings.num_train_steps, settings.num_warmup_steps),
        num_decay_steps=settings.num_decay_steps,
    )
    strategy = strategy_of(settings)
    eval_input_file = settings.eval_input_file or settings.input_file
    train_files = match_files(settings.input_file) if settings.do_train else []
    eval_files = match_files(eval_input_file) if settings.do_eval else []
    check_shards(train_files, eval_files)
    model = _chosen_model(settings, [*train_files, *eval_files])
    tokenizer = model.tokenizer
    facts = common_facts([*train_files, *eval_files], _known_facts(settings, model, tokenizer))
    # Records with accents contain the word starts "unicode".
    masking = _masking(settings, tokenizer, splits_words=bool(facts.get(KEEP_ACCENTS)))
    config = with_rules(model.required_config, facts)
    model_directory = ModelDirectory(settings.output_dir, config, model.tokenizer)
    task = PretrainingTask(
        config,
        train_files=train_files,
        eval_files=eval_files,
        max_seq_length=settings.max_seq_length,
        max_predictions_per_seq=settings.max_predictions_per_seq,
        shuffle_buffer_size=settings.shuffle_buffer_size,
        sentence_loss=settings.sentence_loss or facts.get(SENTENCE_LOSS) or SOP,
        masking=masking,
        use_one_hot_embeddings=is_tpu(strategy),
    )
    run = _Pretraining(settings, task, model_directory)
    if settings.do_train:
        trainer = Trainer(task, trainer_config, optimizer_config, strategy, settings.profile_steps)
        task.check_workers(settings.train_batch_size, num_workers())
        is_grown = settings.grow_init_checkpoint and model.open_weights
        run.use(trainer.model, strategy, model.weights if is_grown else settings.init_checkpoint)
        result = train(run, trainer, estimate_records(train_files), on_log)
    else:
        run.use(build_model(task.build_model, settings.precision, strategy), strategy)
        result = JobResult(settings.output_dir)
        if Workers(strategy).is_chief:
            result = _evaluate(run, optimizer_config.num_train_steps, on_log)
    return finish(result, strategy, dry_run=settings.dry_run)


def _chosen_model(settings: PretrainingSettings, record_files: Sequence[str]) -> StoredModel:
    """Returns the model to train. A resumed run ignores `init_checkpoint`."""
    directory = TrainingDirectory(settings.output_dir)
    if settings.grow_init_checkpoint and not directory.newest():
        return _grown_model(settings, record_files)
    resumes = directory.newest() or directory.best()
    evaluates = not settings.do_train and settings.eval_checkpoint not in CHOICES
    return choose_model(
        albert_config_file=settings.albert_config_file,
        init_checkpoint=None if resumes else settings.init_checkpoint or None,
        eval_checkpoint=settings.eval_checkpoint if evaluates else None,
        output_dir=settings.output_dir,
        spm_model_file=settings.spm_model_file,
        vocab_file=settings.vocab_file,
        has_more_layers=settings.init_from_group0,
    )


def _grown_model(settings: PretrainingSettings, record_files: Sequence[str]) -> StoredModel:
    """Returns the grown `init_checkpoint`."""
    if not (settings.init_checkpoint and settings.do_train):
        raise UserError("`grow_init_checkpoint` requires `init_checkpoint` and `do_train`.")
    old, tokenizer, path = open_model(settings.init_checkpoint), None, settings.albert_config_file
    spm_model_file = None if settings.spm_model_file == FROM_HUB else settings.spm_model_file
    if spm_model_file or settings.vocab_file:
        facts = common_facts(record_files)
        tokenizer = load_tokenizer(
            spm_model_file=spm_model_file,
            vocab_file=settings.vocab_file,
            do_lower_case=facts.get(LOWER_CASE, old.do_lower_case),
            keep_accents=facts.get(KEEP_ACCENTS, old.keep_accents),
        )
    config = read_config(path) if path else None
    positions = max(
        old.config.max_position_embeddings if old.config else 0, settings.max_seq_length
    )
    return grown_model(old, tokenizer, positions, config, seed=settings.seed)


def _known_facts(
    settings: PretrainingSettings, model: StoredModel, tokenizer: Tokenizer | None
) -> Sources:
    """Returns the facts that the records must match."""
    rules = stored_rules(model.required_config)
    # Without this loss, the labels of pairs are ignored.
    loss = ANY if settings.sentence_loss == NONE else settings.sentence_loss
    return {
        str(model.config_file): {n: v if v is None else bool(v) for n, v in rules.items()},
        "this run": {SENTENCE_LOSS: loss},
        tokenizer.source if tokenizer else "": {VOCABULARY: tokenizer and tokenizer.fingerprint},
    }


def _masking(
    settings: PretrainingSettings, tokenizer: Tokenizer | None, *, splits_words: bool
) -> OnlineMasking | None:
    """Returns the masking during training, or `None` if records are already masked."""
    names = ("masked_lm_prob", "masked_lm_budget")  # of the same setting
    given = {f"`{name}`": getattr(settings, name) or None for name in names}
    prob = settle(stated("The masked part", given), Meeting.ARGUMENTS)["The masked part"]
    if not prob:
        for name in ("ngram", "favor_shorter_ngram", "do_whole_word_mask"):
            if getattr(settings, name) is not None:
                logging.warning("`%s` has no effect without `masked_lm_prob`", name)
        return None
    resolved = resolve(settings)
    masking = MaskingSettings(
        masked_lm_prob=prob,
        max_predictions_per_seq=settings.max_predictions_per_seq,
        ngram=resolved.ngram,
        favor_shorter_ngram=resolved.favor_shorter_ngram,
        do_whole_word_mask=resolved.do_whole_word_mask,
    )
    if tokenizer is None:
        raise UserError(
            "`masked_lm_prob` requires the tokenizer of the records. Pass `spm_model_file` or "
            "`vocab_file`."
        )
    if warning := masking_limit_warning(settings.max_seq_length, masking):
        logging.warning(warning)
    return OnlineMasking(masking, tokenizer.mask_id, tokenizer.vocab_size, splits_words)


class _Pretraining(Run):
    """A pretraining run; see `Run`."""

    ALL_WORKERS = True

    def __init__(
        self, settings: PretrainingSettings, task: PretrainingTask, directory: ModelDirectory
    ) -> None:
        self.settings = settings
        self.task = task
        self.directory = directory
        self.evaluates = settings.do_eval

    def use(
        self,
        model: keras.Model,
        strategy: tf.distribute.Strategy,
        initial: str | Weights | None = None,
    ) -> None:
        """Sets the model and its initial weights."""
        self.model, self.initial = model, initial
        settings = self.settings
        if self.evaluates:
            self._evaluator = Evaluator(
                self.task,
                model,
                strategy,
                settings.eval_batch_size,
                settings.max_eval_steps,
                jit_compile=settings.xla,
                splits_over_workers=settings.do_train,
            )

    def initialize(self, trainer: Trainer) -> None:
        settings = self.settings
        if newest := trainer.directory.newest():
            compare_loss(newest, self.task.sentence_loss, Meeting.RESUME)
        trainer.initialize(
            self.initial,
            init_from_group0=settings.init_from_group0,
            allow_partial=settings.allow_partial_checkpoint,
        )

    def best_checkpoint(self) -> BestCheckpoint:
        return BestCheckpoint(TrainingDirectory(self.settings.output_dir), BEST_METRIC)

    def write_output(self, step: int | None = None) -> None:
        self.directory.write()
        write_log_to(self.settings.output_dir)

    def run_config(self, trainer: Trainer) -> dict[str, Any]:
        return {"model": self.task.config.to_dict(), SENTENCE_LOSS_KEY: self.task.sentence_loss}

    def describe_evaluation(self) -> dict[str, Any]:
        limit = self.settings.eval_batch_size * self.settings.max_eval_steps
        used = min(limit, estimate_records(self.task.eval_files))
        return {**self.task.describe_evaluation(), "examples": used, "metric": BEST_METRIC}

    def evaluate(self) -> dict[str, float]:
        return self._evaluator.evaluate()

    def record(
        self, step: int, results: Mapping[str, float], best: BestCheckpoint, *, keeps_best: bool
    ) -> None:
        write_log_to(self.settings.output_dir)
        write_results(self.settings.output_dir, step, results)
        if keeps_best:
            best.update_if_better(step, results, self.model)


def _evaluate(run: _Pretraining, last_step: int, on_log: OnLog | None) -> JobResult:
    """Evaluates existing checkpoints. With `eval_checkpoint`=all, also keeps the best one."""
    settings, directory = run.settings, TrainingDirectory(run.settings.output_dir)
    check_folder(settings.output_dir)
    with locked(settings.output_dir, EVALUATION, dry_run=settings.dry_run):
        prefixes = choose_checkpoints(
            directory,
            settings.eval_checkpoint,
            settings.init_checkpoint,
            name="eval_checkpoint",
            last_step=last_step,
            watch_secs=settings.watch_secs,
        )
        keeps_best = settings.eval_checkpoint == "all"
        if settings.dry_run:
            if keeps_best and settings.watch_secs > 0:
                prefixes = iter(directory.checkpoints())  # may be empty
            for prefix in islice(_checked(prefixes, run.task.sentence_loss), 1):
                load_complete(run.model, prefix)
            return JobResult(settings.output_dir)
        make_output_dir(settings.output_dir)
        prefixes = _checked(prefixes, run.task.sentence_loss)
        return evaluate_checkpoints(run, prefixes, on_log, keeps_best=keeps_best)


def _checked(prefixes: Iterable[str], sentence_loss: str) -> Iterator[str]:
    for prefix in prefixes:
        compare_loss(prefix, sentence_loss, Meeting.EVALUATE)
        yield prefix
