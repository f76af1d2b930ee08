"""Parameters of tests."""

from collections.abc import Iterable
from typing import Any

import pytest


def usual(values: Iterable[Any], *names: Any) -> list[Any]:
    """Returns parameters. All except `names` are marked slow, because they repeat a test."""
    return [
        pytest.param(value, marks=[pytest.mark.slow] * (value not in names)) for value in values
    ]
