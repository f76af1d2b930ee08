"""What every format of a model comes down to: where its parts lie, and a reader of its weights.

The original release's names are the canonical ones. A format is a module of this package with one
map from its names to those, and says what lies in a directory as a `StoredModel`.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Protocol

import numpy as np

from albert_tf.checkpoints.shipped import is_shipped
from albert_tf.config import AlbertConfig

if TYPE_CHECKING:
    from albert_tf.model_files.trained_task import TrainedTask

HANDLE_FLAG = "--albert_hub_module_handle"


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
        checkpoint: its weights: the file, or the prefix of TensorFlow's files. `load_weights` and
            `open_checkpoint` take it, and tell by it which format it is. Empty where there are
            none.
        config: the model's configuration.
        config_file: the file that was read from.
        tokenizer_file: SentencePiece model or vocabulary.
        do_lower_case: whether the model's text was lower-cased.
        task: what its head was trained for, where the format says so in a file of its own; a
            `labels.json` beside the weights is read whatever the format.
        flag: the flag that named it.
        given: that flag's value.
    """

    path: str
    format: str
    checkpoint: str
    config: AlbertConfig | None = None
    config_file: str | None = None
    tokenizer_file: str | None = None
    do_lower_case: bool | None = None
    task: TrainedTask | None = None
    flag: str = ""
    given: str = ""

    @property
    def is_fixed(self) -> bool:
        """Whether no other configuration or vocabulary may take the place of its own."""
        return self.flag == HANDLE_FLAG or is_shipped(self.given)
