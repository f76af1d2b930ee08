"""Progressive depth: a training that begins with the first few layers of a model and adds more.

Where all layers share their parameters, a checkpoint of a few of them is one of all, and a step of
few layers takes less time.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from absl import logging

from albert_tf.checkpoints.run_records import RUN_CONFIG_FILE, read_run_config
from albert_tf.config import AlbertConfig, OptimizerConfig

FLAG = "--depth_schedule"
_FORM = re.compile(r"[0-9]{1,9}:[0-9]{1,18}(,[0-9]{1,9}:[0-9]{1,18})*")


class _Stage(NamedTuple):
    depth: int
    first_step: int


class DepthSchedule:
    """How many layers each step applies; made by `parse`.

    Attributes:
        stages: depth, in layers, and first step of each stage; both increase. The first stage
            begins at step 0, the last one has all layers.
    """

    def __init__(self, stages: tuple[_Stage, ...]) -> None:
        self.stages = stages

    @classmethod
    def parse(cls, text: str, config: AlbertConfig) -> DepthSchedule:
        """Reads "2:0,4:20000,6:40000": 2 layers from step 0 on, 4 from step 20000 on, then 6.

        "" means all layers in all steps.

        Raises:
            ValueError: it is none, or it does not fit the model.
        """
        if not text:
            return cls((_Stage(config.num_hidden_layers, 0),))
        received = f"Received: {FLAG}={text[:200]}"
        if not _FORM.fullmatch(text):
            raise ValueError(
                f"{FLAG} must be pairs layers:first_step with commas, as 2:0,4:20000,6:40000. "
                f"{received}"
            )
        stages = tuple(_Stage(*map(int, pair.split(":"))) for pair in text.split(","))
        if stages[0].first_step != 0:
            raise ValueError(f"{FLAG} must begin at step 0. {received}")
        depths, firsts = zip(*stages, strict=True)
        increase = all(list(numbers) == sorted({*numbers}) for numbers in (depths, firsts))
        if depths[0] < 1 or not increase:
            raise ValueError(
                f"{FLAG} must have at least 1 layer, and more layers at every later step. "
                f"{received}"
            )
        if stages[-1].depth != config.num_hidden_layers:
            raise ValueError(
                f"{FLAG} must end with all layers of the model, num_hidden_layers="
                f"{config.num_hidden_layers} in --albert_config_file. {received}"
            )
        if len(stages) > 1 and (config.parameter_sharing != "all" or config.num_hidden_groups > 1):
            raise ValueError(
                f"{FLAG} needs a model whose layers share all parameters (parameter_sharing 'all' "
                "and num_hidden_groups 1): in other models, some layers would not be trained. "
                f"Received: parameter_sharing={config.parameter_sharing!r}, "
                f"num_hidden_groups={config.num_hidden_groups}"
            )
        return cls(stages)

    @classmethod
    def recorded(cls, directory: str, config: AlbertConfig) -> DepthSchedule | None:
        """Returns the schedule of the last start of a run, by its `run_config.json`.

        None where there was no run, or one of another model.
        """
        settings = read_run_config(directory).get("trainer")
        if not isinstance(settings, dict):
            return None
        try:
            return cls.parse(str(settings.get("depth_schedule", "")), config)
        except ValueError as error:
            logging.warning(
                "The depth schedule in %s is not used. %s",
                os.path.join(directory, RUN_CONFIG_FILE),
                error,
            )
            return None

    def warn_of_end(self, optimizer_config: OptimizerConfig) -> None:
        """Warns where training ends before all layers are applied: a stage of it, or a mistake."""
        last = optimizer_config.num_train_steps
        if self.stages[-1].first_step >= last:
            logging.warning(
                "%s=%s: training ends at step %d with %d of %d layers. Continue with a larger %s.",
                FLAG,
                self,
                last,
                self.of_checkpoint(last),
                self.stages[-1].depth,
                optimizer_config.STEPS_FLAG,
            )

    @property
    def changes(self) -> bool:
        """Whether there is more than one depth."""
        return len(self.stages) > 1

    def at(self, step: int) -> int:
        """Returns the layers that the update after `step` finished ones applies."""
        return next(s.depth for s in reversed(self.stages) if s.first_step <= step)

    def of_checkpoint(self, step: int) -> int:
        """Returns the layers that the last of `step` finished updates applied; after none, `at`."""
        return self.at(max(step - 1, 0))

    def steps_left(self, step: int, last: int) -> float:
        """Counts the steps from `step` to `last` in steps of the depth that was trained last.

        The time of a step is taken to be proportional to its layers: more than it is, since
        embeddings and heads take as long at any depth.
        """
        ends = [stage.first_step for stage in self.stages[1:]] + [last]
        work = sum(
            stage.depth * max(0, min(end, last) - max(stage.first_step, step))
            for stage, end in zip(self.stages, ends, strict=True)
        )
        return work / self.of_checkpoint(step)

    def check_continues(self, earlier: DepthSchedule, step: int, output_dir: str) -> None:
        """Refuses to go on from `step` steps of an earlier schedule that had other depths there.

        Raises:
            ValueError: names both schedules.
        """
        firsts = sorted(s.first_step for s in (*self.stages, *earlier.stages))
        for first in firsts:
            if first < step and self.at(first) != earlier.at(first):
                raise ValueError(
                    f"--output_dir {output_dir!r} holds {step} steps of a run with "
                    f"{earlier.as_flag()}, which applied {earlier.at(first)} layers at step "
                    f"{first}; {self.as_flag()} says {self.at(first)}. Use a schedule that is the "
                    "same up to there."
                )

    def as_flag(self) -> str:
        """Returns the schedule as somebody gives it."""
        return f"{FLAG}={self}" if self.changes else f"no {FLAG} (all {self.at(0)} layers)"

    def __str__(self) -> str:
        return ",".join(f"{stage.depth}:{stage.first_step}" for stage in self.stages)
