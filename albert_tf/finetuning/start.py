"""The weights with which a model was loaded, from which every `fit` starts."""

import dataclasses
from typing import Any

import numpy as np
from absl import logging

from albert_tf.checkpoints.formats.choose import open_weights
from albert_tf.checkpoints.stored_model import StoredModel, StoredTokenizer
from albert_tf.checkpoints.stored_task import StoredTask
from albert_tf.data.errors import UserError
from albert_tf.finetuning.objective import data_digest
from albert_tf.modeling.original_names import original_names
from albert_tf.tokenization.base import Tokenizer


class Start:
    """The weights of a model as they were loaded, or its current weights if `is_warm`.

    Loaded weights do not include a new head. Weights are kept in memory only if they are in no
    file.
    """

    def __init__(self, model: Any, *, is_warm: bool = False) -> None:
        self._is_whole = is_warm or not model.has_new_head
        self.task: StoredTask | None = model.trained_task if self._is_whole else None
        part = model if self._is_whole else model.encoder
        current = {n: np.asarray(value, np.float32) for n, value in original_names(part).items()}
        self._names, self._file = list(current), "" if is_warm else model.weights_file
        stored = self._read()
        self._copy = {} if stored else current
        self._digest = data_digest(*(stored or current).values())
        self._differs = data_digest(*current.values()) != self._digest

    def _read(self) -> dict[str, np.ndarray]:
        """Returns the weights in the file, or nothing if one is missing."""
        try:
            stored = open_weights(self._file) if self._file else {}
            return {name: np.asarray(stored[name], np.float32) for name in self._names}
        except (OSError, ValueError, KeyError):
            return {}

    def stored_model(self, model: Any, tokenizer: Tokenizer, task: StoredTask) -> StoredModel:
        """Returns the model with these weights, which were trained for `task` if it is unknown.

        Raises ValueError if the file has changed.
        """
        weights = self._copy or self._read()
        if not weights or data_digest(*weights.values()) != self._digest:
            raise UserError(
                f"The weights in {self._file!r} have changed or are gone, so that `fit` cannot "
                "start from them again. Load the model again, or pass warm_start=True to continue "
                "from the current weights."
            )
        if self._differs:
            logging.warning(
                "`fit` starts from the weights in %s, which have changed in the model or in the "
                "file since they were loaded. To start from the current weights, pass "
                "warm_start=True",
                self._file,
            )
        stored = StoredModel.in_memory(
            model.config,
            weights,
            path="the model",
            config_file="the configuration of the model",
            task=self.task or task if self._is_whole else None,
            **tokenizer.rules,
        )
        tokenizer_in_memory = StoredTokenizer(tokenizer.files, loaded=tokenizer)
        return dataclasses.replace(stored, stored_tokenizer=tokenizer_in_memory)
