"""The interface of fine-tuning jobs: settings, context, and the steps that differ between jobs."""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

import keras
import numpy as np
import tensorflow as tf

from albert_tf.checkpoints.facts import Meeting, compare
from albert_tf.checkpoints.model_directory import ModelDirectory
from albert_tf.checkpoints.stored_heads import CLASSIFIER
from albert_tf.checkpoints.stored_model import StoredModel
from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.data.errors import UserError
from albert_tf.data.files import check_file, real_name
from albert_tf.data.log_file import write_log_to
from albert_tf.data.pictures import write_confusion_matrix
from albert_tf.data.splits import DEV, TEST, TRAIN
from albert_tf.finetuning.objective import InMemoryTask, data_digest
from albert_tf.finetuning.predictor import Predictor
from albert_tf.finetuning.recipes import mini_steps
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.labels import label_cell
from albert_tf.modeling.models import EncoderAndHead
from albert_tf.tokenization.base import Tokenizer
from albert_tf.training.evaluation import BestCheckpoint, EvaluationResults
from albert_tf.training.run import Run
from albert_tf.training.settings import OptimizerConfig
from albert_tf.training.strategies import is_tpu
from albert_tf.training.trainer import Trainer
from albert_tf.training.training_directory import TrainingDirectory

S = TypeVar("S", bound=FineTuningSettings)
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class InMemory:
    """A model to start from, a task and its examples, which a job uses instead of files.

    The settings contain the keys of `examples` as the names of files.
    """

    start: StoredModel  # without a head that is not trained, which the job initializes
    task: StoredTask
    examples: Mapping[str, Sequence[Any]]


@dataclasses.dataclass(frozen=True)
class RunContext(Generic[S]):
    """Everything that a run resolves from its settings; created once by `prepare`."""

    settings: S  # unset values come from the trained model, the recipe or the defaults
    strategy: tf.distribute.Strategy
    tokenizer: Tokenizer
    initial: StoredModel | None  # the model to start from; `None` for random weights
    output: TrainingDirectory  # the checkpoints in `output_dir`
    model_directory: ModelDirectory  # the other files of the model in `output_dir`
    task_name: str  # in `labels.json` and in recipes
    trained: StoredTask | None = None  # the task of the trained model; `None` if unknown
    trained_in: str = ""  # the directory of the trained model
    chooses_steps: bool = False  # whether the number of examples determines the number of steps
    given_warmup: int | None = None  # `warmup_step` as given, before defaults are filled in
    # Examples in memory, by the names that the settings contain instead of files
    examples: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)

    @property
    def is_from_this_run(self) -> bool:
        """Whether `output_dir` belongs to this task. Only then may its best checkpoint change."""
        is_elsewhere = self.trained_in != self.output.path
        return self.trained is None or is_elsewhere or self.trained.name == self.task_name


