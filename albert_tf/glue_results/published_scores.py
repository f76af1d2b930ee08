"""Which released model runs started from, and what scores were published of it."""

from __future__ import annotations

import os

from albert_tf.checkpoints.formats import recognise
from albert_tf.config import PRESETS, AlbertConfig
from albert_tf.data.files import file_exists
from albert_tf.data.glue_tasks import GLUE_TASKS
from albert_tf.model_files.directory import CONFIG_FILE
from albert_tf.recipes import SIZES, VERSIONS, recipe_for, released_name


def published_scores(model: str) -> tuple[str | None, dict[tuple[str, str], float]]:
    """Finds what was published of the model that runs started from.

    Args:
        model: name of a released one, such as "base_v2", or a model of any format, which
            counts as the released model that has its configuration.

    Returns:
        The name, and the scores in percent by task and metric; None and no scores for a model of
        one's own.

    Raises:
        ValueError: there is no such model.
    """
    name = model if model in PRESETS else _released_name(model)
    size, _, version = (name or "").partition("_")
    if size not in SIZES or version not in VERSIONS:
        return None, {}
    return name, {
        (task, metric): score
        for task in GLUE_TASKS
        for metric, score in recipe_for(task, size, version).published.items()
    }


def _released_name(model: str) -> str | None:
    if file_exists(os.path.join(model, CONFIG_FILE)):  # a configuration alone will do
        return released_name(AlbertConfig.from_json_file(os.path.join(model, CONFIG_FILE)))
    try:
        config = recognise(model, "--model").config
    except ValueError as error:
        raise ValueError(
            f"--model must be a model of any format, or one of {', '.join(PRESETS)}. Received: "
            f"{model!r}: {error}"
        ) from error
    return released_name(config) if config else None
