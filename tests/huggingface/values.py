"""Values of tensors that both sides draw for themselves; needs NumPy alone."""

import zlib

import numpy as np

NO_LABEL = -100  # what transformers has in place of a label that does not count


def values_of(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Random values of a tensor, float32: the same for the same name wherever they are drawn."""
    random = np.random.RandomState(zlib.crc32(name.encode()))
    is_scale = name.endswith(("gamma", "LayerNorm.weight", "layer_norm.weight"))
    return (random.standard_normal(shape) * 0.4 + is_scale).astype(np.float32)


def token_labels(mask: np.ndarray) -> np.ndarray:
    """Labels 0 to 2 of tokens, int64 [B, S]: every fifth and those of padding have none."""
    places = np.arange(mask.size).reshape(mask.shape)
    return np.where((mask == 1) & (places % 5 > 0), places % 3, NO_LABEL)
