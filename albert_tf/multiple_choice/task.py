"""Multiple choice: which option answers a question about a text."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from albert_tf.config import AlbertConfig
from albert_tf.data.errors import UserError
from albert_tf.finetuning.task import InMemoryTask
from albert_tf.modeling.models import AlbertForMultipleChoice
from albert_tf.multiple_choice.features import ChoiceFeatures


class MultipleChoiceTask(InMemoryTask):
    """The training task of `run_race.py`.

    Args:
        config: configuration of the model.
        train: training data. If `None`, the task cannot be trained.
        dropout_prob: dropout rate of the pooled output.
        **inputs: further arguments of `InMemoryTask`.

    Raises:
        ValueError: see `InMemoryTask`.
    """

    def __init__(
        self,
        config: AlbertConfig,
        train: ChoiceFeatures | None = None,
        *,
        dropout_prob: float = 0.1,
        **inputs: Any,
    ) -> None:
        super().__init__(config, train, **inputs)
        self.dropout_prob = dropout_prob
        if train is not None:
            self.sequences_per_example = train.num_choices

    def _columns(self) -> dict[str, np.ndarray]:
        label_ids = self.train.label_ids
        if label_ids is None or not len(label_ids) or self.train.num_choices < 2:
            raise UserError(
                "Training needs questions with labels, and 2 options to choose from. Received: "
                f"{len(self.train)} questions{'' if label_ids is not None else ' without labels'}, "
                f"at most {self.train.num_choices} options"
            )
        return {"label_ids": label_ids}

    def build_model(self) -> keras.Model:
        """See `Task`."""
        return AlbertForMultipleChoice(self.config, self.dropout_prob, self.use_one_hot_embeddings)
