"""Errors of models on disk."""

from albert_tf.data.errors import UserError
from albert_tf.data.files import WriteError


class LoadError(UserError):
    """Raised if a model is missing or unsupported, or if weights do not fit a model."""


class DamagedError(LoadError):
    """Raised if a file is damaged or incomplete."""


class SaveError(WriteError):
    """Raised if a checkpoint cannot be written. Earlier checkpoints are left unchanged."""
