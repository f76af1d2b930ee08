"""Tests for choosing checkpoints of a directory."""

import numpy as np
import pytest

from albert_tf.checkpoints.formats.original import write_checkpoint
from albert_tf.training.training_directory import (
    TrainingDirectory,
    choose_checkpoint,
    choose_checkpoints,
)

ELSEWHERE = "elsewhere/model.ckpt-3"
STEPS = ["model.ckpt-9", "model.ckpt-10"]
BEST = "model.ckpt-best"


def run_of(tmp_path, names):
    """Returns a directory with these checkpoints, next to the directory of another run."""
    for name in [*(f"run/{name}" for name in names), ELSEWHERE]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_checkpoint(str(tmp_path / name), {"x": np.ones(2)}, global_step=1)
    return TrainingDirectory(str(tmp_path / "run"))


@pytest.mark.parametrize(
    ("existing", "choice", "init_checkpoint", "expected"),
    [
        ([*STEPS, BEST], "all", None, STEPS),
        ([*STEPS, BEST], "newest", None, STEPS[1:]),
        ([*STEPS, BEST], "best", "elsewhere", [BEST]),
        ([*STEPS, BEST], f"{ELSEWHERE}.index", None, ["model.ckpt-3"]),
        ([BEST], "all", None, [BEST]),
        *(([], choice, "elsewhere", ["model.ckpt-3"]) for choice in ("all", "newest", "best")),
        *(([], choice, None, None) for choice in ("all", "newest", "best")),
        # One checkpoint:
        ([*STEPS, BEST], None, "elsewhere", BEST),
        ([*STEPS, BEST], "all", "elsewhere", BEST),
        ([*STEPS, BEST], "newest", "elsewhere", "model.ckpt-10"),
        (STEPS, None, "elsewhere", "model.ckpt-10"),
        ([], None, "elsewhere", "model.ckpt-3"),
    ],
)
def test_checkpoints(tmp_path, monkeypatch, existing, choice, init_checkpoint, expected):
    monkeypatch.chdir(tmp_path)
    directory = run_of(tmp_path, existing)
    if expected is None:
        with pytest.raises(ValueError, match=f"has no checkpoint for `checkpoint`={choice}"):
            choose_checkpoints(directory, choice, name="checkpoint")
    elif isinstance(expected, str):
        found = choose_checkpoint(directory, choice, init_checkpoint, name="checkpoint")
        assert found.rsplit("/", 1)[-1] == expected
    else:
        found = choose_checkpoints(directory, choice, init_checkpoint, name="checkpoint")
        assert [path.rsplit("/", 1)[-1] for path in found] == expected
