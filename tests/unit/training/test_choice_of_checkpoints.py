"""Tests for choosing checkpoints of a directory."""

import numpy as np
import pytest

from albert_tf.checkpoints.original import write_checkpoint
from albert_tf.training.training_directory import (
    TrainingDirectory,
    choose_checkpoint,
    choose_checkpoints,
)


@pytest.fixture
def directory(tmp_path):
    for name in ("model.ckpt-9", "model.ckpt-10", "model.ckpt-best"):
        write(tmp_path / "run" / name)
    write(tmp_path / "elsewhere" / "model.ckpt-3")
    return TrainingDirectory(str(tmp_path / "run"))


def write(path):
    path.parent.mkdir(exist_ok=True)
    write_checkpoint(str(path), {"x": np.ones(2)}, global_step=1)


def names(*args):
    return [path.rsplit("/", 2)[-1] for path in choose_checkpoints(*args, name="checkpoint")]


def name(*args):
    return choose_checkpoint(*args, name="checkpoint").rsplit("/", 2)[-1]


class TestSeveral:
    def test_checkpoints_of_the_directory(self, directory, tmp_path):
        other = str(tmp_path / "elsewhere")
        assert names(directory, "all") == ["model.ckpt-9", "model.ckpt-10"]
        assert names(directory, "newest") == ["model.ckpt-10"]
        assert names(directory, "best", other) == ["model.ckpt-best"]
        assert names(directory, f"{other}/model.ckpt-3.index") == ["model.ckpt-3"]

    def test_init_checkpoint_of_an_empty_directory(self, directory, tmp_path):
        other = str(tmp_path / "elsewhere")
        empty = TrainingDirectory(str(tmp_path / "empty"))
        for choice in ("all", "newest", "best"):
            assert names(empty, choice, other) == ["model.ckpt-3"]
            with pytest.raises(ValueError, match=f"has no checkpoint for `checkpoint`={choice}"):
                names(empty, choice)

    def test_only_the_best_exists(self, directory, tmp_path):
        for step in (9, 10):
            (tmp_path / "run" / f"model.ckpt-{step}.index").unlink()
        assert names(directory, "all") == ["model.ckpt-best"]


class TestOne:
    def test_chosen_or_best_checkpoint(self, directory):
        assert name(directory, None) == "model.ckpt-best"
        assert name(directory, "all") == "model.ckpt-best"
        assert name(directory, "newest") == "model.ckpt-10"

    def test_newest_checkpoint_without_a_best(self, directory, tmp_path):
        (tmp_path / "run" / "model.ckpt-best.index").unlink()
        assert name(directory, None, str(tmp_path / "elsewhere")) == "model.ckpt-10"
        empty = TrainingDirectory(str(tmp_path / "empty"))
        assert name(empty, None, str(tmp_path / "elsewhere")) == "model.ckpt-3"
