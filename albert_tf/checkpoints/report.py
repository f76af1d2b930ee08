"""What happened to every variable when weights were loaded, whatever their format."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

ENCODER_PREFIX = "bert/"


class LoadError(ValueError):
    """Weights that do not fit the model they were to fill."""


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """The outcome of matching a checkpoint with a model, in the original release's names.

    Attributes:
        source: where the weights came from.
        mapped: model variable -> name in the checkpoint it is filled from.
        missing: model variables the checkpoint does not have; they keep their initial values.
        ignored: names in the checkpoint that no variable takes.
        mismatched: (model variable, shape in the checkpoint, shape in the model), not filled.
        skipped: model variable -> why it was to keep its initial value.
    """

    source: str
    mapped: Mapping[str, str]
    missing: Sequence[str]
    ignored: Sequence[str]
    mismatched: Sequence[tuple[str, tuple[int, ...], tuple[int, ...]]]
    skipped: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def summary(self) -> str:
        """Returns a line of counts, and a line for each thing a reader should know of."""
        total = len(self.mapped) + len(self._unfilled)
        lines = [f"{self.source}: {len(self.mapped)} of {total} variables restored"]
        lines += [
            f"  from another name: {name} <- {stored}"
            for name, stored in self.mapped.items()
            if name != stored
        ]
        lines += [f"  not in the checkpoint, freshly initialised: {name}" for name in self.missing]
        lines += [
            f"  another shape, freshly initialised: {name} is {list(stored)} in the checkpoint, "
            f"{list(wanted)} in the model"
            for name, stored, wanted in self.mismatched
        ]
        lines += [f"  {why}, freshly initialised: {name}" for name, why in self.skipped.items()]
        if self.ignored:
            lines.append(f"  in the checkpoint only, not used: {', '.join(self.ignored)}")
        return "\n".join(lines)

    @property
    def _unfilled(self) -> list[str]:
        """The model's variables that keep their initial values."""
        return [*self.missing, *(row[0] for row in self.mismatched), *self.skipped]

    def check_encoder(self, allow_partial: bool = False) -> None:
        """Refuses a checkpoint that leaves a variable of the encoder as it was.

        Raises:
            LoadError: an encoder variable is missing or has another shape, and not
                `allow_partial`; or nothing at all was matched.
        """
        if not self.mapped:
            raise LoadError(
                f"{self.source} has no variable of this model: it is not an ALBERT checkpoint in "
                f"the original release's names. It holds: {', '.join(self.ignored[:8])} ..."
            )
        unfilled = [name for name in self._unfilled if name.startswith(ENCODER_PREFIX)]
        if unfilled and not allow_partial:
            raise LoadError(
                f"{self.source} does not fill the encoder: {len(unfilled)} of its variables would "
                "keep random values. Expected a checkpoint of the model that --albert_config_file "
                "describes (--init_from_group0 shares a checkpoint's first group with every group;"
                f" --allow_partial_checkpoint accepts the gap).\n{self.summary()}"
            )

    def check_complete(self) -> None:
        """Refuses a checkpoint that leaves any variable as it was, heads included.

        Raises:
            LoadError: a variable is missing, has another shape or was skipped.
        """
        if self._unfilled:
            raise LoadError(
                f"{self.source} does not hold the whole model that --albert_config_file describes; "
                f"results with random weights would mean nothing.\n{self.summary()}"
            )
