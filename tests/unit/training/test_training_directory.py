"""Tests for training directories: saving, crashes, damaged files, resuming."""

import itertools
import json
import os
import pathlib
import shutil
from functools import cache, partial

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints.errors import DamagedError, LoadError, SaveError
from albert_tf.checkpoints.formats.original import DATA_SUFFIX, find_checkpoint
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.original_names import original_names
from albert_tf.training.optimization import Lamb
from albert_tf.training.training_directory import TrainingDirectory
from tests.full_disk import file_size_limit, record_writes
from tests.killed_writer import Writer
from tests.small_model import ONE_BLOCK, small_config

INPUT = {"files": [["a.tfrecord", 17]], "seed": 3}


@cache
def variables(name, **changes):
    """Returns a model and its optimizer, always the same for the same arguments."""
    model, optimizer = AlbertForPretraining(small_config(**ONE_BLOCK, **changes)), Lamb(0.1)
    optimizer.build(list(original_names(model).values()))
    return model, optimizer


class State:
    """Model, optimizer and input of a run; every value is the step.

    All states with one name share their variables, which have the values of the newest state.
    """

    def __init__(self, name="run", **changes):
        self.model, self.optimizer = variables(name, **changes)
        self.iterator = iter(tf.data.Dataset.range(1000))
        self.step = 0

    @property
    def positions(self):
        return {"iterator": self.iterator}

    @staticmethod
    def fresh_positions():
        return {"iterator": iter(tf.data.Dataset.range(1000))}

    def advance_to(self, step):
        while self.step < step:
            next(self.iterator)
            self.step += 1
        for variable in original_names(self.model).values():
            variable.assign(tf.fill(variable.shape, float(step)))
            for slot in self.optimizer.slots(variable).values():
                slot.assign(tf.fill(variable.shape, -float(step)))
        return self

    def save(self, directory):
        directory.save(self.step, self.model, self.optimizer, self.positions, INPUT)
        return self


def run_of(directory, *steps):
    """Runs and saves these steps; returns the state."""
    state = State()
    for step in steps:
        state.advance_to(step).save(directory)
    return state


@pytest.fixture(scope="module")
def blank():
    """Returns a state to restore into."""
    return State("blank")


def restored_step(directory, state):
    """Restores the newest checkpoint and checks that all its values belong to one step."""
    prefix = directory.newest()
    step = directory.restore(prefix, state.model, state.optimizer)
    assert state.optimizer.iterations.numpy() == step
    for variable in original_names(state.model).values():
        np.testing.assert_array_equal(variable, np.full(variable.shape, step))
        for slot in state.optimizer.slots(variable).values():
            np.testing.assert_array_equal(slot, np.full(variable.shape, -step))
    iterator = iter(tf.data.Dataset.range(1000))
    assert directory.restore_input(prefix, {"iterator": iterator}, INPUT)
    assert next(iterator).numpy() == step  # elements 0 .. step - 1 were used
    return step


def steps_of(directory):
    return [int(prefix.rsplit("-", 1)[1]) for prefix in directory.checkpoints()]


@pytest.fixture
def directory(tmp_path):
    return TrainingDirectory(str(tmp_path / "run"), keep_checkpoint_max=2)


@pytest.fixture
def two(directory):
    """Returns the state of a run at step 12 that has saved steps 4 and 9."""
    return run_of(directory, 4, 9).advance_to(12)


def all_files(directory):
    """Returns the relative paths of all files and directories, except train_state."""
    root = pathlib.Path(directory.path)
    return {str(path.relative_to(root)) for path in root.rglob("*")} - {"train_state"}


