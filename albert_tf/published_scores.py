"""Which released model runs started from, and what scores were published of it."""

from __future__ import annotations

import os

from albert_tf.checkpoints import tf1_hub
from albert_tf.config import PRESETS, AlbertConfig
from albert_tf.data.files import file_exists
from albert_tf.data.glue_tasks import GLUE_TASKS
from albert_tf.model_directory import CONFIG_FILE
from albert_tf.recipes import SIZES, VERSIONS, recipe_for, released_name


def published_scores(model: str) -> tuple[str | None, dict[tuple[str, str], float]]:
    """Finds what was published of the model that runs started from.

    Args:
        model: name of a released one, such as "base_v2", or a directory or TF-Hub module, which
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
    if tf1_hub.is_here(model):
        config_file = tf1_hub.read(model, "--model").config_file
    else:
        config_file = os.path.join(model, CONFIG_FILE)
    if config_file is None:
        return None
    if not file_exists(config_file):
        raise ValueError(
            f"--model must be a TF-Hub module, a directory with {CONFIG_FILE}, or one of "
            f"{', '.join(PRESETS)}. Received: {model!r}"
        )
    return released_name(AlbertConfig.from_json_file(config_file))
