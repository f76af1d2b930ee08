"""What a job gives back to its caller, and tells it on the way."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
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
            evaluated; by the names of `eval_results.txt`. Of predictions they are the scores of the
            answers, if nothing else was evaluated and the answers are known. {} if nothing was
            scored.
        best_checkpoint: prefix of `model.ckpt-best` in `output_dir`; None if there is none.
        history: records with `step`, `phase` ("train", "eval" or "roll_back"), `time` and the
            metrics. After a training those of the whole run, as `metrics.jsonl` has them, earlier
            calls included; otherwise the evaluations of this call.
    """

    output_dir: str
    step: int | None = None
    scores: dict[str, float] = field(default_factory=dict)
    best_checkpoint: str | None = None
    history: list[dict[str, Any]] = field(default_factory=list)


class EvaluationLog:
    """The log of evaluations without a training: only the caller gets the records.

    Args:
        on_log: called with each record.

    Attributes:
        records: all of them.
    """

    def __init__(self, on_log: OnLog | None = None) -> None:
        self.records: list[Record] = []
        self._on_log = on_log

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Takes the scores of the weights after `step` steps."""
        self.records.append(new_record("eval", step, metrics, time.time()))
        if self._on_log:
            self._on_log(dict(self.records[-1]))


def scored_result(
    output_dir: str, records: Sequence[Record], metric: str, best_step: int
) -> JobResult:
    """Returns the result of evaluations.

    Args:
        output_dir: see `JobResult`.
        records: see `RunLog.records` and `EvaluationLog.records`; becomes the history.
        metric: the score that is compared, the higher the better.
        best_step: that of the best checkpoint; another one is chosen where it is not among the
            records.
    """
    evaluated = {record["step"]: record for record in records if record["phase"] == "eval"}

    def rank(step: int) -> tuple[bool, float]:
        value = evaluated[step].get(metric, math.nan)
        return step == best_step, -math.inf if math.isnan(value) else value

    step = max(evaluated, key=rank, default=None)
    known = {} if step is None else evaluated[step]
    scores = {name: value for name, value in known.items() if isinstance(value, float)}
    return JobResult(output_dir, step, scores, history=list(records))