class TestSaving:
    def test_newest_checkpoints_are_kept(self, directory, blank):
        run_of(directory, 4, 9, 10)
        assert steps_of(directory) == [9, 10]
        data = {f"{name}{step}" for name in ("model.ckpt-", "train_state/") for step in (9, 10)}
        files = {f"{name}{suffix}" for name in data for suffix in (".index", DATA_SUFFIX)}
        descriptions = {"train_state/9.json", "train_state/10.json"}
        assert all_files(directory) == files | descriptions | {"checkpoint"}
        # The original takes every index file it finds there for a checkpoint.
        indices = {name for name in os.listdir(directory.path) if name.endswith(".index")}
        assert indices == {"model.ckpt-9.index", "model.ckpt-10.index"}
        assert tf.train.latest_checkpoint(directory.path) == directory.newest()
        assert restored_step(directory, blank) == 10

    def test_all_checkpoints_are_kept(self, tmp_path):
        directory = TrainingDirectory(str(tmp_path), keep_checkpoint_max=0)
        run_of(directory, 1, 2, 3)
        assert steps_of(directory) == [1, 2, 3]

    def test_best_checkpoint_is_replaced_and_kept(self, directory):
        state = State()
        for step in (4, 9):
            state.advance_to(step).save(directory)
            directory.save_best(step, state.model)
        state.advance_to(10).save(directory)
        reader = tf.train.load_checkpoint(directory.best())
        assert reader.get_tensor("global_step") == 9
        assert reader.get_tensor("bert/pooler/dense/bias")[0] == 9.0
        assert not any("adam" in name for name in reader.get_variable_to_shape_map())

    def test_replaced_best_checkpoint_of_a_killed_process_is_found(self, directory):
        state = State()
        directory.save_best(4, state.advance_to(4).model)
        for suffix in (".index", DATA_SUFFIX):
            prefix = f"{directory.path}/model.ckpt-best"
            os.rename(prefix + suffix, f"{directory.path}/.model.ckpt-best.replaced{suffix}")
        assert directory.best() is None  # without best_trial.txt, it is of a deleted run
        (pathlib.Path(directory.path) / "best_trial.txt").write_text("4:4:0.5")
        for found in (directory.best(), find_checkpoint(directory.path)):
            assert tf.train.load_checkpoint(found).get_tensor("global_step") == 4
        directory.save_best(9, state.model)
        assert tf.train.load_checkpoint(directory.best()).get_tensor("global_step") == 9
        assert len(os.listdir(directory.path)) == 3


class _Killed(BaseException):
    """Simulates the end of the process."""


def kill_after(monkeypatch, changes):
    """Raises `_Killed` after this number of changes of the file system."""
    numbers = itertools.count()

    def counted(change, *args):
        if next(numbers) >= changes:
            raise _Killed
        return change(*args)

    for name in ("replace", "remove"):
        monkeypatch.setattr(os, name, partial(counted, getattr(os, name)))


def test_killed_save_leaves_a_complete_checkpoint(tmp_path, blank):
    state = run_of(TrainingDirectory(str(tmp_path / "before")), 4, 9).advance_to(12)
    outcomes = []
    for survives in range(40):
        path = shutil.copytree(tmp_path / "before", tmp_path / str(survives))
        directory = TrainingDirectory(str(path), keep_checkpoint_max=2)
        with pytest.MonkeyPatch.context() as patch:
            kill_after(patch, survives)
            try:
                state.save(directory)
                finished = True
            except _Killed:
                finished = False
        outcomes.append(restored_step(directory, blank))
        state.save(directory)  # the run goes on, and nothing is in its way
        assert restored_step(directory, blank) == 12
        assert steps_of(directory) == [9, 12]
        if finished:
            break
    assert finished
    assert set(outcomes) == {9, 12}
    assert outcomes == sorted(outcomes)


class TestLeftovers:
    def test_temporary_files_of_a_killed_run(self, directory, two, blank):
        before = all_files(directory)
        for kind, name in (
            ("folder", "model.ckpt-12"),
            ("folder", "train_state/11"),
            ("folder", "model.ckpt-best"),
            ("file", "checkpoint"),
        ):
            Writer(kind, f"{directory.path}/{name}").kill()
        left = all_files(directory) - before
        assert len(left) == 7
        assert restored_step(directory, blank) == 9
        two.save(directory)
        assert not left & all_files(directory)
        assert restored_step(directory, blank) == 12

    def test_moved_directory_and_missing_checkpoint_file(self, directory, two, tmp_path, blank):
        moved = TrainingDirectory(str(tmp_path / "moved"))
        os.rename(directory.path, moved.path)
        assert restored_step(moved, blank) == 9
        os.remove(f"{moved.path}/checkpoint")
        assert restored_step(moved, blank) == 9


