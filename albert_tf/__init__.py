"""ALBERT on TensorFlow 2, equal to the original release."""

from albert_tf.version import __version__

__all__ = ["__version__"]
