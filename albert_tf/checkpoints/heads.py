"""The heads of stored models: how each is known by its weights, and what it was trained for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import logging

from albert_tf.checkpoints.trained_task import (
    MULTIPLE_CHOICE,
    SQUAD_TASKS,
    TOKENS,
    UNNAMED,
    TrainedTask,
)
from albert_tf.config import AlbertConfig
from albert_tf.data.text_examples import Labels, numbered_labels
from albert_tf.modeling.encoder import AlbertEncoder, ConfiguredModel
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForMultipleChoice,
    AlbertForPretraining,
    AlbertForQuestionAnswering,
    AlbertForQuestionAnsweringWithBeamSearch,
    AlbertForTokenClassification,
)
from albert_tf.modeling.original_names import PRETRAINING_HEADS

Shapes = Mapping[str, Sequence[int]]
Settings = Callable[[AlbertConfig, Shapes, TrainedTask | None], dict[str, Any]]

CLASSIFIER = "output_weights"  # of texts, of options and of tokens
MASKED_LM_HEAD, SENTENCE_ORDER_HEAD = PRETRAINING_HEADS
_BEAM_SETTINGS = ("start_n_top", "end_n_top")


@dataclasses.dataclass(frozen=True)
class StoredHead:
    """A head, or what has none, as files have it. Names of weights are the original's.

    Attributes:
        model_class: the model that has it.
        weights: names of its weights, or scopes of them, which end with "/". One such weight tells
            of the head: if others of it are missing, that is an error.
        tasks: names of the tasks it was trained for, where the weights alone do not tell; empty for
            any other task.
        settings: returns what the constructor takes beside the configuration, from that, the shapes
            of all weights and the task.
        task_of: returns what a model in memory is for, which may have a `trained_task`; None where
            its weights say it all.
    """

    model_class: type[ConfiguredModel]
    weights: tuple[str, ...]
    tasks: tuple[str, ...] = ()
    settings: Settings = lambda config, shapes, task: {}
    task_of: Callable[[Any], TrainedTask | None] = lambda model: None

    def is_in(self, shapes: Shapes, task: TrainedTask | None) -> bool:
        """Whether weights of these names, trained for this task, have the head."""
        scopes = tuple(name for name in self.weights if name.endswith("/"))
        has_weights = not self.weights or any(
            name in self.weights or name.startswith(scopes) for name in shapes
        )
        is_for_task = not self.tasks or (task is not None and task.name in self.tasks)
        return has_weights and is_for_task


def head_in(shapes: Shapes, task: TrainedTask | None) -> StoredHead:
    """Returns the head of a stored model.

    Args:
        shapes: of its weights, by the original's names.
        task: what it was trained for, if that is known.
    """
    return next(head for head in HEADS if head.is_in(shapes, task))


def head_of(model_class: type[ConfiguredModel]) -> StoredHead:
    """Returns the head that the models of a class have; of an unknown class, that of none."""
    return next((head for head in HEADS if issubclass(model_class, head.model_class)), HEADS[-1])


def _label_settings(
    config: AlbertConfig, shapes: Shapes, task: TrainedTask | None
) -> dict[str, Any]:
    if CLASSIFIER not in shapes:
        return {}
    number = int(shapes[CLASSIFIER][0])
    if task is None or len(task.labels.names) != number:
        return {"num_labels": number, "labels": None}
    several = {"multi_label": True} if task.labels.multi_label else {}
    return {"num_labels": number, "labels": task.labels.names, **several}


def _beam_settings(
    config: AlbertConfig, shapes: Shapes, task: TrainedTask | None
) -> dict[str, Any]:
    known = task.settings if task else {}
    longest = config.max_position_embeddings
    return {name: min(int(known.get(name, 5)), longest) for name in _BEAM_SETTINGS}


def _pretraining_settings(
    config: AlbertConfig, shapes: Shapes, task: TrainedTask | None
) -> dict[str, Any]:
    if not any(name.startswith(MASKED_LM_HEAD) for name in shapes):
        return {}
    order = any(name.startswith(SENTENCE_ORDER_HEAD) for name in shapes)
    return {"has_sentence_order_head": order}


def _task_of_texts(model: AlbertForClassification) -> TrainedTask | None:
    names = model.labels or ()
    if model.multi_label:  # without a task it would be loaded as one of a single label
        names = names or numbered_labels(model.num_labels)
    elif model.labels is None and model.num_labels > 1:
        logging.warning("save: the model has no names of its labels: no labels.json is written")
        return None
    labels = Labels(names, model.multi_label)
    return _known(model, labels) or TrainedTask(UNNAMED, labels, None)


def _task_of_tokens(model: AlbertForTokenClassification) -> TrainedTask:
    labels = Labels(model.labels or numbered_labels(model.num_labels))
    return _known(model, labels) or TrainedTask(TOKENS, labels, False)


def _known(model: ConfiguredModel, labels: Labels) -> TrainedTask | None:
    """The task that a model was loaded with, unless it had other labels."""
    known: TrainedTask | None = model.trained_task
    return known if known is not None and known.labels == labels else None


def _task_of_beams(model: AlbertForQuestionAnsweringWithBeamSearch) -> TrainedTask:
    known: TrainedTask | None = model.trained_task
    return TrainedTask(
        SQUAD_TASKS[2],
        max_seq_length=known.max_seq_length if known else None,
        settings={
            **(known.settings if known else {}),
            **{name: getattr(model, name) for name in _BEAM_SETTINGS},
        },
    )


# The first that is in a model counts.
HEADS = (
    StoredHead(
        AlbertForQuestionAnsweringWithBeamSearch,
        ("start_logits/", "end_logits/", "answer_class/"),
        settings=_beam_settings,
        task_of=_task_of_beams,
    ),
    StoredHead(
        AlbertForQuestionAnswering,
        ("cls/squad/",),
        task_of=lambda model: model.trained_task or TrainedTask(SQUAD_TASKS[1]),
    ),
    StoredHead(
        AlbertForMultipleChoice,
        (CLASSIFIER,),
        (MULTIPLE_CHOICE,),
        task_of=lambda model: model.trained_task or TrainedTask(MULTIPLE_CHOICE),
    ),
    StoredHead(
        AlbertForTokenClassification,
        (CLASSIFIER,),
        (TOKENS,),
        _label_settings,
        _task_of_tokens,
    ),
    StoredHead(
        AlbertForClassification,
        (CLASSIFIER,),
        settings=_label_settings,
        task_of=_task_of_texts,
    ),
    StoredHead(
        AlbertForPretraining,
        (MASKED_LM_HEAD,),
        settings=_pretraining_settings,
    ),
    StoredHead(AlbertEncoder, ()),
)
