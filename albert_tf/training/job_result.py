"""The result of a job, and the log of evaluations."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from albert_tf.checkpoints.run_records import Record, new_record

OnLog = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class JobResult:
    """The result of a job; after a dry run, and on workers except the chief, only `output_dir`.

    Attributes:
        output_dir: the directory of the run.
        step: training step of the checkpoint that was scored, otherwise applied, otherwise trained
            last. `None` if there is none.
        scores: scores of the best checkpoint if checkpoints were compared, otherwise of the
            evaluated checkpoint, otherwise of predictions with known answers; by the names of
            `eval_results.txt`. If the training was already finished, the recorded scores.
        best_checkpoint: prefix of `model.ckpt-best` in `output_dir`; `None` if there is none.
        history: records with `step`, `phase` ("train", "eval" or "roll_back"), `time` and metrics.
            After a training, those of the whole run, as in `metrics.jsonl`, including earlier
            calls; otherwise the evaluations of this call.
    """

    output_dir: str
    step: int | None = None
    scores: dict[str, float] = field(default_factory=dict)
    best_checkpoint: str | None = None
    history: list[dict[str, Any]] = field(default_factory=list, repr=False)


class EvaluationLog:
    """The log of evaluations without training: passes records to `on_log` and keeps them."""

    def __init__(self, on_log: OnLog | None = None) -> None:
        self.reported: list[Record] = []
        self._on_log = on_log

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Reports the scores of the weights after `step` steps."""
        self.reported.append(new_record("eval", step, metrics, time.time()))
        if self._on_log:
            self._on_log(dict(self.reported[-1]))
