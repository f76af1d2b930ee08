"""Whether the numbers of a training are still good, and how often it may go back when not."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping
from typing import Any

from albert_tf.config import TrainerConfig

_WINDOW = 100  # steps whose median a loss is compared with
_FEWEST = 10  # of them that must be known
_MOST_ROLL_BACKS = 3  # to one and the same checkpoint


class TrainingDivergedError(ValueError):
    """Loss, gradients or weights are no finite numbers any more, or the loss jumped.

    Args:
        problem: at which step what was found.
        advice: what may help.

    Attributes:
        problem: as given.
    """

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(f"{problem}. {advice}")
        self.problem = problem


class DivergenceGuard:
    """Looks at the numbers of every step, and counts how often training went back.

    Going back means: weights and moments of the newest checkpoint, and the input from where it
    is. The batches in between are skipped, the one that did the harm among them.

    Args:
        config: `on_divergence` and `max_loss_spike` count.

    Attributes:
        roll_backs: since the beginning of the run.
        skipped_batches: that were trained on and taken back.
    """

    def __init__(self, config: TrainerConfig) -> None:
        self._rolls_back = config.on_divergence == "rollback"
        self._max_spike = config.max_loss_spike
        self._losses: deque[float] = deque(maxlen=_WINDOW)
        self._losses_of_checkpoint: list[float] = []
        self._returns = 0  # to the newest checkpoint
        self.roll_backs = 0
        self.skipped_batches = 0

    def problem(self, step: int, loss: float, norm: float) -> str | None:
        """Says what is wrong with loss and gradient norm of the next step; None for nothing."""
        if not (math.isfinite(loss) and math.isfinite(norm)):
            return f"Step {step}: loss={loss}, gradient_norm={norm}"
        if self._max_spike and (spike := self._spike(loss)):
            return f"Step {step}: {spike}"
        return None

    def _spike(self, loss: float) -> str | None:
        """Says how far a loss is above those before it, if too far; else remembers it."""
        if len(self._losses) >= _FEWEST:
            usual = statistics.median(self._losses)
            if loss > self._max_spike * usual:
                return (
                    f"loss={loss:.6g} is more than --max_loss_spike={self._max_spike:g} times the "
                    f"median of the {len(self._losses)} steps before it, {usual:.6g}"
                )
        self._losses.append(loss)
        return None

    def saved(self) -> None:
        """To be called after a new checkpoint: going back ends there."""
        self._losses_of_checkpoint = list(self._losses)
        self._returns = 0

    def may_roll_back(self) -> bool:
        """Whether training goes back once more instead of ending."""
        return self._rolls_back and self._returns < _MOST_ROLL_BACKS

    def rolled_back(self, batches: int) -> None:
        """To be called after going back by so many batches."""
        self._returns += 1
        self.roll_backs += 1
        self.skipped_batches += batches
        self._losses = deque(self._losses_of_checkpoint, maxlen=_WINDOW)

    def advice(self, has_checkpoint: bool) -> str:
        """What became of going back, and how to turn it on where there is a checkpoint."""
        if not self._rolls_back:
            flag = "--on_divergence=rollback"
            return f"{flag} rolls back to it and skips the batches since." if has_checkpoint else ""
        if self._returns:
            return f"Rolling back to it and skipping batches did not help {self._returns} times."
        return "Without a checkpoint --on_divergence=rollback cannot roll back."

    def state(self) -> dict[str, Any]:
        """Returns what a resumed run must know to decide as this one does, as JSON."""
        state: dict[str, Any] = {
            "roll_backs": self.roll_backs,
            "skipped_batches": self.skipped_batches,
        }
        return {**state, "losses": list(self._losses)} if self._max_spike else state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes what `state` returned in an earlier start; of other programs' states nothing."""
        self.roll_backs = state.get("roll_backs", 0)
        self.skipped_batches = state.get("skipped_batches", 0)
        self._losses.extend(state.get("losses", ()))
        self.saved()
