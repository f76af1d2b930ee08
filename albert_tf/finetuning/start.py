"""The weights with which a model was loaded, from which every `fit` starts."""

import dataclasses
from typing import Any

import numpy as np

from albert_tf.checkpoints.formats.choose import open_weights
from albert_tf.checkpoints.stored_model import StoredModel, StoredTokenizer
from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.data.errors import UserError
from albert_tf.finetuning.objective import data_digest
from albert_tf.modeling.original_names import original_names
from albert_tf.tokenization.base import Tokenizer


class Start:
    """The current weights of a model, without a head that is not trained.

    They are kept in memory only if the file from which the model was loaded has other weights.
    """

    def __init__(self, model: Any) -> None:
        self.task: StoredTask | None = None if model.has_new_head else model.trained_task
        part = model.encoder if model.has_new_head else model
        weights = {n: np.asarray(value, np.float32) for n, value in original_names(part).items()}
        self._names, self._digest = list(weights), data_digest(*weights.values())
        self._file, self._copy = model.weights_file, weights
        if self._file and (weights := self._read()):
            self._copy = {}

    def _read(self) -> dict[str, np.ndarray]:
        """Returns the weights in the file, or nothing if they are missing or have changed."""
        try:
            stored = open_weights(self._file)
            weights = {name: np.asarray(stored[name], np.float32) for name in self._names}
        except (OSError, ValueError, KeyError):
            return {}
        return weights if data_digest(*weights.values()) == self._digest else {}

    def stored_model(self, model: Any, tokenizer: Tokenizer, task: StoredTask) -> StoredModel:
        """Returns the model with these weights, which were trained for `task` if it is unknown.

        Raises ValueError if the file has changed.
        """
        weights = self._copy or self._read()
        if not weights:
            raise UserError(
                f"The weights in {self._file!r} have changed or are gone, so that `fit` cannot "
                "start from them again. Load the model again, or pass warm_start=True to continue "
                "from the current weights."
            )
        is_complete = len(weights) == len(original_names(model))
        stored = StoredModel.in_memory(
            model.config,
            weights,
            path="the model",
            config_file="the configuration of the model",
            task=self.task or task if is_complete else None,
            **tokenizer.rules,
        )
        tokenizer_in_memory = StoredTokenizer(tokenizer.files, loaded=tokenizer)
        return dataclasses.replace(stored, stored_tokenizer=tokenizer_in_memory)
