"""Under which title a flag is listed and in what it is counted, for `--help` and the reference.

A function that defines flags says so itself:

    with flag_group(TRAINING):
        flags.DEFINE_integer("log_steps", 100, "Steps between log lines.")
    set_units(log_steps="steps")
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from absl import flags

# In the order in which they are listed.
GROUPS = (
    WHAT_TO_DO,
    DATA,
    MASKING,
    MODEL,
    TRAINING,
    OPTIMIZER,
    EVALUATION,
    PREDICTION,
    EXPORT,
    OUTPUT,
    DEVICES,
    WITHOUT_EFFECT,
    REMOVED,
) = (
    "What to do",
    "Data",
    "Masking",
    "Model",
    "Training",
    "Optimizer",
    "Evaluation",
    "Prediction",
    "Export",
    "Output",
    "Devices",
    "Accepted from older commands, without effect",
    "Removed",
)

_groups: dict[str, str] = {}
_units: dict[str, str] = {}


@contextmanager
def flag_group(title: str) -> Iterator[None]:
    """Lists the flags defined inside under a title.

    Args:
        title: one of `GROUPS`.
    """
    before = set(flags.FLAGS)
    yield
    _groups.update(dict.fromkeys(set(flags.FLAGS) - before, title))


def define_removed_flag(name: str, instead: str) -> None:
    """Has a flag of earlier versions refused.

    Args:
        name: of the flag.
        instead: what takes its place.
    """
    with flag_group(REMOVED):
        flags.DEFINE_string(name, None, f"Removed: {instead}.")
    flags.register_validator(name, lambda value: value is None, f"it was removed: {instead}.")


def set_units(**units: str) -> None:
    """Says in what flags are counted: steps, tokens, seconds.

    Args:
        units: by the names of flags that are defined already.
    """
    for name, unit in units.items():
        flags.FLAGS[name]
        _units[name] = unit


def group_of(name: str) -> str:
    """Returns the title a flag is listed under, "" if it was defined outside of all groups."""
    return _groups.get(name, "")


def unit_of(name: str) -> str:
    """Returns what a flag is counted in, "" for a plain number or a flag that is no number."""
    return _units.get(name, "")
