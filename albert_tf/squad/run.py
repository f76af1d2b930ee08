"""The job of `run_squad`: training, evaluation, answers and export."""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import keras
from absl import logging

from albert_tf.checkpoints.stored_task import SQUAD_TASKS, THRESHOLD, StoredTask
from albert_tf.data.errors import UserError
from albert_tf.data.parallel import available_cores
from albert_tf.data.splits import DEV, TRAIN
from albert_tf.data.strict_json import listed
from albert_tf.finetuning import flow
from albert_tf.finetuning.job import Job, RunContext, check_predictions
from albert_tf.modeling.models import (
    AlbertForQuestionAnswering,
    AlbertForQuestionAnsweringWithBeamSearch,
)
from albert_tf.serving.litert import ORIGINAL_FILE as LITERT_FILE
from albert_tf.serving.litert import LiteRTExport
from albert_tf.squad.answerer import (
    Answerer,
    answer_file,
    check_questions,
    select_answers,
)
from albert_tf.squad.answers import OUTPUTS, AnswerSettings, SquadAnswers, write_answers
from albert_tf.squad.data import Question, SquadData, read_squad
from albert_tf.squad.export import FOLDER as SPANS_FOLDER
from albert_tf.squad.export import export_spans, export_text_spans
from albert_tf.squad.features import check_lengths, squad_features
from albert_tf.squad.metrics import has_references, is_chinese, v1_scores, v2_scores
from albert_tf.squad.settings import SquadSettings
from albert_tf.squad.task import SquadTask
from albert_tf.tokenization.base import Tokenizer
from albert_tf.training.evaluation import BestCheckpoint, EvaluationResults, result_lines
from albert_tf.training.settings import JobResult, OptimizerConfig

# Settings that are stored with the model; the last two only for version 2 of SQuAD.
_STORED = ("doc_stride", "max_query_length", "start_n_top", "end_n_top")

_QUESTIONS_PER_PROCESS = 25_000  # with fewer, starting a process takes more time than it saves
# Scores that can select the best checkpoint, with `best_f1`
_V2_METRICS = ["f1", "exact", "best_exact", "HasAns_f1", "HasAns_exact", "NoAns_f1", "NoAns_exact"]
_STEP, _BEST = "global_step = ", "best "


class SquadEvaluationResults(EvaluationResults):
    """`eval_results.txt`: a block per checkpoint, and at the end the block of the best one."""

    def append_with_best(
        self,
        step: int,
        results: Mapping[str, float],
        metric: str,
        best: tuple[int, float] | None = None,
    ) -> None:
        """Adds or replaces the block of a step.

        `best`: an earlier step that is better, and its `metric`.
        """
        best_step, best_score = best or (step, results.get(metric, math.nan))
        lines = [f"{key} = {value}" for key, value in sorted(results.items())]
        best_lines = lines
        if best_step != step:
            best_lines = [li for li in self.lines(best_step) if not li.startswith((_STEP, _BEST))]
        ending = [*best_lines, f"best perf happened at step: {best_step}"]
        shown = best_score if math.isfinite(best_score) else -1
        name = metric.removeprefix("best_")
        block = [*lines, f"{_STEP}{step}", f"{_BEST}{name} = {shown}"]
        self.append_lines(step, block, "\n".join(ending))


