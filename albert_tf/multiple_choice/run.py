"""The job of `run_race`: training, evaluation, predictions and export."""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from absl import logging

from albert_tf.checkpoints.stored_task import MULTIPLE_CHOICE, StoredTask
from albert_tf.data.errors import UserError
from albert_tf.data.files import write_file
from albert_tf.data.sequences import MANY_TRUNCATED
from albert_tf.data.splits import DEV, TEST, TRAIN
from albert_tf.finetuning import flow, metrics
from albert_tf.finetuning.job import Job, RunContext
from albert_tf.labels import label_cell
from albert_tf.modeling.models import AlbertForMultipleChoice
from albert_tf.multiple_choice.data import (
    LETTERS,
    ChoiceExample,
    chosen_levels,
    read_choices,
    read_race,
)
from albert_tf.multiple_choice.export import export_choice, export_text_choice
from albert_tf.multiple_choice.settings import MultipleChoiceSettings
from albert_tf.multiple_choice.task import (
    CLASSES,
    ChoiceFeatures,
    MultipleChoiceTask,
    choice_features,
    option_logits,
    stored_qa_length,
)
from albert_tf.tokenization.base import Tokenizer
from albert_tf.training.evaluation import original_result_lines
from albert_tf.training.settings import JobResult


class MultipleChoiceJob(Job[MultipleChoiceSettings]):
    """Trains and applies multiple-choice models; see `Job`."""

    MODELS = (AlbertForMultipleChoice,)
    SETTINGS = MultipleChoiceSettings
    SPLITS: ClassVar = {split: (do, f"{split}_choices") for split, (do, _) in Job.SPLITS.items()}

    @classmethod
    def task_name(cls, settings: MultipleChoiceSettings, trained: StoredTask | None) -> str:
        """See `Job`."""
        if settings.task_name.lower() != MULTIPLE_CHOICE:
            raise UserError(
                f"`task_name` must be {MULTIPLE_CHOICE}, also for custom questions. Received: "
                f"{settings.task_name!r}"
            )
        return MULTIPLE_CHOICE

    def __init__(self, context: RunContext[MultipleChoiceSettings]) -> None:
        super().__init__(context)
        settings = context.settings
        self.task = StoredTask(
            context.task_name,
            max_seq_length=settings.max_seq_length,
            settings={"max_qa_length": settings.max_qa_length},
        )
        self.choose_metric("eval_accuracy", ["eval_loss"])
        self.evaluates = settings.do_eval
        self.examples = self.for_splits(self._read)

    def _read(self, split: str) -> list[ChoiceExample]:
        settings, (action, flag) = self.settings, self.SPLITS[split]
        if path := getattr(settings, flag):
            given = self.context.examples.get(path)
            return [*given] if given else read_choices(path, split=split)
        if not settings.data_dir:
            default = " (the default)" if getattr(MultipleChoiceSettings, action) else ""
            raise UserError(f"`{action}`{default} needs `data_dir`, or `{flag}` for custom data.")
        levels = chosen_levels(settings.high_only, settings.middle_only)
        return read_race(settings.data_dir, split, levels=levels)

    def make_task(self) -> MultipleChoiceTask:
        """See `Job`."""
        settings = self.settings
        lengths = {name: getattr(settings, name) for name in ("max_seq_length", "max_qa_length")}
        self.features = {}
        for split, examples in self.examples.items():
            limit = MANY_TRUNCATED if split == TRAIN else 1.0
            source = getattr(settings, f"{split}_choices") or f"RACE, {split}"
            self.features[split] = choice_features(
                examples, self.tokenizer, **lengths, warn_above=limit, source=source
            )
        return MultipleChoiceTask(
            self.config, self.features.get(TRAIN), dropout_prob=settings.dropout_prob, **self.inputs
        )

    def _evaluated(
        self, split: str, batch_size: int, description: str
    ) -> tuple[np.ndarray, dict[str, float]]:
        """Returns the `option_logits` of a split, and its scores, empty without labels."""
        features = self.features[split]
        predictor = self.predictor(batch_size * features.num_choices)
        logits = option_logits(features, predictor, description)
        is_scored = features.label_ids is not None
        return logits, rounded_scores(features, logits, batch_size) if is_scored else {}

    def evaluate(self) -> dict[str, float]:
        """See `Job`."""
        logits, results = self._evaluated(DEV, self.settings.eval_batch_size, "evaluating")
        self.evaluated = chosen_letters(self.features[DEV], logits)
        return results

    def predict(self, step: int) -> None:
        """See `Job`; also writes the scores of the test set if it has labels."""
        if not self.settings.do_predict:
            return
        features, output_dir = self.features[TEST], self.settings.output_dir
        logits, results = self._evaluated(TEST, self.settings.predict_batch_size, "predicting")
        ids, counts = features.example_ids, features.choice_counts
        write_choice_predictions(output_dir, ids, counts, logits)
        logging.info("Chose options of %d questions", len(features))
        if results:
            write_predict_results(output_dir, step, results, self.best_checkpoint().value)
            self.scores_of_answers = results
            for name, value in sorted(results.items()):
                logging.info("%s = %s", name, value)

    @staticmethod
    def export_model(
        model: Any, task: StoredTask, tokenizer: Tokenizer, export_dir: str, *, texts: bool
    ) -> str:
        """See `Job`."""
        if not texts:
            return export_choice(model, export_dir)
        length = task.max_seq_length
        assert length is not None
        return export_text_choice(model, tokenizer, export_dir, length, stored_qa_length(task))


