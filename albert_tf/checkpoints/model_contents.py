"""A model on disk, whatever its format, and a whole model in memory.

The original release's names are the canonical ones. A format has one map from its names to those,
says what lies in a directory as a `StoredModel`, and reads the weights as a `WeightsReader`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from albert_tf.checkpoints.shipped import is_shipped
from albert_tf.checkpoints.trained_task import TrainedTask
from albert_tf.config import AlbertConfig
from albert_tf.tokenization.base import Tokenizer

HANDLE_FLAG = "--albert_hub_module_handle"


@dataclasses.dataclass(frozen=True)
class ModelContents:
    """What a conversion reads from one format and writes in another.

    Attributes:
        config: the model's configuration.
        weights: float32 values (float16 to be stored so) by the original's names, heads included;
            which heads there are, their names say. With optimizer slots (`<variable>/adam_m`,
            `adam_v`) if asked for.
        tokenizer: None where the source has none; its `files` are the files to copy.
        do_lower_case: whether the model's text was lower-cased.
        global_step: the training step, 0 where it is not known.
        task: what a fine-tuned model was trained for, None where nothing says so.
    """

    config: AlbertConfig
    weights: Mapping[str, np.ndarray]
    tokenizer: Tokenizer | None = None
    do_lower_case: bool = True
    global_step: int = 0
    task: TrainedTask | None = None


class WeightsReader(Protocol):
    """Weights of any format under the original's names; TensorFlow's checkpoint reader is one.

    What has no name in the original keeps its own, so that reports can say it is ignored.
    """

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Returns the shape of every variable, as the original has it, without reading values."""

    def get_tensor(self, name: str) -> np.ndarray:
        """Returns the value of a variable, in the original's layout."""


@dataclasses.dataclass(frozen=True)
class StoredModel:
    """What a directory of some format holds of a model; None for what it does not hold.

    Attributes:
        path: the directory.
        format: its name, as `convert_checkpoint.py --format` has it.
        checkpoint: its weights: the file, or the prefix of TensorFlow's files; `load_weights` and
            `open_checkpoint` tell by it which format it is. Empty where there are none.
        config: the model's configuration.
        config_file: the file that was read from.
        tokenizer_files: SentencePiece model, vocabulary or tokenizer.json. The first one is used;
            the others must contain the same tokens, see `model_source.load_stored_tokenizer`.
        do_lower_case: whether the model's text was lower-cased.
        task: what its head was trained for; read by `formats.trained_task` for the original format.
        flag: the flag that named it.
        given: that flag's value.
    """

    path: str
    format: str
    checkpoint: str
    config: AlbertConfig | None = None
    config_file: str | None = None
    tokenizer_files: Sequence[str] = ()
    do_lower_case: bool | None = None
    task: TrainedTask | None = None
    flag: str = ""
    given: str = ""

    @property
    def tokenizer_file(self) -> str | None:
        """SentencePiece model or vocabulary."""
        return next(iter(self.tokenizer_files), None)

    @property
    def is_fixed(self) -> bool:
        """Whether no other configuration or vocabulary may take the place of its own."""
        return self.flag == HANDLE_FLAG or is_shipped(self.given)