class SquadJob(Job[SquadSettings]):
    """Trains and applies models that answer questions with spans of contexts; see `Job`."""

    MODELS = (AlbertForQuestionAnswering, AlbertForQuestionAnsweringWithBeamSearch)
    SETTINGS = SquadSettings
    ACTIONS = ("do_train", "do_predict", "predict_json", "export_dir")
    EVALUATING = "`do_predict` and a `predict_file` with answers"
    EXPORT_FOLDER = SPANS_FOLDER
    LONGEST = AnswerSettings.max_seq_length
    RESULTS = SquadEvaluationResults
    SPLITS: ClassVar = {TRAIN: ("do_train", "train_file"), DEV: ("do_predict", "predict_file")}

    results: SquadEvaluationResults

    @classmethod
    def check(cls, settings: SquadSettings) -> None:
        """See `Job`."""
        super().check(settings)
        check_predictions(settings, "predict_json")
        threshold = settings.null_score_diff_threshold
        if threshold is not None and math.isnan(threshold):
            raise UserError(f"`{THRESHOLD}` must be a number. Received: {threshold}")

    @classmethod
    def task_name(cls, settings: SquadSettings, trained: StoredTask | None) -> str:
        """See `Job`."""
        version = settings.squad_version
        if version is None and trained and trained.name in SQUAD_TASKS.values():
            return trained.name
        if version not in SQUAD_TASKS:
            found = f"a model of {trained.name!r}" if trained else "no model with a known task"
            raise UserError(
                "`squad_version` must be 1 (all questions have answers) or 2 (some have none). "
                f"`output_dir` contains {found}. Received: {version}"
            )
        return SQUAD_TASKS[version]

    def __init__(self, context: RunContext[SquadSettings]) -> None:
        super().__init__(context)
        settings, name, trained = context.settings, context.task_name, context.trained
        self.version = next(number for number, task in SQUAD_TASKS.items() if task == name)
        self.outputs = OUTPUTS[self.version]
        names = [field.name for field in dataclasses.fields(AnswerSettings)]
        given = {name: getattr(settings, name) for name in names if hasattr(settings, name)}
        self.answering = AnswerSettings(self.version, **given)
        if self.version == 1 and settings.null_score_diff_threshold is not None:
            logging.warning("`%s` has no effect: SQuAD 1.1 answers every question", THRESHOLD)
        stored = {name: getattr(settings, name) for name in _STORED[: 2 * self.version]}
        if trained and THRESHOLD in trained.settings:
            stored[THRESHOLD] = trained.settings[THRESHOLD]
        self.task = StoredTask(name, max_seq_length=settings.max_seq_length, settings=stored)
        if settings.predict_json:
            check_questions(settings.predict_json, self.tokenizer)
        if settings.predict_json or settings.export_text_model:
            check_lengths(**self.answering.lengths)
        self.examples = self.for_splits(self._read)
        self.predict_data = self.examples.get(DEV)
        questions = self.predict_data.questions if self.predict_data else []
        self.choose_metric(*_metrics(questions, self.version))
        self.has_references = has_references(questions, self.version)
        self.evaluates = self.has_references and (settings.do_train or settings.checkpoint == "all")
        self._written_step: int | None = None  # step of the answers in the files
        if self.predict_data and not self.has_references:
            _check_unscored(self.predict_data, settings.checkpoint)

    def _read(self, split: str) -> SquadData:
        action, file = self.SPLITS[split]
        path = getattr(self.settings, file)
        if not path:
            raise UserError(f"`{action}` needs `{file}`.")
        given = self.context.examples.get(path)
        is_training = split == TRAIN
        return read_squad(path, version=self.version, is_training=is_training, examples=given)

    def make_task(self) -> SquadTask:
        """See `Job`."""
        settings = self.settings
        self.features = {
            split: squad_features(
                data,
                self.tokenizer,
                **self.answering.lengths,
                is_training=split == TRAIN,
                num_workers=settings.num_workers
                or min(available_cores(), 1 + len(data.questions) // _QUESTIONS_PER_PROCESS),
            )
            for split, data in self.examples.items()
        }
        return SquadTask(
            self.config,
            self.version,
            self.features.get(TRAIN),
            start_n_top=settings.start_n_top,
            end_n_top=settings.end_n_top,
            dropout_prob=settings.dropout_prob,
            **self.inputs,
        )

    def optimizer_config(self, num_examples: int) -> OptimizerConfig:
        """See `Job`; converts epochs over the questions into steps."""
        if self.context.chooses_steps:
            return super().optimizer_config(num_examples)
        settings = self.settings
        epochs, batch_size = settings.num_train_epochs, settings.train_batch_size
        num_questions = len(self.examples[TRAIN].questions)
        num_steps = int(num_questions / batch_size * epochs)
        if not num_steps:
            raise UserError(
                f"{num_questions} questions and {epochs:g} epochs give less than one step of "
                f"{batch_size} windows. Use more epochs (`num_train_epochs`, or `epochs` of `fit`) "
                "or smaller batches."
            )
        num_warmup_steps = int(num_steps * settings.warmup_proportion)
        logging.info(
            "`num_train_epochs`=%g is relative to the number of questions, as in the original: %d "
            "steps, and each of %d windows is trained on %.2f times",
            epochs,
            num_steps,
            num_examples,
            num_steps * batch_size / num_examples,
        )
        return settings.optimizer_config(num_steps, num_warmup_steps)

    def use(self, model: keras.Model) -> None:
        """See `Job`."""
        super().use(model)
        settings = self.settings
        self._litert = None
        if settings.export_dir and self.version == 1 and settings.export_tflite:
            path = os.path.join(settings.export_dir, LITERT_FILE)
            length = settings.max_seq_length
            self._litert = LiteRTExport(model, path, max_seq_length=length)

    def answers(self, description: str = "answering") -> SquadAnswers:
        """Returns the answers to the questions of `predict_file`."""
        assert self.predict_data is not None
        predictor = self.predictor(self.settings.predict_batch_size)
        return select_answers(
            self.predict_data, self.features[DEV], predictor, self.answering, description
        )

    def threshold(self) -> float | None:
        """Returns the minimum null odds of unanswered questions; `None` for SQuAD 1.1."""
        if self.version == 1:
            return None
        if self.settings.null_score_diff_threshold is not None:
            return self.settings.null_score_diff_threshold
        if THRESHOLD not in self.task.settings:
            logging.warning("The best threshold of the model is unknown. Using `%s`=0", THRESHOLD)
        return self.task.settings.get(THRESHOLD, 0.0)

    def evaluation_data(self) -> tuple[Any, ...]:
        """See `Job`."""
        assert self.predict_data is not None
        beam = self.settings.start_n_top, self.settings.end_n_top
        data = self.predict_data.contexts, self.predict_data.questions
        return self.features[DEV], *data, self.answering, beam

    def evaluate(self) -> dict[str, float]:
        """See `Job`."""
        assert self.predict_data is not None
        answers = self._evaluated = self.answers("evaluating")
        found = scores(self.predict_data, answers, self.settings.null_score_diff_threshold)
        self.evaluated = best_answers(self.predict_data, answers, found)
        return found

    def record(
        self, step: int, results: Mapping[str, float], best: BestCheckpoint, *, keeps_best: bool
    ) -> None:
        """See `Job`; the model is written last, so an interrupted run repeats the evaluation."""
        is_best = best.is_better(step, results)
        earlier = None if is_best else (best.step, best.value)
        self.results.append_with_best(step, results, self.best_metric, earlier)
        if is_best:
            self._write(step, self._evaluated, results)
            if "best_f1_thresh" in results:
                kept = {**self.task.settings, THRESHOLD: results["best_f1_thresh"]}
                self.task = dataclasses.replace(self.task, settings=kept)
                self.task.write(self.settings.output_dir)
        best.update_if_better(step, results, self.model)

    def _write(self, step: int, answers: SquadAnswers, scores: Mapping[str, float]) -> None:
        """Writes the answers of a checkpoint; `scores` is empty if there are no references."""
        threshold = scores[THRESHOLD] if THRESHOLD in scores else self.threshold()
        write_answers(self.settings.output_dir, answers, threshold)
        self._written_step = step

    def predict(self, step: int) -> None:
        """See `Job`."""
        settings = self.settings
        if self.predict_data and step != self._written_step:
            self._answer_predict_file(step)
        if settings.predict_json:
            predictor = self.predictor(settings.predict_batch_size)
            answerer = Answerer(predictor, self.tokenizer, self._answering())
            answer_file(settings.predict_json, answerer, settings.predict_output_file)

    def _answering(self) -> AnswerSettings:
        return dataclasses.replace(self.answering, threshold=self.threshold())

    def export(self, export_dir: str, *, texts: bool) -> None:
        """See `Job`; uses the current settings for answers, and also writes a LiteRT file."""
        if texts:
            export_text_spans(self.model, self.tokenizer, self._answering(), export_dir)
            return
        export_spans(self.model, export_dir)
        if self._litert:
            self._litert.write()

    @staticmethod
    def export_model(
        model: Any, task: StoredTask, tokenizer: Tokenizer, export_dir: str, *, texts: bool
    ) -> str:
        """See `Job`."""
        if not texts:
            return export_spans(model, export_dir)
        version = 1 + isinstance(model, AlbertForQuestionAnsweringWithBeamSearch)
        settings = AnswerSettings.of_task(version, task, max_seq_length=task.max_seq_length)
        return export_text_spans(model, tokenizer, settings, export_dir)

    def _answer_predict_file(self, step: int) -> None:
        """Writes the answers to `predict_file`, and their scores if there are references."""
        assert self.predict_data is not None
        answers = self.answers()
        found: dict[str, float] = {}
        if self.has_references:
            found = scores(self.predict_data, answers, self.settings.null_score_diff_threshold)
        self._write(step, answers, found)
        self.scores_of_answers = found
        logging.info("Answered %d questions of %s", len(answers.ids), self.predict_data.path)
        for line in result_lines(step, found) if found else []:
            logging.info(line)
        if found and not self.evaluates:
            self.results = SquadEvaluationResults(self.settings.output_dir)
            self.results.append_with_best(step, found, self.best_metric)


def _metrics(questions: Sequence[Question], version: int) -> tuple[str, list[str]]:
    """Returns the score that selects the best checkpoint by default, and the other scores."""
    if version == 2:
        return "best_f1", _V2_METRICS
    if is_chinese(questions):  # SQuAD's F1 splits words at spaces
        return "char_f1", ["f1", "exact_match", "char_exact_match"]
    return "f1", ["exact_match"]


def _check_unscored(data: SquadData, checkpoint: str | None) -> None:
    """Logs a warning; raises ValueError if all checkpoints are compared."""
    found = f"{data.path} contains no answers; its questions have {listed(data.keys)}"
    if checkpoint == "all":
        raise UserError(
            f"`checkpoint`=all needs reference answers, but `predict_file` {found}. Use best, "
            "newest or a path."
        )
    logging.warning("%s. The predictions are not scored", found)


def scores(
    data: SquadData, answers: SquadAnswers, threshold: float | None = None
) -> dict[str, float]:
    """Returns the scores of answers; see `v1_scores` and `v2_scores`."""
    questions, predictions = data.questions, answers.predictions()
    if answers.null_odds is None:
        return v1_scores(questions, predictions)
    return v2_scores(questions, predictions, answers.null_odds_by_id(), threshold)


def best_answers(
    data: SquadData, answers: SquadAnswers, scores: Mapping[str, float]
) -> tuple[list[str], list[str]]:
    """Returns the answers at the threshold of `scores`, and the first references."""
    true = [question.answers[0][0] if question.answers else "" for question in data.questions]
    return [*answers.predictions(scores.get(THRESHOLD)).values()], true


def run_squad(
    settings: SquadSettings, on_log: Callable[[Mapping[str, Any]], None] | None = None
) -> JobResult:
    """Trains, evaluates and applies a question-answering model, as `run_squad.py` does.

    For `settings` see `SquadSettings`. For `on_log` and the result see `run_classification`.
    """
    return flow.run(SquadJob, settings, on_log)
