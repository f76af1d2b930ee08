"""What a job gives back to its caller, and tells it on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from albert_tf.checkpoints.run_records import Record, new_record

OnLog = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class JobResult:
    """What a job has done. After a dry run, and of workers other than the chief, nothing is known.

    Attributes:
        output_dir: the directory of the run.
        step: training step of the checkpoint that was scored, else applied, else trained last;
            None where there is none.
        scores: of the best checkpoint where checkpoints were compared, else of the one that was
            evaluated; by the names of `eval_results.txt`. If nothing was evaluated they are those
            of the predictions whose right answers are known, else {}. A training that is finished
            already is not evaluated again; its scores are those that were recorded then.
        best_checkpoint: prefix of `model.ckpt-best` in `output_dir`; None if there is none.
        history: records with `step`, `phase` ("train", "eval" or "roll_back"), `time` and the
            metrics. After a training those of the whole run, as `metrics.jsonl` has them, earlier
            calls included: the last one shows where early stopping ended it. Otherwise the
            evaluations of this call.
    """

    output_dir: str
    step: int | None = None
    scores: dict[str, float] = field(default_factory=dict)
    best_checkpoint: str | None = None
    history: list[dict[str, Any]] = field(default_factory=list, repr=False)


class EvaluationLog:
    """The log of evaluations without a training: only the caller gets the records.

    Args:
        on_log: called with each record.

    Attributes:
        reported: all of them.
    """

    def __init__(self, on_log: OnLog | None = None) -> None:
        self.reported: list[Record] = []
        self._on_log = on_log

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Takes the scores of the weights after `step` steps."""
        self.reported.append(new_record("eval", step, metrics, time.time()))
        if self._on_log:
            self._on_log(dict(self.reported[-1]))
