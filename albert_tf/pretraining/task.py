"""The pretraining task: masked-LM and, on pairs of segments, sentence-order prediction."""

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, partial
from typing import Any

import keras
import tensorflow as tf

from albert_tf.checkpoints.facts import Meeting, settle, stated
from albert_tf.checkpoints.model_directory import read_run_config
from albert_tf.config import AlbertConfig
from albert_tf.data.files import file_size
from albert_tf.modeling.losses import LossSum, accuracy, classification_loss, pretraining_loss
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.ops import PLAIN, Ops
from albert_tf.pretraining.batching import (
    Transform,
    check_workers,
    evaluation_batches,
    file_ends,
    training_batches,
)
from albert_tf.pretraining.instances import (
    NSP,
    SENTENCE_LOSSES,
    SOP,
    plain_feature_specs,
    pretraining_feature_specs,
)
from albert_tf.pretraining.masking import TOKEN_BOUNDARY, OnlineMasking
from albert_tf.pretraining.record_checks import (
    are_masked,
    check_masking,
    check_record_files,
    check_sentence_pairs,
    explain_read_errors,
)
from albert_tf.pretraining.record_facts import digest, for_each_file
from albert_tf.training.objective import (
    EXAMPLE_WEIGHTS,
    WHOLE,
    EvaluatedObjective,
    Features,
    Shard,
    StreamIterator,
)
from albert_tf.training.training_directory import DIGESTS

BEST_METRIC = "masked_lm_accuracy"
SENTENCE_LOSS_KEY = "sentence_loss"  # in run_config.json; checkpoints do not contain it
_LABELS = "next_sentence_labels"
_SENTENCE_NAMES = {SOP: "sentence_order", NSP: "next_sentence"}  # in names of losses and metrics
_EVAL_MASK_SEED = 0  # the same masks in all evaluations of all runs
_PIPELINE = 3  # must be incremented when the meaning of the saved input position changes


