"""The training task of question answering."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.finetuning.objective import InMemoryTask
from albert_tf.modeling.losses import (
    LossSum,
    accuracy,
    binary_loss,
    classification_loss,
    position_loss,
)
from albert_tf.modeling.models import (
    AlbertForQuestionAnswering,
    AlbertForQuestionAnsweringWithBeamSearch,
)
from albert_tf.modeling.ops import PLAIN, Ops
from albert_tf.squad.features import SquadFeatures
from albert_tf.training.objective import EXAMPLE_WEIGHTS, Features

START, END, ANSWERABILITY = "start_loss", "end_loss", "answerability_loss"


class SquadTask(InMemoryTask):
    """The training task of `run_squad.py`; an example is a window of a context.

    The softmax of SQuAD 1.1 (`version` 1) includes padding, so the loss equals the original's only
    if `padding` is "max". For SQuAD 2.0 (`version` 2), the model considers `end_n_top` ends for
    each of `start_n_top` starts, and applies dropout before the no-answer score. For the other
    arguments and errors see `InMemoryTask`.
    """

    def __init__(
        self,
        config: AlbertConfig,
        version: int,
        train: SquadFeatures | None = None,
        *,
        start_n_top: int = 5,
        end_n_top: int = 5,
        dropout_prob: float = 0.1,
        **inputs: Any,
    ) -> None:
        self.version = version
        self.start_n_top = start_n_top
        self.end_n_top = end_n_top
        self.dropout_prob = dropout_prob
        super().__init__(config, train, **inputs)

    def _columns(self) -> dict[str, np.ndarray]:
        names = ("start_positions", "end_positions")
        columns = {name: getattr(self.train, name) for name in names}
        if self.version == 2:
            columns["is_impossible"] = self.train.is_impossible.astype(np.float32)
        return columns

    def describe_input(self) -> dict[str, Any]:
        """See `Objective`."""
        return {**super().describe_input(), "version": self.version}

    def build_model(self) -> keras.Model:
        """See `Objective`."""
        if self.version == 1:
            return AlbertForQuestionAnswering(self.config, self.use_one_hot_embeddings)
        return AlbertForQuestionAnsweringWithBeamSearch(
            self.config,
            self.start_n_top,
            self.end_n_top,
            self.dropout_prob,
            self.use_one_hot_embeddings,
        )

    def loss_weights(self, features: Features) -> dict[str, tf.Tensor]:
        """See `Objective`."""
        weight = tf.reduce_sum(features[EXAMPLE_WEIGHTS])
        names = (START, END) if self.version == 1 else (START, END, ANSWERABILITY)
        return dict.fromkeys(names, weight)

    def losses(
        self, outputs: Mapping[str, Any], features: Features, ops: Ops = PLAIN
    ) -> dict[str, LossSum]:
        """See `Objective`."""
        starts, ends = features["start_positions"], features["end_positions"]
        weights = features[EXAMPLE_WEIGHTS]
        if self.version == 1:
            return {
                START: classification_loss(outputs["start_logits"], starts, weights, ops),
                END: classification_loss(outputs["end_logits"], ends, weights, ops),
            }
        return {
            START: position_loss(outputs["start_log_probs"], starts, weights),
            END: position_loss(outputs["end_log_probs"], ends, weights),
            ANSWERABILITY: binary_loss(outputs["cls_logits"], features["is_impossible"], weights),
        }

    def total_loss(self, losses: Mapping[str, LossSum]) -> Any:
        """See `Objective`.

        Source: squad_utils.py of the original release, v1_model_fn_builder, v2_model_fn_builder.
        """
        spans = 0.5 * (losses[START].mean() + losses[END].mean())
        return spans if self.version == 1 else spans + 0.5 * losses[ANSWERABILITY].mean()

    def metrics(self, outputs: Mapping[str, Any], features: Features) -> dict[str, LossSum]:
        """See `Objective`; for SQuAD 2.0, ends are predicted given the correct start."""
        weights = features[EXAMPLE_WEIGHTS]
        scores = "logits" if self.version == 1 else "log_probs"
        metrics = {
            f"{side}_accuracy": accuracy(
                outputs[f"{side}_{scores}"], features[f"{side}_positions"], weights
            )
            for side in ("start", "end")
        }
        if self.version == 2:
            unanswerable = outputs["cls_logits"]
            metrics["answerability_accuracy"] = accuracy(
                tf.stack([tf.zeros_like(unanswerable), unanswerable], axis=-1),
                tf.cast(features["is_impossible"], tf.int32),
                weights,
            )
        return metrics
