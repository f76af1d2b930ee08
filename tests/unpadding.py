"""Operations without padding, which record how much padding they removed."""

import numpy as np

from albert_tf.modeling.layouts import Unpadded
from albert_tf.modeling.ops import Ops


class UnpaddingOps(Ops):
    """See `Ops`. Records T, and B * S, of each batch."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **{"unpads": True, **settings})
        self._sizes = []

    def for_batch(self, input_mask, read, heads):
        ops = super().for_batch(input_mask, read, heads)
        if isinstance(ops.layout, Unpadded):
            rows = ops.layout.tokens(input_mask).shape[0]
            self._sizes.append((rows, np.asarray(input_mask).size))
        return ops

    def assert_removed(self, input_mask):
        """Checks that all batches were computed without padding, if the mask has padding."""
        has_padding = not np.all(input_mask)
        assert self._sizes
        assert all((rows < size) == has_padding for rows, size in self._sizes)
