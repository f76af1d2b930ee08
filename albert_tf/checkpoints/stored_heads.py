"""The heads of models: detects the head of stored weights, and maps heads to tasks and back."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from albert_tf.checkpoints.facts import Meeting, settle, stated
from albert_tf.checkpoints.stored_task import (
    MULTIPLE_CHOICE,
    SQUAD_TASKS,
    TOKENS,
    UNNAMED,
    StoredTask,
)
from albert_tf.config import AlbertConfig
from albert_tf.labels import Labels, numbered_labels
from albert_tf.modeling import models
from albert_tf.modeling.base import ConfiguredModel
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.original_names import PRETRAINING_HEADS

Shapes = Mapping[str, Sequence[int]]
Arguments = dict[str, Any]
Settings = Callable[[AlbertConfig, Shapes, StoredTask | None], Arguments]

CLASSIFIER = "output_weights"  # of text and token classifiers, and of multiple choice
MASKED_LM_HEAD, SENTENCE_ORDER_HEAD = PRETRAINING_HEADS
# A variable of the head of each SQuAD task.
SPAN_HEADS = {
    SQUAD_TASKS[1]: "cls/squad/output_weights",
    SQUAD_TASKS[2]: "answer_class/dense_1/kernel",
}
_BEAM_SETTINGS = ("start_n_top", "end_n_top")


@dataclasses.dataclass(frozen=True)
class StoredHead:
    """A head, or an encoder without a head."""

    model_class: type[ConfiguredModel]
    tasks: tuple[str, ...] = ()  # task names, if other heads have the same variables
    # Returns arguments of the constructor for the shapes of all weights
    settings: Settings = lambda config, shapes, task: {}
    # Returns the task of a model in memory. `None` if the weights determine the task.
    task_of: Callable[[Any], StoredTask | None] = lambda model: None

    def is_in(self, shapes: Shapes, task: StoredTask | None) -> bool:
        """Returns whether weights contain at least one variable of the head."""
        names = self.model_class.head_weights
        scopes = tuple(name for name in names if name.endswith("/"))
        has_weights = not names or any(name in names or name.startswith(scopes) for name in shapes)
        is_for_task = not self.tasks or (task is not None and task.name in self.tasks)
        return has_weights and is_for_task


def head_in(shapes: Shapes, task: StoredTask | None) -> StoredHead:
    """Returns the head of a stored model, given the shapes of its weights and its task."""
    return next(head for head in HEADS if head.is_in(shapes, task))


def check_head(
    path: str,
    shapes: Shapes,
    task: StoredTask | None,
    meeting: Meeting = Meeting.LOAD,
    advice: str = "",
) -> None:
    """Raises `ValueError` if weights contain only the heads of other tasks or labels.

    Weights without a head of any task are accepted where a model is loaded.
    """
    is_fine_tuned = not {CLASSIFIER, *SPAN_HEADS.values()}.isdisjoint(shapes)
    if task is not None and (is_fine_tuned or meeting is not Meeting.LOAD):
        head = SPAN_HEADS.get(task.name, CLASSIFIER)
        own = heads_in({head: [task.labels.num_outputs]})
        heads = stated("head", {f"the task {task.name}": own, path: heads_in(shapes)})
        settle(heads, meeting, advice=advice)


def head_of(model_class: type[ConfiguredModel]) -> StoredHead:
    """Returns the head of a model class. Unknown classes have no head."""
    return next((head for head in HEADS if issubclass(model_class, head.model_class)), HEADS[-1])


def _label_settings(config: AlbertConfig, shapes: Shapes, task: StoredTask | None) -> Arguments:
    if CLASSIFIER not in shapes:
        return {}
    number = int(shapes[CLASSIFIER][0])
    if task is None or len(task.labels.names) != number:
        return {"num_labels": number, "labels": None}
    several = {"multi_label": True} if task.labels.multi_label else {}
    return {"num_labels": number, "labels": task.labels.names, **several}


def _beam_settings(config: AlbertConfig, shapes: Shapes, task: StoredTask | None) -> Arguments:
    known = task.settings if task else {}
    longest = config.max_position_embeddings
    return {name: min(int(known.get(name, 5)), longest) for name in _BEAM_SETTINGS}


def _pretraining_settings(
    config: AlbertConfig, shapes: Shapes, task: StoredTask | None
) -> Arguments:
    if not any(name.startswith(MASKED_LM_HEAD) for name in shapes):
        return {}
    order = any(name.startswith(SENTENCE_ORDER_HEAD) for name in shapes)
    return {"has_sentence_order_head": order}


def _task_of_texts(model: models.AlbertForClassification) -> StoredTask | None:
    names = model.labels or ()
    if model.multi_label:  # without a task, it would be loaded as a single-label model
        names = names or numbered_labels(model.num_labels)
    elif model.labels is None and model.num_labels > 1:
        return None
    labels = Labels(names, model.multi_label)
    return _loaded_task(model, labels) or StoredTask(UNNAMED, labels, None)


def _task_of_tokens(model: models.AlbertForTokenClassification) -> StoredTask:
    labels = Labels(model.labels or numbered_labels(model.num_labels))
    return _loaded_task(model, labels) or StoredTask(TOKENS, labels, False)


def _loaded_task(model: ConfiguredModel, labels: Labels) -> StoredTask | None:
    """Returns the task with which a model was loaded, or `None` if its labels differ."""
    task: StoredTask | None = model.trained_task
    return task if task is not None and task.labels == labels else None


def _task_of_beams(model: models.AlbertForQuestionAnsweringWithBeamSearch) -> StoredTask:
    task: StoredTask = model.trained_task or StoredTask(SQUAD_TASKS[2])
    beams = {name: getattr(model, name) for name in _BEAM_SETTINGS}
    return StoredTask(
        SQUAD_TASKS[2], max_seq_length=task.max_seq_length, settings={**task.settings, **beams}
    )


# In the order of detection.
HEADS = (
    StoredHead(
        models.AlbertForQuestionAnsweringWithBeamSearch,
        settings=_beam_settings,
        task_of=_task_of_beams,
    ),
    StoredHead(
        models.AlbertForQuestionAnswering,
        task_of=lambda model: model.trained_task or StoredTask(SQUAD_TASKS[1]),
    ),
    StoredHead(
        models.AlbertForMultipleChoice,
        (MULTIPLE_CHOICE,),
        task_of=lambda model: model.trained_task or StoredTask(MULTIPLE_CHOICE),
    ),
    StoredHead(models.AlbertForTokenClassification, (TOKENS,), _label_settings, _task_of_tokens),
    StoredHead(models.AlbertForClassification, settings=_label_settings, task_of=_task_of_texts),
    StoredHead(models.AlbertForPretraining, settings=_pretraining_settings),
    StoredHead(AlbertEncoder),
)

# Names and scopes of the variables of all heads.
HEAD_NAMES = (*(name for head in HEADS for name in head.model_class.head_weights), "output_bias")
_DESCRIPTIONS = {
    "cls/predictions/output_bias": "masked LM",
    "cls/seq_relationship/output_weights": "sentence order",
    SPAN_HEADS[SQUAD_TASKS[1]]: "answer spans (SQuAD 1.1)",
    SPAN_HEADS[SQUAD_TASKS[2]]: "answer spans or none (SQuAD 2.0)",
}


def heads_in(shapes: Shapes) -> list[str]:
    """Returns a description of each head, given the shapes of all weights."""
    found = [head for name, head in _DESCRIPTIONS.items() if name in shapes]
    if CLASSIFIER in shapes:
        outputs = shapes[CLASSIFIER][0]
        found.append("one score per text or option" if outputs == 1 else f"{outputs} classes")
    return found