@dataclass(eq=False)
class PretrainingTask(EvaluatedObjective):
    """The task of `run_pretraining.py`. For its methods see `training.objective.Objective`.

    `max_seq_length` and `max_predictions_per_seq` are S and P of the records. The loss "nsp" is the
    same computation as "sop" with other names, and "none" trains a model without the sentence-order
    head. `masking` masks plain records during training. If it is `None`, the records must be
    masked. For `use_one_hot_embeddings` see `FactorizedEmbedding`.

    Raises:
        ValueError: the sequences are longer than the model allows.
        RecordError: there is no record, or a checked record is damaged or does not match the other
            arguments.
    """

    WITHOUT_LABELS = (
        "No token of its batch is masked. If words have more tokens than a sequence has "
        "predictions, mask single tokens: `do_whole_word_mask`=False (--nodo_whole_word_mask), in "
        "the training or when the records are created."
    )

    config: AlbertConfig
    _: KW_ONLY
    train_files: Sequence[str] = ()
    eval_files: Sequence[str] = ()
    max_seq_length: int = 512
    max_predictions_per_seq: int = 20
    shuffle_buffer_size: int = 1000
    sentence_loss: str = SOP
    use_one_hot_embeddings: bool = False
    masking: OnlineMasking | None = None

    def __post_init__(self) -> None:
        config, masking = self.config, self.masking
        config.check_sequence_length(self.max_seq_length)
        self._sentence = _SENTENCE_NAMES.get(self.sentence_loss)
        sizes = self.max_seq_length, self.max_predictions_per_seq
        specs = [
            spec
            for spec in pretraining_feature_specs(*sizes, config.vocab_size, config.type_vocab_size)
            if self._sentence or spec.name != _LABELS
        ]
        has_masked_evaluation = bool(self.eval_files) and are_masked(self.eval_files[0])
        self._masks_evaluation = masking is not None and not has_masked_evaluation
        check_masking(self.train_files, masked=masking is None)
        check_masking(self.eval_files, masked=not self._masks_evaluation)
        # Masked records are read without the word starts.
        as_masked = [spec for spec in specs if spec.name != TOKEN_BOUNDARY]
        as_plain = list(plain_feature_specs(specs))
        self.specs = as_plain if masking else as_masked
        self.eval_specs = as_plain if self._masks_evaluation else as_masked
        if self.train_files:
            check_record_files(self.train_files, self.specs)
        if self.eval_files:
            check_record_files(self.eval_files, self.eval_specs)
        all_files = [*self.train_files, *self.eval_files]
        for files in dict.fromkeys((tuple(self.train_files), tuple(self.eval_files))):
            check_sentence_pairs(files, self.sentence_loss)
        self._ends = file_ends(all_files)

    def _transform(self, seed: int) -> Transform | None:
        return partial(self.masking, seed=seed) if self.masking else None

    def train_dataset(self, batch_size: int, seed: int, shard: Shard = WHOLE) -> StreamIterator:
        """See `Objective`."""
        return training_batches(
            self.train_files,
            self.specs,
            batch_size,
            seed=seed,
            shuffle_buffer_size=self.shuffle_buffer_size,
            transform=self._transform(seed),
            shard=shard,
            ends=self._ends,
        )

    def check_workers(self, batch_size: int, workers: int) -> None:
        """Raises ValueError unless the number of streams is a multiple of `workers`."""
        check_workers(self.train_files, batch_size, workers)

    def eval_dataset(self, batch_size: int) -> tf.data.Dataset:
        """See `Objective`."""
        transform = self._transform(_EVAL_MASK_SEED) if self._masks_evaluation else None
        return evaluation_batches(
            self.eval_files, self.eval_specs, batch_size, transform, self._ends
        )

    def explain_read_errors(self) -> AbstractContextManager[None]:
        """See `Objective`."""
        inputs = [(path, self.specs) for path in self.train_files]
        inputs += [(path, self.eval_specs) for path in self.eval_files]
        return explain_read_errors(inputs, self._ends)

    def describe_input(self) -> dict[str, Any]:
        """See `Objective`."""
        description: dict[str, Any] = {
            "pipeline": _PIPELINE,
            "files": [[path, file_size(path)] for path in self.train_files],
            DIGESTS: {path: self._digests[path] for path in self.train_files},
            "shuffle_buffer_size": self.shuffle_buffer_size,
            "features": [[spec.name, spec.length] for spec in self.specs],
        }
        if self.masking:
            description["masking"] = self.masking.describe()
        return description

    @cached_property
    def _digests(self) -> dict[str, str]:
        """Digests of all files by path."""
        return for_each_file(digest, self._ends)

    def describe_evaluation(self) -> dict[str, Any]:
        """Returns the settings that determine the evaluation examples, for JSON."""
        return {
            "files": [[path, file_size(path)] for path in self.eval_files],
            DIGESTS: {path: self._digests[path] for path in self.eval_files},
            "features": [[spec.name, spec.length] for spec in self.eval_specs],
            "masking": self.masking.describe() if self.masking and self._masks_evaluation else None,
        }

    def build_model(self) -> keras.Model:
        """See `Objective`."""
        return AlbertForPretraining(
            self.config,
            self.use_one_hot_embeddings,
            has_sentence_order_head=self._sentence is not None,
        )

    def loss_weights(self, features: Features) -> dict[str, tf.Tensor]:
        """See `Objective`."""
        weights = {"masked_lm_loss": tf.reduce_sum(features["masked_lm_weights"])}
        if self._sentence:
            weights[f"{self._sentence}_loss"] = tf.reduce_sum(features[EXAMPLE_WEIGHTS])
        return weights

    def losses(
        self, outputs: Mapping[str, Any], features: Features, ops: Ops = PLAIN
    ) -> dict[str, LossSum]:
        """See `Objective`."""
        targets = self._targets(outputs, features).items()
        return {f"{name}_loss": classification_loss(*target, ops) for name, target in targets}

    def total_loss(self, losses: Mapping[str, LossSum]) -> Any:
        """See `Objective`."""
        sentence = losses[f"{self._sentence}_loss"] if self._sentence else None
        return pretraining_loss(losses["masked_lm_loss"], sentence)

    def metrics(self, outputs: Mapping[str, Any], features: Features) -> dict[str, LossSum]:
        """See `Objective`."""
        targets = self._targets(outputs, features).items()
        return {f"{name}_accuracy": accuracy(*target) for name, target in targets}

    def _targets(
        self, outputs: Mapping[str, Any], features: Features
    ) -> dict[str, tuple[tf.Tensor, tf.Tensor, tf.Tensor]]:
        """Returns logits, labels and weights, by the prefix of the names of losses and metrics."""
        weights = features["masked_lm_weights"]
        targets = {"masked_lm": (outputs["masked_lm_logits"], features["masked_lm_ids"], weights)}
        if self._sentence:
            labels, weights = features[_LABELS][:, 0], features[EXAMPLE_WEIGHTS]
            targets[self._sentence] = (outputs["sentence_order_logits"], labels, weights)
        return targets


def trained_sentence_loss(directory: str) -> str | None:
    """Returns the sentence loss of the last run in a directory, `None` if it is unknown."""
    known = read_run_config(directory).get(SENTENCE_LOSS_KEY)
    return known if known in SENTENCE_LOSSES else None


def compare_loss(checkpoint: str, sentence_loss: str, meeting: Meeting) -> None:
    """Compares a sentence loss with the run of a checkpoint; see `settle`."""
    known = trained_sentence_loss(os.path.dirname(checkpoint))
    settle(stated(SENTENCE_LOSS_KEY, {checkpoint: known, "this run": sentence_loss}), meeting)
