"""What `run_race` does: trains, evaluates, predicts and exports as its settings say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from absl import logging

from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.trained_task import MULTIPLE_CHOICE, TrainedTask
from albert_tf.checkpoints.training_directory import TrainingDirectory
from albert_tf.config import AlbertConfig
from albert_tf.data.text_examples import DEV, TEST, TRAIN
from albert_tf.finetuning import flow
from albert_tf.finetuning.setup import StepSettings
from albert_tf.multiple_choice.data import ChoiceExample, read_choices
from albert_tf.multiple_choice.export import export_choice, export_text_choice
from albert_tf.multiple_choice.features import choice_features
from albert_tf.multiple_choice.files import write_choice_predictions, write_predict_results
from albert_tf.multiple_choice.metrics import predictions, probabilities, scores
from albert_tf.multiple_choice.race import chosen_levels, read_race
from albert_tf.multiple_choice.task import MultipleChoiceTask
from albert_tf.training.evaluation import BestCheckpoint
from albert_tf.training.settings import unless_given

# What wants each split.
_ACTIONS = {TRAIN: "do_train", DEV: "do_eval", TEST: "do_predict"}


@dataclass(frozen=True, kw_only=True)
class MultipleChoiceSettings(StepSettings):
    """Settings of `run_race`. Each is the flag of its name."""

    task_name: str = MULTIPLE_CHOICE
    do_train: bool = True
    do_eval: bool = True
    data_dir: str | None = None
    high_only: bool = False
    middle_only: bool = False
    train_choices: str | None = None
    dev_choices: str | None = None
    test_choices: str | None = None
    max_qa_length: int = unless_given(128)
    dropout_prob: float = unless_given(0.1)
    save_checkpoints_steps: int = unless_given(100)
    learning_rate: float = unless_given(1e-5)
    train_step: int = unless_given(12000)
    warmup_step: int = unless_given(1000)


class MultipleChoiceJob(flow.Job[MultipleChoiceSettings]):
    """Chooses one of several options; see `Job`.

    Attributes:
        examples: of the splits that are trained on, evaluated or predicted.
        features: their features.
    """

    best_metric = "eval_accuracy"

    @classmethod
    def task_name(cls, settings: MultipleChoiceSettings, trained: TrainedTask | None) -> str:
        """See `Job`."""
        if settings.task_name.lower() != MULTIPLE_CHOICE:
            raise ValueError(
                f"--task_name must be {MULTIPLE_CHOICE}, with questions of your own "
                f"(--train_choices and the like) as well. Received: {settings.task_name!r}"
            )
        return MULTIPLE_CHOICE

    def __init__(
        self,
        settings: MultipleChoiceSettings,
        name: str,
        trained: TrainedTask | None,
        source: ModelSource,
    ) -> None:
        super().__init__(settings, name, trained, source)
        self.task = TrainedTask(
            name,
            max_seq_length=settings.max_seq_length,
            settings={"max_qa_length": settings.max_qa_length},
        )
        self.evaluates = settings.do_eval
        self.examples = {
            split: self._read(split)
            for split, action in _ACTIONS.items()
            if getattr(settings, action)
        }

    def _read(self, split: str) -> list[ChoiceExample]:
        """Reads a split, of one's own if it is given, else of RACE."""
        settings, flag, action = self.settings, f"{split}_choices", _ACTIONS[split]
        if path := getattr(settings, flag):
            return read_choices(path, split=split, flag=f"--{flag}")
        if not settings.data_dir:
            is_default = getattr(MultipleChoiceSettings, action)
            default = f" (set unless --no{action} is given)" if is_default else ""
            raise ValueError(
                f"--{action}{default} needs --data_dir, or --{flag} for data of your own."
            )
        levels = chosen_levels(settings.high_only, settings.middle_only)
        return read_race(settings.data_dir, split, levels=levels)

    def make_task(
        self, config: AlbertConfig, *, use_one_hot_embeddings: bool
    ) -> MultipleChoiceTask:
        """See `Job`."""
        settings = self.settings
        self.features = {
            split: choice_features(
                examples,
                self.tokenizer,
                max_seq_length=settings.max_seq_length,
                max_qa_length=settings.max_qa_length,
            )
            for split, examples in self.examples.items()
        }
        return MultipleChoiceTask(
            config,
            self.features.get(TRAIN),
            max_seq_length=settings.max_seq_length,
            dropout_prob=settings.dropout_prob,
            padding=settings.padding,
            use_one_hot_embeddings=use_one_hot_embeddings,
        )

    def logits(self, split: str, batch_size: int, description: str) -> np.ndarray:
        """Returns the scores of the options of N questions, float32 [N, C].

        Args:
            split: whose questions.
            batch_size: questions of a batch if all sequences were of the longest length.
            description: what the progress bar says.
        """
        features = self.features[split]
        predictor = self.predictor(batch_size * features.num_choices)
        logits = predictor.predict(features.sequences, description)["logits"]
        return logits.reshape(len(features), features.num_choices)

    def scores(self, split: str, logits: np.ndarray, batch_size: int) -> dict[str, float]:
        """Scores a labelled split, in the precision of a float32.

        Args:
            split: with labels.
            logits: float32 [N, C].
            batch_size: see `multiple_choice.metrics.scores`.
        """
        features = self.features[split]
        assert features.label_ids is not None, "questions of train and dev have labels"
        results = scores(
            logits, features.choice_mask, features.label_ids, features.levels, batch_size
        )
        return {name: float(np.float32(value)) for name, value in results.items()}

    def evaluate(self) -> dict[str, float]:
        """See `Job`."""
        batch_size = self.settings.eval_batch_size
        return self.scores(DEV, self.logits(DEV, batch_size, "evaluating"), batch_size)

    def apply(self, step: int) -> None:
        """See `Job`."""
        settings = self.settings
        if settings.do_predict:
            self.predict(step)
        if settings.export_dir and settings.export_text_model:
            export_text_choice(
                self.model,
                self.tokenizer,
                settings.export_dir,
                settings.max_seq_length,
                settings.max_qa_length,
            )
        if settings.export_dir:
            export_choice(self.model, settings.export_dir)

    def predict(self, step: int) -> None:
        """Writes the options chosen in the test set, and its scores if it has labels.

        Args:
            step: training step of the model.
        """
        features, output_dir = self.features[TEST], self.settings.output_dir
        batch_size = self.settings.predict_batch_size
        logits = self.logits(TEST, batch_size, "predicting")
        write_choice_predictions(
            output_dir,
            features.example_ids,
            probabilities(logits, features.choice_mask),
            predictions(logits, features.choice_mask),
            features.choice_counts,
        )
        logging.info("Chose options of %d questions", len(features))
        if features.label_ids is not None:
            results = self.scores(TEST, logits, batch_size)
            best = BestCheckpoint(TrainingDirectory(output_dir), self.best_metric)
            write_predict_results(output_dir, step, results, best.value)
            for name, value in sorted(results.items()):
                logging.info("%s = %s", name, value)


def run(settings: MultipleChoiceSettings) -> None:
    """Does what the settings say; see `flow.run`."""
    flow.run(MultipleChoiceJob, settings)
