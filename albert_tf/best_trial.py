"""`best_trial.txt`: which checkpoint of a run scored highest.

It reads `last_step:best_step:best_value`, as the original release writes it, and behind another
colon the name of a score that the original would not choose by.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from albert_tf.data.strict_json import shown
from albert_tf.data.utf8 import read_utf8

BEST_FILE = "best_trial.txt"
NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*(?:e[-+]?[0-9]+)?|inf|nan)"  # as Python writes one
STEP = r"-?[0-9]{1,18}"
_CONTENT = re.compile(rf"({STEP}):({STEP}):({NUMBER})(?::(\w+))?\s*")


class BestTrial(NamedTuple):
    """The content of the file.

    Attributes:
        last_step: step of the last checkpoint that was evaluated.
        step: that of the best one; -1 where none has a score.
        value: its score.
        metric: name of the score; None for that of the original.
    """

    last_step: int
    step: int
    value: float
    metric: str | None = None

    @classmethod
    def read(cls, path: str) -> BestTrial:
        """Reads the file.

        Raises:
            ValueError: it is damaged; names the file.
            OSError: it cannot be read.
        """
        content = read_utf8(path)
        match = _CONTENT.fullmatch(content)
        if not match:
            raise ValueError(
                f"{path} should read last_step:best_step:best_value, but reads {shown(content)}. "
                "Remove it to start comparing anew; the best checkpoint stays until another one is "
                "evaluated."
            )
        return cls(int(match[1]), int(match[2]), float(match[3]), match[4])

    def to_text(self) -> str:
        """Returns what the file reads."""
        fields = [self.last_step, self.step, self.value]
        return ":".join(map(str, fields + [self.metric] * (self.metric is not None)))
