"""A whole model in memory, whatever format it came from and whatever format it goes to."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from albert_tf.config import AlbertConfig
from albert_tf.model_files.trained_task import TrainedTask
from albert_tf.tokenization import Tokenizer


@dataclasses.dataclass(frozen=True)
class ModelContents:
    """What a conversion reads from one format and writes in another.

    Attributes:
        config: the model's configuration.
        weights: float32 values by the original's names, heads included; which heads there are,
            their names say. With optimizer slots (`<variable>/adam_m`, `adam_v`) if asked for.
            float16 where they are to be stored so.
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
