"""Benchmarks of this package and of other libraries, which all use TensorFlow with oneDNN."""

import albert_tf  # noqa: F401  (before TensorFlow, so that oneDNN is enabled as in commands)
