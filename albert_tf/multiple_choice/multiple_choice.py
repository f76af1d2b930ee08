"""Python interface for multiple choice: chooses an option for each question."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from albert_tf.checkpoints.loading import build_kind, check_model, open_with_tokenizer
from albert_tf.checkpoints.stored_task import MULTIPLE_CHOICE, StoredTask
from albert_tf.data.arguments import as_list, as_texts, check_same_length, check_whole_number
from albert_tf.data.errors import UserError
from albert_tf.finetuning import metrics
from albert_tf.finetuning.predictor import Predictor, new_predictor
from albert_tf.labels import Labels
from albert_tf.modeling.models import AlbertForMultipleChoice
from albert_tf.multiple_choice.data import LETTERS, ChoiceExample
from albert_tf.multiple_choice.task import ChoiceFeatures, check_lengths, choice_features
from albert_tf.tokenization.base import Tokenizer

CLASSES = Labels(tuple(LETTERS))
_LONGEST_ENDING = 128  # tokens
# Assumed for models without `labels.json`. Their heads have the same variables as regressions, so
# the task cannot be detected.
_UNKNOWN = StoredTask(MULTIPLE_CHOICE)


class ChosenOption(NamedTuple):
    """The option that a model chooses for a question.

    Attributes:
        index: index of the most probable option, from 0.
        option: text of the option.
        probabilities: probabilities of all options, in order.
    """

    index: int  # type: ignore[assignment]  # replaces the method of tuples
    option: str
    probabilities: list[float]


class MultipleChoice:
    """Chooses one of several options for each question about a context.

    `run_race --do_predict` predicts the same probabilities.

    Args:
        model: a multiple-choice model.
        tokenizer: the tokenizer. Default: `model.tokenizer`.
        max_seq_length: maximum number of tokens of a sequence. The end of a longer context is
            truncated. Default: the value used in training; otherwise the smaller of 512 and the
            model's number of positions.
        max_qa_length: maximum number of tokens of a question with an option. The start of a longer
            text is truncated. Default: the value used in training, otherwise 128.
        batch_size: number of questions per batch if their sequences have `max_seq_length` tokens;
            batches of shorter sequences are larger.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: the tokenizer does not match the model, or a number is out of range.
    """

    def __init__(
        self,
        model: AlbertForMultipleChoice,
        tokenizer: Tokenizer | None = None,
        *,
        max_seq_length: int | None = None,
        max_qa_length: int | None = None,
        batch_size: int = 8,
    ) -> None:
        self.tokenizer = check_model(model, AlbertForMultipleChoice, tokenizer)
        task = model.trained_task or _UNKNOWN
        if max_qa_length is None:
            max_qa_length = stored_qa_length(task)
        self._predictor = new_predictor(
            model, model.config, task, max_seq_length=max_seq_length, batch_size=batch_size
        )
        check_whole_number("max_qa_length", max_qa_length)
        check_lengths(self._predictor.max_seq_length, max_qa_length)
        self.max_qa_length = max_qa_length
        self.batch_size = batch_size

    @classmethod
    def load(
        cls,
        path: str | os.PathLike,
        *,
        max_seq_length: int | None = None,
        max_qa_length: int | None = None,
        batch_size: int = 8,
        precision: str = "float32",
    ) -> MultipleChoice:
        """Loads a fine-tuned model.

        `path` is a model of any format, see `albert_tf.load`. In a training directory, the best
        checkpoint is used, otherwise the newest. For `max_seq_length`, `max_qa_length` and
        `batch_size` see `MultipleChoice`, for `precision` see `TextClassifier.load`.

        Raises:
            TypeError: an argument has the wrong type.
            ValueError: there is no model, it has no tokenizer or is not a multiple-choice model, or
                a number is out of range.
        """
        stored = open_with_tokenizer(path, precision=precision)
        model = build_kind(stored, AlbertForMultipleChoice, "a multiple-choice model", _UNKNOWN)
        return cls(
            model, max_seq_length=max_seq_length, max_qa_length=max_qa_length, batch_size=batch_size
        )

    def __call__(
        self, questions: Iterable[str], *, contexts: Iterable[str], options: Iterable[Iterable[str]]
    ) -> list[ChosenOption]:
        """Chooses an option for each question.

        Args:
            questions: N questions. An option replaces each "_" of its question. If there is none,
                the option is appended to the question.
            contexts: N texts that the questions are about.
            options: N lists of 2 to 26 texts. Their lengths may differ.

        Returns:
            N choices in the order of the questions.

        Raises:
            TypeError: an argument is not a list of texts, or of lists of texts.
            ValueError: there is no question, the lists differ in length, a question has too few or
                too many options, or the model's output is not finite.
        """
        texts, asked = as_texts("contexts", contexts), as_texts("questions", questions)
        given = []
        for index, values in enumerate(as_list("options", options, "lists of texts")):
            given.append(tuple(as_texts(f"options[{index}]", values)))
            if not 2 <= len(given[-1]) <= len(LETTERS):
                raise UserError(
                    f"options[{index}] must have 2 to {len(LETTERS)} texts. Received: "
                    f"{len(given[-1])}"
                )
        check_same_length("questions", asked, "contexts", texts)
        check_same_length("options", given, "contexts", texts)
        length = self._predictor.max_seq_length
        rows = zip(texts, asked, given, strict=True)
        examples = [ChoiceExample(str(index), *row) for index, row in enumerate(rows)]
        features = choice_features(
            examples, self.tokenizer, max_seq_length=length, max_qa_length=self.max_qa_length
        )
        self._predictor.tokens_per_batch = self.batch_size * features.num_choices * length
        logits = option_logits(features, self._predictor, "choosing")
        shares = metrics.probabilities(logits, CLASSES).tolist()
        chosen_ids = logits.argmax(axis=1).tolist()
        return [
            ChosenOption(chosen, values[chosen], row[: len(values)])
            for chosen, values, row in zip(chosen_ids, given, shares, strict=True)
        ]


def stored_qa_length(task: StoredTask) -> int:
    """Returns the `max_qa_length` used in training, otherwise the default."""
    return int(task.settings.get("max_qa_length", _LONGEST_ENDING))


def option_logits(features: ChoiceFeatures, predictor: Predictor, description: str) -> np.ndarray:
    """Returns the scores of the options of N questions, float32 [N, C]; -inf if missing."""
    logits = predictor.predict(features.sequences, description)["logits"]
    mask = features.choice_mask
    return np.where(mask, logits.reshape(mask.shape), -np.inf)
