"""Random values of tensors for both libraries; needs only NumPy."""

import zlib

import numpy as np

NO_LABEL = -100  # ignored by the loss of transformers


def values_of(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Returns random values of a tensor, float32, which depend on the name only."""
    random = np.random.RandomState(zlib.crc32(name.encode()))
    is_scale = name.endswith(("gamma", "LayerNorm.weight", "layer_norm.weight"))
    return (random.standard_normal(shape) * 0.4 + is_scale).astype(np.float32)


def token_labels(mask: np.ndarray) -> np.ndarray:
    """Returns labels 0 to 2, int64 [B, S], without labels for padding and every fifth token."""
    places = np.arange(mask.size).reshape(mask.shape)
    return np.where((mask == 1) & (places % 5 > 0), places % 3, NO_LABEL)