class Job(Run, Generic[S]):
    """The steps of one kind of fine-tuning, in the order in which `flow.run` calls them.

    The constructor reads and checks the data, sets `task` and `evaluates`, and calls
    `choose_metric`.
    """

    MODELS: ClassVar[tuple[type[EncoderAndHead], ...]]  # classes of the models
    SETTINGS: ClassVar[type[FineTuningSettings]]
    ACTIONS: ClassVar[tuple[str, ...]] = ("do_train", "do_eval", "do_predict", "export_dir")
    # The settings of the action and of the file of each split
    SPLITS: ClassVar[Mapping[str, tuple[str, str]]] = {
        TRAIN: ("do_train", "train_file"),
        DEV: ("do_eval", "dev_file"),
        TEST: ("do_predict", "test_file"),
    }
    DROPOUT: ClassVar[str] = "dropout_prob"  # setting with the dropout rate of the head
    TASK: ClassVar[str] = ""  # name of the task, if the settings do not contain it
    EVALUATING: ClassVar[str] = "`do_eval`"  # settings that enable evaluations during training
    LONGEST: ClassVar[int] = 512  # length of texts if no length is known
    EXPORT_FOLDER: ClassVar[str] = ""  # subdirectory of `export_dir` for models that take token ids
    RESULTS: ClassVar[type[EvaluationResults]] = EvaluationResults

    task: StoredTask
    best_metric: str  # score that selects the best checkpoint; set by `choose_metric`
    has_usual_metric = True  # whether `best_metric` is the default of the task
    features: Mapping[Any, Any]  # by split; set by `make_task`
    outputs: Sequence[str] = ("logits",)  # outputs of the model that are needed
    results: EvaluationResults  # set before checkpoints are evaluated
    scores_of_answers: Mapping[str, float] = MappingProxyType({})  # set by `apply` if known
    arrays: Mapping[str, np.ndarray] = MappingProxyType({})  # printed in `eval_results.txt`
    evaluated: tuple[Any, Any] = (), ()  # predictions and true values; set by `evaluate`
    confusions: np.ndarray | None = None  # set by `evaluate` if the task has exclusive classes

    @classmethod
    def check(cls, settings: S) -> None:
        """Raises ValueError if settings are invalid regardless of the model and the data."""
        epochs = settings.num_train_epochs
        if epochs is None:
            return
        for name in ("train_step", "warmup_step"):
            if (steps := getattr(settings, name, None)) is not None:
                raise UserError(
                    f"Pass `num_train_epochs` or `{name}`, not both. Received: {epochs} and {steps}"
                )

    @classmethod
    @abstractmethod
    def task_name(cls, settings: S, trained: StoredTask | None) -> str:
        """Returns the name of the task in `labels.json` and in recipes."""

    @classmethod
    def trained_settings(cls, settings: S, trained: StoredTask) -> dict[str, Any]:
        """Returns settings of the trained model, which are used for settings that are not given."""
        return {**trained.settings, "max_seq_length": trained.max_seq_length}

    def __init__(self, context: RunContext[S]) -> None:
        self.context = context
        self.settings = context.settings
        self.config = context.model_directory.config
        self.tokenizer = context.tokenizer
        self._predictors: dict[int, Predictor] = {}  # by batch size; each traces the model once

    def for_splits(self, read: Callable[[str], T]) -> dict[str, T]:
        """Returns the results of `read` for the splits that the settings select."""
        splits = {
            split: getattr(self.settings, action) for split, (action, _) in self.SPLITS.items()
        }
        return {split: read(split) for split, is_used in splits.items() if is_used}

    def choose_metric(self, default: str, names: Iterable[str]) -> None:
        """Sets `best_metric` to the setting, which must be in `names`, or to the default."""
        names, chosen = sorted({default, *names}), self.settings.best_metric or default
        if chosen not in names:
            raise UserError(
                f"`best_metric` must be one of {', '.join(names)}. Received: {chosen!r}"
            )
        self.best_metric, self.has_usual_metric = chosen, chosen == default

    def best_checkpoint(self) -> BestCheckpoint:
        """See `Run`."""
        is_chosen = not self.has_usual_metric
        return BestCheckpoint(self.context.output, self.best_metric, is_chosen=is_chosen)

    @property
    def inputs(self) -> dict[str, Any]:
        """Common arguments of `InMemoryTask`."""
        return {
            "max_seq_length": self.settings.max_seq_length,
            "padding": self.settings.padding,
            "use_one_hot_embeddings": is_tpu(self.context.strategy),
        }

    @abstractmethod
    def make_task(self) -> InMemoryTask:
        """Computes the features of all data and returns the training task."""

    def optimizer_config(self, num_examples: int) -> OptimizerConfig:
        """Returns the optimizer settings for a number of training examples."""
        settings: Any = self.settings
        if self.context.chooses_steps:
            name = self.context.task_name
            steps = mini_steps(name, num_examples, settings.train_batch_size)
        elif settings.num_train_epochs is None:
            return settings.optimizer_config(settings.train_step, settings.warmup_step)
        else:
            steps_per_epoch = -(-num_examples // settings.train_batch_size)
            steps = max(1, round(steps_per_epoch * settings.num_train_epochs))
        warmup_steps = self.context.given_warmup
        if warmup_steps is None:
            warmup_steps = int(steps * settings.warmup_proportion)
        return settings.optimizer_config(steps, warmup_steps)

    def use(self, model: keras.Model) -> None:
        """Sets the model, before its weights are loaded and the first file is written."""
        self.model = model

    def initialize(self, trainer: Trainer) -> None:
        """See `Run`."""
        settings, initial = self.settings, self.context.initial
        trainer.initialize(
            initial.weights if initial else None,
            init_from_group0=settings.init_from_group0,
            allow_partial=settings.allow_partial_checkpoint,
            skip=fresh_head(self.task, initial) if initial else None,
        )

    def write_output(self, step: int | None = None) -> None:
        """See `Run`; also writes the task. Without training, existing files are kept."""
        directory, trains = self.context.model_directory, self.settings.do_train
        if trains:
            directory.write()
        else:
            directory.write_if_absent()
        write_log_to(directory.path)
        if trains or StoredTask.read(directory.path) is None:
            self.task.write(directory.path)
        if self.evaluates:
            self.results = self.RESULTS(directory.path, step)

    def run_config(self, trainer: Trainer) -> dict[str, Any]:
        """See `Run`."""
        return {
            "model": trainer.model.config.to_dict(),
            "task": self.task.to_dict(),
            self.DROPOUT: getattr(self.settings, self.DROPOUT),
            "class_weights": getattr(self.settings, "class_weights", None),
        }

    def evaluation_data(self) -> tuple[Any, ...]:
        """Returns everything except the model that determines the scores, for `data_digest`."""
        return self.features[DEV], self.task.labels

    def describe_evaluation(self) -> dict[str, Any]:
        """See `Run`."""
        return {"metric": self.best_metric, "digest": data_digest(*self.evaluation_data())}

    def record(
        self, step: int, results: Mapping[str, float], best: BestCheckpoint, *, keeps_best: bool
    ) -> None:
        """See `Run`; also draws the confusion matrix of the best or last checkpoint."""
        self.results.append(step, {**results, **self.arrays}, best.value)
        is_shown = not keeps_best or best.update_if_better(step, results, self.model)
        if is_shown and self.confusions is not None:
            names = map(label_cell, self.task.labels.names)
            write_confusion_matrix(self.settings.output_dir, self.confusions, names)

    def apply(self, step: int) -> None:
        """Predicts and exports with the model, which has the weights of the given step."""
        self.predict(step)
        if self.settings.export_dir:
            for texts in (True, False) if self.settings.export_text_model else (False,):
                self.export(self.settings.export_dir, texts=texts)

    @abstractmethod
    def predict(self, step: int) -> None:
        """Predicts what the settings select."""

    def export(self, export_dir: str, *, texts: bool) -> None:
        """Writes a SavedModel; see `export_model`."""
        self.export_model(self.model, self.task, self.tokenizer, export_dir, texts=texts)

    @staticmethod
    @abstractmethod
    def export_model(
        model: Any, task: StoredTask, tokenizer: Tokenizer, export_dir: str, *, texts: bool
    ) -> str:
        """Writes a SavedModel that takes token ids or texts; returns its path.

        `model` is of one of the classes `MODELS`. `task` contains a `max_seq_length`.
        """

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


def fresh_head(task: StoredTask, initial: StoredModel) -> dict[str, str]:
    """Returns the variables that must not be loaded, with the reason.

    They belong to a head that was trained for another task, or for numbers of another unit. As in
    the original release, a head of the same shape is loaded if its task is unknown.
    """
    if initial.task is None:
        return {}
    stored = initial.task.named(task.name)
    sources = {initial.checkpoint or initial.path: stored.facts, "this run": task.facts}
    found = compare(sources, Meeting.GIVEN)
    changed = [one.text for one in found if one.name in ("task", "labels", "scale")]
    head = (name for name in (CLASSIFIER, "output_bias") if changed and name in initial.weights)
    return dict.fromkeys(head, "; ".join(changed))


def check_predictions(settings: Any, name: str) -> None:
    """Raises ValueError unless `predict_output_file` can be written.

    `name` is the setting with the input file, which must be another file.
    """
    output, path = settings.predict_output_file, getattr(settings, name)
    if not output:
        return
    check_file(output)
    if not path:
        raise UserError(f"`predict_output_file`={output} needs `{name}`, the file to predict.")
    if real_name(output) == real_name(path):
        raise UserError(f"`predict_output_file` must not be `{name}`. Received: {output!r}")
