"""Which model a notebook starts from."""

from __future__ import annotations

from albert_tf.checkpoints.archives import local_directory
from albert_tf.checkpoints.report import LoadError
from albert_tf.checkpoints.shipped import NAMES

SIZES = ("base", "large", "xlarge", "xxlarge")
_RELEASED = "https://storage.googleapis.com/albert_models/albert_{}_v2.tar.gz"


def choose_model(model: str) -> str:
    """Returns what every flag and function takes for a model.

    Args:
        model: the size of a released model (version 2), or the name, path or URL of any model.

    Returns:
        The URL of the released model of a size, which has been fetched then, or, without a network,
        the name of the model that comes with albert_tf; anything else as it is.
    """
    if model not in SIZES:
        return model
    url = _RELEASED.format(model)
    try:
        local_directory(url, "MODEL")
    except LoadError as error:
        print(f"{error}\nTaken instead: {NAMES[0]}, the small model that comes with albert_tf.")
        return NAMES[0]
    return url
