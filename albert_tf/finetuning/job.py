"""The interface of a fine-tuning job: its settings, its context and its own steps."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

import keras
import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.model_directory import ModelDirectory
from albert_tf.checkpoints.trained_task import TrainedTask
from albert_tf.checkpoints.training_directory import TrainingDirectory
from albert_tf.config import FREEZES, FineTuningOptimizerConfig, OptimizerConfig
from albert_tf.data.errors import UserError
from albert_tf.data.files import check_file, real_name
from albert_tf.data.sequences import PADDINGS
from albert_tf.finetuning.predictor import Predictor
from albert_tf.finetuning.recipes import RECIPES
from albert_tf.finetuning.task import InMemoryTask
from albert_tf.tokenization.base import Tokenizer
from albert_tf.training.distribution import is_chief, is_tpu
from albert_tf.training.evaluation import BestCheckpoint, EvaluationResults
from albert_tf.training.settings import TrainingSettings, limited, unless_given


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningSettings(TrainingSettings):
    """Settings of all fine-tuning commands; see `TrainingSettings`."""

    do_train: bool = False
    do_predict: bool = False
    recipe: str = limited("none", choices=RECIPES)
    checkpoint: str | None = None
    predict_batch_size: int = limited(8, at_least=1)
    export_dir: str | None = None
    export_text_model: bool = False
    early_stopping: int | None = limited(None, at_least=1)
    freeze: str | None = limited(None, choices=FREEZES)
    padding: str = limited("longest", choices=PADDINGS)
    max_seq_length: int = unless_given(512)
    albert_hub_module_handle: str | None = None
    do_lower_case: bool | None = unless_given(None)
    encoder_dropout_prob: float | None = unless_given(None)
    train_batch_size: int = unless_given(32)
    save_checkpoints_steps: int = unless_given(1000)
    optimizer: str = unless_given(FineTuningOptimizerConfig.optimizer)
    learning_rate: float = unless_given(FineTuningOptimizerConfig.learning_rate)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepSettings(FineTuningSettings):
    """Settings of commands with a development set.

    Steps are given by `train_step` and `warmup_step`, or by `num_train_epochs` and
    `warmup_proportion`, the share of steps for the warm-up.
    """

    do_eval: bool = False
    eval_batch_size: int = limited(8, at_least=1)
    train_step: int = unless_given(FineTuningOptimizerConfig.num_train_steps)
    warmup_step: int = unless_given(FineTuningOptimizerConfig.num_warmup_steps)
    num_train_epochs: float | None = None
    warmup_proportion: float = 0.1


S = TypeVar("S", bound=FineTuningSettings)


@dataclasses.dataclass(frozen=True)
class RunContext(Generic[S]):
    """Everything that a run resolves from its settings; created once by `flow.prepare`.

    Attributes:
        settings: the settings, with gaps filled by the trained model, the recipe or the defaults.
        strategy: the replicas.
        tokenizer: the tokenizer of the model.
        checkpoint: the weights to start from. `None` for random weights.
        output: `output_dir` as a directory of checkpoints.
        model_directory: `output_dir` as the directory of the model, with its dropout rates.
        task_name: the task in `labels.json` and in recipes.
        trained: the task that the model was trained for. `None` if it is unknown.
        trained_in: the directory that contains `trained`.
    """

    settings: S
    strategy: tf.distribute.Strategy
    tokenizer: Tokenizer
    checkpoint: str | None
    output: TrainingDirectory
    model_directory: ModelDirectory
    task_name: str
    trained: TrainedTask | None = None
    trained_in: str = ""

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the shared files."""
        return is_chief(self.strategy)

    @property
    def is_tpu(self) -> bool:
        """Whether the replicas are cores of a TPU."""
        return is_tpu(self.strategy)

    @property
    def is_own(self) -> bool:
        """Whether `output_dir` belongs to this task, so that its best checkpoint may change."""
        is_elsewhere = self.trained_in != self.output.path
        return self.trained is None or is_elsewhere or self.trained.name == self.task_name