def chosen_letters(features: ChoiceFeatures, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the letters of the chosen options, and the indices of the correct options."""
    assert features.label_ids is not None
    return np.array(list(LETTERS))[logits.argmax(axis=1)], features.label_ids


def rounded_scores(
    features: ChoiceFeatures, logits: np.ndarray, batch_size: int
) -> dict[str, float]:
    """Returns the `scores` of questions with labels, rounded to float32."""
    assert features.label_ids is not None
    return metrics.rounded(scores(logits, features.label_ids, features.levels, batch_size))


def scores(
    logits: np.ndarray, label_ids: np.ndarray, levels: Sequence[str], batch_size: int
) -> dict[str, float]:
    """Returns the scores of `metrics.scores`, and `eval_accuracy_<level>` for each level."""
    results = metrics.scores(logits, label_ids, (), CLASSES, batch_size)
    is_right = logits.argmax(axis=1) == label_ids
    names = np.array(levels)
    for level in sorted(set(levels) - {""}):
        results[f"eval_accuracy_{level}"] = float(is_right[names == level].mean(dtype=np.float64))
    return results


def write_choice_predictions(
    output_dir: str, example_ids: Sequence[str], choice_counts: np.ndarray, logits: np.ndarray
) -> None:
    """Writes `predictions.tsv`: a header, and one row per question; see `option_logits`.

    Columns: `id`, see `label_cell`; `question`, the number of the question among the questions with
    this id, from 0; `prediction`, a letter; and one column per letter with the probability, empty
    for missing options.
    """
    letters = LETTERS[: logits.shape[1]]
    rows = [["id", "question", "prediction", *letters]]
    seen: Counter[str] = Counter()
    columns = logits.argmax(axis=1), metrics.probabilities(logits, CLASSES)
    for name, count, chosen, values in zip(example_ids, choice_counts, *columns, strict=True):
        cells = [str(value) for value in values[:count]] + [""] * (len(letters) - count)
        rows.append([label_cell(name), str(seen[name]), letters[chosen], *cells])
        seen[name] += 1
    text = "".join("\t".join(row) + "\n" for row in rows)
    write_file(os.path.join(output_dir, "predictions.tsv"), text)


def write_predict_results(
    output_dir: str, step: int, results: Mapping[str, float], best: float
) -> None:
    """Writes `predict_results.txt`: scores of the test set, and the best score of evaluations."""
    lines = ["***** Predict results *****", *original_result_lines(step, results, best)]
    text = "".join(f"{line}\n" for line in lines)
    write_file(os.path.join(output_dir, "predict_results.txt"), text)


def run_multiple_choice(
    settings: MultipleChoiceSettings, on_log: Callable[[Mapping[str, Any]], None] | None = None
) -> JobResult:
    """Trains, evaluates and applies a multiple-choice model, as `run_race.py` does.

    For `settings` see `MultipleChoiceSettings`. For `on_log` and the result see
    `run_classification`.
    """
    return flow.run(MultipleChoiceJob, settings, on_log)