def cut(path):
    with open(path, "r+b") as file:
        file.truncate(os.path.getsize(path) // 2)


def flip(path):
    with open(path, "r+b") as file:
        file.seek(os.path.getsize(path) // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 4]))


DAMAGES = [
    ("model.ckpt-9" + DATA_SUFFIX, cut),
    ("model.ckpt-9" + DATA_SUFFIX, flip),
    ("model.ckpt-9" + DATA_SUFFIX, os.remove),
    ("model.ckpt-9.index", os.remove),
    ("train_state/9.index", os.remove),
    ("train_state/9.json", cut),
    ("train_state/9.json", lambda path: pathlib.Path(path).write_text(json.dumps(INPUT))),
]


class TestDamage:
    @pytest.fixture(scope="class")
    def saved(self, tmp_path_factory):
        path = tmp_path_factory.mktemp("whole") / "run"
        run_of(TrainingDirectory(str(path), keep_checkpoint_max=3), 2, 4, 9)
        return path

    @pytest.fixture
    def three(self, saved, tmp_path):
        shutil.copytree(saved, tmp_path / "run")
        return TrainingDirectory(str(tmp_path / "run"), keep_checkpoint_max=3)

    @pytest.mark.parametrize(("name", "damage"), DAMAGES)
    def test_previous_checkpoint_is_restored(self, three, blank, caplog, name, damage):
        damage(os.path.join(three.path, name))
        before = sorted(all_files(three))
        directory = TrainingDirectory(three.path, keep_checkpoint_max=3)
        caplog.set_level("WARNING")
        prefix, step = directory.restore_newest(blank.model, blank.optimizer)
        assert prefix.endswith("model.ckpt-4")
        assert step == 4
        assert restored_step(directory, blank) == 4
        (message,) = (m for m in caplog.messages if "is skipped" in m)
        assert "model.ckpt-9" in message
        assert sorted(all_files(three)) == before  # nothing better is there yet

    def test_a_train_state_that_is_damaged_while_it_is_read_is_an_error(self, three, blank):
        assert three.restore_newest(blank.model, blank.optimizer)[1] == 9
        for damage in (flip, cut, os.remove):
            damage(os.path.join(three.path, "train_state", "9" + DATA_SUFFIX))
            with pytest.raises(LoadError, match=r"train_state/9.*remove"):
                three.restore_input(three.newest(), State.fresh_positions(), INPUT)

    def test_damaged_checkpoint_is_removed_after_the_next_save(self, three, blank, caplog):
        cut(three.newest() + ".index")
        directory = TrainingDirectory(three.path, keep_checkpoint_max=2)
        directory.restore_newest(blank.model, blank.optimizer)
        caplog.set_level("INFO", logger="absl")
        state = State().advance_to(6).save(directory)
        # Two are kept, and the damaged one is none of them.
        assert steps_of(TrainingDirectory(three.path)) == [4, 6]
        assert not [name for name in all_files(three) if "9" in name]
        assert any("model.ckpt-9, which was damaged" in message for message in caplog.messages)
        state.advance_to(9).save(directory)
        assert restored_step(TrainingDirectory(three.path), blank) == 9

    def test_all_checkpoints_are_damaged(self, three, blank):
        cut(os.path.join(three.path, "model.ckpt-9.index"))
        flip(os.path.join(three.path, "model.ckpt-4" + DATA_SUFFIX))
        assert three.restore_newest(blank.model, blank.optimizer)[1] == 2
        cut(os.path.join(three.path, "model.ckpt-2.index"))
        names = sorted(all_files(three))
        with pytest.raises(DamagedError, match="`output_dir`"):
            TrainingDirectory(three.path).restore_newest(blank.model, blank.optimizer)
        assert sorted(all_files(three)) == names

    def test_another_model_is_rejected(self, three):
        other = State(vocab_size=33)
        with pytest.raises(
            ValueError, match=r"embeddings is \[31, 8\] in .*, but \[33, 8\] in this"
        ):
            three.restore_newest(other.model, other.optimizer)

    def test_unavailable_storage_is_not_damage(self, three, blank, monkeypatch):
        def fail(prefix):
            raise tf.errors.UnavailableError(None, None, "try again")

        monkeypatch.setattr(tf.train, "load_checkpoint", fail)
        with pytest.raises(LoadError, match="try again") as raised:
            three.restore_newest(blank.model, blank.optimizer)
        assert not isinstance(raised.value, DamagedError)


def streams(*numbers, used=0):
    """Returns iterators that start at 100 * number, after `used` elements."""
    ranges = {n: iter(tf.data.Dataset.range(100 * n, 100 * n + 90)) for n in numbers}
    for stream in ranges.values():
        for _ in range(used):
            next(stream)
    return {f"stream_{number}": stream for number, stream in ranges.items()}


def save_streams(directory, step):
    """Saves the positions of two streams of each of two workers, after `step` elements."""
    state = State().advance_to(step)
    directory.save_positions(step, 1, streams(2, 3, used=step))
    others = [directory.saved_positions(step, 1)]
    positions = streams(0, 1, used=step)
    directory.save(step, state.model, state.optimizer, positions, INPUT, others)


class TestWorkers:
    @pytest.fixture(scope="class")
    def saved_once(self, tmp_path_factory):
        path = tmp_path_factory.mktemp("workers") / "run"
        for step in (4, 7):
            save_streams(TrainingDirectory(str(path)), step)
        return path

    @pytest.fixture
    def saved(self, saved_once, tmp_path):
        return TrainingDirectory(shutil.copytree(saved_once, str(tmp_path / "run")), 2)

    @pytest.mark.parametrize("shares", [[(0, 1, 2, 3)], [(0, 1), (2, 3)], [(3,), (1, 2)]])
    def test_other_numbers_of_workers_can_resume(self, saved, shares):
        for numbers in shares:
            positions = streams(*numbers)
            assert saved.restore_input(saved.newest(), positions, INPUT)
            assert [next(s).numpy() for s in positions.values()] == [100 * n + 7 for n in numbers]

    def test_position_without_checkpoint_is_ignored(self, saved, blank):
        saved.save_positions(9, 1, streams(2, 3))
        assert saved.restore_newest(blank.model, blank.optimizer)[1] == 7
        save_streams(saved, 11)
        names = os.listdir(f"{saved.path}/train_state")
        assert {name.split(".")[0] for name in names} == {"7", "11"}
        assert "11.1.json" in names

    def test_missing_position_of_a_worker_is_rejected(self, saved):
        with pytest.raises(SaveError, match="Step 9 could not be saved"):
            saved.saved_positions(9, 1)

    @pytest.mark.parametrize(("suffix", "damage"), [(DATA_SUFFIX, flip), (".index", os.remove)])
    def test_damaged_position_of_a_worker_is_detected(self, saved, blank, suffix, damage):
        damage(f"{saved.path}/train_state/7.1{suffix}")
        assert saved.restore_newest(blank.model, blank.optimizer)[1] == 4


def test_checkpoints_are_on_disk_before_older_ones_are_removed(directory, two, monkeypatch):
    old = {os.stat(path).st_ino for path in pathlib.Path(directory.path).rglob("*4.*")}
    assert len(old) == 5
    metrics = pathlib.Path(directory.path, "metrics.jsonl")
    metrics.touch()
    events = record_writes(monkeypatch)
    two.save(directory)
    saved = events[: min(events.index(("remove", number)) for number in old)]
    assert {number for name, number in saved if name == "remove"}.isdisjoint(old)
    for index, (name, number) in enumerate(saved):
        assert name != "replace" or ("fsync", number) in saved[:index]
    for folder in (directory.path, f"{directory.path}/train_state"):
        assert ("fsync", os.stat(folder).st_ino) in saved
    committed = saved.index(("replace", os.stat(f"{directory.path}/checkpoint").st_ino))
    assert ("fsync", metrics.stat().st_ino) in saved[:committed]
    renamed = list(pathlib.Path(directory.path).rglob("*12.*"))
    assert len(renamed) == 5
    assert all(("replace", path.stat().st_ino) in saved for path in renamed)


# Bytes that suffice for nothing, for the input position, for all but the checkpoint's data.
@pytest.mark.parametrize("size", [0, 400, 5000])
def test_a_full_disk(directory, two, blank, size):
    assert os.path.getsize(directory.newest() + DATA_SUFFIX) > 5000
    message = f"Step 12 could not be saved.*{directory.path}/model.ckpt-9.*`keep_checkpoint_max`"
    with file_size_limit(size), pytest.raises(SaveError, match=message):
        two.save(directory)
    assert restored_step(TrainingDirectory(directory.path), blank) == 9
    two.save(directory)
    assert restored_step(directory, blank) == 12


def test_position_in_another_input_is_not_restored(directory):
    """Directories of the original have no position."""
    State().advance_to(4).save(directory)
    path = pathlib.Path(directory.path, "train_state", "4.json")
    assert json.loads(path.read_text()).items() >= INPUT.items()
    for change in ({"seed": 4}, {"train_batch_size": 6}, {}):
        if not change:
            path.unlink()
        positions = State.fresh_positions()
        assert not directory.restore_input(directory.newest(), positions, {**INPUT, **change})
        assert next(positions["iterator"]).numpy() == 0