class Job(ABC, Generic[S]):
    """The steps of one kind of fine-tuning, in the order in which `flow.run` calls them.

    The constructor reads and checks the data, and sets `task`, `best_metric` and `evaluates`.

    Attributes:
        context: the resolved settings.
        config: configuration of the model.
        task: what is predicted.
        best_metric: the score that the best checkpoint maximizes.
        evaluates: whether checkpoints are scored.
        outputs: outputs of the model that are evaluated and applied.
        model: the model to evaluate and apply. Set by `use`.
        results: takes the scores. Set before checkpoints are evaluated.
        scores_of_answers: set by `apply` if the correct answers are known.
    """

    ACTIONS: ClassVar[tuple[str, ...]] = ("do_train", "do_eval", "do_predict", "export_dir")
    DROPOUT: ClassVar[str] = "dropout_prob"  # setting with the rate of the head
    EVALUATING: ClassVar[str] = "`do_eval`"  # what makes a training evaluate its checkpoints
    EXPORT_FOLDER: ClassVar[str] = ""  # subdirectory of --export_dir for models of token ids
    RESULTS: ClassVar[type[EvaluationResults]] = EvaluationResults

    task: TrainedTask
    best_metric: str
    evaluates: bool
    outputs: Sequence[str] = ("logits",)
    model: keras.Model
    results: EvaluationResults
    scores_of_answers: Mapping[str, float] = MappingProxyType({})

    @classmethod
    def check(cls, settings: S) -> None:
        """Raises ValueError if settings are wrong for every model and all data."""
        for name in (cls.DROPOUT, "encoder_dropout_prob"):
            rate = getattr(settings, name)
            if rate is not None and not 0 <= rate < 1:
                raise UserError(f"`{name}` must be a rate in [0, 1). Received: {rate}")
        if isinstance(settings, StepSettings):
            _check_steps(settings)

    @classmethod
    @abstractmethod
    def task_name(cls, settings: S, trained: TrainedTask | None) -> str:
        """Returns the name of the task in `labels.json` and in recipes."""

    @classmethod
    def trained_settings(cls, settings: S, trained: TrainedTask) -> dict[str, Any]:
        """Returns the settings of the trained model, which replace settings that are not given."""
        return {**trained.settings, "max_seq_length": trained.max_seq_length}

    def __init__(self, context: RunContext[S]) -> None:
        self.context = context
        self.settings = context.settings
        self.config = context.model_directory.config
        self.tokenizer = context.tokenizer
        self._predictors: dict[int, Predictor] = {}  # by batch size; each traces the model once

    @property
    def inputs(self) -> dict[str, Any]:
        """Arguments of `InMemoryTask` that are the same for all jobs."""
        return {
            "max_seq_length": self.settings.max_seq_length,
            "padding": self.settings.padding,
            "use_one_hot_embeddings": self.context.is_tpu,
        }

    @abstractmethod
    def make_task(self) -> InMemoryTask:
        """Creates the features of all data and returns the task to train."""

    def optimizer_config(self, num_examples: int) -> OptimizerConfig:
        """Returns the update rule, the learning rate and the steps for a number of examples."""
        settings: Any = self.settings
        steps, warmup_steps = settings.train_step, settings.warmup_step
        if settings.num_train_epochs is not None:
            steps_per_epoch = -(-num_examples // settings.train_batch_size)
            steps = max(1, round(steps_per_epoch * settings.num_train_epochs))
            warmup_steps = int(steps * settings.warmup_proportion)
            logging.info("train_step=%d warmup_step=%d", steps, warmup_steps)
        return settings.optimizer_config(FineTuningOptimizerConfig, steps, warmup_steps)

    def use(self, model: keras.Model) -> None:
        """Takes the model before weights are read and anything is written."""
        self.model = model

    @abstractmethod
    def evaluate(self) -> Mapping[str, float]:
        """Returns the scores of the model with its current weights."""

    def record(
        self, step: int, results: Mapping[str, float], best: BestCheckpoint, *, keeps_best: bool
    ) -> None:
        """Writes the results of a checkpoint and, if `keeps_best`, offers it as the best one."""
        self.results.append(step, results, best.value)
        if keeps_best:
            best.offer(step, results, self.model)

    @abstractmethod
    def apply(self, step: int) -> None:
        """Predicts and exports with the model, whose weights are those of the given step."""

    def predictor(self, batch_size: int) -> Predictor:
        """Returns the predictor for batches of `batch_size` sequences of the maximum length."""
        if batch_size not in self._predictors:
            settings = self.settings
            self._predictors[batch_size] = Predictor(
                self.model,
                self.context.strategy,
                outputs=self.outputs,
                max_seq_length=settings.max_seq_length,
                tokens_per_batch=batch_size * settings.max_seq_length,
                padding=settings.padding,
                jit_compile=settings.xla,
            )
        return self._predictors[batch_size]


def _check_steps(settings: StepSettings) -> None:
    """Raises ValueError unless the number of steps is given in one way."""
    epochs, proportion = settings.num_train_epochs, settings.warmup_proportion
    if not 0 <= proportion <= 1:
        raise UserError(f"`warmup_proportion` must be in [0, 1]. Received: {proportion}")
    if epochs is None:
        return
    if not 0 < epochs < math.inf:
        raise UserError(f"`num_train_epochs` must be above 0. Received: {epochs}")
    for name in ("train_step", "warmup_step"):
        if (steps := getattr(settings, name)) is not None:
            raise UserError(
                f"`num_train_epochs` and `{name}` exclude each other. Pass one of them. Received: "
                f"{epochs} and {steps}"
            )


def check_predictions(settings: Any, name: str) -> None:
    """Checks that `predict_output_file` can be written and is not the file to predict.

    `name` is the setting that contains the file to predict.

    Raises:
        ValueError: the file cannot be written, there is no file to predict, or both are one file.
    """
    output, path = settings.predict_output_file, getattr(settings, name)
    if not output:
        return
    check_file(output)
    if not path:
        raise UserError(f"`predict_output_file`={output} needs `{name}`, the file to predict.")
    if real_name(output) == real_name(path):
        raise UserError(
            f"`predict_output_file` would overwrite `{name}`: {path}. Use another name."
        )
